// The functions that templates find ready-made: filters, tests, methods of Python's types, globals. Each is a row in a
// table: a name, its parameters as Python names them, and a function of a bound Call.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/budget.h"
#include "chat/jinja/value.h"

namespace sluice::jinja {

class Interpreter;
struct Native;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// One call of a Native: `self` is the filter's operand or the method's object. Parameters are looked up by their place
// in Native::parameters.
class Call {
 public:
  static constexpr size_t kMaxParameters = 6;

  // Binds the arguments. Throws TemplateError(kType) when they don't fit the parameters.
  Call(Interpreter& interpreter, const Native& native, const Value& self, const Arguments& arguments);

  bool has(size_t index) const { return bound_[index] != nullptr; }
  const Value& operator[](size_t index) const { return *bound_[index]; }
  // Typed parameters; `fallback` when not given. text() and integer() throw TemplateError(kType) for other types.
  bool flag(size_t index, bool fallback) const;
  int64_t integer(size_t index, int64_t fallback) const;
  const std::string& text(size_t index) const;
  std::string text(size_t index, std::string_view fallback) const {
    return has(index) ? text(index) : std::string(fallback);
  }
  // str() of any value, counted.
  std::string string_of(const Value& value) const;

  Interpreter& interpreter;
  Budget& budget;
  const Value& self;
  const Arguments& arguments;

 private:
  const Native& native_;
  std::array<const Value*, kMaxParameters> bound_{};
};

struct Native {
  std::string_view name;
  // Names with a blank between, "?" behind the optional ones; "*": takes anything, reads Call::arguments itself.
  std::string_view parameters;
  Value (*run)(Call&);
};

// Null when there is none of that name.
const Native* find_filter(std::string_view name);
const Native* find_test(std::string_view name);
const Native* find_global(std::string_view name);
const Native* find_string_method(std::string_view name);
const Native* find_list_method(std::string_view name);
const Native* find_tuple_method(std::string_view name);
const Native* find_dict_method(std::string_view name);
const Native* find_number_method(std::string_view name);

// Rows of a table, found by name.
const Native* find_native(std::span<const Native> table, std::string_view name);

// A row for something of jinja2 or Python that exists but isn't supported.
Value run_unsupported(Call& call);

// int(number) of Python. Throws kOverflow, kValue for infinity and nan, kUnsupported beyond 64 bits.
int64_t float_to_integer(double number);

// The tables of the single files.
std::span<const Native> value_filters();
std::span<const Native> text_filters();
std::span<const Native> sequence_filters();
std::span<const Native> selection_filters();

// json.dumps(value, ...) as the tojson filter and to_json() call it.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;
  std::string item_separator = ", ", key_separator = ": ";
};
std::string dump_json(const Value& value, const JsonStyle& style, Budget& budget);

// strftime as the C locale has it. Throws TemplateError(kUnsupported) for rare directives.
std::string format_time(std::string_view format, const DateTime& time);

}  // namespace sluice::jinja
