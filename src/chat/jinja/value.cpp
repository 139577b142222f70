#include "chat/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "chat/jinja/jinja.h"
#include "chat/jinja/operators.h"

namespace sluice::jinja {
namespace {

// Up to this many entries a dict is searched from front to back.
constexpr size_t kSmallDict = 8;
// A dict whose keys collide more often than this was made to; it would only cost time.
constexpr size_t kMaxProbes = 1024;
constexpr uint64_t kMaxKeyWeight = uint64_t{1} << 20;

Value make_string(std::string text, bool safe) {
  auto object = std::make_shared<String>();
  object->text = std::move(text);
  object->safe = safe;
  return {Type::kString, std::move(object)};
}

void check_depth(const Extent& extent) {
  if (extent.depth > kMaxValueDepth) {
    throw TemplateError(FailureKind::kRecursion, fmt::format("a value nests more than {} levels deep", kMaxValueDepth));
  }
}

Extent extent_around(std::span<const Value> items) {
  Extent out{1, 16};
  for (const Value& item : items) out.add(extent(item));
  check_depth(out);
  return out;
}

Value make_sequence(Type type, std::vector<Value> items) {
  auto object = std::make_shared<Sequence>();
  object->extent = extent_around(items);
  object->items = std::move(items);
  return {type, std::move(object)};
}

Value make_undefined(Undefined::Cause cause, std::string name, std::string_view owner) {
  auto object = std::make_shared<Undefined>();
  object->cause = cause;
  object->name = std::move(name);
  object->owner = owner;
  return {Type::kUndefined, std::move(object)};
}

}  // namespace

Value::Value(std::string text) : Value(make_string(std::move(text), false)) {}
Value::Value(std::string_view text) : Value(make_string(std::string(text), false)) {}
Value Value::safe_string(std::string text) { return make_string(std::move(text), true); }
Value Value::string_like(const String& like, std::string text) { return make_string(std::move(text), like.safe); }

Value Value::list(std::vector<Value> items) { return make_sequence(Type::kList, std::move(items)); }
Value Value::tuple(std::vector<Value> items) { return make_sequence(Type::kTuple, std::move(items)); }
Value Value::dict(Dict entries) {
  check_depth(entries.extent());
  return {Type::kDict, std::make_shared<Dict>(std::move(entries))};
}

Value Value::iterator(std::vector<Value> items) {
  auto object = std::make_shared<Iterator>();
  object->extent = extent_around(items);
  object->items = std::move(items);
  return {Type::kIterator, std::move(object)};
}

Value Value::undefined(std::string message) {
  return make_undefined(Undefined::Cause::kMessage, std::move(message), {});
}
Value Value::undefined_name(std::string name) { return make_undefined(Undefined::Cause::kName, std::move(name), {}); }
Value Value::undefined_attribute(std::string_view owner, std::string name) {
  return make_undefined(Undefined::Cause::kAttribute, std::move(name), owner);
}
Value Value::unsafe_attribute(std::string_view owner, std::string attribute) {
  return make_undefined(Undefined::Cause::kUnsafe, std::move(attribute), owner);
}

const Undefined& Value::as_undefined() const { return object<Undefined>(); }
const String& Value::as_string() const { return object<String>(); }
const std::string& Value::text() const { return object<String>().text; }
const Sequence& Value::as_sequence() const { return object<Sequence>(); }
const std::vector<Value>& Value::items() const { return object<Sequence>().items; }
const Dict& Value::as_dict() const { return object<Dict>(); }
const Range& Value::as_range() const { return object<Range>(); }
const DictView& Value::as_view() const { return object<DictView>(); }
Iterator& Value::as_iterator() const { return object<Iterator>(); }
Namespace& Value::as_namespace() const { return object<Namespace>(); }
const Function& Value::as_function() const { return object<Function>(); }

void Extent::add(const Extent& item) {
  depth = std::max(depth, item.depth + 1);
  if (__builtin_add_overflow(weight, item.weight, &weight)) weight = UINT64_MAX;
}

Extent extent(const Value& value) {
  switch (value.type()) {
    case Type::kString:
      return {0, 16 + value.text().size()};
    case Type::kList:
    case Type::kTuple:
      return value.as_sequence().extent;
    case Type::kDict:
      return value.as_dict().extent();
    case Type::kDictView: {
      Extent out{1, 16};
      out.add(extent(value.as_view().dict));
      return out;
    }
    case Type::kIterator:
      return value.as_iterator().extent;
    case Type::kFunction:
      return extent(value.as_function().self);
    case Type::kLoop:
      return loop_extent(value);
    default:
      return {};  // a namespace may hold anything, itself too: the interpreter empties all of them at the end
  }
}

std::string Undefined::message() const {
  switch (cause) {
    case Cause::kMessage:
      return name;
    case Cause::kName:
      return fmt::format("'{}' is undefined", name);
    case Cause::kAttribute:
      return fmt::format("'{}' has no attribute or element '{}'", owner, name);
    case Cause::kUnsafe:
      return fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, owner);
  }
  return name;
}

