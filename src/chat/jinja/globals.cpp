// Functions that every template has: range, dict, namespace, raise_exception, strftime_now.
#include "chat/jinja/interpreter.h"

namespace sluice::jinja {
namespace {

Value run_range(Call& call) {
  constexpr int64_t kMaxRange = 100'000;  // as jinja2's sandbox
  if (!call.arguments.named.empty()) fail_type("range() takes no keyword arguments");
  auto range = std::make_shared<Range>();
  if (call.has(1)) {
    range->start = call.integer(0, 0);
    range->stop = call.integer(1, 0);
    range->step = call.integer(2, 1);
    if (range->step == 0) throw TemplateError(FailureKind::kValue, "range() arg 3 must not be zero");
  } else {
    range->stop = call.integer(0, 0);
  }
  if (range->size() > kMaxRange) {
    throw TemplateError(FailureKind::kOverflow,
                        fmt::format("Range too big. The sandbox blocks ranges larger than {}.", kMaxRange));
  }
  return {Type::kRange, std::move(range)};
}

// The entries of dict(x) and namespace(x): of a dict, or of a sequence of pairs.
Dict collect_entries(Call& call) {
  const auto& positional = call.arguments.positional;
  if (positional.size() > 1) fail_type("expected at most 1 argument");
  Dict out;
  if (!positional.empty() && positional[0].is(Type::kDict)) {
    call.budget.make_items(2 * positional[0].as_dict().size());
    for (const auto& [key, value] : positional[0].as_dict().entries()) out.set(key, value);
  } else if (!positional.empty()) {
    for (const Value& item : iterate(positional[0], call.budget)) {
      const Items pair = iterate(item, call.budget);
      if (pair.size() != 2) throw TemplateError(FailureKind::kValue, "dictionary update sequence needs pairs");
      out.set(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : call.arguments.named) out.set(Value(name), value);
  return out;
}

Value run_dict(Call& call) { return Value::dict(collect_entries(call)); }

Value run_namespace(Call& call) {
  Value out = call.interpreter.make_namespace();
  const Dict entries = collect_entries(call);
  for (const auto& [key, value] : entries.entries()) {
    out.as_namespace().set(key.is_string() ? key.text() : call.string_of(key), value);
  }
  return out;
}

Value run_raise(Call& call) { throw TemplateError(FailureKind::kRaised, call.string_of(call[0])); }

Value run_strftime(Call& call) { return Value(format_time(call.text(0), call.interpreter.environment().now())); }

constexpr Native kGlobals[] = {
    {"range", "start stop? step?", run_range}, {"dict", "*", run_dict},
    {"namespace", "*", run_namespace},         {"raise_exception", "message", run_raise},
    {"strftime_now", "format", run_strftime},  {"cycler", "*", run_unsupported},
    {"joiner", "*", run_unsupported},          {"lipsum", "*", run_unsupported},
};

}  // namespace

const Native* find_global(std::string_view name) { return find_native(kGlobals, name); }

}  // namespace sluice::jinja
