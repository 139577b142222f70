// Cuts text into pre-tokens, the pieces inside which byte-pair merging works, as the model's trainer did. The known
// ways are regular expressions in the reference tokenizers; here they are scanners that look at each code point a
// fixed number of times, because backtracking engines overflow their stack or go quadratic on long input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::chat {

class PreTokenizer {
 public:
  // By the value of GGUF key tokenizer.ggml.pre. Throws Error(kUnsupported) with the list of known names.
  explicit PreTokenizer(std::string_view name);

  // Length in bytes, >= 1, of the pre-token at the front of `text`, which must be valid UTF-8 and not empty. What
  // comes before `text` never matters: none of the expressions looks behind.
  size_t next(std::string_view text) const;

  // Whether a pre-token that is a token as a whole is taken before any merge is tried (Llama 3). For every other
  // vocabulary this would be wrong: Qwen has 201 tokens that no merge can produce, and the references never do.
  bool whole_tokens_first() const { return rules_->whole_tokens_first; }

  // Whether a text begins with BOS when the file doesn't say (only Llama 3, as llama.cpp decides).
  bool adds_bos_by_default() const { return rules_->adds_bos; }

  // How one vocabulary family differs from another.
  struct Rules {
    std::string_view name;
    enum Family : uint8_t { kGpt2, kGpt4 } family;
    bool marks_are_letters;   // combining marks stay with the letters before them
    uint8_t digits_together;  // longest run of numbers in one pre-token; 0: no limit
    bool numbers_cut_first;   // numbers are cut out before anything else, so white space before one ends the text
    bool whole_tokens_first, adds_bos;
  };

 private:
  const Rules* rules_;
};

}  // namespace sluice::chat
