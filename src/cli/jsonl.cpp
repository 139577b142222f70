#include "cli/jsonl.h"

#include <iostream>

#include "base/error.h"

namespace sluice::cli {

namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

void for_each_json_line(const std::function<Json(const Json&)>& answer) {
  for (std::string line; std::getline(std::cin, line);) {
    Json out;
    try {
      const Json in = parse_json(line);
      if (!in.is_object()) fail(ErrorKind::kFormat, "the line is not a JSON object");
      out = answer(in);
    } catch (const Error& error) {
      out = {{"error", error.what()}};
    } catch (const Json::exception& error) {
      out = {{"error", error.what()}};
    }
    print_json(out);
  }
}

std::string base64_encode(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j) word = word << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    const size_t have = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 4; ++j) out += j <= have ? kAlphabet[word >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

std::string base64_decode(std::string_view text) {
  std::string out;
  uint32_t word = 0;
  size_t bits = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    const size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) fail(ErrorKind::kFormat, "base64 text holds the character '{}'", c);
    word = word << 6 | static_cast<uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += static_cast<char>(word >> bits & 0xFF);
    }
  }
  return out;
}

}  // namespace sluice::cli
