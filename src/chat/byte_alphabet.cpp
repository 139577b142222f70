#include "chat/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace sluice::chat {

namespace {

constexpr char32_t kFirstStandIn = 0x100, kEnd = 0x144;  // 68 stand-ins

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);  // AD: soft hyphen
}

struct Alphabet {
  std::array<char32_t, 256> character{};  // of a byte
  std::array<int16_t, kEnd> byte{};       // of a character; -1: none
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  char32_t stand_in = kFirstStandIn;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t character = stands_for_itself(byte) ? byte : stand_in++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char byte : bytes) utf8::append(out, kAlphabet.character[static_cast<uint8_t>(byte)]);
  return out;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const utf8::Decoded d = utf8::decode(text);
    if (d.code_point >= kEnd || kAlphabet.byte[d.code_point] < 0) return std::nullopt;
    out += static_cast<char>(kAlphabet.byte[d.code_point]);
    text.remove_prefix(d.length);
  }
  return out;
}

}  // namespace sluice::chat
