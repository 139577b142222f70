// The tokens of a model: their texts, kinds and meanings, checked once. How text becomes tokens is in tokenizer.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat {

// Values of GGUF key tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,      // stands for what the vocabulary has no token for
  kControl = 3,      // steers the model; users don't see it, and their text must not be able to make it
  kUserDefined = 4,  // matched in any text before it is cut in words, visible ("<think>")
  kUnused = 5,       // a row of the embedding without meaning: never matched, no text
  kByte = 6,         // "<0x0A>": one byte, for characters without a token (SentencePiece)
};

// What GGUF metadata says under tokenizer.ggml., as it was read and not yet checked.
struct VocabularyData {
  std::string model;                // tokenizer.ggml.model: "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)
  std::string pre;                  // tokenizer.ggml.pre: pretokenizer.h has the names; "llama" has no use for it
  std::vector<std::string> tokens;  // id -> text; "gpt2" in the byte alphabet (byte_alphabet.h)
  std::vector<TokenType> types;     // id -> type; empty: all normal
  std::vector<float> scores;        // id -> score, for "llama": higher merges first
  std::vector<std::string> merges;  // "left right" in order of rank, for "gpt2"
  std::optional<uint32_t> bos, eos, eot, padding, unknown;  // tokenizer.ggml.bos_token_id ...
  std::optional<bool> add_bos, add_eos, add_space_prefix;   // absent: what llama.cpp takes, see Tokenizer
};

class Vocabulary {
 public:
  // Moves texts, types and ids out of `data` (merges, scores and names stay). Throws Error(kFormat) naming key, index
  // and value for no tokens or too many, lists of different lengths, a type that isn't one, an id that isn't a token,
  // a byte token that isn't "<0xHH>", and two tokens that are not unused with the same text.
  explicit Vocabulary(VocabularyData& data);

  size_t size() const { return texts_.size(); }
  // As stored. `id` must be a token's, as in type() and everywhere below.
  const std::string& text(int32_t id) const { return texts_[static_cast<size_t>(id)]; }
  TokenType type(int32_t id) const { return types_[static_cast<size_t>(id)]; }
  // The byte that a token of type kByte stands for.
  uint8_t byte_value(int32_t id) const;
  // The token with exactly this stored text, whatever its type but kUnused.
  std::optional<int32_t> find(std::string_view text) const;
  // The same, only if its type is kNormal.
  std::optional<int32_t> find_normal(std::string_view text) const;

  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }
  std::optional<int32_t> eot() const { return eot_; }
  std::optional<int32_t> padding() const { return padding_; }
  std::optional<int32_t> unknown() const { return unknown_; }

  // Tokens after which generation stops, ascending: eos, eot, and those whose text is known to end a turn or a text
  // in some family (vocabulary.cpp lists them), because files often name only one of several that a model emits.
  const std::vector<int32_t>& ends_of_generation() const { return ends_of_generation_; }

 private:
  std::optional<int32_t> checked_id(const char* key, std::optional<uint32_t> id) const;
  void index_texts();
  size_t slot_of(std::string_view text) const;

  std::vector<std::string> texts_;
  std::vector<TokenType> types_;
  std::vector<int32_t> slots_;  // hash table of ids, open addressing, a power of two, at most half full; -1: free
  std::optional<int32_t> bos_, eos_, eot_, padding_, unknown_;
  std::vector<int32_t> ends_of_generation_;
};

}  // namespace sluice::chat
