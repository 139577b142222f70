#include "cli/json.h"

#include <fmt/core.h>

namespace sluice::cli {

std::string to_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void print_json(const Json& json) { fmt::print("{}\n", to_text(json)); }

Json parse_json(const std::string& text) { return Json::parse(text); }

}  // namespace sluice::cli
