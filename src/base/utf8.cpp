#include "base/utf8.h"

namespace sluice::utf8 {

namespace {

// The range of a sequence's second byte depends on its first: this is what excludes overlong forms, surrogates and
// values above U+10FFFF (Unicode table 3-7).
struct Lead {
  uint8_t length;  // 0: not a lead byte
  uint8_t low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Decoded decode(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {kReplacement, 1, Status::kInvalid};
  if (lead.length == 1) return {first, 1, Status::kValid};
  char32_t code_point = first & (0x7Fu >> lead.length);
  uint8_t low = lead.low, high = lead.high;
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (i >= text.size()) return {kReplacement, i, Status::kIncomplete};
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < low || byte > high) return {kReplacement, i, Status::kInvalid};
    code_point = (code_point << 6) | (byte & 0x3Fu);
    low = 0x80, high = 0xBF;
  }
  return {code_point, lead.length, Status::kValid};
}

void append(std::string& out, char32_t c) {
  if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) c = kReplacement;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string sanitize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded d = decode(text);
    if (d.status == Status::kValid) {
      out.append(text.substr(0, d.length));
    } else {
      append(out, kReplacement);
    }
    text.remove_prefix(d.length);
  }
  return out;
}

bool is_valid(std::string_view text) {
  while (!text.empty()) {
    const Decoded d = decode(text);
    if (d.status != Status::kValid) return false;
    text.remove_prefix(d.length);
  }
  return true;
}

}  // namespace sluice::utf8
