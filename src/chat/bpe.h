// Byte-level byte-pair encoding, GGUF tokenizer model "gpt2": a pre-token's bytes are symbols, and the pair of symbols
// whose merge comes first in the file is merged until none is left (Sennrich et al. 2016; bytes as in GPT-2).
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "chat/bpe_merges.h"
#include "chat/pretokenizer.h"
#include "chat/subword_model.h"
#include "chat/vocabulary.h"

namespace sluice::chat {

class ByteLevelBpe final : public SubwordModel {
 public:
  // `vocabulary` must outlive this. `merges` are "left right" in order of rank. Throws Error(kFormat) naming the index
  // and text of a merge that isn't two tokens, or makes none or a control token, or stands there twice.
  ByteLevelBpe(const Vocabulary& vocabulary, const std::vector<std::string>& merges, PreTokenizer pre_tokenizer);

  // A byte whose token is missing from the vocabulary vanishes, as in both reference implementations (SmolLM2 lacks
  // 21, all but four of which never occur in UTF-8); nothing merges across it.
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string bytes(int32_t id) const override;
  bool adds_space_prefix() const override { return false; }

 private:
  void encode_word(std::string_view word, PairMerger& merger, std::vector<int32_t>& symbols,
                   std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  PreTokenizer pre_tokenizer_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_;  // kNoToken: missing
};

}  // namespace sluice::chat
