// What str's methods and the text filters share: cutting, replacing and padding text as Python does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/budget.h"

namespace sluice::jinja {

// Cuts characters that occur in `characters` off the ends.
std::string_view strip_characters(std::string_view text, std::string_view characters, bool left, bool right,
                                  Budget& budget);

// At most `limit` replacements, all when negative; an empty `old` stands between all characters.
std::string replace_text(std::string_view text, std::string_view old, std::string_view with, int64_t limit,
                         Budget& budget);

// Parts between separators; at most `limit` cuts when not negative, counted from the right if asked.
std::vector<std::string_view> split_text(std::string_view text, std::string_view separator, int64_t limit,
                                         bool from_right);
// The same with runs of white space as separators and no empty parts.
std::vector<std::string_view> split_space(std::string_view text, int64_t limit, bool from_right);
// Lines as str.splitlines() sees them: \n, \r\n and the Unicode line breaks.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// Pads to `width` characters; an odd blank too many goes where str.center() puts it.
std::string pad_text(std::string_view text, int64_t width, std::string_view fill, bool left, bool right,
                     Budget& budget);

}  // namespace sluice::jinja
