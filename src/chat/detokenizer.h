// Tokens to text while they are being generated: only whole characters leave, whatever bytes the tokens end in.
#pragma once

#include <cstdint>
#include <string>

#include "chat/tokenizer.h"

namespace sluice::chat {

// Emits a character as soon as its last byte is there, and one U+FFFD per maximal invalid part as soon as it can't
// become valid (as utf8.h). All output together is valid UTF-8 and doesn't depend on how the bytes were cut in tokens.
// Control and unknown tokens are not shown and don't disturb a character that is half there. A space prefix is kept:
// the output continues a prompt.
class Detokenizer {
 public:
  // `tokenizer` must outlive this.
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The text that may leave after token `id`; often empty. Throws Error(kUsage) if `id` isn't a token.
  std::string push(int32_t id);
  // The end: U+FFFD if a character is half there, else empty. Afterwards ready for another text.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;  // what has not left yet: the beginning of a character, at most 3 bytes
};

}  // namespace sluice::chat
