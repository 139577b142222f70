#include "chat/jinja/builtins.h"

#include <algorithm>
#include <cmath>

#include "chat/jinja/interpreter.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

Call::Call(Interpreter& the_interpreter, const Native& native, const Value& the_self, const Arguments& given)
    : interpreter(the_interpreter),
      budget(the_interpreter.budget()),
      self(the_self),
      arguments(given),
      native_(native) {
  std::string_view names = native.parameters;
  if (names == "*") return;
  size_t count = 0, used_named = 0;
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    std::string_view name = names.substr(0, end);
    names.remove_prefix(std::min(end + 1, names.size()));
    const bool optional = name.ends_with('?');
    if (optional) name.remove_suffix(1);
    const auto named =
        std::find_if(given.named.begin(), given.named.end(), [&](const auto& entry) { return entry.first == name; });
    const bool is_positional = count < given.positional.size();
    if (named != given.named.end()) {
      if (is_positional) fail_type(fmt::format("{}() got multiple values for argument '{}'", native.name, name));
      bound_[count] = &named->second;
      ++used_named;
    } else if (is_positional) {
      bound_[count] = &given.positional[count];
    } else if (!optional) {
      fail_type(fmt::format("{}() missing required argument '{}'", native.name, name));
    }
    ++count;
  }
  if (given.positional.size() > count) {
    fail_type(fmt::format("{}() takes {} arguments but {} were given", native.name, count, given.positional.size()));
  }
  if (used_named != given.named.size()) fail_type(fmt::format("{}() got an unexpected keyword argument", native.name));
}

bool Call::flag(size_t index, bool fallback) const { return has(index) ? truthy(*bound_[index]) : fallback; }

int64_t Call::integer(size_t index, int64_t fallback) const {
  if (!has(index)) return fallback;
  const Value& value = *bound_[index];
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_integral()) fail_type(fmt::format("'{}' object cannot be interpreted as an integer", type_name(value)));
  return value.as_int();
}

const std::string& Call::text(size_t index) const {
  const Value& value = *bound_[index];
  if (!value.is_string()) fail_type(fmt::format("{}() argument must be str, not {}", native_.name, type_name(value)));
  return value.text();
}

std::string Call::string_of(const Value& value) const {
  budget.make_text(extent(value).weight);
  return to_text(value);
}

const Native* find_native(std::span<const Native> table, std::string_view name) {
  const auto it = std::find_if(table.begin(), table.end(), [&](const Native& native) { return native.name == name; });
  return it != table.end() ? &*it : nullptr;
}

Value run_unsupported(Call&) {
  throw TemplateError(FailureKind::kUnsupported,
                      "a filter, function or method of Python or jinja2 that is not supported");
}

int64_t float_to_integer(double number) {
  if (std::isnan(number)) throw TemplateError(FailureKind::kValue, "cannot convert float NaN to integer");
  if (std::isinf(number)) throw TemplateError(FailureKind::kOverflow, "cannot convert float infinity to integer");
  if (std::abs(number) >= 9.2e18) fail_big_integer();
  return static_cast<int64_t>(number);
}

const Native* find_filter(std::string_view name) {
  for (const auto table : {value_filters(), text_filters(), sequence_filters(), selection_filters()}) {
    if (const Native* native = find_native(table, name)) return native;
  }
  return nullptr;
}

}  // namespace sluice::jinja
