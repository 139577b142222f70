// Filters on sequences: order, grouping, sums.
#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "chat/jinja/attribute_path.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/text.h"
#include "chat/jinja/text_tools.h"
#include "chat/jinja/unicode.h"

namespace sluice::jinja {
namespace {

Value run_list(Call& call) { return Value::list(iterate(call.self, call.budget).to_vector()); }

Value run_first(Call& call) {
  if (call.self.is(Type::kIterator)) {
    Iterator& iterator = call.self.as_iterator();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return Value::undefined("No first item, sequence was empty.");
  }
  const Items items = iterate(call.self, call.budget);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items[0];
}

Value run_last(Call& call) {
  if (call.self.is(Type::kIterator)) fail_type("'generator' object is not reversible");
  const Items items = iterate(call.self, call.budget);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items[items.size() - 1];
}

Value run_join(Call& call) {
  const std::string separator = call.has(0) ? call.string_of(call[0]) : "";
  const std::optional<AttributePath> path = AttributePath::of(call, 1);
  const Items items = iterate(call.self, call.budget);
  std::string out;
  bool first = true;
  for (const Value& item : items) {
    if (!first) out += separator;
    first = false;
    const Value value = path ? path->get(item) : item;
    call.budget.make_text(extent(value).weight);
    append_text(out, value);
    call.budget.check_output(out.size());
  }
  return Value(std::move(out));
}

Value run_reverse(Call& call) {
  if (call.self.is_string()) return slice(call.self, Value(), Value(), Value(-1), call.budget);
  if (!is_iterable(call.self)) throw TemplateError(FailureKind::kRuntime, "argument must be iterable");
  auto items = iterate(call.self, call.budget).to_vector();
  std::reverse(items.begin(), items.end());
  return Value::iterator(std::move(items));
}

// A value as the sorting filters see it: text without its case, unless asked otherwise.
Value sort_key(const Value& value, bool case_sensitive) {
  return case_sensitive || !value.is_string() ? value : Value(unicode::to_lower(value.text()));
}

// Sorts stably by keys; reversed as Python's sorted(reverse=True), which keeps equal items in order too.
std::vector<Value> sorted(const std::vector<Value>& items, const std::vector<Value>& keys, bool reverse,
                          Budget& budget) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    budget.step();
    return reverse ? compare(Comparison::kLess, keys[b], keys[a], budget)
                   : compare(Comparison::kLess, keys[a], keys[b], budget);
  });
  std::vector<Value> out;
  out.reserve(items.size());
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

Value run_sort(Call& call) {
  const bool reverse = call.flag(0, false), case_sensitive = call.flag(1, false);
  const auto items = iterate(call.self, call.budget).to_vector();
  // Several attributes with commas compare as a list of values.
  std::vector<AttributePath> paths;
  if (call.has(2) && call[2].is_string()) {
    for (const std::string_view part : split_text(call[2].text(), ",", -1, false)) paths.emplace_back(part);
  } else if (call.has(2) && !call[2].is_none()) {
    paths.emplace_back(call[2]);
  }
  std::vector<Value> keys;
  for (const Value& item : items) {
    call.budget.make(extent(item).weight);
    if (paths.empty()) {
      keys.push_back(sort_key(item, case_sensitive));
    } else if (paths.size() == 1) {
      keys.push_back(sort_key(paths[0].get(item), case_sensitive));
    } else {
      std::vector<Value> parts;
      parts.reserve(paths.size());
      for (const auto& path : paths) parts.push_back(sort_key(path.get(item), case_sensitive));
      keys.push_back(Value::list(std::move(parts)));
    }
  }
  return Value::list(sorted(items, keys, reverse, call.budget));
}

Value run_dictsort(Call& call) {
  if (call.self.is_undefined()) fail_undefined(call.self);
  if (!call.self.is(Type::kDict)) fail_type(fmt::format("'{}' object has no attribute 'items'", type_name(call.self)));
  const bool case_sensitive = call.flag(0, false), reverse = call.flag(2, false);
  const std::string by = call.text(1, "key");
  if (by != "key" && by != "value") {
    throw TemplateError(FailureKind::kRuntime, "You can only sort by either \"key\" or \"value\"");
  }
  std::vector<Value> pairs, keys;
  for (const auto& [key, value] : call.self.as_dict().entries()) {
    call.budget.make(extent(key).weight + extent(value).weight);
    pairs.push_back(Value::tuple({key, value}));
    keys.push_back(sort_key(by == "key" ? key : value, case_sensitive));
  }
  return Value::list(sorted(pairs, keys, reverse, call.budget));
}

Value run_items(Call& call) {
  if (call.self.is_undefined()) return Value::iterator({});
  if (!call.self.is(Type::kDict)) fail_type("Can only get item pairs from a mapping.");
  call.budget.make_items(4 * call.self.as_dict().size());
  DictView view;
  view.dict = call.self;
  view.kind = DictView::Kind::kItems;
  return Value::iterator(view_items(view));
}

