#include "chat/jinja/access.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "chat/jinja/builtins.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"
#include "chat/jinja/unicode.h"

namespace sluice::jinja {
namespace {

bool is_dunder(std::string_view name) { return name.size() > 4 && name.starts_with("__") && name.ends_with("__"); }

// What changes a list or a dict is withheld by the immutable sandbox.
bool is_mutator(Type type, std::string_view name) {
  constexpr std::string_view kList[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto in = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (type == Type::kList && in(kList)) || (type == Type::kDict && in(kDict));
}

const Native* find_method(const Value& object, std::string_view name) {
  switch (object.type()) {
    case Type::kString:
      return find_string_method(name);
    case Type::kList:
      return find_list_method(name);
    case Type::kTuple:
    case Type::kRange:
      return find_tuple_method(name);
    case Type::kDict:
      return find_dict_method(name);
    case Type::kBool:
    case Type::kInt:
    case Type::kFloat:
      return find_number_method(name);
    default:
      return nullptr;
  }
}

Value bind_method(const Value& object, const Native* native) {
  auto function = std::make_shared<Function>();
  function->native = native;
  function->self = object;
  return {Type::kFunction, std::move(function)};
}

}  // namespace

std::optional<Value> find_attribute(const Value& object, const std::string& name) {
  const bool withheld = object.is_undefined() && object.as_undefined().cause == Undefined::Cause::kUnsafe;
  if (is_dunder(name) && !withheld) return Value::unsafe_attribute(type_name(object), name);
  switch (object.type()) {
    case Type::kUndefined:
      fail_undefined(object);
    case Type::kNamespace: {
      const Value* found = object.as_namespace().find(name);
      return found != nullptr ? std::optional(*found) : std::nullopt;
    }
    case Type::kLoop:
      return loop_attribute(object, name);
    case Type::kMacro:
      return macro_attribute(object, name);
    case Type::kTuple:
      if (object.as_sequence().is_group && name == "grouper") return object.items()[0];
      if (object.as_sequence().is_group && name == "list") return object.items()[1];
      break;
    case Type::kBool:
    case Type::kInt:
      if (name == "real" || name == "numerator") return Value(object.as_int());
      if (name == "imag") return Value(int64_t{0});
      if (name == "denominator") return Value(int64_t{1});
      break;
    default:
      break;
  }
  if (is_mutator(object.type(), name)) return Value::unsafe_attribute(type_name(object), name);
  if (const Native* native = find_method(object, name)) return bind_method(object, native);
  return std::nullopt;
}

Value get_attribute(const Value& object, const Value& name) {
  if (auto found = find_attribute(object, name.text())) return std::move(*found);
  if (object.is(Type::kDict)) {
    if (const Value* found = object.as_dict().find(std::string_view(name.text()))) return *found;
  }
  return Value::undefined_attribute(type_name(object), name.text());
}

namespace {

bool is_hashable(const Value& key) {
  if (key.is(Type::kTuple)) return std::all_of(key.items().begin(), key.items().end(), is_hashable);
  return !key.is(Type::kList) && !key.is(Type::kDict) && !key.is(Type::kDictView);
}

std::optional<Value> find_item(const Value& object, const Value& key) {
  if (object.is(Type::kDict)) {
    if (!is_hashable(key)) return std::nullopt;
    const Value* found = object.as_dict().find(key);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  if (!key.is_integral()) return std::nullopt;
  if (object.is(Type::kList) || object.is(Type::kTuple)) {
    const auto index = sequence_index(key.as_int(), static_cast<int64_t>(object.items().size()));
    return index ? std::optional(object.items()[static_cast<size_t>(*index)]) : std::nullopt;
  }
  if (object.is(Type::kRange)) {
    const auto index = sequence_index(key.as_int(), object.as_range().size());
    return index ? std::optional(Value(object.as_range().at(*index))) : std::nullopt;
  }
  if (!object.is_string()) return std::nullopt;
  const std::string_view text = object.text();
  const auto index = sequence_index(key.as_int(), static_cast<int64_t>(unicode::length(text)));
  if (!index) return std::nullopt;
  const std::string_view rest = text.substr(unicode::byte_offset(text, static_cast<size_t>(*index)));
  return Value::string_like(object.as_string(), std::string(rest.substr(0, unicode::front_bytes(rest))));
}

}  // namespace

Value get_item(const Value& object, const Value& key) {
  const bool withheld = object.is_undefined() && object.as_undefined().cause == Undefined::Cause::kUnsafe;
  if (object.is_undefined() && (withheld || !(key.is_string() && is_dunder(key.text())))) fail_undefined(object);
  if (auto found = find_item(object, key)) return std::move(*found);
  if (key.is_string()) {
    if (auto found = find_attribute(object, key.text())) return std::move(*found);
    return Value::undefined_attribute(type_name(object), key.text());
  }
  const bool is_simple = key.is_number() || key.is_none();
  return Value::undefined_attribute(type_name(object), is_simple ? to_text(key) : std::string(type_name(key)));
}

}  // namespace sluice::jinja
