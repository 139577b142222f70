#include "chat/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <compare>

#include "base/checked.h"
#include "chat/jinja/format.h"
#include "chat/jinja/jinja.h"
#include "chat/jinja/text.h"
#include "chat/jinja/unicode.h"

namespace sluice::jinja {

void fail_type(const std::string& message) { throw TemplateError(FailureKind::kType, message); }

void fail_undefined(const Value& undefined) {
  const Undefined& info = undefined.as_undefined();
  const bool unsafe = info.cause == Undefined::Cause::kUnsafe;
  throw TemplateError(unsafe ? FailureKind::kSecurity : FailureKind::kUndefined, info.message());
}

void fail_big_integer() { throw TemplateError(FailureKind::kUnsupported, "the integer does not fit in 64 bits"); }

bool truthy(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
      return value.as_bool();
    case Type::kInt:
      return value.as_int() != 0;
    case Type::kFloat:
      return value.as_double() != 0;
    case Type::kString:
      return !value.text().empty();
    case Type::kList:
    case Type::kTuple:
      return !value.items().empty();
    case Type::kDict:
      return value.as_dict().size() != 0;
    case Type::kRange:
      return value.as_range().size() != 0;
    case Type::kDictView:
      return value.as_view().dict.as_dict().size() != 0;
    case Type::kLoop:
      return loop_size(value) != 0;
    default:
      return true;
  }
}

namespace {

// Comparing this many bytes is a step of work.
constexpr uint64_t kBytesPerStep = 64;

// Exact: neither side is rounded to the other's type.
std::partial_ordering order_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() <=> b.as_int();
  if (a.is(Type::kFloat) && b.is(Type::kFloat)) return a.as_double() <=> b.as_double();
  if (a.is(Type::kFloat)) return 0 <=> order_numbers(b, a);
  const double number = b.as_double();
  constexpr double kTwo63 = 9223372036854775808.0;
  if (std::isnan(number)) return std::partial_ordering::unordered;
  if (number >= kTwo63) return std::partial_ordering::less;
  if (number < -kTwo63) return std::partial_ordering::greater;
  const double whole = std::trunc(number);
  const auto integer = static_cast<int64_t>(whole);
  if (a.as_int() != integer) return a.as_int() <=> integer;
  return whole <=> number;
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

bool equal_ranges(const Range& a, const Range& b) {
  if (a.size() != b.size()) return false;
  if (a.size() == 0) return true;
  return a.start == b.start && (a.size() == 1 || a.step == b.step);
}

bool is_sequence(const Value& value) { return value.is(Type::kList) || value.is(Type::kTuple); }

std::string_view symbol(Comparison op) {
  switch (op) {
    case Comparison::kLess:
      return "<";
    case Comparison::kLessEqual:
      return "<=";
    case Comparison::kGreater:
      return ">";
    default:
      return ">=";
  }
}

std::partial_ordering order(Comparison op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_number() && b.is_number()) return order_numbers(a, b);
  if (a.is_string() && b.is_string()) return a.text().compare(b.text()) <=> 0;  // UTF-8 sorts as code points do
  if (is_sequence(a) && a.type() == b.type()) {
    const auto& left = a.items();
    const auto& right = b.items();
    const size_t common = std::min(left.size(), right.size());
    for (size_t i = 0; i < common; ++i) {
      if (!same(left[i], right[i]) && !equal(left[i], right[i])) return order(op, left[i], right[i]);
    }
    return left.size() <=> right.size();
  }
  fail_type(
      fmt::format("'{}' not supported between instances of '{}' and '{}'", symbol(op), type_name(a), type_name(b)));
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  switch (container.type()) {
    case Type::kString:
      if (item.is_undefined() || !item.is_string()) {
        fail_type(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
      }
      budget.search(container.text().size(), item.text().size());
      return container.text().find(item.text()) != std::string::npos;
    case Type::kDict:
      return container.as_dict().find(item) != nullptr;
    case Type::kDictView:
      if (container.as_view().kind == DictView::Kind::kKeys)
        return container.as_view().dict.as_dict().find(item) != nullptr;
      break;
    case Type::kRange: {
      const Range& range = container.as_range();
      if (!item.is_integral()) break;
      const int64_t value = item.as_int();
      const bool inside =
          range.step > 0 ? value >= range.start && value < range.stop : value <= range.start && value > range.stop;
      return inside && (value - range.start) % range.step == 0;
    }
    default:
      if (!is_iterable(container))
        fail_type(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
  const Items items = iterate(container, budget);
  const uint64_t weight = extent(item).weight;
  return std::any_of(items.begin(), items.end(), [&](const Value& other) {
    budget.step(1 + std::min(extent(other).weight, weight) / kBytesPerStep);
    return same(other, item) || equal(other, item);
  });
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return order_numbers(a, b) == 0;
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kString:
      return a.text() == b.text();
    case Type::kList:
    case Type::kTuple:
      return a.identity() == b.identity() ||
             std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equal);
    case Type::kDict:
      return a.identity() == b.identity() || equal_dicts(a.as_dict(), b.as_dict());
    case Type::kRange:
      return equal_ranges(a.as_range(), b.as_range());
    case Type::kFunction:
      return a.as_function().native == b.as_function().native && same(a.as_function().self, b.as_function().self);
    default:
      return a.identity() == b.identity();
  }
}

bool same(const Value& a, const Value& b) {
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kNone:
      return true;
    case Type::kBool:
    case Type::kInt:
      return a.as_int() == b.as_int();
    case Type::kFloat:
      return a.as_double() == b.as_double();
    case Type::kString:
      return a.text() == b.text();
    default:
      return a.identity() == b.identity();
  }
}

