#include "chat/unicode.h"

#include <algorithm>
#include <array>

namespace sluice::chat {

namespace {

constexpr size_t kAsciiSize = 128;

CodePointClass search(char32_t code_point) {
  const auto ranges = code_point_ranges();
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code_point,
                                      [](char32_t value, const CodePointRange& range) { return value < range.first; });
  if (after == ranges.begin()) return CodePointClass::kOther;
  const CodePointRange& range = *(after - 1);
  return code_point <= range.last ? range.kind : CodePointClass::kOther;
}

std::array<CodePointClass, kAsciiSize> make_ascii() {
  std::array<CodePointClass, kAsciiSize> table{};
  for (size_t i = 0; i < kAsciiSize; ++i) table[i] = search(static_cast<char32_t>(i));
  return table;
}

}  // namespace

CodePointClass classify(char32_t code_point) {
  static const auto ascii = make_ascii();  // most text is ASCII: no search for it
  return code_point < kAsciiSize ? ascii[code_point] : search(code_point);
}

}  // namespace sluice::chat
