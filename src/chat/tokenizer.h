// Text to tokens and back, for the vocabularies of the models that Sluice runs. Says nothing of chats: see the
// template renderer for how messages become text. Output for people goes through detokenizer.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/subword_model.h"
#include "chat/vocabulary.h"

namespace sluice::chat {

class SpecialTokens;

// Immutable: any number of threads may use one at once.
class Tokenizer {
 public:
  // Throws Error(kUnsupported) for a model or pre-tokenizer that isn't known, with those that are; Error(kFormat)
  // naming key, index and value for content that contradicts itself (see Vocabulary, ByteLevelBpe, SentencePieceBpe).
  explicit Tokenizer(VocabularyData data);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // The tokens of `text`, without BOS or EOS (add_bos() says whether the model wants one). With `parse_special` the
  // text of a control token becomes that token: only for text that a template wrote. Without, it stays plain text, so
  // that a user can't forge a turn; user-defined tokens ("<think>") are matched in either case, as the references do.
  // Bytes that aren't UTF-8 are read as U+FFFD, one per maximal invalid part. No normalisation. SentencePiece models
  // with a space prefix put one before each stretch of text between special tokens.
  // Time n log n in the length, whatever the text. Throws Error(kLimit) for texts of 2 GiB or more.
  std::vector<int32_t> encode(std::string_view text, bool parse_special) const;

  // The bytes of one token, possibly a part of a character; a control token's are its text, an unused token has none.
  // Throws Error(kUsage) if `id` isn't a token.
  std::string piece(int32_t id) const;

  // All pieces joined: bytes, not always valid UTF-8. `skip_control` leaves out what a user should not see: control
  // and unknown tokens. A space that encode() put in front is taken away.
  std::string decode(std::span<const int32_t> ids, bool skip_control) const;

  size_t size() const { return vocabulary_->size(); }
  // As stored in the file. Both throw Error(kUsage) if `id` isn't a token.
  const std::string& text(int32_t id) const;
  TokenType type(int32_t id) const;
  // The token with exactly this stored text, if its type isn't kUnused.
  std::optional<int32_t> find(std::string_view text) const { return vocabulary_->find(text); }

  // These four are false for ids that aren't tokens.
  bool is_control(int32_t id) const;
  bool is_unused(int32_t id) const;
  bool is_end_of_generation(int32_t id) const;
  bool contains(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < size(); }
  // Ascending; what generation stops on. See Vocabulary::ends_of_generation().
  const std::vector<int32_t>& ends_of_generation() const { return vocabulary_->ends_of_generation(); }

  std::optional<int32_t> bos() const { return vocabulary_->bos(); }
  std::optional<int32_t> eos() const { return vocabulary_->eos(); }
  std::optional<int32_t> eot() const { return vocabulary_->eot(); }
  std::optional<int32_t> padding() const { return vocabulary_->padding(); }
  // Whether the model expects BOS before, EOS after a text. Where the file doesn't say: BOS for SentencePiece and
  // Llama 3 if it has one, EOS never.
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }

 private:
  void check_id(int32_t id) const;

  std::unique_ptr<const Vocabulary> vocabulary_;
  std::unique_ptr<const SpecialTokens> special_tokens_;
  std::unique_ptr<const SubwordModel> model_;
  bool add_bos_ = false, add_eos_ = false;
};

}  // namespace sluice::chat