bool compare(Comparison op, const Value& a, const Value& b, Budget& budget) {
  budget.step(std::min(extent(a).weight, extent(b).weight) / kBytesPerStep);
  switch (op) {
    case Comparison::kEqual:
      return equal(a, b);
    case Comparison::kNotEqual:
      return !equal(a, b);
    case Comparison::kLess:
      return order(op, a, b) < 0;
    case Comparison::kLessEqual:
      return order(op, a, b) <= 0;
    case Comparison::kGreater:
      return order(op, a, b) > 0;
    case Comparison::kGreaterEqual:
      return order(op, a, b) >= 0;
    case Comparison::kIn:
      return contains(b, a, budget);
    case Comparison::kNotIn:
      return !contains(b, a, budget);
  }
  return false;
}

namespace {

std::string_view symbol(Operator op) {
  switch (op) {
    case Operator::kAdd:
    case Operator::kPlus:
      return "+";
    case Operator::kSubtract:
    case Operator::kNegate:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "**";
  }
  return "?";
}

[[noreturn]] void fail_operands(Operator op, const Value& a, const Value& b) {
  fail_type(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b)));
}

[[noreturn]] void fail_zero() { throw TemplateError(FailureKind::kZeroDivision, "division by zero"); }

// Floor division rounds toward minus infinity; the remainder has the divisor's sign.
Value integer_divide(bool want_quotient, int64_t a, int64_t b) {
  if (b == 0) fail_zero();
  if (b == -1) {
    if (!want_quotient) return Value(int64_t{0});
    if (a == INT64_MIN) fail_big_integer();
    return Value(-a);
  }
  int64_t quotient = a / b, remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    --quotient;
    remainder += b;
  }
  return Value(want_quotient ? quotient : remainder);
}

Value float_divide(bool want_quotient, double a, double b) {
  if (b == 0) fail_zero();
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1.0;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (!want_quotient) return Value(remainder);
  if (quotient == 0) return Value(std::copysign(0.0, a / b));
  const double floored = std::floor(quotient);
  return Value(quotient - floored > 0.5 ? floored + 1.0 : floored);
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail_zero();
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_big_integer();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) fail_big_integer();
  }
  return Value(result);
}

Value integer_binary(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kDivide:
      if (b == 0) fail_zero();
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kPower:
      return integer_power(a, b);
    default:
      return integer_divide(op == Operator::kFloorDivide, a, b);
  }
  if (overflow) fail_big_integer();
  return Value(result);
}

Value float_binary(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value(a + b);
    case Operator::kSubtract:
      return Value(a - b);
    case Operator::kMultiply:
      return Value(a * b);
    case Operator::kDivide:
      if (b == 0) fail_zero();
      return Value(a / b);
    case Operator::kPower: {
      if (a == 0 && b < 0) fail_zero();
      if (a < 0 && std::floor(b) != b) {
        throw TemplateError(FailureKind::kUnsupported, "complex numbers are not supported");
      }
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        throw TemplateError(FailureKind::kOverflow, "the result of ** is too large");
      }
      return Value(result);
    }
    default:
      return float_divide(op == Operator::kFloorDivide, a, b);
  }
}

