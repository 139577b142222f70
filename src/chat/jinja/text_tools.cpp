#include "chat/jinja/text_tools.h"

#include <algorithm>

#include "base/utf8.h"
#include "chat/jinja/unicode.h"

namespace sluice::jinja {

std::string_view strip_characters(std::string_view text, std::string_view characters, bool left, bool right,
                                  Budget& budget) {
  budget.search(text.size(), 64 * characters.size());  // each character is compared with all of them
  const auto wanted = unicode::decode(characters);
  const auto matches = [&](char32_t c) { return std::find(wanted.begin(), wanted.end(), c) != wanted.end(); };
  while (left && !text.empty()) {
    const auto decoded = utf8::decode(text);
    if (!matches(decoded.code_point)) break;
    text.remove_prefix(decoded.length);
  }
  while (right && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!matches(utf8::decode(text.substr(start)).code_point)) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

std::string replace_text(std::string_view text, std::string_view old, std::string_view with, int64_t limit,
                         Budget& budget) {
  budget.search(text.size(), old.size());
  uint64_t left = limit < 0 ? UINT64_MAX : static_cast<uint64_t>(limit);
  std::string out;
  const auto put = [&](std::string_view piece) {
    out.append(piece);
    budget.check_output(out.size());
  };
  if (old.empty()) {
    while (left > 0) {
      put(with);
      --left;
      if (text.empty()) return out;
      const size_t bytes = unicode::front_bytes(text);
      put(text.substr(0, bytes));
      text.remove_prefix(bytes);
    }
  }
  while (left > 0 && !old.empty()) {
    const size_t at = text.find(old);
    if (at == std::string_view::npos) break;
    put(text.substr(0, at));
    put(with);
    text.remove_prefix(at + old.size());
    --left;
  }
  put(text);
  return out;
}

std::vector<std::string_view> split_text(std::string_view text, std::string_view separator, int64_t limit,
                                         bool from_right) {
  std::vector<std::string_view> out;
  uint64_t left = limit < 0 ? UINT64_MAX : static_cast<uint64_t>(limit);
  while (left-- > 0) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      out.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      out.push_back(text.substr(0, at));
      text.remove_prefix(at + separator.size());
    }
  }
  out.push_back(text);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

namespace {

// Bytes of the character that ends `text`.
size_t back_bytes(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return text.size() - start;
}

size_t word_bytes(std::string_view text, bool from_right) {
  size_t size = 0;
  while (size < text.size()) {
    const std::string_view rest = from_right ? text.substr(0, text.size() - size) : text.substr(size);
    const size_t bytes = from_right ? back_bytes(rest) : unicode::front_bytes(rest);
    const std::string_view character = from_right ? rest.substr(rest.size() - bytes) : rest.substr(0, bytes);
    if (unicode::is_space(utf8::decode(character).code_point)) break;
    size += bytes;
  }
  return size;
}

}  // namespace

std::vector<std::string_view> split_space(std::string_view text, int64_t limit, bool from_right) {
  std::vector<std::string_view> out;
  uint64_t left = limit < 0 ? UINT64_MAX : static_cast<uint64_t>(limit);
  while (true) {
    text = from_right ? unicode::trim_right(text) : unicode::trim_left(text);
    if (text.empty()) break;
    if (left-- == 0) {
      out.push_back(text);
      break;
    }
    const size_t bytes = word_bytes(text, from_right);
    out.push_back(from_right ? text.substr(text.size() - bytes) : text.substr(0, bytes));
    if (from_right) {
      text.remove_suffix(bytes);
    } else {
      text.remove_prefix(bytes);
    }
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  const auto is_break = [](char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<std::string_view> out;
  size_t start = 0, at = 0;
  while (at < text.size()) {
    const auto decoded = utf8::decode(text.substr(at));
    const size_t end = at;
    at += decoded.length;
    if (!is_break(decoded.code_point)) continue;
    if (decoded.code_point == '\r' && at < text.size() && text[at] == '\n') ++at;
    out.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) out.push_back(text.substr(start));
  return out;
}

std::string pad_text(std::string_view text, int64_t width, std::string_view fill, bool left, bool right,
                     Budget& budget) {
  const auto size = static_cast<int64_t>(unicode::length(text));
  if (width <= size) return std::string(text);
  const auto missing = static_cast<uint64_t>(width - size);
  budget.make_text(fill.size(), missing);
  const uint64_t before = !left ? 0 : !right ? missing : missing / 2 + (missing & static_cast<uint64_t>(width) & 1);
  std::string out;
  for (uint64_t i = 0; i < before; ++i) out += fill;
  out += text;
  for (uint64_t i = before; i < missing; ++i) out += fill;
  return out;
}

}  // namespace sluice::jinja
