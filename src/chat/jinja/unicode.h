// What Python's str knows about characters: upper, lower and title case and the is...() classes. Tables are made by
// tools/make_unicode_case_tables.py from the Unicode character database.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::jinja::unicode {

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);    // str.title()
std::string capitalize(std::string_view text);  // str.capitalize()
std::string swap_case(std::string_view text);   // str.swapcase()
std::string fold_case(std::string_view text);   // str.casefold()

bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
inline bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }  // decimals and digits are numeric

// Code points. Templates and contexts are valid UTF-8 when they come in, so nothing here can fail.
size_t length(std::string_view text);
std::vector<char32_t> decode(std::string_view text);
std::string encode(const char32_t* begin, const char32_t* end);
// Byte offset of code point `index`, at most text.size().
size_t byte_offset(std::string_view text, size_t index);
// Bytes of the code point at the front of a nonempty text.
size_t front_bytes(std::string_view text);

// Cuts what `strip` says is white space off the ends.
std::string_view trim_left(std::string_view text);
std::string_view trim_right(std::string_view text);
inline std::string_view trim(std::string_view text) { return trim_right(trim_left(text)); }

}  // namespace sluice::jinja::unicode
