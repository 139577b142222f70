// "did you mean": the known word nearest to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sluice::cli {

// The word of `known` that `wrong` most likely meant; empty when none is near. Leading dashes do not count. Near is an
// edit distance (Levenshtein, in bytes) of up to a third of the length or 2, or one being the beginning of the other.
std::string nearest_word(std::string_view wrong, std::span<const std::string> known);

}  // namespace sluice::cli
