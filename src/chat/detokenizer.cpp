#include "chat/detokenizer.h"

#include <string_view>

#include "base/utf8.h"

namespace sluice::chat {

namespace {

// ED A0..BF begins an encoded surrogate half, which is never valid. Its bytes are replaced when the third is there or
// can't be, in the same number as elsewhere; this only keeps step with the golden vectors, that Python's decoder made.
bool is_half_surrogate(std::string_view rest) {
  return rest.size() == 2 && rest[0] == '\xED' && (rest[1] & 0xE0) == 0xA0;
}

}  // namespace

std::string Detokenizer::push(int32_t id) {
  const std::string piece = tokenizer_.piece(id);
  if (tokenizer_.is_control(id)) return "";
  pending_ += piece;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const utf8::Decoded d = utf8::decode(rest);
    if (d.status == utf8::Status::kIncomplete || is_half_surrogate(rest)) break;
    utf8::append(out, d.code_point);
    rest.remove_prefix(d.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

std::string Detokenizer::finish() {
  std::string out = utf8::sanitize(pending_);
  pending_.clear();
  return out;
}

}  // namespace sluice::chat
