// The HTTP server over real sockets: limits, timeouts, streams, clients that leave, the end of the server.
#include "server/http.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/test_http_client.h"

namespace sluice::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Waits for what must come to pass, however slow the machine.
template <typename Predicate>
bool eventually(Predicate predicate) {
  for (int i = 0; i < 60000; ++i) {
    if (predicate()) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

HttpOptions test_options() {
  HttpOptions options;
  options.port = 0;
  return options;
}

// Answers /echo at once; keeps what is asked at /hold for the test to answer.
class TestServer {
 public:
  explicit TestServer(HttpOptions options = test_options())
      : server_(
            std::make_unique<HttpServer>(std::move(options), [this](auto exchange) { handle(std::move(exchange)); })) {
    server_->start();
  }

  HttpServer& operator*() { return *server_; }
  HttpServer* operator->() { return server_.get(); }
  TestClient client(int receive_buffer = 0) const {
    TestClient client(server_->port(), receive_buffer);
    EXPECT_TRUE(client.connected());
    return client;
  }
  void destroy() { server_.reset(); }

  // The next that was asked at /hold.
  std::shared_ptr<Exchange> held() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, seconds(60), [this] { return !held_.empty(); })) {
      throw std::runtime_error("no request has come");
    }
    auto exchange = std::move(held_.front());
    held_.pop_front();
    return exchange;
  }

 private:
  void handle(std::shared_ptr<Exchange> exchange) {
    const HttpRequest& request = exchange->request();
    if (request.path == "/throw") throw std::runtime_error("thrown \"here\"");
    if (request.path == "/drop") return;
    if (request.path == "/empty") {
      HttpResponse nothing;
      nothing.status = 204;
      return exchange->send(std::move(nothing));
    }
    if (request.path == "/hold") {
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(exchange));
      return changed_.notify_all();
    }
    HttpResponse response;
    response.content_type = "text/plain";
    response.body = request.method + " " + request.path + " " + request.body;
    exchange->send(std::move(response));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Exchange>> held_;
  std::unique_ptr<HttpServer> server_;
};

struct Gone {
  std::shared_ptr<std::atomic<int>> times = std::make_shared<std::atomic<int>>(0);

  explicit Gone(Exchange& exchange) {
    exchange.on_gone([t = times] { ++*t; });
  }
  bool comes() const {
    return eventually([this] { return *times > 0; });
  }
};

constexpr std::string_view kHold = "GET /hold HTTP/1.1\r\n\r\n";

// --- Requests and answers
// ---------------------------------------------------------------------------------------------

TEST(HttpServer, AnswersOneRequestAfterTheOtherOnAConnection) {
  HttpOptions options = test_options();
  options.headers = {{"Server", "sluice"}};
  TestServer server(options);
  TestClient client = server.client();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send(fmt::format("POST /a/{} HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", i)));
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, fmt::format("POST /a/{} hello", i));
    EXPECT_TRUE(answer.says("Server: sluice"));
    EXPECT_TRUE(answer.says("Content-Type: text/plain"));
    EXPECT_TRUE(answer.says("Connection: keep-alive"));
  }
  EXPECT_EQ(server->open_connections(), 1u);
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  TestServer server;
  TestClient client = server.client();
  ASSERT_TRUE(client.send(std::string(kHold) + "GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nConnection: close\r\n\r\n"));
  const auto first = server.held();
  const Gone gone(*first);
  EXPECT_EQ(server->open_exchanges(), 1u);  // the others wait for their turn
  HttpResponse response;
  response.body = "0";
  first->send(std::move(response));
  EXPECT_EQ(client.read_answer().body, "0");
  EXPECT_EQ(client.read_answer().body, "GET /1 ");
  EXPECT_EQ(client.read_answer().body, "GET /2 ");
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(*gone.times, 0);  // data of a later request is no disconnect, nor is the end after the answer
}

