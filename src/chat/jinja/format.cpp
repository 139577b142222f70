#include "chat/jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "chat/jinja/access.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"
#include "chat/jinja/unicode.h"

namespace sluice::jinja {
namespace {

[[noreturn]] void fail_value(const std::string& message) { throw TemplateError(FailureKind::kValue, message); }

// How one value is to be laid out: both kinds of format come down to this.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =, or as the value's type wants
  char sign = '-';    // - + or space
  bool alternate = false;
  uint64_t width = 0;
  char grouping = '\0';
  int precision = -1;
  char type = '\0';
};

// Pads `body` behind `prefix` (sign, 0x) to the width, counted in code points.
std::string pad(const Spec& spec, const std::string& prefix, const std::string& body, char natural_align,
                Budget& budget) {
  const uint64_t size = unicode::length(prefix) + unicode::length(body);
  const uint64_t missing = spec.width > size ? spec.width - size : 0;
  budget.make_text(prefix.size() + body.size());
  budget.make_text(spec.fill.size(), missing);
  const auto fill = [&](uint64_t count) {
    std::string out;
    for (uint64_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  switch (spec.align == '\0' ? natural_align : spec.align) {
    case '<':
      return prefix + body + fill(missing);
    case '^':
      return fill(missing / 2) + prefix + body + fill(missing - missing / 2);
    case '=':
      return prefix + fill(missing) + body;
    default:
      return fill(missing) + prefix + body;
  }
}

std::string sign_of(const Spec& spec, bool negative) {
  if (!negative && spec.sign == '-') return {};
  return std::string(1, negative ? '-' : spec.sign);
}

void group_digits(std::string& digits, char separator, size_t every) {
  size_t end = digits.find_first_not_of("0123456789abcdefABCDEF");
  if (end == std::string::npos) end = digits.size();
  while (end > every) {
    end -= every;
    digits.insert(end, 1, separator);
  }
}

std::string layout_text(const Spec& spec, std::string text, Budget& budget) {
  if (spec.precision >= 0) text.resize(unicode::byte_offset(text, static_cast<size_t>(spec.precision)));
  return pad(spec, "", text, '<', budget);
}

std::string layout_integer(const Spec& spec, int64_t value, Budget& budget) {
  const bool negative = value < 0;
  const uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const char type = static_cast<char>(spec.type | 0x20);
  const int base = type == 'x' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  char buffer[72];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base);
  std::string digits(buffer, result.ptr);
  std::string prefix = sign_of(spec, negative);
  if (spec.alternate && base != 10) prefix += std::string("0") + type;
  if (spec.type == 'X') {
    digits = unicode::to_upper(digits);
    prefix = unicode::to_upper(prefix);
  }
  if (spec.precision > static_cast<int>(digits.size())) {
    budget.make_text(static_cast<uint64_t>(spec.precision));
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  if (spec.grouping != '\0') group_digits(digits, spec.grouping, base == 10 ? 3 : 4);
  return pad(spec, prefix, digits, '>', budget);
}

std::string layout_float(const Spec& spec, double value, Budget& budget) {
  const std::string prefix = sign_of(spec, std::signbit(value) && !std::isnan(value));
  const bool upper = spec.type >= 'A' && spec.type <= 'Z';
  const char type = static_cast<char>(spec.type | 0x20);
  std::string body;
  if (!std::isfinite(value)) {
    body.append(std::isnan(value) ? "nan" : "inf");
  } else if (spec.type == '\0' && spec.precision < 0) {
    body = float_repr(std::abs(value));
  } else {
    const double scaled = std::abs(spec.type == '%' ? value * 100 : value);
    const int precision = spec.precision < 0 ? 6 : spec.precision;
    constexpr int kMaxPrecision = 1000;
    if (precision > kMaxPrecision) fail_value("precision too big");
    const auto form = type == 'e'                       ? std::chars_format::scientific
                      : type == 'f' || spec.type == '%' ? std::chars_format::fixed
                                                        : std::chars_format::general;
    char buffer[kMaxPrecision + 400];
    const int digits = form == std::chars_format::general ? std::max(precision, 1) : precision;
    body.assign(buffer, std::to_chars(buffer, buffer + sizeof buffer, scaled, form, digits).ptr);
    if (spec.type == '\0' && body.find_first_of(".e") == std::string::npos) body += ".0";
  }
  if (spec.type == '%') body += '%';
  if (upper) body = unicode::to_upper(body);
  if (spec.grouping != '\0') group_digits(body, spec.grouping, 3);
  return pad(spec, prefix, body, '>', budget);
}

// One conversion after the other of a printf-style format.
class PrintfFormat {
 public:
  PrintfFormat(const Value& format, const Value& values, Budget& budget)
      : rest_(format.text()), values_(values), budget_(budget) {
    is_mapping_ =
        !values.is(Type::kTuple) && !values.is_string() &&
        (values.is(Type::kDict) || values.is(Type::kList) || values.is_undefined() || values.is(Type::kRange));
  }

  std::string run() {
    std::string out;
    while (!rest_.empty()) {
      const size_t percent = rest_.find('%');
      out.append(rest_.substr(0, percent));
      if (percent == std::string_view::npos) break;
      rest_.remove_prefix(percent + 1);
      out += conversion();
      budget_.check_output(out.size());
    }
    const size_t count = values_.is(Type::kTuple) ? values_.items().size() : 1;
    if (used_ < count && !is_mapping_) fail_type("not all arguments converted during string formatting");
    return out;
  }

 private:
  char take() {
    if (rest_.empty()) fail_value("incomplete format");
    const char c = rest_[0];
    rest_.remove_prefix(1);
    return c;
  }

  Value next_value() {
    const bool is_tuple = values_.is(Type::kTuple);
    if (used_ >= (is_tuple ? values_.items().size() : 1)) fail_type("not enough arguments for format string");
    return is_tuple ? values_.items()[used_++] : (++used_, values_);
  }

  Value mapped_value() {
    if (!values_.is(Type::kDict)) fail_type("format requires a mapping");
    const size_t end = rest_.find(')');
    if (end == std::string_view::npos) fail_value("incomplete format key");
    const std::string_view key = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    const Value* value = values_.as_dict().find(key);
    if (value == nullptr) throw TemplateError(FailureKind::kValue, fmt::format("KeyError: '{}'", key));
    used_ = 1;
    return *value;
  }

  int64_t number() {
    if (!rest_.empty() && rest_[0] == '*') {
      take();
      const Value value = next_value();
      if (!value.is_integral()) fail_type("* wants int");
      return value.as_int();
    }
    int64_t out = 0;
    const auto result = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
    if (result.ec == std::errc::result_out_of_range || out > INT32_MAX) fail_value("width too big");
    if (out < 0) return 0;
    rest_.remove_prefix(static_cast<size_t>(result.ptr - rest_.data()));
    return out;
  }

  std::string conversion() {
    Spec spec;
    spec.align = '>';
    std::optional<Value> mapped;
    if (!rest_.empty() && rest_[0] == '(') {
      take();
      mapped = mapped_value();
    }
    bool zero = false, left = false;
    while (!rest_.empty() && std::string_view("-+ #0").find(rest_[0]) != std::string_view::npos) {
      const char flag = take();
      if (flag == '-') left = true;
      if (flag == '+' || (flag == ' ' && spec.sign == '-')) spec.sign = flag;
      if (flag == '#') spec.alternate = true;
      if (flag == '0') zero = true;
    }
    int64_t width = number();
    if (width < 0) {
      left = true;
      width = width == INT64_MIN ? INT64_MAX : -width;
    }
    spec.width = static_cast<uint64_t>(width);
    if (left) spec.align = '<';
    if (!rest_.empty() && rest_[0] == '.') {
      take();
      spec.precision = static_cast<int>(std::clamp<int64_t>(number(), 0, INT32_MAX));
    }
    while (!rest_.empty() && std::string_view("hlL").find(rest_[0]) != std::string_view::npos) take();
    const char type = take();
    if (type == '%') return "%";
    const Value value = mapped ? *mapped : next_value();
    return convert(spec, type, value, zero && !left);
  }

  std::string convert(Spec& spec, char type, const Value& value, bool zero) {
    spec.type = type;
    const auto zero_fill = [&] {
      if (zero) spec.fill.assign(1, '0'), spec.align = '=';
    };
    budget_.make_text(extent(value).weight);
    switch (type) {
      case 's':
        return layout_text(spec, to_text(value), budget_);
      case 'r': {
        std::string text;
        append_repr(text, value);
        return layout_text(spec, std::move(text), budget_);
      }
      case 'c':
        return layout_text(spec, character(value), budget_);
      case 'd':
      case 'i':
      case 'u':
        zero_fill();
        return layout_integer(spec, whole_number(value, type), budget_);
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integral()) {
          fail_type(fmt::format("%{} format: an integer is required, not {}", type, type_name(value)));
        }
        zero_fill();
        return layout_integer(spec, value.as_int(), budget_);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.is_undefined()) fail_undefined(value);
        if (!value.is_number()) fail_type(fmt::format("must be real number, not {}", type_name(value)));
        zero_fill();
        return layout_float(spec, value.as_double(), budget_);
      case 'a':
        throw TemplateError(FailureKind::kUnsupported, "the format %a is not supported");
      default:
        fail_value(fmt::format("unsupported format character '{}'", type));
    }
  }

  static int64_t whole_number(const Value& value, char type) {
    if (value.is_undefined()) fail_undefined(value);
    if (value.is_integral()) return value.as_int();
    if (!value.is(Type::kFloat)) {
      fail_type(fmt::format("%{} format: a real number is required, not {}", type, type_name(value)));
    }
    return float_to_integer(value.as_double());
  }

  static std::string character(const Value& value) {
    if (value.is_string() && unicode::length(value.text()) == 1) return value.text();
    if (!value.is_integral()) fail_type("%c requires int or char");
    if (value.as_int() < 0 || value.as_int() > 0x10FFFF) {
      throw TemplateError(FailureKind::kOverflow, "%c arg not in range(0x110000)");
    }
    const auto point = static_cast<char32_t>(value.as_int());
    return unicode::encode(&point, &point + 1);
  }

  std::string_view rest_;
  const Value& values_;
  Budget& budget_;
  size_t used_ = 0;
  bool is_mapping_ = false;
};

// The format spec behind the colon of a field: [[fill]align][sign][#][0][width][,][.precision][type].
Spec parse_spec(std::string_view text) {
  Spec spec;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  const size_t first = text.empty() ? 0 : unicode::front_bytes(text);
  if (text.size() > first && first > 0 && is_align(text[first])) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  const auto skip = [&](char c) {
    if (text.empty() || text[0] != c) return false;
    text.remove_prefix(1);
    return true;
  };
  const auto number = [&] {
    int out = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
    if (result.ec == std::errc::result_out_of_range) fail_value("Too many decimal digits in format string");
    text.remove_prefix(static_cast<size_t>(result.ptr - text.data()));
    return out;
  };
  const auto at_digit = [&] { return !text.empty() && text[0] >= '0' && text[0] <= '9'; };
  for (const char sign : {'+', '-', ' '}) {
    if (skip(sign)) {
      spec.sign = sign;
      break;
    }
  }
  spec.alternate = skip('#');
  if (skip('0') && spec.align == '\0') spec.fill.assign(1, '0'), spec.align = '=';
  if (at_digit()) spec.width = static_cast<uint64_t>(number());
  if (skip(',')) spec.grouping = ',';
  if (skip('_')) spec.grouping = '_';
  if (skip('.')) {
    if (!at_digit()) fail_value("Format specifier missing precision");
    spec.precision = number();
  }
  if (!text.empty()) {
    spec.type = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty()) fail_value("Invalid format specifier");
  return spec;
}

// format(value, text)
std::string format_value(const Value& value, std::string_view text, Budget& budget) {
  budget.make_text(extent(value).weight);
  if (text.empty()) return to_text(value);
  const Spec spec = parse_spec(text);
  constexpr std::string_view kFloatTypes = "eEfFgG%";
  const bool wants_float = spec.type != '\0' && kFloatTypes.find(spec.type) != std::string_view::npos;
  if (value.is_string() && (spec.type == '\0' || spec.type == 's')) return layout_text(spec, value.text(), budget);
  if (value.is_number() && wants_float) return layout_float(spec, value.as_double(), budget);
  if (value.is(Type::kFloat) && spec.type == '\0') return layout_float(spec, value.as_double(), budget);
  constexpr std::string_view kIntegerTypes = "bdoxX";
  if (value.is_integral() && (spec.type == '\0' || kIntegerTypes.find(spec.type) != std::string_view::npos)) {
    if (spec.precision >= 0) fail_value("Precision not allowed in integer format specifier");
    return layout_integer(spec, value.as_int(), budget);
  }
  if (value.is_undefined()) return "";
  if (value.is_number() || value.is_string()) {
    fail_value(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value)));
  }
  fail_type(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
}

