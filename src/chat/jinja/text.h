// Values as text: Python's str() and repr(), numbers read and written as Python does, independent of the locale.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "chat/jinja/value.h"

namespace sluice::jinja {

// str(value). Throws TemplateError(kUnsupported) for what Python prints with a memory address.
void append_text(std::string& out, const Value& value);
std::string to_text(const Value& value);
// repr(value)
void append_repr(std::string& out, const Value& value);

// The shortest decimal that reads back as `number`, laid out as Python's repr: 1.0, 1e-05, 1e+16, inf, nan.
std::string float_repr(double number);

// int(text, base) and float(text): white space around, a sign and underscores are fine. No value: Python would raise
// ValueError. parse_integer throws TemplateError(kUnsupported) beyond 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int base = 10);
std::optional<double> parse_float(std::string_view text);

// & < > ' " as HTML entities.
std::string escape_html(std::string_view text);

}  // namespace sluice::jinja