TEST(HttpServer, TakesALotThatIsSentAhead) {
  TestServer server;
  TestClient client = server.client();
  ASSERT_TRUE(client.send(kHold));
  const auto first = server.held();
  const std::string body(1 << 20, 'x');  // more than is read ahead
  std::thread sender([&] { client.send("POST /b HTTP/1.1\r\nContent-Length: 1048576\r\n\r\n" + body); });
  first->send({});
  EXPECT_EQ(client.read_answer().status, 200);
  sender.join();
  EXPECT_EQ(client.read_answer().body, "POST /b " + body);
}

TEST(HttpServer, PassesHeadAndOptionsOn) {
  TestServer server;
  TestClient client = server.client();
  client.send("HEAD /a HTTP/1.1\r\n\r\n");
  const Answer head = client.read_answer(true);
  EXPECT_TRUE(head.says("Content-Length: 8"));
  client.send("OPTIONS /a HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, "OPTIONS /a ");
  client.send("HEAD /hold HTTP/1.1\r\n\r\n");
  const auto stream = server.held();
  stream->begin({});
  stream->write("not sent");
  stream->end();
  EXPECT_EQ(client.read_answer(true).status, 200);
  EXPECT_EQ(client.get("/a").body, "GET /a ");
}

TEST(HttpServer, SaysThatABodyMayCome) {
  TestServer server;
  TestClient client = server.client();
  client.send("POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("hello");
  EXPECT_EQ(client.read_answer().body, "POST /a hello");
}

TEST(HttpServer, AnswersWithoutABodyHaveNone) {
  TestServer server;
  TestClient client = server.client();
  const std::string request = "GET /empty HTTP/1.1\r\n\r\n";
  client.send(request + request + "GET /a HTTP/1.1\r\n\r\n");
  for (int i = 0; i < 2; ++i) {
    const Answer answer = client.read_answer(true);
    EXPECT_EQ(answer.status, 204);
    EXPECT_THAT(answer.head, Not(HasSubstr("Content-")));
  }
  EXPECT_EQ(client.read_answer().body, "GET /a ");
}

TEST(HttpServer, AHandlerThatThrowsOrForgetsIsA500) {
  TestServer server;
  TestClient client = server.client();
  Answer answer = client.get("/throw");
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.body, R"({"error":{"code":500,"message":"thrown \"here\"","type":"server_error"}})");
  answer = client.get("/drop");
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("server_error"));
  EXPECT_EQ(client.get("/a").status, 200);
}

TEST(HttpServer, AClientMayEndItsSideOnceItHasAsked) {
  TestServer server;
  TestClient client = server.client();
  client.send("GET /a HTTP/1.1\r\n\r\n");
  client.end_sending();
  EXPECT_EQ(client.read_answer().body, "GET /a ");
  EXPECT_TRUE(client.ended());
}

// --- Streams
// ----------------------------------------------------------------------------------------------------------

