// The tools of a request, as far as reading calls of them needs: their names, and what their parameters may be. Not
// here: how calls are written (answer.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/value.h"

namespace sluice {

// Types of JSON values, as a set.
enum JsonTypes : uint8_t {
  kJsonString = 1,
  kJsonInteger = 2,
  kJsonFraction = 4,
  kJsonBoolean = 8,
  kJsonNull = 16,
  kJsonArray = 32,
  kJsonObject = 64,
  kJsonAny = 127,
};

struct Tool {
  std::string name;
  std::map<std::string, JsonTypes, std::less<>> parameters;

  // What a parameter may be; kJsonAny for one that the schema doesn't know.
  JsonTypes types_of(std::string_view parameter) const;
};

class ToolSet {
 public:
  ToolSet() = default;
  // `tools` as in the OpenAI chat API, {"type": "function", "function": {"name", "parameters"}}, or the functions
  // alone; or None. Of a parameter's schema count type, nullable, enum, const, anyOf, oneOf, allOf and $ref within the
  // parameters; whatever says nothing allows all. Throws Error(kUsage) naming tools[i] that is no object with a name.
  explicit ToolSet(const jinja::Value& tools);

  bool empty() const { return tools_.empty(); }
  const Tool* find(std::string_view name) const;

 private:
  std::vector<Tool> tools_;
};

// An argument that was written as bare text, as JSON. Text that is JSON of a type in `types` other than string stays as
// it is, without white space around it; so do True, False and None, as what they mean, where no string may be. All
// other text is a string.
std::string argument_as_json(JsonTypes types, std::string_view text);

}  // namespace sluice