Value add(const Value& a, const Value& b, Budget& budget) {
  if (a.is_string() && b.is_string()) {
    const bool safe = a.as_string().safe || b.as_string().safe;
    if (!safe) {
      budget.make_text(a.text().size() + b.text().size());
      std::string out;
      out.reserve(a.text().size() + b.text().size());
      out.append(a.text()).append(b.text());
      return Value(std::move(out));
    }
    const auto part = [](const Value& value) {
      return value.as_string().safe ? value.text() : escape_html(value.text());
    };
    std::string out = part(a) + part(b);
    budget.make_text(out.size());
    return Value::safe_string(std::move(out));
  }
  if (is_sequence(a) && a.type() == b.type()) {
    budget.make_items(a.items().size() + b.items().size());
    std::vector<Value> out = a.items();
    out.insert(out.end(), b.items().begin(), b.items().end());
    return a.is(Type::kList) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
  }
  if (a.is_string()) fail_type(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
  fail_operands(Operator::kAdd, a, b);
}

Value repeat(const Value& sequence, int64_t count, Budget& budget) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  if (sequence.is_string()) {
    const std::string& text = sequence.text();
    budget.make_text(text.size(), times);
    std::string out;
    if (!text.empty()) {
      out.reserve(text.size() * times);
      for (uint64_t i = 0; i < times; ++i) out += text;
    }
    return Value::string_like(sequence.as_string(), std::move(out));
  }
  const auto& items = sequence.items();
  std::vector<Value> out;
  if (!items.empty()) {
    if (times > budget.limits().max_bytes_made / items.size()) budget.make_items(UINT64_MAX);
    budget.make_items(times * items.size());
    for (uint64_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return sequence.is(Type::kList) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

}  // namespace

Value binary(Operator op, const Value& a, const Value& b, Budget& budget) {
  if (a.is_integral() && b.is_integral()) return integer_binary(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_binary(op, a.as_double(), b.as_double());
  if (op == Operator::kModulo && a.is_string()) return printf_format(a, b, budget);
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (op == Operator::kAdd) return add(a, b, budget);
  if (op == Operator::kMultiply) {
    if ((a.is_string() || is_sequence(a)) && b.is_integral()) return repeat(a, b.as_int(), budget);
    if ((b.is_string() || is_sequence(b)) && a.is_integral()) return repeat(b, a.as_int(), budget);
  }
  fail_operands(op, a, b);
}

Value unary(Operator op, const Value& operand) {
  if (operand.is_undefined()) fail_undefined(operand);
  if (operand.is(Type::kFloat)) return Value(op == Operator::kNegate ? -operand.as_double() : operand.as_double());
  if (!operand.is_integral())
    fail_type(fmt::format("bad operand type for unary {}: '{}'", symbol(op), type_name(operand)));
  if (op == Operator::kPlus) return Value(operand.as_int());
  if (operand.as_int() == INT64_MIN) fail_big_integer();
  return Value(-operand.as_int());
}

std::optional<int64_t> length(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return 0;
    case Type::kString:
      return static_cast<int64_t>(unicode::length(value.text()));
    case Type::kList:
    case Type::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Type::kDict:
      return static_cast<int64_t>(value.as_dict().size());
    case Type::kRange:
      return value.as_range().size();
    case Type::kDictView:
      return static_cast<int64_t>(value.as_view().dict.as_dict().size());
    case Type::kLoop:
      return static_cast<int64_t>(loop_size(value));
    default:
      return std::nullopt;
  }
}

bool is_iterable(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kString:
    case Type::kList:
    case Type::kTuple:
    case Type::kDict:
    case Type::kRange:
    case Type::kDictView:
    case Type::kIterator:
    case Type::kLoop:
      return true;
    default:
      return false;
  }
}

std::vector<Value> view_items(const DictView& view) {
  std::vector<Value> out;
  for (const auto& [key, value] : view.dict.as_dict().entries()) {
    switch (view.kind) {
      case DictView::Kind::kKeys:
        out.push_back(key);
        break;
      case DictView::Kind::kValues:
        out.push_back(value);
        break;
      case DictView::Kind::kItems:
        out.push_back(Value::tuple({key, value}));
        break;
    }
  }
  return out;
}

Items iterate(const Value& value, Budget& budget) {
  std::vector<Value> out;
  switch (value.type()) {
    case Type::kUndefined:
      return Items(std::move(out));
    case Type::kList:
    case Type::kTuple:
      return Items(value);
    case Type::kString: {
      constexpr uint64_t kCharacterBytes = 112;  // a Value and its shared string
      budget.make(value.text().size() * kCharacterBytes);
      std::string_view text = value.text();
      while (!text.empty()) {
        const size_t bytes = unicode::front_bytes(text);
        out.emplace_back(text.substr(0, bytes));
        text.remove_prefix(bytes);
      }
      return Items(std::move(out));
    }
    case Type::kDict:
      budget.make_items(value.as_dict().size());
      for (const auto& entry : value.as_dict().entries()) out.push_back(entry.first);
      return Items(std::move(out));
    case Type::kRange: {
      const Range& range = value.as_range();
      budget.make_items(static_cast<uint64_t>(range.size()));
      for (int64_t i = 0; i < range.size(); ++i) out.emplace_back(range.at(i));
      return Items(std::move(out));
    }
    case Type::kDictView:
      budget.make_items(4 * value.as_view().dict.as_dict().size());
      return Items(view_items(value.as_view()));
    case Type::kIterator: {
      Iterator& iterator = value.as_iterator();
      out.assign(iterator.items.begin() + static_cast<ptrdiff_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      budget.make_items(out.size());
      return Items(std::move(out));
    }
    case Type::kLoop:
      return loop_items(value);
    default:
      fail_type(fmt::format("'{}' object is not iterable", type_name(value)));
  }
}

std::optional<int64_t> sequence_index(int64_t index, int64_t size) {
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return index;
}

namespace {

std::optional<int64_t> slice_bound(const Value& bound) {
  if (bound.is_none()) return std::nullopt;
  if (!bound.is_integral()) fail_type("slice indices must be integers or None or have an __index__ method");
  return bound.as_int();
}

// What a slice takes of `size` items: first, how many, how far apart.
struct SliceRun {
  int64_t first, count, step;
};

SliceRun resolve_slice(const Value& start, const Value& stop, const Value& step, int64_t size) {
  const int64_t stride = slice_bound(step).value_or(1);
  if (stride == 0) throw TemplateError(FailureKind::kValue, "slice step cannot be zero");
  const bool forward = stride > 0;
  const int64_t low = forward ? 0 : -1, high = forward ? size : size - 1;
  const auto clamp = [&](std::optional<int64_t> bound, int64_t fallback) {
    if (!bound) return fallback;
    return std::clamp(*bound < 0 ? *bound + size : *bound, low, high);
  };
  const int64_t first = clamp(slice_bound(start), forward ? 0 : size - 1);
  const int64_t last = clamp(slice_bound(stop), forward ? size : -1);
  const int64_t span = forward ? last - first : first - last;
  if (span <= 0) return {first, 0, stride};
  const uint64_t magnitude = forward ? static_cast<uint64_t>(stride) : 0 - static_cast<uint64_t>(stride);
  return {first, static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / magnitude) + 1, stride};
}

std::string slice_text(const std::string& text, const Value& start, const Value& stop, const Value& step) {
  const auto size = static_cast<int64_t>(unicode::length(text));
  const SliceRun run = resolve_slice(start, stop, step, size);
  if (run.count == 0) return {};
  if (run.step == 1) {
    const size_t begin = unicode::byte_offset(text, static_cast<size_t>(run.first));
    const std::string_view rest = std::string_view(text).substr(begin);
    return std::string(rest.substr(0, unicode::byte_offset(rest, static_cast<size_t>(run.count))));
  }
  const auto points = unicode::decode(text);
  std::vector<char32_t> out;
  for (int64_t i = 0; i < run.count; ++i) out.push_back(points[static_cast<size_t>(run.first + i * run.step)]);
  return unicode::encode(out.data(), out.data() + out.size());
}

}  // namespace

Value slice(const Value& value, const Value& start, const Value& stop, const Value& step, Budget& budget) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_string()) {
    budget.make_text(value.text().size());
    return Value::string_like(value.as_string(), slice_text(value.text(), start, stop, step));
  }
  if (is_sequence(value)) {
    const auto& items = value.items();
    const SliceRun run = resolve_slice(start, stop, step, static_cast<int64_t>(items.size()));
    budget.make_items(static_cast<uint64_t>(run.count));
    std::vector<Value> out;
    for (int64_t i = 0; i < run.count; ++i) out.push_back(items[static_cast<size_t>(run.first + i * run.step)]);
    return value.is(Type::kList) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
  }
  if (value.is(Type::kRange)) {
    const Range& range = value.as_range();
    const SliceRun run = resolve_slice(start, stop, step, range.size());
    auto out = std::make_shared<Range>();
    if (__builtin_mul_overflow(range.step, run.step, &out->step)) fail_big_integer();
    out->start = range.at(run.first);
    out->stop = run.count == 0 ? out->start : range.at(run.first + run.step * run.count);
    return {Type::kRange, std::move(out)};
  }
  if (value.is(Type::kDict)) fail_type("unhashable type: 'slice'");
  fail_type(fmt::format("'{}' object is not subscriptable", type_name(value)));
}

}  // namespace sluice::jinja
