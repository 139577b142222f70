#include "cli/json.h"

#include <fmt/core.h>

namespace sluice::cli {

void print_json(const Json& json) { fmt::print("{}\n", to_text(json)); }

Json parse_json(const std::string& text) { return Json::parse(text); }

}  // namespace sluice::cli
