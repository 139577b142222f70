#include "chat/tool_set.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "chat/jinja/jinja.h"
#include "chat/json_mender.h"

namespace sluice {
namespace {

using jinja::field;
using jinja::Type;
using jinja::Value;

constexpr int kMaxSchemaDepth = 16;  // of anyOf in $ref in anyOf ...

const Value* text_field(const Value& object, std::string_view name) {
  const Value* value = field(object, name);
  return value != nullptr && value->is_string() ? value : nullptr;
}

JsonTypes operator|(JsonTypes a, JsonTypes b) { return static_cast<JsonTypes>(uint8_t{a} | uint8_t{b}); }
JsonTypes operator&(JsonTypes a, JsonTypes b) { return static_cast<JsonTypes>(uint8_t{a} & uint8_t{b}); }
constexpr JsonTypes kNone{};

JsonTypes named_type(const Value& name) {
  if (!name.is_string()) return kJsonAny;
  const std::string& text = name.text();
  if (text == "string") return kJsonString;
  if (text == "integer") return kJsonInteger;
  if (text == "number") return kJsonInteger | kJsonFraction;
  if (text == "boolean") return kJsonBoolean;
  if (text == "null") return kJsonNull;
  if (text == "array") return kJsonArray;
  if (text == "object") return kJsonObject;
  return kJsonAny;
}

JsonTypes type_of(const Value& value) {
  switch (value.type()) {
    case Type::kString:
      return kJsonString;
    case Type::kInt:
      return kJsonInteger;
    case Type::kFloat:  // 2.0 is an integer too (JSON Schema, section 4.2.3)
      return value.as_double() == std::floor(value.as_double()) ? kJsonInteger | kJsonFraction : kJsonFraction;
    case Type::kBool:
      return kJsonBoolean;
    case Type::kList:
      return kJsonArray;
    case Type::kDict:
      return kJsonObject;
    default:
      return kJsonNull;
  }
}

template <typename TypesOf>
JsonTypes any_of(const Value& list, TypesOf&& types_of) {
  JsonTypes types = kNone;
  for (const Value& item : list.items()) types = types | types_of(item);
  return types;
}

// What a JSON pointer like "#/$defs/Color" points at, without escapes.
const Value* pointed_at(const Value& root, std::string_view pointer) {
  if (!pointer.starts_with("#/")) return nullptr;
  const Value* at = &root;
  for (pointer.remove_prefix(1); at != nullptr && !pointer.empty();) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    at = field(*at, pointer.substr(0, end));
    pointer.remove_prefix(end);
  }
  return at;
}

JsonTypes types_of_schema(const Value& schema, const Value& root, int depth) {
  if (depth == kMaxSchemaDepth) return kJsonAny;
  const auto nested = [&](const Value& inner) { return types_of_schema(inner, root, depth + 1); };
  JsonTypes types = kJsonAny;
  if (const Value* type = field(schema, "type")) {
    types = type->is(Type::kList) ? any_of(*type, named_type) : named_type(*type);
  }
  if (const Value* nullable = field(schema, "nullable"); nullable != nullptr && nullable->is(Type::kBool)) {
    if (nullable->as_bool()) types = types | kJsonNull;
  }
  if (const Value* values = field(schema, "enum"); values != nullptr && values->is(Type::kList)) {
    types = types & any_of(*values, type_of);
  }
  if (const Value* value = field(schema, "const")) types = types & type_of(*value);
  for (const char* key : {"anyOf", "oneOf"}) {
    if (const Value* list = field(schema, key); list != nullptr && list->is(Type::kList)) {
      types = types & any_of(*list, nested);
    }
  }
  if (const Value* list = field(schema, "allOf"); list != nullptr && list->is(Type::kList)) {
    for (const Value& item : list->items()) types = types & nested(item);
  }
  if (const Value* pointer = text_field(schema, "$ref")) {
    if (const Value* target = pointed_at(root, pointer->text())) types = types & nested(*target);
  }
  return types == kNone ? kJsonAny : types;  // a schema that allows nothing: no help
}

std::optional<Value> parsed(std::string_view text) {
  try {
    return jinja::from_json(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

JsonTypes Tool::types_of(std::string_view parameter) const {
  const auto found = parameters.find(parameter);
  return found == parameters.end() ? kJsonAny : found->second;
}

ToolSet::ToolSet(const Value& tools) {
  if (tools.is_none()) return;
  if (!tools.is(Type::kList)) fail(ErrorKind::kUsage, "tools: not a list; send a list of functions");
  for (size_t i = 0; i < tools.items().size(); ++i) {
    const Value* function = field(tools.items()[i], "function");
    const Value& given = function == nullptr ? tools.items()[i] : *function;
    const Value* name = text_field(given, "name");
    if (name == nullptr || name->text().empty()) {
      fail(ErrorKind::kUsage,
           "tools[{}]: no function with a name; send {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}", i);
    }
    Tool tool{name->text(), {}};
    if (const Value* parameters = field(given, "parameters")) {
      if (const Value* properties = field(*parameters, "properties"); properties && properties->is(Type::kDict)) {
        for (const auto& [key, schema] : properties->as_dict().entries()) {
          tool.parameters[key.text()] = types_of_schema(schema, *parameters, 0);
        }
      }
    }
    tools_.push_back(std::move(tool));
  }
}

const Tool* ToolSet::find(std::string_view name) const {
  const auto found = std::ranges::find(tools_, name, &Tool::name);
  return found == tools_.end() ? nullptr : &*found;
}

std::string argument_as_json(JsonTypes types, std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  const std::string_view bare = text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
  if ((types & kJsonString) == kNone) {
    if (bare == "True" && (types & kJsonBoolean) != kNone) return "true";
    if (bare == "False" && (types & kJsonBoolean) != kNone) return "false";
    if (bare == "None" && (types & kJsonNull) != kNone) return "null";
  }
  if (types != kJsonString) {
    const std::optional<Value> value = parsed(bare);
    if (value && !value->is_string() && (type_of(*value) & types) != kNone) return std::string(bare);
  }
  return json_quoted(text);
}

}  // namespace sluice
