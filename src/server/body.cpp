#include "server/body.h"

#include <fmt/core.h>

#include "chat/jinja/jinja.h"
#include "server/api_error.h"

namespace sluice::server {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw ApiError(400, "invalid_request_error", "the request's body: " + why);
}

// Counts brackets and commas outside of strings, before anything is built. What isn't JSON is for the parser to find.
void check_limits(std::string_view text, const BodyLimits& limits) {
  uint32_t depth = 0;
  size_t elements = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    if (c == '"') in_string = true;
    if ((c == '[' || c == '{') && ++depth > limits.depth)
      refuse(fmt::format("byte {}: lists and objects are nested more than {} deep", i, limits.depth));
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if ((c == ',' || c == '[' || c == '{') && ++elements > limits.elements)
      refuse(fmt::format("byte {}: more than {} elements", i, limits.elements));
  }
}

}  // namespace

jinja::Value parse_body(std::string_view text, const BodyLimits& limits) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return jinja::Value::dict({});
  check_limits(text, limits);
  jinja::Value value;
  try {
    value = jinja::from_json(text);
  } catch (const Error& error) {
    refuse(error.what());
  }
  if (!value.is(jinja::Type::kDict)) refuse(fmt::format("a JSON object is needed, not {}", jinja::type_name(value)));
  return value;
}

}  // namespace sluice::server