TEST(HttpServer, StreamsInChunks) {
  TestServer server;
  TestClient client = server.client();
  for (int round = 0; round < 2; ++round) {
    client.send(kHold);
    const auto stream = server.held();
    HttpResponse head;
    head.content_type = "text/event-stream";
    stream->begin(std::move(head));
    EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Content-Type: text/event-stream\r\n"));
    stream->write("data: 1\n\n");
    EXPECT_EQ(client.read_until("\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
    stream->write("");  // would be the end, if it were sent
    stream->write("data: 2\n\n");
    stream->end();
    stream->write("too late");
    EXPECT_EQ(client.read_until("0\r\n\r\n"), "9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  }
}

TEST(HttpServer, StreamsToOldClientsUntilTheConnectionEnds) {
  TestServer server;
  TestClient client = server.client();
  client.send("GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto stream = server.held();
  stream->begin({});
  stream->write("one ");
  stream->write("two");
  stream->end();
  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.body, "one two");
  EXPECT_THAT(answer.head, Not(HasSubstr("chunked")));
  EXPECT_TRUE(answer.says("Connection: close"));
}

TEST(HttpServer, KeepsQuietStreamsAlive) {
  TestServer server;
  TestClient client = server.client();
  client.send(kHold);
  const auto stream = server.held();
  stream->begin({}, ":\n\n", milliseconds(5));
  client.read_until("\r\n\r\n");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.read_until("\n\n\r\n"), "3\r\n:\n\n\r\n");
  stream->end();
  client.read_until("0\r\n\r\n");
  EXPECT_EQ(client.get("/a").body, "GET /a ");  // no comment in another answer
}

TEST(HttpServer, ManyThreadsWriteToManyStreams) {
  TestServer server;
  constexpr int kStreams = 4, kThreads = 4, kPieces = 200;
  std::vector<TestClient> clients;
  std::vector<std::shared_ptr<Exchange>> streams;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(server.client());
    clients.back().send(kHold);
    streams.push_back(server.held());
    streams.back()->begin({}, ":", milliseconds(1));
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&streams, t] {
      for (int i = 0; i < kPieces; ++i) {
        for (const auto& stream : streams)
          stream->write(std::string(static_cast<size_t>(i % 50 + 1), static_cast<char>('a' + t)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kStreams; ++i) {
    streams[static_cast<size_t>(i)]->end();
    const Answer answer = clients[static_cast<size_t>(i)].read_answer();
    EXPECT_TRUE(answer.complete);
    for (int t = 0; t < kThreads; ++t) {
      EXPECT_EQ(std::count(answer.body.begin(), answer.body.end(), static_cast<char>('a' + t)), kPieces / 50 * 1275);
    }
  }
  EXPECT_TRUE(eventually([&] { return server->open_exchanges() == 0; }));
}

TEST(HttpServer, AStreamThatIsForgottenDoesNotLookComplete) {
  TestServer server;
  TestClient client = server.client();
  client.send(kHold);
  server.held()->begin({});
  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(answer.complete);
}

// --- Clients that leave
// -----------------------------------------------------------------------------------------------

TEST(HttpServer, TellsWhenAClientLeavesWhileItsAnswerIsPending) {
  TestServer server;
  for (const bool reset : {false, true}) {
    TestClient client = server.client();
    client.send(kHold);
    const auto exchange = server.held();
    const Gone gone(*exchange);
    if (reset) {
      client.reset();
    } else {
      client.disconnect();
    }
    EXPECT_TRUE(gone.comes());
    const Gone late(*exchange);
    EXPECT_EQ(*late.times, 1);  // at once
    exchange->send({});         // to nobody
    EXPECT_TRUE(eventually([&] { return server->open_connections() == 0; }));
    EXPECT_EQ(*gone.times, 1);
    EXPECT_EQ(server->open_exchanges(), 0u);
  }
}

TEST(HttpServer, TellsWhenAClientLeavesAStream) {
  TestServer server;
  TestClient client = server.client();
  client.send(std::string(kHold) + std::string(kHold));
  const auto stream = server.held();
  const Gone gone(*stream);
  stream->begin({});
  stream->write("one");
  client.read_until("one\r\n");
  client.disconnect();
  EXPECT_TRUE(gone.comes());
  stream->write("two");
  stream->end();
}

TEST(HttpServer, DropsAClientThatDoesNotRead) {
  HttpOptions options = test_options();
  options.max_unsent = size_t{1} << 20;
  TestServer server(options);
  TestClient client = server.client(4096);
  client.send(kHold);
  const auto stream = server.held();
  const Gone gone(*stream);
  stream->begin({});
  const std::string piece(size_t{64} << 10, 'x');
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 64; ++i) stream->write(piece);
    return *gone.times > 0;
  }));
  EXPECT_TRUE(eventually([&] { return server->open_exchanges() == 0; }));
}

TEST(HttpServer, DropsAClientThatTakesTooLong) {
  HttpOptions options = test_options();
  options.write_timeout = seconds(1);
  TestServer server(options);
  TestClient client = server.client(4096);
  client.send(kHold);
  const auto stream = server.held();
  const Gone gone(*stream);
  stream->begin({});
  stream->write(std::string(size_t{12} << 20, 'x'));  // more than kernels hold for a client
  EXPECT_TRUE(gone.comes());
}

TEST(HttpServer, WaitsForAnswersThatAreSlowToCome) {
  HttpOptions options = test_options();
  options.write_timeout = options.read_timeout = options.idle_timeout = seconds(1);
  TestServer server(options);
  TestClient client = server.client();
  client.send(kHold);
  const auto stream = server.held();
  stream->begin({});
  stream->write("one");
  client.read_until("one\r\n");
  std::this_thread::sleep_for(milliseconds(2500));  // longer than any limit, none of which is meant
  stream->write("two");
  stream->end();
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "3\r\ntwo\r\n0\r\n\r\n");
}