int64_t Range::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  const auto from = static_cast<uint64_t>(start), to = static_cast<uint64_t>(stop), by = static_cast<uint64_t>(step);
  const uint64_t last = step > 0 ? (to - from - 1) / by : (from - to - 1) / (0 - by);
  return last >= INT64_MAX ? INT64_MAX : static_cast<int64_t>(last) + 1;
}

int64_t Range::at(int64_t index) const {
  return static_cast<int64_t>(static_cast<uint64_t>(start) +
                              static_cast<uint64_t>(index) * static_cast<uint64_t>(step));
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(name, std::move(value));
}

size_t hash(const Value& key) {
  switch (key.type()) {
    case Type::kNone:
      return 1;
    case Type::kBool:
    case Type::kInt:
      return std::hash<int64_t>{}(key.as_int());
    case Type::kFloat: {
      // A whole number hashes as the integer that it equals.
      const double number = key.as_double();
      if (number == std::floor(number) && std::abs(number) < 9e18) {
        return std::hash<int64_t>{}(static_cast<int64_t>(number));
      }
      return std::hash<double>{}(number);
    }
    case Type::kString:
      return std::hash<std::string_view>{}(key.text());
    case Type::kTuple: {
      if (key.as_sequence().extent.weight > kMaxKeyWeight) {
        throw TemplateError(FailureKind::kLimit, fmt::format("a tuple of over {} bytes as a key", kMaxKeyWeight));
      }
      size_t out = 7;
      for (const Value& item : key.items()) out = out * 31 + hash(item);
      return out;
    }
    case Type::kRange:
      return static_cast<size_t>(key.as_range().size());
    case Type::kList:
    case Type::kDict:
    case Type::kDictView:
      throw TemplateError(FailureKind::kType, fmt::format("unhashable type: '{}'", type_name(key)));
    case Type::kUndefined:
      return 3;
    default:
      return std::hash<const void*>{}(key.identity());
  }
}

namespace {

// Spreads hashes that differ only in high or low bits over the buckets.
size_t bucket_of(size_t key_hash, size_t mask) { return ((key_hash * 0x9E3779B97F4A7C15u) >> 20) & mask; }

void count_probe(size_t& probes) {
  if (++probes > kMaxProbes) throw TemplateError(FailureKind::kLimit, "the keys of a dict collide too often");
}

}  // namespace

template <typename Matches>
size_t Dict::locate(size_t key_hash, Matches&& matches) const {
  if (buckets_.empty()) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (matches(entries_[i].first)) return i;
    }
    return entries_.size();
  }
  const size_t mask = buckets_.size() - 1;
  size_t probes = 0;
  for (size_t slot = bucket_of(key_hash, mask); buckets_[slot] != 0; slot = (slot + 1) & mask) {
    count_probe(probes);
    if (matches(entries_[buckets_[slot] - 1].first)) return buckets_[slot] - 1;
  }
  return entries_.size();
}

void Dict::rebuild_buckets(size_t count) {
  buckets_.assign(count, 0);
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t slot = bucket_of(hash(entries_[i].first), count - 1), probes = 0;
    for (; buckets_[slot] != 0; slot = (slot + 1) & (count - 1)) count_probe(probes);
    buckets_[slot] = static_cast<uint32_t>(i + 1);
  }
}

void Dict::set(Value key, Value value) {
  const size_t key_hash = hash(key);
  extent_.add(jinja::extent(key));
  extent_.add(jinja::extent(value));
  const size_t index = locate(key_hash, [&](const Value& other) { return equal(key, other); });
  if (index < entries_.size()) {
    entries_[index].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() <= kSmallDict) return;
  if (2 * entries_.size() > buckets_.size()) {
    rebuild_buckets(std::max<size_t>(32, 2 * buckets_.size()));
    return;
  }
  size_t slot = bucket_of(key_hash, buckets_.size() - 1);
  while (buckets_[slot] != 0) slot = (slot + 1) & (buckets_.size() - 1);
  buckets_[slot] = static_cast<uint32_t>(entries_.size());
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.text()));
  const size_t index = locate(hash(key), [&](const Value& other) { return equal(key, other); });
  return index < entries_.size() ? &entries_[index].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const size_t key_hash = buckets_.empty() ? 0 : std::hash<std::string_view>{}(key);
  const size_t index = locate(key_hash, [&](const Value& other) { return other.is_string() && other.text() == key; });
  return index < entries_.size() ? &entries_[index].second : nullptr;
}

const Value* field(const Value& object, std::string_view name) {
  return object.is(Type::kDict) ? object.as_dict().find(name) : nullptr;
}

std::string_view type_name(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "NoneType";
    case Type::kBool:
      return "bool";
    case Type::kInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kString:
      return value.as_string().safe ? "Markup" : "str";
    case Type::kList:
      return "list";
    case Type::kTuple:
      return "tuple";
    case Type::kDict:
      return "dict";
    case Type::kRange:
      return "range";
    case Type::kDictView: {
      constexpr std::string_view kNames[] = {"dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<int>(value.as_view().kind)];
    }
    case Type::kIterator:
      return "generator";
    case Type::kNamespace:
      return "Namespace";
    case Type::kFunction:
      return "function";
    case Type::kMacro:
      return "Macro";
    case Type::kLoop:
      return "LoopContext";
  }
  return "object";
}

}  // namespace sluice::jinja
