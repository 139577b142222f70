#include "chat/jinja/unicode.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "base/utf8.h"

namespace sluice::jinja::unicode {
namespace {

struct CharacterRange {
  uint32_t first, last;
};

// Every `stride`-th character from first to last maps to itself plus delta.
struct CaseRun {
  uint32_t first, last;
  uint32_t stride;
  int32_t delta;
};

// A character that maps to two or three; unused ones are 0.
struct CaseSpecial {
  uint32_t from;
  uint32_t to[3];
  constexpr CaseSpecial(uint32_t f, uint32_t a, uint32_t b, uint32_t c) : from(f), to{a, b, c} {}
};

#include "chat/jinja/unicode_tables.inc"

constexpr char32_t kCapitalSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;

bool contains(std::span<const CharacterRange> ranges, char32_t c) {
  const auto it = std::upper_bound(ranges.begin(), ranges.end(), c,
                                   [](char32_t v, const CharacterRange& r) { return v < r.first; });
  return it != ranges.begin() && c <= std::prev(it)->last;
}

struct CaseTable {
  std::span<const CaseRun> runs;
  std::span<const CaseSpecial> special;
};
const CaseTable kUpper{kUpperRuns, kUpperSpecial};
const CaseTable kLower{kLowerRuns, kLowerSpecial};
const CaseTable kTitle{kTitleRuns, kTitleSpecial};
const CaseTable kFold{kFoldRuns, kFoldSpecial};

void append_mapped(std::string& out, const CaseTable& table, char32_t c) {
  const auto special = std::lower_bound(table.special.begin(), table.special.end(), c,
                                        [](const CaseSpecial& entry, char32_t v) { return entry.from < v; });
  if (special != table.special.end() && special->from == c) {
    for (const uint32_t to : special->to) {
      if (to != 0) utf8::append(out, to);
    }
    return;
  }
  // Runs of stride 2 may interleave with others, so look at the few that can hold c, not at one.
  auto it = std::upper_bound(table.runs.begin(), table.runs.end(), c,
                             [](char32_t v, const CaseRun& run) { return v < run.first; });
  for (int tries = 0; it != table.runs.begin() && tries < 3; ++tries) {
    --it;
    if (c <= it->last && (c - it->first) % it->stride == 0) {
      utf8::append(out, static_cast<char32_t>(static_cast<int64_t>(c) + it->delta));
      return;
    }
  }
  utf8::append(out, c);
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

// Whether the capital sigma at `index` ends a word: a cased letter before it, none after it, ignorable marks skipped
// (Unicode, SpecialCasing, Final_Sigma).
bool is_final_sigma(std::span<const char32_t> text, size_t index) {
  size_t before = index;
  while (before > 0 && contains(kCaseIgnorable, text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = index + 1;
  while (after < text.size() && contains(kCaseIgnorable, text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

void append_lower(std::string& out, std::span<const char32_t> text, size_t index) {
  if (text[index] == kCapitalSigma) {
    utf8::append(out, is_final_sigma(text, index) ? kFinalSigma : kSmallSigma);
  } else {
    append_mapped(out, kLower, text[index]);
  }
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::string to_upper(std::string_view text) {
  std::string out(text);
  if (is_ascii(text)) {
    std::transform(out.begin(), out.end(), out.begin(), ascii_upper);
    return out;
  }
  out.clear();
  for (const char32_t c : decode(text)) append_mapped(out, kUpper, c);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  if (is_ascii(text)) {
    std::transform(out.begin(), out.end(), out.begin(), ascii_lower);
    return out;
  }
  out.clear();
  const auto points = decode(text);
  for (size_t i = 0; i < points.size(); ++i) append_lower(out, points, i);
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  const auto points = decode(text);
  bool inside_word = false;
  for (size_t i = 0; i < points.size(); ++i) {
    if (inside_word) {
      append_lower(out, points, i);
    } else {
      append_mapped(out, kTitle, points[i]);
    }
    inside_word = is_cased(points[i]);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  const auto points = decode(text);
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == 0) {
      append_mapped(out, kTitle, points[i]);
    } else {
      append_lower(out, points, i);
    }
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  const auto points = decode(text);
  for (size_t i = 0; i < points.size(); ++i) {
    if (is_upper(points[i])) {
      append_lower(out, points, i);
    } else if (is_lower(points[i])) {
      append_mapped(out, kUpper, points[i]);
    } else {
      utf8::append(out, points[i]);
    }
  }
  return out;
}

std::string fold_case(std::string_view text) {
  std::string out;
  for (const char32_t c : decode(text)) append_mapped(out, kFold, c);
  return out;
}

bool is_alpha(char32_t c) { return contains(kAlpha, c); }
bool is_decimal(char32_t c) { return contains(kDecimal, c); }
bool is_digit(char32_t c) { return contains(kDigit, c); }
bool is_numeric(char32_t c) { return contains(kNumeric, c); }
bool is_space(char32_t c) { return contains(kSpace, c); }
bool is_printable(char32_t c) { return c < 0x7F ? c >= 0x20 : contains(kPrintable, c); }
bool is_upper(char32_t c) { return contains(kUpperCase, c); }
bool is_lower(char32_t c) { return contains(kLowerCase, c); }
bool is_title(char32_t c) { return contains(kTitleCase, c); }

size_t length(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::vector<char32_t> decode(std::string_view text) {
  std::vector<char32_t> out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto decoded = utf8::decode(text);
    out.push_back(decoded.code_point);
    text.remove_prefix(decoded.length);
  }
  return out;
}

std::string encode(const char32_t* begin, const char32_t* end) {
  std::string out;
  for (; begin != end; ++begin) utf8::append(out, *begin);
  return out;
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
    if (index == 0) return at;
    --index;
  }
  return at;
}

size_t front_bytes(std::string_view text) { return utf8::decode(text).length; }

std::string_view trim_left(std::string_view text) {
  while (!text.empty()) {
    const auto decoded = utf8::decode(text);
    if (!is_space(decoded.code_point)) break;
    text.remove_prefix(decoded.length);
  }
  return text;
}

std::string_view trim_right(std::string_view text) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!is_space(utf8::decode(text.substr(start)).code_point)) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

}  // namespace sluice::jinja::unicode
