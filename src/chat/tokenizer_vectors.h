// For tests: vocabularies and golden vectors of the reference tokenizers, from the full set at $SLUICE_REFERENCE or
// from the selection in tests/data/tokenizers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/vocabulary.h"

namespace sluice::test {

struct EncodeCase {
  std::string name, text;  // of an invalid text: its raw bytes
  std::vector<int32_t> ids, ids_no_special;
  std::optional<std::string> decoded;  // SentencePiece
  bool lost = false;                   // some bytes of the text have no token
};

struct DecodeCase {
  std::string name;
  std::vector<int32_t> ids;
  std::string bytes, bytes_without_control;
  std::vector<std::string> stream;  // text that may leave after each token; empty if the set has none
  std::string stream_end;
  bool streamed = false;
};

struct TokenizerVectors {
  std::vector<EncodeCase> encode, invalid;
  std::vector<DecodeCase> decode;
};

// The metadata of a vocabulary-only GGUF file.
chat::VocabularyData read_gguf_vocabulary(const std::string& path);

// The part of a vocabulary that the selection `name` needs; its other ids are unused tokens.
chat::VocabularyData selected_vocabulary(const std::string& name);

TokenizerVectors read_vectors(const std::string& path);

struct SweepBlock {
  uint32_t first;  // of 256 code points
  std::string sha256;
};
std::vector<SweepBlock> read_sweep(const std::string& path);

// Hexadecimal SHA-256 (FIPS 180-4).
std::string sha256(const std::string& bytes);

std::string selection_path(const std::string& name);

}  // namespace sluice::test
