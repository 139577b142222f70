// The tests of jinja2: what may stand behind `is`.
#include "chat/jinja/interpreter.h"
#include "chat/jinja/text.h"
#include "chat/jinja/unicode.h"

namespace sluice::jinja {
namespace {

template <Type kType>
Value is_type(Call& call) {
  return Value(call.self.is(kType));
}

template <Comparison kOp>
Value compares(Call& call) {
  return Value(compare(kOp, call.self, call[0], call.budget));
}

template <bool kTruth>
Value is_exactly(Call& call) {
  return Value(call.self.is(Type::kBool) && call.self.as_bool() == kTruth);
}

template <int64_t kRemainder>
Value has_parity(Call& call) {
  return Value(equal(binary(Operator::kModulo, call.self, Value(2), call.budget), Value(kRemainder)));
}

Value is_defined(Call& call) { return Value(!call.self.is_undefined()); }
Value is_divisible(Call& call) {
  return Value(equal(binary(Operator::kModulo, call.self, call[0], call.budget), Value(0)));
}
Value is_number(Call& call) { return Value(call.self.is_number()); }
Value is_iterable_test(Call& call) { return Value(is_iterable(call.self)); }
Value is_same(Call& call) { return Value(same(call.self, call[0])); }
Value is_escaped(Call& call) { return Value(call.self.is_string() && call.self.as_string().safe); }
Value is_filter(Call& call) { return Value(call.self.is_string() && find_filter(call.self.text()) != nullptr); }
Value is_test(Call& call) { return Value(call.self.is_string() && find_test(call.self.text()) != nullptr); }

Value is_sequence(Call& call) {
  switch (call.self.type()) {
    case Type::kUndefined:
    case Type::kString:
    case Type::kList:
    case Type::kTuple:
    case Type::kDict:
    case Type::kRange:
      return Value(true);
    default:
      return Value(false);
  }
}

Value is_callable(Call& call) {
  switch (call.self.type()) {
    case Type::kUndefined:
    case Type::kFunction:
    case Type::kMacro:
    case Type::kLoop:
      return Value(true);
    default:
      return Value(false);
  }
}

// str.isupper() and str.islower(): at least one cased character and all of them of that case.
template <bool kUpper>
Value is_case(Call& call) {
  bool any = false;
  for (const char32_t c : unicode::decode(call.string_of(call.self))) {
    const bool upper = unicode::is_upper(c), lower = unicode::is_lower(c);
    if (kUpper ? lower || unicode::is_title(c) : upper || unicode::is_title(c)) return Value(false);
    any |= kUpper ? upper : lower;
  }
  return Value(any);
}

constexpr Native kTests[] = {
    {"defined", "", is_defined},
    {"undefined", "", is_type<Type::kUndefined>},
    {"none", "", is_type<Type::kNone>},
    {"boolean", "", is_type<Type::kBool>},
    {"integer", "", is_type<Type::kInt>},
    {"float", "", is_type<Type::kFloat>},
    {"string", "", is_type<Type::kString>},
    {"mapping", "", is_type<Type::kDict>},
    {"number", "", is_number},
    {"iterable", "", is_iterable_test},
    {"sequence", "", is_sequence},
    {"callable", "", is_callable},
    {"true", "", is_exactly<true>},
    {"false", "", is_exactly<false>},
    {"odd", "", has_parity<1>},
    {"even", "", has_parity<0>},
    {"divisibleby", "num", is_divisible},
    {"upper", "", is_case<true>},
    {"lower", "", is_case<false>},
    {"escaped", "", is_escaped},
    {"sameas", "other", is_same},
    {"filter", "", is_filter},
    {"test", "", is_test},
    {"in", "seq", compares<Comparison::kIn>},
    {"==", "other", compares<Comparison::kEqual>},
    {"eq", "other", compares<Comparison::kEqual>},
    {"equalto", "other", compares<Comparison::kEqual>},
    {"!=", "other", compares<Comparison::kNotEqual>},
    {"ne", "other", compares<Comparison::kNotEqual>},
    {"<", "other", compares<Comparison::kLess>},
    {"lt", "other", compares<Comparison::kLess>},
    {"lessthan", "other", compares<Comparison::kLess>},
    {"<=", "other", compares<Comparison::kLessEqual>},
    {"le", "other", compares<Comparison::kLessEqual>},
    {">", "other", compares<Comparison::kGreater>},
    {"gt", "other", compares<Comparison::kGreater>},
    {"greaterthan", "other", compares<Comparison::kGreater>},
    {">=", "other", compares<Comparison::kGreaterEqual>},
    {"ge", "other", compares<Comparison::kGreaterEqual>},
};

}  // namespace

const Native* find_test(std::string_view name) { return find_native(kTests, name); }

}  // namespace sluice::jinja
