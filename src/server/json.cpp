#include "server/json.h"

namespace sluice::server {

std::string to_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string to_event(const Json& json) { return "data: " + to_text(json) + "\n\n"; }

}  // namespace sluice::server
