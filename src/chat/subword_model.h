// The two ways in which plain text becomes tokens: byte-level BPE (bpe.h) and SentencePiece BPE (spm.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat {

class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  // Appends the tokens of `text`, valid UTF-8 between two special tokens or the ends of the whole text. Shorter than
  // 2^31 bytes. Safe to call from many threads.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // The bytes that a token of type kNormal or kByte stands for; may be a part of a character.
  virtual std::string bytes(int32_t id) const = 0;
  // Whether encode() puts a space before the text, which decoding takes away again.
  virtual bool adds_space_prefix() const = 0;
};

}  // namespace sluice::chat
