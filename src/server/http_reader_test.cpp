// Requests out of bytes, however these are cut.
#include "server/http_reader.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice::server {
namespace {

constexpr size_t kMaxHeader = 512, kMaxBody = 100;

// Gives `text` in pieces of `step` bytes, as a connection does: what isn't used comes again with more behind it.
// Returns the bytes that were left.
std::string feed(RequestReader& reader, std::string_view text, size_t step) {
  std::string waiting;
  while (!text.empty() && !reader.done() && !reader.failed()) {
    const size_t n = std::min(step, text.size());
    waiting += text.substr(0, n);
    text.remove_prefix(n);
    waiting.erase(0, reader.feed(waiting));
  }
  return waiting + std::string(text);
}

int failure(std::string_view text, size_t step) {
  RequestReader reader(kMaxHeader, kMaxBody);
  feed(reader, text, step);
  EXPECT_EQ(reader.failed() == 0, reader.reason().empty());
  return reader.failed();
}

TEST(RequestReader, ReadsARequestCutAnywhereAndNoByteMore) {
  const std::string first =
      "POST /v1/models?a=b HTTP/1.1\r\nHost: x\r\nX-List: 1\r\nx-list: 2\r\nContent-Length: 5\r\n\r\nhello";
  const std::string chunked =
      "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nhel\r\n2\r\nlo\r\n0\r\nT: r\r\n\r\n";
  for (const std::string& text : {first, chunked}) {
    const std::string all = text + "GET / HTTP/1.1\r\n\r\n";
    for (size_t step = 1; step <= all.size(); ++step) {
      RequestReader reader(kMaxHeader, kMaxBody);
      const std::string rest = feed(reader, all, step);
      ASSERT_TRUE(reader.done()) << step << reader.reason();
      EXPECT_EQ(rest, "GET / HTTP/1.1\r\n\r\n") << step;
      EXPECT_TRUE(reader.keep_alive());
      const HttpRequest request = reader.take();
      EXPECT_EQ(request.method, "POST");
      EXPECT_EQ(request.body, "hello");
      EXPECT_EQ(request.header("host"), "x");
      if (text == first) {
        EXPECT_EQ(request.header("x-list"), "1, 2");
      }
    }
  }
}

TEST(RequestReader, TellsMalformedFromTooLarge) {
  const std::string long_value(kMaxHeader, 'x');
  std::string many;
  for (int i = 0; i < 100; ++i) many += fmt::format("X-{}: 1\r\n", i);
  struct Case {
    int status;
    std::string text;
  };
  const Case cases[] = {
      {400, "\x16\x03\x01\x02 what TLS starts with\r\n\r\n"},
      {400, "GET /\r\n\r\n"},
      {400, "GET / HTTP/3.0\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nno colon\r\n\r\n"},
      {400, "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"},
      {400, "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"},
      {400, "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
      {400, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"},
      {413, fmt::format("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", kMaxBody + 1)},
      {413, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + std::string(0x65, 'x')},
      {431, "GET / HTTP/1.1\r\nX: " + long_value},
      {431, "GET / HTTP/1.1\r\nX: " + long_value + "\r\n\r\n"},
      {431, "GET / HTTP/1.1\r\n" + many + "\r\n"},
      {431, "GET /" + long_value},
      {431, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + long_value + long_value},
      {431, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + long_value + long_value},
  };
  for (const Case& c : cases) {
    for (const size_t step : {size_t{1}, size_t{7}, c.text.size()})
      EXPECT_EQ(failure(c.text, step), c.status) << c.text;
  }
}

TEST(RequestReader, TakesWhatIsJustNotTooLarge) {
  EXPECT_EQ(failure("GET / HTTP/1.1\r\nX: " + std::string(kMaxHeader - 24, 'x') + "\r\n\r\n", 1), 0);
  RequestReader reader(kMaxHeader, kMaxBody);
  feed(reader, fmt::format("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", kMaxBody, std::string(kMaxBody, 'x')), 9);
  EXPECT_TRUE(reader.done());
}

TEST(RequestReader, AsksOnceForTheBody) {
  std::string waiting;
  RequestReader reader(kMaxHeader, kMaxBody);
  const std::string head = "POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n";
  for (const char byte : head) {
    EXPECT_FALSE(reader.take_expects_continue());  // the head is not complete
    waiting += byte;
    waiting.erase(0, reader.feed(waiting));
  }
  EXPECT_TRUE(reader.take_expects_continue());
  EXPECT_FALSE(reader.take_expects_continue());
}

TEST(RequestReader, ATargetThatIsNoPathFails) {
  RequestReader reader(kMaxHeader, kMaxBody);
  feed(reader, "GET health HTTP/1.1\r\n\r\n", 1000);
  ASSERT_TRUE(reader.done());
  reader.take();
  EXPECT_EQ(reader.failed(), 400);
}

TEST(RequestReader, OldClientsCloseUnlessTheySayElse) {
  const auto keeps = [](std::string_view text) {
    RequestReader reader(kMaxHeader, kMaxBody);
    feed(reader, text, 1000);
    EXPECT_TRUE(reader.done());
    return reader.keep_alive();
  };
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keeps("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  EXPECT_TRUE(keeps("GET / HTTP/1.1\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\nConnection: close\r\n\r\n"));
}

}  // namespace
}  // namespace sluice::server