// --- Limits
// -----------------------------------------------------------------------------------------------------------

void expect_error(const Answer& answer, int status, const std::string& type = "invalid_request_error") {
  EXPECT_EQ(answer.status, status) << answer.head;
  EXPECT_TRUE(answer.says("Content-Type: application/json; charset=utf-8"));
  EXPECT_TRUE(answer.says("Connection: close"));
  EXPECT_THAT(answer.body, StartsWith(fmt::format("{{\"error\":{{\"code\":{},\"message\":\"", status)));
  EXPECT_THAT(answer.body, HasSubstr(fmt::format("\",\"type\":\"{}\"}}}}", type)));
}

TEST(HttpServer, RefusesWhatIsNoRequest) {
  TestServer server;
  for (const char* text : {"\x16\x03\x01 TLS\r\n\r\n", "GET\r\n\r\n", "GET nowhere HTTP/1.1\r\n\r\n",
                           "GET /% HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"}) {
    TestClient client = server.client();
    client.send(text);
    expect_error(client.read_answer(), 400);
    EXPECT_TRUE(client.ended());
  }
}

TEST(HttpServer, RefusesTooMuch) {
  HttpOptions options = test_options();
  options.max_body = 1000;
  options.max_header = 1000;
  TestServer server(options);
  {
    TestClient client = server.client();
    client.send("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n");
    expect_error(client.read_answer(), 413);  // before the body is sent
    EXPECT_TRUE(client.ended());
  }
  {
    // The answer arrives although the client goes on sending.
    TestClient client = server.client();
    client.send("POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + std::string(1000000, 'x'));
    expect_error(client.read_answer(), 413);
  }
  TestClient client = server.client();
  client.send("GET / HTTP/1.1\r\nX: " + std::string(1000, 'x') + "\r\n\r\n");
  expect_error(client.read_answer(), 431);
}

TEST(HttpServer, ClosesIdleConnectionsAndSlowRequests) {
  HttpOptions options = test_options();
  options.idle_timeout = seconds(1);
  options.read_timeout = seconds(1);
  TestServer server(options);
  TestClient idle = server.client();
  EXPECT_TRUE(idle.ended());
  TestClient used = server.client();
  EXPECT_EQ(used.get("/a").status, 200);
  EXPECT_TRUE(used.ended());
  TestClient slow = server.client();
  std::atomic<bool> stop = false;
  slow.send("POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n");
  std::thread sender([&] {  // a byte now and then doesn't help
    while (!stop && slow.send("x")) std::this_thread::sleep_for(milliseconds(20));
  });
  expect_error(slow.read_answer(), 408);
  stop = true;
  sender.join();
}

TEST(HttpServer, TurnsAwayMoreConnectionsThanItMayHave) {
  HttpOptions options = test_options();
  options.max_connections = 2;
  TestServer server(options);
  std::optional<TestClient> first(server.client());
  TestClient second = server.client();
  EXPECT_EQ(first->get("/a").status, 200);
  EXPECT_EQ(second.get("/a").status, 200);
  {
    TestClient third = server.client();
    third.send("GET /a HTTP/1.1\r\n\r\n");
    const Answer answer = third.read_answer();
    expect_error(answer, 503, "unavailable_error");
    EXPECT_TRUE(answer.says("Retry-After: 1"));
  }
  EXPECT_EQ(second.get("/a").status, 200);
  first.reset();
  EXPECT_TRUE(eventually([&] { return server->open_connections() == 1; }));
  EXPECT_EQ(server.client().get("/a").status, 200);
}

TEST(HttpServer, AThousandIdleConnectionsKeepNobodyWaiting) {
  TestServer server;  // allows itself as many open files; two threads
  std::vector<TestClient> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(server.client());
    if (i % 2) idle.back().send("GET /a HT");  // half of them have begun to ask
  }
  EXPECT_TRUE(eventually([&] { return server->open_connections() == 1000; }));
  TestClient client = server.client();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(client.get("/a").body, "GET /a ");
  idle[1].send("TP/1.1\r\n\r\n");
  EXPECT_EQ(idle[1].read_answer().body, "GET /a ");
}