class BraceFormat {
 public:
  BraceFormat(const Value& format, const Arguments& arguments, Budget& budget)
      : rest_(format.text()), arguments_(arguments), budget_(budget) {}

  std::string run() {
    std::string out;
    while (!rest_.empty()) {
      const char c = rest_[0];
      const bool doubled = rest_.size() > 1 && rest_[1] == c;
      if ((c == '{' || c == '}') && doubled) {
        out += c;
        rest_.remove_prefix(2);
      } else if (c == '}') {
        fail_value("Single '}' encountered in format string");
      } else if (c == '{') {
        rest_.remove_prefix(1);
        out += field();
      } else {
        const size_t end = std::min(rest_.find_first_of("{}"), rest_.size());
        out.append(rest_.substr(0, end));
        rest_.remove_prefix(end);
      }
      budget_.check_output(out.size());
    }
    return out;
  }

 private:
  std::string field() {
    const size_t end = rest_.find('}');
    if (end == std::string_view::npos) fail_value("expected '}' before end of string");
    std::string_view text = rest_.substr(0, end);
    if (text.find('{') != std::string_view::npos) {
      throw TemplateError(FailureKind::kUnsupported, "fields inside a format spec are not supported");
    }
    rest_.remove_prefix(end + 1);
    std::string_view spec, name = text;
    if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
      spec = text.substr(colon + 1);
      name = text.substr(0, colon);
    }
    char conversion = '\0';
    if (const size_t mark = name.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != name.size()) fail_value("expected ':' after conversion specifier");
      conversion = name[mark + 1];
      name = name.substr(0, mark);
    }
    const Value value = lookup(name);
    if (conversion == '\0') return format_value(value, spec, budget_);
    if (conversion != 'r' && conversion != 's') {
      throw TemplateError(FailureKind::kUnsupported, fmt::format("the conversion !{} is not supported", conversion));
    }
    budget_.make_text(extent(value).weight);
    std::string converted;
    if (conversion == 'r') {
      append_repr(converted, value);
    } else {
      append_text(converted, value);
    }
    return format_value(Value(std::move(converted)), spec, budget_);
  }

  // name, 0, name.attribute, name[key]
  Value lookup(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, end));
    path.remove_prefix(end);
    while (!path.empty()) {
      if (path[0] == '.') {
        const size_t stop = std::min(path.find_first_of(".[", 1), path.size());
        value = get_attribute(value, Value(path.substr(1, stop - 1)));
        path.remove_prefix(stop);
      } else {
        const size_t stop = path.find(']');
        if (stop == std::string_view::npos) fail_value("Missing ']' in format string");
        const std::string_view key = path.substr(1, stop - 1);
        const auto index = parse_integer(key);
        value = get_item(value, index ? Value(*index) : Value(key));
        path.remove_prefix(stop + 1);
        if (!path.empty() && path[0] != '.' && path[0] != '[') fail_value("Only '.' or '[' may follow ']'");
      }
    }
    return value;
  }

  Value argument(std::string_view name) {
    std::optional<int64_t> index;
    if (name.empty()) {
      index = next_++;
    } else {
      index = parse_integer(name);
    }
    if (index) {
      if (*index < 0 || static_cast<size_t>(*index) >= arguments_.positional.size()) {
        throw TemplateError(FailureKind::kValue, "Replacement index out of range for positional args tuple");
      }
      return arguments_.positional[static_cast<size_t>(*index)];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    throw TemplateError(FailureKind::kValue, fmt::format("KeyError: '{}'", name));
  }

  std::string_view rest_;
  const Arguments& arguments_;
  Budget& budget_;
  int64_t next_ = 0;
};

void refuse_markup(const Value& format) {
  if (!format.as_string().safe) return;
  throw TemplateError(FailureKind::kUnsupported, "formatting with a string marked safe is not supported");
}

}  // namespace

Value printf_format(const Value& format, const Value& values, Budget& budget) {
  refuse_markup(format);
  return Value(PrintfFormat(format, values, budget).run());
}

Value brace_format(const Value& format, const Arguments& arguments, Budget& budget) {
  refuse_markup(format);
  return Value(BraceFormat(format, arguments, budget).run());
}

}  // namespace sluice::jinja
