// Bytes of any kind end in a request, in a refusal or in waiting for more; and in the same request however they are
// cut.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/http_reader.h"

namespace {

using sluice::server::HttpRequest;
using sluice::server::RequestReader;

constexpr size_t kMaxHeader = 1024, kMaxBody = 4096;

void check(bool holds) {
  if (!holds) std::abort();
}

std::string feed(RequestReader& reader, std::string_view text, size_t step) {
  std::string waiting;
  while (!text.empty() && !reader.done() && !reader.failed()) {
    const std::string_view piece = text.substr(0, step);
    waiting += piece;
    text.remove_prefix(piece.size());
    const size_t used = reader.feed(waiting);
    check(used <= waiting.size());
    waiting.erase(0, used);
    check(waiting.size() <= kMaxHeader + step || reader.done() || reader.failed());
  }
  return waiting + std::string(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t step = data[0] % 64 + 1;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  RequestReader whole(kMaxHeader, kMaxBody), cut(kMaxHeader, kMaxBody);
  const std::string rest = feed(whole, text, text.size());
  const std::string cut_rest = feed(cut, text, step);
  check(whole.done() == cut.done());
  if (!whole.done()) return 0;
  check(rest == cut_rest && whole.keep_alive() == cut.keep_alive() && whole.http_1_0() == cut.http_1_0());
  const HttpRequest a = whole.take(), b = cut.take();
  check(a.method == b.method && a.path == b.path && a.query == b.query && a.headers == b.headers && a.body == b.body);
  check(a.body.size() <= kMaxBody && whole.failed() == cut.failed());
  return 0;
}
