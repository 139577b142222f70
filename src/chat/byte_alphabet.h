// GPT-2's alphabet: vocabularies of byte-level BPE store each byte as one printable character. Bytes that print in
// Latin-1 stand for themselves; the other 68 are, in order, the characters from U+0100 (space is U+0120).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::chat {

// `bytes`, of any content, as stored in a vocabulary.
std::string to_byte_alphabet(std::string_view bytes);

// The bytes that a stored text stands for; nullopt if a character is not of the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace sluice::chat