Value run_unique(Call& call) {
  const bool case_sensitive = call.flag(0, false);
  const std::optional<AttributePath> path = AttributePath::of(call, 1);
  Dict seen;
  std::vector<Value> out;
  for (const Value& item : iterate(call.self, call.budget)) {
    const Value key = sort_key(path ? path->get(item) : item, case_sensitive);
    call.budget.step(1 + extent(key).weight / 64);
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value());
    out.push_back(item);
  }
  return Value::iterator(std::move(out));
}

Value run_sum(Call& call) {
  const std::optional<AttributePath> path = AttributePath::of(call, 0);
  Value total = call.has(1) ? call[1] : Value(0);
  if (total.is_string()) fail_type("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(call.self, call.budget)) {
    call.budget.step();
    total = binary(Operator::kAdd, total, path ? path->get(item) : item, call.budget);
  }
  return total;
}

template <bool kMax>
Value run_extreme(Call& call) {
  const bool case_sensitive = call.flag(0, false);
  const std::optional<AttributePath> path = AttributePath::of(call, 1);
  const Items items = iterate(call.self, call.budget);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key_of = [&](const Value& item) {
    call.budget.make(extent(item).weight);
    return sort_key(path ? path->get(item) : item, case_sensitive);
  };
  size_t best = 0;
  Value best_key = key_of(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i]);
    if (compare(kMax ? Comparison::kGreater : Comparison::kLess, key, best_key, call.budget)) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}

Value run_batch(Call& call) {
  const int64_t width = call.integer(0, 1);
  const bool has_fill = call.has(1) && !call[1].is_none();
  std::vector<Value> out, row;
  for (const Value& item : iterate(call.self, call.budget)) {
    if (static_cast<int64_t>(row.size()) == width) {
      out.push_back(Value::list(std::move(row)));
      row.clear();
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    if (has_fill && static_cast<int64_t>(row.size()) < width) {
      call.budget.make_items(static_cast<uint64_t>(width));
      row.resize(static_cast<size_t>(width), call[1]);
    }
    out.push_back(Value::list(std::move(row)));
  }
  return Value::iterator(std::move(out));
}

Value run_slice(Call& call) {
  const int64_t slices = call.integer(0, 1);
  const Items items = iterate(call.self, call.budget);
  if (slices == 0) throw TemplateError(FailureKind::kZeroDivision, "integer division or modulo by zero");
  if (slices < 0) return Value::iterator({});
  const bool has_fill = call.has(1) && !call[1].is_none();
  call.budget.make_items(2 * static_cast<uint64_t>(slices));
  const auto count = static_cast<uint64_t>(slices);
  const uint64_t each = items.size() / count, longer = items.size() % count;
  std::vector<Value> out;
  size_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const size_t size = each + (i < longer ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<ptrdiff_t>(at),
                            items.begin() + static_cast<ptrdiff_t>(at + size));
    at += size;
    if (has_fill && i >= longer) part.push_back(call[1]);
    out.push_back(Value::list(std::move(part)));
  }
  return Value::iterator(std::move(out));
}

Value make_group(const Value& key, std::vector<Value> members) {
  const Value pair = Value::tuple({key, Value::list(std::move(members))});
  auto group = std::make_shared<Sequence>();
  group->items = pair.items();
  group->extent = pair.as_sequence().extent;
  group->is_group = true;
  return {Type::kTuple, std::move(group)};
}

Value run_groupby(Call& call) {
  AttributePath path(call[0]);
  if (call.has(1) && !call[1].is_none()) path.set_fallback(call[1]);
  const bool case_sensitive = call.flag(2, false);
  const auto items = iterate(call.self, call.budget).to_vector();
  std::vector<Value> keys;
  for (const Value& item : items) {
    call.budget.make(extent(item).weight);
    keys.push_back(sort_key(path.get(item), case_sensitive));
  }
  std::vector<Value> out, members;
  Value current;
  const auto flush = [&] {
    // The group is named by its first member, case and all.
    if (!members.empty()) {
      const Value name = path.get(members.front());
      out.push_back(make_group(name, std::move(members)));
    }
    members.clear();
  };
  for (const Value& item : sorted(items, keys, false, call.budget)) {
    const Value key = sort_key(path.get(item), case_sensitive);
    if (!members.empty() && !compare(Comparison::kEqual, key, current, call.budget)) flush();
    current = key;
    members.push_back(item);
  }
  flush();
  return Value::list(std::move(out));
}

constexpr Native kFilters[] = {
    {"batch", "linecount fill_with?", run_batch},
    {"dictsort", "case_sensitive? by? reverse?", run_dictsort},
    {"first", "", run_first},
    {"groupby", "attribute default? case_sensitive?", run_groupby},
    {"items", "", run_items},
    {"join", "d? attribute?", run_join},
    {"last", "", run_last},
    {"list", "", run_list},
    {"max", "case_sensitive? attribute?", run_extreme<true>},
    {"min", "case_sensitive? attribute?", run_extreme<false>},
    {"reverse", "", run_reverse},
    {"slice", "slices fill_with?", run_slice},
    {"sort", "reverse? case_sensitive? attribute?", run_sort},
    {"sum", "attribute? start?", run_sum},
    {"unique", "case_sensitive? attribute?", run_unique},
};

}  // namespace

std::span<const Native> sequence_filters() { return kFilters; }

}  // namespace sluice::jinja
