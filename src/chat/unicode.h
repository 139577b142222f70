// The few classes of Unicode 16 code points that pre-tokenizers ask for. Not a Unicode library: no case mapping, no
// normalisation (llama.cpp applies none, and the ids of a prompt must not depend on which program made them).
#pragma once

#include <cstdint>
#include <span>

namespace sluice::chat {

// What the regular expressions of pre-tokenizers call \p{L}, \p{M}, \p{N} and \s. No code point is in two of them.
enum class CodePointClass : uint8_t { kOther, kLetter, kMark, kNumber, kSpace };

struct CodePointRange {
  char32_t first, last;  // inclusive
  CodePointClass kind;
};

// All code points that are not kOther, ascending. Source: tools/make_unicode_tables.py.
std::span<const CodePointRange> code_point_ranges();

// Unassigned and private code points, and values above U+10FFFF, are kOther.
CodePointClass classify(char32_t code_point);

}  // namespace sluice::chat
