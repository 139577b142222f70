// What Python's operators, len(), iter() and truth do with values. Failures are TemplateErrors of Python's kinds.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/budget.h"
#include "chat/jinja/value.h"

namespace sluice::jinja {

[[noreturn]] void fail_type(const std::string& message);
// Undefined was used where a value is needed: kUndefined, or kSecurity for what the sandbox withholds.
[[noreturn]] void fail_undefined(const Value& undefined);

bool truthy(const Value& value);
bool equal(const Value& a, const Value& b);
// `is` in Python, as far as values have an identity.
bool same(const Value& a, const Value& b);
bool compare(Comparison op, const Value& a, const Value& b, Budget& budget);

Value binary(Operator op, const Value& a, const Value& b, Budget& budget);
Value unary(Operator op, const Value& operand);

// len(); nothing for types that have none.
std::optional<int64_t> length(const Value& value);

// The items of an iterable, borrowed from a list or made anew. An iterator is used up.
class Items {
 public:
  explicit Items(std::vector<Value> owned) : owned_(std::move(owned)), span_(owned_) {}
  explicit Items(Value keep) : keep_(std::move(keep)), span_(keep_.items()) {}
  Items(Items&& other) noexcept : keep_(std::move(other.keep_)), owned_(std::move(other.owned_)), span_(other.span_) {}
  std::span<const Value> span() const { return span_; }
  auto begin() const { return span_.begin(); }
  auto end() const { return span_.end(); }
  size_t size() const { return span_.size(); }
  bool empty() const { return span_.empty(); }
  const Value& operator[](size_t index) const { return span_[index]; }
  std::vector<Value> to_vector() const { return {span_.begin(), span_.end()}; }

 private:
  Value keep_;
  std::vector<Value> owned_;
  std::span<const Value> span_;
};
// Throws TemplateError(kType) for what can't be iterated; undefined has no items.
Items iterate(const Value& value, Budget& budget);
bool is_iterable(const Value& value);
std::vector<Value> view_items(const DictView& view);

// value[start:stop:step]; None stands for a bound left out.
Value slice(const Value& value, const Value& start, const Value& stop, const Value& step, Budget& budget);
// The index of a sequence of `size` items that Python's index means, if there is one.
std::optional<int64_t> sequence_index(int64_t index, int64_t size);

// Integers that don't fit end with kUnsupported: Python's grow.
[[noreturn]] void fail_big_integer();

// Of the interpreter's own objects (interpreter.cpp).
Extent loop_extent(const Value& loop);
std::string loop_repr(const Value& loop);
std::string macro_repr(const Value& macro);
Items loop_items(const Value& loop);
size_t loop_size(const Value& loop);

}  // namespace sluice::jinja
