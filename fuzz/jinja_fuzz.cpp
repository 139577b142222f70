// Templates and contexts from outside: the bytes up to the first zero byte are a template, the rest is its context in
// JSON. Whatever they are, parsing and rendering end with text or an Error, and within the limits.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "chat/jinja/jinja.h"

namespace {

using namespace sluice;

jinja::Value context_of(std::string_view text) {
  try {
    jinja::Value value = jinja::from_json(text);
    if (value.is(jinja::Type::kDict)) return value;
  } catch (const Error&) {
  }
  return jinja::from_json(R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null}],
                              "tools": [{"name": "f", "parameters": {"a": [1, 2.5, true]}}], "x": "é"})");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t zero = bytes.find('\0');
  const std::string_view source = bytes.substr(0, zero);
  const jinja::Value context = context_of(zero == std::string_view::npos ? "" : bytes.substr(zero + 1));
  jinja::Environment environment;
  environment.now = [] { return jinja::DateTime{2026, 5, 1, 13, 37, 42}; };
  environment.limits.max_steps = 20'000;
  environment.limits.max_bytes_made = 1 << 20;
  environment.limits.max_output_bytes = 1 << 16;
  try {
    const auto parsed = jinja::Template::parse(source);
    const std::string first = parsed.render(context, environment);
    if (first.size() > environment.limits.max_output_bytes) std::abort();
    if (first != parsed.render(context, environment)) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
