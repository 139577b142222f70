// JSON as answers are built. What writes it is compiled once, in json.cpp. Requests are not read with it: body.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sluice::server {

using Json = nlohmann::ordered_json;  // members stand in the order in which they were added

// One line of JSON (RFC 8259) without spaces; bytes that are no UTF-8 become U+FFFD.
std::string to_text(const Json& json);

// One event of a stream: "data: {...}\n\n".
std::string to_event(const Json& json);

}  // namespace sluice::server
