// JSON as commands print and read it, the server's in addition. To build objects is every command's own; what writes
// and parses them is compiled once, in json.cpp, since it takes seconds of each source that asks for it.
#pragma once

#include <string>

#include "server/json.h"

namespace sluice::cli {

using server::Json;
using server::to_text;

// Prints to_text and the end of the line.
void print_json(const Json& json);

// Throws nlohmann::json::parse_error.
Json parse_json(const std::string& text);

}  // namespace sluice::cli
