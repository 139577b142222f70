// Filters on any value: numbers, defaults, JSON, marks of HTML safety.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "chat/jinja/access.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {
namespace {

Value run_default(Call& call) {
  const bool missing = call.self.is_undefined() || (call.flag(1, false) && !truthy(call.self));
  if (!missing) return call.self;
  return call.has(0) ? call[0] : Value("");
}

Value run_length(Call& call) {
  if (call.self.is_string()) call.budget.step(call.self.text().size() / 64);
  if (const auto size = length(call.self)) return Value(*size);
  fail_type(fmt::format("object of type '{}' has no len()", type_name(call.self)));
}

// int(x), then int(float(x)), then the default: only errors of type and value fall through.
Value run_int(Call& call) {
  Value fallback = call.has(0) ? call[0] : Value(0);
  if (call.self.is_undefined()) fail_undefined(call.self);
  if (call.self.is_integral()) return Value(call.self.as_int());
  if (call.self.is(Type::kFloat)) {
    return std::isnan(call.self.as_double()) ? fallback : Value(float_to_integer(call.self.as_double()));
  }
  if (!call.self.is_string()) return fallback;
  const int64_t base = call.integer(1, 10);
  if (base != 0 && (base < 2 || base > 36))
    throw TemplateError(FailureKind::kValue, "int() base must be >= 2 and <= 36, or 0");
  if (const auto integer = parse_integer(call.self.text(), static_cast<int>(base))) return Value(*integer);
  const auto number = parse_float(call.self.text());
  if (!number || !std::isfinite(*number)) return fallback;
  return Value(float_to_integer(*number));
}

Value run_float(Call& call) {
  if (call.self.is_undefined()) fail_undefined(call.self);
  if (call.self.is_number()) return Value(call.self.as_double());
  if (call.self.is_string()) {
    if (const auto number = parse_float(call.self.text())) return Value(*number);
  }
  return call.has(0) ? call[0] : Value(0.0);
}

Value run_abs(Call& call) {
  if (call.self.is_undefined()) fail_undefined(call.self);
  if (call.self.is(Type::kFloat)) return Value(std::abs(call.self.as_double()));
  if (!call.self.is_integral()) fail_type(fmt::format("bad operand type for abs(): '{}'", type_name(call.self)));
  return call.self.as_int() < 0 ? unary(Operator::kNegate, call.self) : Value(call.self.as_int());
}

// round() of Python: to the nearest decimal, a tie in the binary value to even.
double round_decimal(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 320) return value;
  if (precision < -310) return std::copysign(0.0, value);
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / scale) * scale;
  }
  char buffer[800];
  const auto written =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, static_cast<int>(precision));
  double out = value;
  std::from_chars(buffer, written.ptr, out);
  return out;
}

Value round_integer(int64_t value, int64_t precision) {
  if (precision >= 0) return Value(value);
  if (precision < -18) return Value(0);
  int64_t scale = 1;
  for (int64_t i = 0; i < -precision; ++i) scale *= 10;
  int64_t quotient = value / scale;
  const int64_t remainder = value % scale, magnitude = remainder < 0 ? -remainder : remainder;
  const bool up = magnitude > scale - magnitude || (magnitude == scale - magnitude && quotient % 2 != 0);
  if (up) quotient += value < 0 ? -1 : 1;
  int64_t out = 0;
  if (__builtin_mul_overflow(quotient, scale, &out)) fail_big_integer();
  return Value(out);
}

Value run_round(Call& call) {
  const int64_t precision = call.integer(0, 0);
  const std::string method = call.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") {
    throw TemplateError(FailureKind::kRuntime, "method must be common, ceil or floor");
  }
  if (call.self.is_undefined()) fail_undefined(call.self);
  if (!call.self.is_number()) fail_type(fmt::format("type {} doesn't define __round__ method", type_name(call.self)));
  if (method == "common") {
    if (call.self.is_integral()) return round_integer(call.self.as_int(), precision);
    return Value(round_decimal(call.self.as_double(), precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = call.self.as_double() * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value run_string(Call& call) { return call.self.is_string() ? call.self : Value(call.string_of(call.self)); }
Value run_safe(Call& call) { return Value::safe_string(call.string_of(call.self)); }
Value run_forceescape(Call& call) { return Value::safe_string(escape_html(call.string_of(call.self))); }
Value run_escape(Call& call) {
  return call.self.is_string() && call.self.as_string().safe ? call.self : run_forceescape(call);
}

Value run_attr(Call& call) {
  auto found = find_attribute(call.self, call.text(0));
  return found ? std::move(*found) : Value::undefined_attribute(type_name(call.self), call.text(0));
}

Value run_tojson(Call& call) {
  JsonStyle style;
  style.ensure_ascii = call.flag(0, false);
  if (call.has(1) && !call[1].is_none()) {
    style.has_indent = true;
    style.item_separator.assign(1, ',');
    if (call[1].is_string()) {
      style.indent = call[1].text();
    } else {
      const int64_t width = std::max<int64_t>(call.integer(1, 0), 0);
      call.budget.make_text(static_cast<uint64_t>(width));
      style.indent.assign(static_cast<size_t>(width), ' ');
    }
  }
  if (call.has(2) && !call[2].is_none()) {
    const Items separators = iterate(call[2], call.budget);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      fail_type("separators must be a pair of strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  style.sort_keys = call.flag(3, false);
  return Value(dump_json(call.self, style, call.budget));
}

constexpr Native kFilters[] = {
    {"abs", "", run_abs},
    {"attr", "name", run_attr},
    {"count", "", run_length},
    {"d", "default_value? boolean?", run_default},
    {"default", "default_value? boolean?", run_default},
    {"e", "", run_escape},
    {"escape", "", run_escape},
    {"filesizeformat", "*", run_unsupported},
    {"float", "default?", run_float},
    {"forceescape", "", run_forceescape},
    {"int", "default? base?", run_int},
    {"length", "", run_length},
    {"pprint", "*", run_unsupported},
    {"random", "*", run_unsupported},
    {"round", "precision? method?", run_round},
    {"safe", "", run_safe},
    {"string", "", run_string},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", run_tojson},
    {"xmlattr", "*", run_unsupported},
};

}  // namespace

std::span<const Native> value_filters() { return kFilters; }

}  // namespace sluice::jinja
