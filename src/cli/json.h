// JSON as commands print and read it. To build objects is every command's own; what writes and parses them is compiled
// once, in json.cpp, since it takes seconds of each source that asks for it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sluice::cli {

using Json = nlohmann::ordered_json;  // members stand in the order in which they were added

// One line of JSON (RFC 8259) without spaces; bytes that are no UTF-8 become U+FFFD.
std::string to_text(const Json& json);

// Prints to_text and the end of the line.
void print_json(const Json& json);

// Throws nlohmann::json::parse_error.
Json parse_json(const std::string& text);

}  // namespace sluice::cli
