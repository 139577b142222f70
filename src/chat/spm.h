// SentencePiece's BPE with byte fallback, GGUF tokenizer model "llama" (Llama 2, Mistral): characters are symbols, the
// pair whose joined text is the token of the highest score is merged until none is left, and a character without a
// token becomes the tokens of its bytes. Spaces are stored as U+2581 and words aren't cut apart before. Method: Kudo
// and Richardson 2018; its decoding conventions as in llama.cpp.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "chat/bpe_merges.h"
#include "chat/subword_model.h"
#include "chat/vocabulary.h"

namespace sluice::chat {

class SentencePieceBpe final : public SubwordModel {
 public:
  // `vocabulary` must outlive this; one score per token. Throws Error(kFormat) if scores are missing or not finite, or
  // if a byte has no token and there is no unknown token either.
  SentencePieceBpe(const Vocabulary& vocabulary, const std::vector<float>& scores, bool space_prefix);

  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string bytes(int32_t id) const override;
  bool adds_space_prefix() const override { return space_prefix_; }

 private:
  MergeTable build_merges(const std::vector<float>& scores) const;
  int32_t symbol_of(std::string_view text) const;
  void append_bytes(char32_t code_point, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  bool space_prefix_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_{};  // of byte tokens, or the unknown token
};

}  // namespace sluice::chat
