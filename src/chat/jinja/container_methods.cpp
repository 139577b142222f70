// Methods of list, tuple, dict and numbers that change nothing: the others are withheld by the sandbox.
#include "chat/jinja/interpreter.h"

#include <cmath>

namespace sluice::jinja {
namespace {

Value copy(Call& call) { return call.self; }

Value count(Call& call) {
  int64_t found = 0;
  for (const Value& item : iterate(call.self, call.budget)) {
    if (compare(Comparison::kEqual, item, call[0], call.budget)) ++found;
  }
  return Value(found);
}

Value index(Call& call) {
  const Items items = iterate(call.self, call.budget);
  const auto size = static_cast<int64_t>(items.size());
  const auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  const int64_t start = clamp(call.integer(1, 0)), end = clamp(call.integer(2, size));
  for (int64_t i = start; i < end; ++i) {
    if (compare(Comparison::kEqual, items[static_cast<size_t>(i)], call[0], call.budget)) return Value(i);
  }
  throw TemplateError(FailureKind::kValue, "the value is not in the list");
}

template <DictView::Kind kKind>
Value view(Call& call) {
  auto out = std::make_shared<DictView>();
  out->dict = call.self;
  out->kind = kKind;
  return {Type::kDictView, std::move(out)};
}

Value get(Call& call) {
  if (const Value* found = call.self.as_dict().find(call[0])) return *found;
  return call.has(1) ? call[1] : Value();
}

Value is_integer(Call& call) {
  return Value(!call.self.is(Type::kFloat) || call.self.as_double() == std::floor(call.self.as_double()));
}

Value bit_length(Call& call) {
  if (!call.self.is_integral()) fail_type("'float' object has no attribute 'bit_length'");
  const int64_t value = call.self.as_int();
  uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  int64_t bits = 0;
  for (; magnitude != 0; magnitude >>= 1) ++bits;
  return Value(bits);
}

constexpr Native kListMethods[] = {
    {"copy", "", copy}, {"count", "value", count}, {"index", "value start? stop?", index}};

constexpr Native kTupleMethods[] = {{"count", "value", count}, {"index", "value start? stop?", index}};

constexpr Native kDictMethods[] = {
    {"copy", "", copy},
    {"fromkeys", "*", run_unsupported},
    {"get", "key default?", get},
    {"items", "", view<DictView::Kind::kItems>},
    {"keys", "", view<DictView::Kind::kKeys>},
    {"values", "", view<DictView::Kind::kValues>},
};

constexpr Native kNumberMethods[] = {
    {"as_integer_ratio", "*", run_unsupported},
    {"bit_count", "*", run_unsupported},
    {"bit_length", "", bit_length},
    {"conjugate", "", copy},
    {"from_bytes", "*", run_unsupported},
    {"fromhex", "*", run_unsupported},
    {"hex", "*", run_unsupported},
    {"is_integer", "", is_integer},
    {"to_bytes", "*", run_unsupported},
};

}  // namespace

const Native* find_list_method(std::string_view name) { return find_native(kListMethods, name); }
const Native* find_tuple_method(std::string_view name) { return find_native(kTupleMethods, name); }
const Native* find_dict_method(std::string_view name) { return find_native(kDictMethods, name); }
const Native* find_number_method(std::string_view name) { return find_native(kNumberMethods, name); }

}  // namespace sluice::jinja
