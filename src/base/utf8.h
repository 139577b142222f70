// UTF-8, strictly: what can't be valid is one U+FFFD per maximal invalid part, as the Unicode standard recommends
// (chapter 3.9, "U+FFFD Substitution of Maximal Subparts").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::utf8 {

constexpr char32_t kReplacement = 0xFFFD;

enum class Status {
  kValid,       // one code point
  kInvalid,     // a maximal part that can't become valid; code_point is kReplacement
  kIncomplete,  // a proper prefix of a valid sequence, cut off by the end of the text
};

struct Decoded {
  char32_t code_point;
  uint8_t length;  // bytes consumed, >= 1
  Status status;
};

// Decodes the sequence at the front of `text`, which must not be empty.
Decoded decode(std::string_view text);

// Appends the encoding of `code_point`; surrogates and values above U+10FFFF are appended as U+FFFD.
void append(std::string& out, char32_t code_point);

// A valid copy of `text` with every maximal invalid part (an incomplete end too) replaced by U+FFFD.
std::string sanitize(std::string_view text);

bool is_valid(std::string_view text);

}  // namespace sluice::utf8
