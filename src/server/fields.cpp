#include "server/fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "server/api_error.h"

namespace sluice::server {

namespace {

// The part of a field's name in a message that a client can have chosen.
std::string shortened(std::string_view text) { return std::string(text.substr(0, 64)); }

bool is_one_of(JsonTypes types, const jinja::Value& value) {
  using jinja::Type;
  switch (value.type()) {
    case Type::kBool:
      return (types & kBoolean) != 0;
    case Type::kInt:
      return (types & (kInteger | kNumber)) != 0;
    case Type::kFloat:
      return (types & kNumber) != 0 || ((types & kInteger) != 0 && as_integer(value).has_value());
    case Type::kString:
      return (types & kString) != 0;
    case Type::kList:
      return (types & kArray) != 0;
    case Type::kDict:
      return (types & kObject) != 0;
    default:
      return false;
  }
}

std::string_view json_name(const jinja::Value& value) {
  using jinja::Type;
  switch (value.type()) {
    case Type::kBool:
      return "a boolean";
    case Type::kInt:
    case Type::kFloat:
      return "a number";
    case Type::kString:
      return "a string";
    case Type::kList:
      return "an array";
    case Type::kDict:
      return "an object";
    default:
      return "null";
  }
}

std::string range_of(const Field& field) {
  if (field.minimum && field.maximum) return fmt::format("between {} and {}", *field.minimum, *field.maximum);
  return field.minimum ? fmt::format("{} or more", *field.minimum) : fmt::format("{} or less", *field.maximum);
}

}  // namespace

FieldTable::FieldTable(std::initializer_list<std::span<const Field>> parts) {
  for (const std::span<const Field> part : parts)
    for (const Field& field : part)
      if (find(field.name) == nullptr) fields_.push_back(field);
}

const Field* FieldTable::find(std::string_view name) const {
  const auto at = std::ranges::find(fields_, name, &Field::name);
  return at == fields_.end() ? nullptr : &*at;
}

std::string describe(JsonTypes types) {
  if (types == kAnything) return "anything";
  constexpr std::pair<JsonTypes, std::string_view> kNames[] = {{kInteger, "integer"}, {kNumber, "number"},
                                                               {kBoolean, "boolean"}, {kString, "string"},
                                                               {kArray, "array"},     {kObject, "object"}};
  std::string out;
  for (const auto& [type, name] : kNames)
    if ((types & type) != 0) out += (out.empty() ? "" : " or ") + std::string(name);
  return out;
}

std::optional<int64_t> as_integer(const jinja::Value& value) {
  if (value.is(jinja::Type::kInt)) return value.as_int();
  constexpr double kEnd = 9223372036854775808.0;  // 2^63: every double below it, if whole, is an int64
  if (!value.is(jinja::Type::kFloat)) return std::nullopt;
  const double number = value.as_double();
  if (!(number >= -kEnd && number < kEnd) || std::floor(number) != number) return std::nullopt;
  return static_cast<int64_t>(number);
}

Fields::Fields(const jinja::Value& object, const FieldTable& table) : object_(object), table_(table) {
  for (const auto& [key, value] : object.as_dict().entries()) {
    const Field* field = table.find(key.text());
    if (field == nullptr || field->use == FieldUse::kIgnored) {
      ignored_.push_back(shortened(key.text()));
    } else if (!value.is_none()) {
      check(*field, value);
    }
  }
  for (const Field& field : table.fields())
    if (field.required && !has(field.name)) bad_field(field.name, "is needed: " + std::string(field.text));
}

void Fields::check(const Field& field, const jinja::Value& value) const {
  if (field.use == FieldUse::kRefused) {
    if (field.neutral != nullptr && field.neutral(value)) return;
    bad_field(field.name, fmt::format("is not supported: {}; leave it out", field.text));
  }
  if (!is_one_of(field.types, value))
    bad_field(field.name, fmt::format("must be {}, not {}", describe(field.types), json_name(value)));
  if (!value.is_number() || value.is(jinja::Type::kBool)) return;
  const double number = value.as_double();
  if (!std::isfinite(number) || (field.minimum && number < *field.minimum) ||
      (field.maximum && number > *field.maximum))
    bad_field(field.name,
              fmt::format("{} must be {}", number,
                          field.minimum || field.maximum ? range_of(field) : std::string("a finite number")));
}

const jinja::Value* Fields::find(std::string_view name) const {
  if (table_.find(name) == nullptr) fail(ErrorKind::kInternal, "a field is read that is in no table: {}", name);
  const jinja::Value* value = object_.as_dict().find(name);
  return value == nullptr || value->is_none() ? nullptr : value;
}

std::optional<double> Fields::number(std::string_view name) const {
  const jinja::Value* value = find(name);
  return value == nullptr || !value->is_number() ? std::nullopt : std::optional(value->as_double());
}

std::optional<int64_t> Fields::integer(std::string_view name) const {
  const jinja::Value* value = find(name);
  return value == nullptr ? std::nullopt : as_integer(*value);
}

std::optional<bool> Fields::boolean(std::string_view name) const {
  const jinja::Value* value = find(name);
  return value == nullptr || !value->is(jinja::Type::kBool) ? std::nullopt : std::optional(value->as_bool());
}

std::optional<std::string> Fields::text(std::string_view name) const {
  const jinja::Value* value = find(name);
  return value == nullptr || !value->is_string() ? std::nullopt : std::optional(value->text());
}

}  // namespace sluice::server
