// Names the files that people point at in the place of a GGUF file, and what to do about each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::gguf {

constexpr size_t kLookAlikeBytes = 64;  // how much of the beginning of a file explain_not_gguf wants

// What a file that begins with `head` is instead of GGUF, and the remedy: "a zip archive ...; unpack it ...".
std::string explain_not_gguf(std::string_view head);

}  // namespace sluice::gguf
