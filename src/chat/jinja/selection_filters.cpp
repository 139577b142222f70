// map, select, reject and their kin: filters that apply another filter or test to each item.
#include "chat/jinja/access.h"
#include "chat/jinja/attribute_path.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/text.h"
#include "chat/jinja/text_tools.h"

namespace sluice::jinja {

AttributePath::AttributePath(std::string_view path) {
  for (const std::string_view part : split_text(path, ".", -1, false)) {
    const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    const auto index = is_index ? parse_integer(part) : std::nullopt;
    steps_.push_back(index ? Value(*index) : Value(part));
  }
}

AttributePath::AttributePath(const Value& path) {
  if (path.is_string()) {
    *this = AttributePath(std::string_view(path.text()));
  } else {
    steps_.push_back(path);
  }
}

std::optional<AttributePath> AttributePath::of(const Call& call, size_t index) {
  if (!call.has(index) || call[index].is_none()) return std::nullopt;
  return AttributePath(call[index]);
}

Value AttributePath::get(const Value& item) const {
  Value out = item;
  for (const Value& step : steps_) {
    out = get_item(out, step);
    if (fallback_ && out.is_undefined()) out = *fallback_;
  }
  return out;
}

namespace {

const Value* find_named(const Arguments& arguments, std::string_view name) {
  for (const auto& [key, value] : arguments.named) {
    if (key == name) return &value;
  }
  return nullptr;
}

// A filter or test by the name that the argument at `index` gives, and the arguments behind it. The name is looked up
// only when there is an item to apply it to.
struct Named {
  Named(const Call& call, size_t index) {
    const auto& positional = call.arguments.positional;
    if (positional.size() <= index) return;
    call.budget.make_items(positional.size());
    name = positional[index];
    arguments.positional.assign(positional.begin() + static_cast<ptrdiff_t>(index) + 1, positional.end());
    arguments.named = call.arguments.named;
  }

  Value apply(Call& call, const Value& item, const Native* (*find)(std::string_view), const char* what) {
    if (native == nullptr) {
      if (name.is_string()) native = find(name.text());
      if (native == nullptr) {
        throw TemplateError(FailureKind::kRuntime, fmt::format("No {} named '{}'.", what, to_text(name)));
      }
    }
    return call.interpreter.run(*native, item, arguments);
  }

  Value name;
  Arguments arguments;
  const Native* native = nullptr;
};

// What the operand has to offer; nothing to iterate is no mistake here when it is false.
Items operand_items(Call& call) {
  return truthy(call.self) ? iterate(call.self, call.budget) : Items(std::vector<Value>{});
}

Value run_map(Call& call) {
  std::vector<Value> out;
  if (call.arguments.positional.empty()) {
    const Value* attribute = find_named(call.arguments, "attribute");
    if (attribute == nullptr) throw TemplateError(FailureKind::kRuntime, "map requires a filter argument");
    AttributePath path(*attribute);
    if (const Value* fallback = find_named(call.arguments, "default"); fallback != nullptr && !fallback->is_none()) {
      path.set_fallback(*fallback);
    }
    for (const auto& [name, value] : call.arguments.named) {
      if (name == "attribute" || name == "default") continue;
      throw TemplateError(FailureKind::kRuntime, fmt::format("Unexpected keyword argument '{}'", name));
    }
    for (const Value& item : operand_items(call)) {
      call.budget.step();
      out.push_back(path.get(item));
    }
  } else {
    Named filter(call, 0);
    for (const Value& item : operand_items(call)) out.push_back(filter.apply(call, item, find_filter, "filter"));
  }
  return Value::iterator(std::move(out));
}

// Keeps the items of which the test, or without a name their truth, is kWanted.
template <bool kWanted, bool kByAttribute>
Value run_select(Call& call) {
  std::optional<AttributePath> path;
  if (kByAttribute) {
    if (call.arguments.positional.empty()) {
      throw TemplateError(FailureKind::kRuntime, "Missing parameter for attribute name");
    }
    path.emplace(call.arguments.positional[0]);
  }
  Named test(call, kByAttribute ? 1 : 0);
  std::vector<Value> out;
  for (const Value& item : operand_items(call)) {
    call.budget.step();
    const Value value = path ? path->get(item) : item;
    const bool holds = truthy(test.name.is_none() ? value : test.apply(call, value, find_test, "test"));
    if (holds == kWanted) out.push_back(item);
  }
  return Value::iterator(std::move(out));
}

constexpr Native kFilters[] = {
    {"map", "*", run_map},
    {"reject", "*", run_select<false, false>},
    {"rejectattr", "*", run_select<false, true>},
    {"select", "*", run_select<true, false>},
    {"selectattr", "*", run_select<true, true>},
};

}  // namespace

std::span<const Native> selection_filters() { return kFilters; }

}  // namespace sluice::jinja
