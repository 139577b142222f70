// For tests: vocabularies of a few tokens, written down in place.
#pragma once

#include <string>
#include <vector>

#include "chat/byte_alphabet.h"
#include "chat/vocabulary.h"

namespace sluice::test {

// Byte-level BPE with all 256 bytes as ids 0..255, and a token per merge result after them.
// `merges` are pairs of raw byte strings; each result becomes a token when it is new.
struct RawMerge {
  std::string left, right;
};

inline chat::VocabularyData byte_vocabulary(const std::vector<RawMerge>& merges, std::string pre = "qwen2") {
  chat::VocabularyData data;
  data.model = "gpt2";
  data.pre = std::move(pre);
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(chat::to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  }
  for (const RawMerge& merge : merges) {
    const std::string left = chat::to_byte_alphabet(merge.left), right = chat::to_byte_alphabet(merge.right);
    data.merges.push_back(left + " " + right);
    bool known = false;
    for (const std::string& token : data.tokens) known = known || token == left + right;
    if (!known) data.tokens.push_back(left + right);
  }
  data.types.assign(data.tokens.size(), chat::TokenType::kNormal);
  return data;
}

// Appends a token and gives its id.
inline int32_t add_token(chat::VocabularyData& data, const std::string& text, chat::TokenType type) {
  data.tokens.push_back(text);
  data.types.push_back(type);
  if (!data.scores.empty()) data.scores.push_back(0);
  return static_cast<int32_t>(data.tokens.size() - 1);
}

// SentencePiece: <unk>, the 256 byte tokens as ids 1..256, then `pieces` with their scores (U+2581 for a space).
struct ScoredPiece {
  std::string text;
  float score;
};

inline chat::VocabularyData sentence_piece_vocabulary(const std::vector<ScoredPiece>& pieces) {
  chat::VocabularyData data;
  data.model = "llama";
  data.tokens = {"<unk>"};
  data.types = {chat::TokenType::kUnknown};
  data.unknown = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789ABCDEF";
    data.tokens.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    data.types.push_back(chat::TokenType::kByte);
  }
  data.scores.assign(data.tokens.size(), 0);
  for (const ScoredPiece& piece : pieces) {
    data.tokens.push_back(piece.text);
    data.types.push_back(chat::TokenType::kNormal);
    data.scores.push_back(piece.score);
  }
  return data;
}

}  // namespace sluice::test