// --- Listening, and the end
// -------------------------------------------------------------------------------------------

std::string message_of_failure(HttpOptions options) {
  try {
    HttpServer(std::move(options), {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    return error.what();
  }
  return "";
}

TEST(HttpServer, SaysWhyItCannotListen) {
  TestServer server;
  HttpOptions options = test_options();
  options.port = server->port();
  EXPECT_EQ(message_of_failure(options),
            fmt::format("127.0.0.1:{}: address already in use; another program listens there: choose another --port",
                        server->port()));
  options.host = "0.0.0.0";
  EXPECT_THAT(message_of_failure(options), HasSubstr("address already in use"));
  options.host = "no such host";
  EXPECT_THAT(message_of_failure(options), HasSubstr("no such address or name"));
  options.host = "192.0.2.1";  // reserved for documentation
  EXPECT_THAT(message_of_failure(options), HasSubstr("192.0.2.1"));
}

TEST(HttpServer, ListensAtNamesAndAtAllAddresses) {
  for (const char* host : {"localhost", "0.0.0.0", "127.0.0.1"}) {
    HttpOptions options = test_options();
    options.host = host;
    TestServer server(options);
    EXPECT_EQ(server.client().get("/a").status, 200) << host;
  }
}

TEST(HttpServer, ListensAgainWhereItJustDid) {
  HttpOptions options = test_options();
  for (int i = 0; i < 3; ++i) {
    TestServer server(options);
    options.port = server->port();
    TestClient client = server.client();
    client.send("GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");  // the server's side keeps the address for a while
    EXPECT_EQ(client.read_answer().status, 200);
  }
}

TEST(HttpServer, StoppingEndsWhatIsOpen) {
  TestServer server;
  TestClient idle = server.client(), pending = server.client(), streaming = server.client();
  pending.send(kHold);
  const auto exchange = server.held();
  streaming.send(kHold);
  const auto stream = server.held();
  stream->begin({}, ":", milliseconds(1));
  const Gone gone_exchange(*exchange), gone_stream(*stream);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    while (!done) stream->write("x");
  });
  server->stop();
  EXPECT_EQ(*gone_exchange.times, 1);
  EXPECT_EQ(*gone_stream.times, 1);
  EXPECT_EQ(server->open_connections(), 0u);
  EXPECT_EQ(server->open_exchanges(), 0u);
  server.destroy();
  stream->write("x");  // an exchange may outlive its server
  exchange->send({});
  done = true;
  writer.join();
  EXPECT_TRUE(idle.ended());
  EXPECT_TRUE(pending.ended());
  EXPECT_FALSE(streaming.read_answer().complete);
}

TEST(HttpServer, DrainingLetsAnswersEnd) {
  TestServer server;
  TestClient idle = server.client(), asking = server.client(), streaming = server.client();
  EXPECT_EQ(idle.get("/a").status, 200);
  streaming.send(kHold);
  const auto stream = server.held();
  stream->begin({});
  asking.send(kHold);
  const auto exchange = server.held();
  const uint16_t port = server->port();
  server->drain();
  EXPECT_TRUE(idle.ended());
  EXPECT_TRUE(eventually([&] { return !TestClient(port).connected(); }));
  EXPECT_EQ(server->open_exchanges(), 2u);
  stream->write("rest");
  stream->end();
  const Answer rest = streaming.read_answer();
  EXPECT_EQ(rest.body, "rest");
  EXPECT_TRUE(rest.complete);
  exchange->send({});
  const Answer answer = asking.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.says("Connection: close"));
  EXPECT_TRUE(asking.ended());
  EXPECT_TRUE(eventually([&] { return server->open_exchanges() == 0; }));
}

TEST(HttpServer, MayBeDestroyedBeforeItHasStarted) {
  const HttpServer server(test_options(), [](auto) {});
  EXPECT_NE(server.port(), 0);
}

}  // namespace
}  // namespace sluice::server
