#include "chat/jinja/text.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "base/utf8.h"
#include "chat/jinja/jinja.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/unicode.h"

namespace sluice::jinja {
namespace {

void append_string_repr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out += quote;
  while (!text.empty()) {
    const auto decoded = utf8::decode(text);
    const char32_t c = decoded.code_point;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (unicode::is_printable(c)) {
      out.append(text.substr(0, decoded.length));
    } else {
      const auto point = static_cast<uint32_t>(c);
      out += point < 0x100     ? fmt::format("\\x{:02x}", point)
             : point < 0x10000 ? fmt::format("\\u{:04x}", point)
                               : fmt::format("\\U{:08x}", point);
    }
    text.remove_prefix(decoded.length);
  }
  out += quote;
}

void append_items(std::string& out, std::span<const Value> items) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out += ", ";
    first = false;
    append_repr(out, item);
  }
}

void append_dict(std::string& out, const Dict& dict) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out += ", ";
    first = false;
    append_repr(out, key);
    out += ": ";
    append_repr(out, value);
  }
  out += '}';
}

void append_view(std::string& out, const Value& view) {
  out += type_name(view);
  out += "([";
  append_items(out, view_items(view.as_view()));
  out += "])";
}

void append_namespace(std::string& out, const Namespace& space) {
  out += "<Namespace {";
  bool first = true;
  for (const auto& [name, value] : space.attributes) {
    if (!first) out += ", ";
    first = false;
    append_string_repr(out, name);
    out += ": ";
    append_repr(out, value);
  }
  out += "}>";
}

}  // namespace

std::string float_repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  // Shortest digits in the form d.ddde+xx, then laid out anew.
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const char* digits_begin = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits_begin, result.ptr, exponent);
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = std::signbit(number) ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out.append(1, '.').append(digits, 1);
    out += fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out += "0.";
    out.append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else if (count <= exponent + 1) {
    out.append(digits).append(static_cast<size_t>(exponent + 1 - count), '0').append(".0");
  } else {
    const size_t point = static_cast<size_t>(exponent) + 1;
    out.append(digits, 0, point).append(1, '.').append(digits, point);
  }
  return out;
}

void append_repr(std::string& out, const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      out += "Undefined";
      return;
    case Type::kNone:
      out += "None";
      return;
    case Type::kBool:
      out += value.as_bool() ? "True" : "False";
      return;
    case Type::kInt:
      out += std::to_string(value.as_int());
      return;
    case Type::kFloat:
      out += float_repr(value.as_double());
      return;
    case Type::kString:
      if (value.as_string().safe) out += "Markup(";
      append_string_repr(out, value.text());
      if (value.as_string().safe) out += ')';
      return;
    case Type::kList:
      out += '[';
      append_items(out, value.items());
      out += ']';
      return;
    case Type::kTuple:
      out += '(';
      append_items(out, value.items());
      out += value.items().size() == 1 ? ",)" : ")";
      return;
    case Type::kDict:
      return append_dict(out, value.as_dict());
    case Type::kRange: {
      const Range& range = value.as_range();
      out += fmt::format("range({}, {}", range.start, range.stop);
      out += range.step == 1 ? ")" : fmt::format(", {})", range.step);
      return;
    }
    case Type::kDictView:
      return append_view(out, value);
    case Type::kNamespace:
      throw TemplateError(FailureKind::kUnsupported, "a namespace inside another value can't be printed");
    case Type::kMacro:
      out += macro_repr(value);
      return;
    case Type::kLoop:
      out += loop_repr(value);
      return;
    case Type::kIterator:
    case Type::kFunction:
      throw TemplateError(FailureKind::kUnsupported,
                          fmt::format("a {} has no text that would be the same each time", type_name(value)));
  }
}

void append_text(std::string& out, const Value& value) {
  if (value.is_string()) {
    out += value.text();
  } else if (value.is(Type::kNamespace)) {
    append_namespace(out, value.as_namespace());
  } else if (!value.is_undefined()) {
    append_repr(out, value);
  }
}

std::string to_text(const Value& value) {
  if (value.is_string()) return value.text();
  std::string out;
  append_text(out, value);
  return out;
}

namespace {

// Takes a sign off the front.
bool take_sign(std::string_view& text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  return negative;
}

// Underscores stand only between digits.
bool remove_underscores(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto is_digit = [](char c) {
      return std::string_view("0123456789abcdefABCDEF").find(c) != std::string::npos;
    };
    if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) return false;
  }
  return true;
}

int prefix_base(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  const char letter = static_cast<char>(text[1] | 0x20);
  return letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, int base) {
  text = unicode::trim(text);
  const bool negative = take_sign(text);
  const int prefix = prefix_base(text);
  if (prefix != 0 && (base == 0 || base == prefix)) {
    base = prefix;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (base == 0) {
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos) return {};
    base = 10;
  }
  std::string digits = negative ? "-" : "";
  if (text.empty() || text[0] == '-' || text[0] == '+' || !remove_underscores(text, digits)) return {};
  int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (result.ec == std::errc::invalid_argument || result.ptr != digits.data() + digits.size()) return {};
  if (result.ec == std::errc::result_out_of_range) {
    throw TemplateError(FailureKind::kUnsupported, fmt::format("the integer {} does not fit in 64 bits", digits));
  }
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  text = unicode::trim(text);
  const bool negative = take_sign(text);
  const std::string lower = unicode::to_lower(text);
  const double sign = negative ? -1.0 : 1.0;
  if (lower == "inf" || lower == "infinity") return sign * std::numeric_limits<double>::infinity();
  if (lower == "nan") return std::numeric_limits<double>::quiet_NaN();
  std::string digits;
  if (lower.empty() || !((lower[0] >= '0' && lower[0] <= '9') || lower[0] == '.')) return {};
  if (!remove_underscores(lower, digits)) return {};
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ptr != digits.data() + digits.size() || result.ec == std::errc::invalid_argument) return {};
  if (result.ec == std::errc::result_out_of_range) {
    value = digits.find("e-") != std::string::npos ? 0.0 : std::numeric_limits<double>::infinity();
  }
  return sign * value;
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace sluice::jinja
