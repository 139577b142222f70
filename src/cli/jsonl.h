// The line-by-line JSON mode of commands that work on many inputs: one object in, one object out, in order.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "cli/json.h"

namespace sluice::cli {

// Reads JSON objects from standard input, one a line, and prints what `answer` makes of each. An Error thrown by
// `answer`, or a line that is no object, becomes {"error": message}.
void for_each_json_line(const std::function<Json(const Json&)>& answer);

// Standard base64 (RFC 4648, section 4). decode throws Error(kFormat).
std::string base64_encode(std::string_view bytes);
std::string base64_decode(std::string_view text);

}  // namespace sluice::cli
