// The values that a chat template computes with: Python's, as far as templates can see them. A Value is two words and
// a shared pointer; strings, lists and dicts are shared and never change once made, so copies are cheap and a context
// can be rendered from several threads at once. Only a render's own namespaces, iterators and loops change.
// Not here: what operators, filters and methods do with them (operators.h, builtins.h).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::jinja {

// What a container made from outside or by a template may nest; it bounds every recursion over values.
constexpr uint32_t kMaxValueDepth = 256;

enum class Type : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kDictView,
  kIterator,
  kNamespace,
  kFunction,
  kMacro,
  kLoop,
};

// Base of everything that a Value shares.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

struct Undefined;
struct String;
struct Sequence;
class Dict;
struct Range;
struct DictView;
struct Iterator;
struct Namespace;
struct Function;

class Value {
 public:
  Value() = default;  // None
  Value(std::same_as<bool> auto truth) : type_(Type::kBool) { scalar_.truth = truth; }
  template <std::integral T>
  requires(!std::same_as<T, bool>) Value(T integer) : type_(Type::kInt) {
    scalar_.integer = static_cast<int64_t>(integer);
  }
  Value(double number) : type_(Type::kFloat) { scalar_.number = number; }
  Value(std::string text);
  Value(std::string_view text);
  Value(const char* text) : Value(std::string_view(text)) {}
  Value(Type type, std::shared_ptr<Object> object) : object_(std::move(object)), type_(type) {}

  // A string marked as needing no HTML escape (Python's Markup).
  static Value safe_string(std::string text);
  // A string with the mark of `like`.
  static Value string_like(const String& like, std::string text);
  // Lists, tuples and dicts; throw TemplateError(kRecursion) past kMaxValueDepth.
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(Dict entries);
  // A one-pass sequence, as Python's generators are.
  static Value iterator(std::vector<Value> items);
  // Undefined; using it where a value is needed fails with `message`.
  static Value undefined(std::string message);
  // Undefined because `name` names nothing at all, or nothing in an object of type `owner`.
  static Value undefined_name(std::string name);
  static Value undefined_attribute(std::string_view owner, std::string name);
  // What the sandbox gives for `attribute` of an object of type `owner`: undefined, and a security error when used.
  static Value unsafe_attribute(std::string_view owner, std::string attribute);

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  bool is_undefined() const { return type_ == Type::kUndefined; }
  bool is_none() const { return type_ == Type::kNone; }
  bool is_string() const { return type_ == Type::kString; }
  bool is_integral() const { return type_ == Type::kInt || type_ == Type::kBool; }
  bool is_number() const { return is_integral() || type_ == Type::kFloat; }

  // Accessors; the caller has looked at type().
  bool as_bool() const { return scalar_.truth; }
  int64_t as_int() const { return type_ == Type::kBool ? int64_t{scalar_.truth} : scalar_.integer; }
  double as_double() const { return type_ == Type::kFloat ? scalar_.number : static_cast<double>(as_int()); }
  const Undefined& as_undefined() const;
  const String& as_string() const;
  const std::string& text() const;
  const Sequence& as_sequence() const;  // list or tuple
  const std::vector<Value>& items() const;
  const Dict& as_dict() const;
  const Range& as_range() const;
  const DictView& as_view() const;
  Iterator& as_iterator() const;
  Namespace& as_namespace() const;
  const Function& as_function() const;
  template <typename T>
  T& object() const {
    return static_cast<T&>(*object_);
  }
  const Object* identity() const { return object_.get(); }

 private:
  std::shared_ptr<Object> object_;
  union Scalar {
    int64_t integer = 0;
    bool truth;
    double number;
  } scalar_;
  Type type_ = Type::kNone;
};

// How large a value is when every shared part counts as often as it is met. Kept by each container, since walking a
// value (to print, compare or hash it) may take exponential time in the number of lists that make it.
struct Extent {
  uint32_t depth = 0;    // containers inside one another, 0 for a scalar
  uint64_t weight = 16;  // bytes, roughly; saturates
  // Takes in an item of a container. The container's depth is one more than that of its deepest item.
  void add(const Extent& item);
};
Extent extent(const Value& value);

struct Undefined : Object {
  enum class Cause : uint8_t { kMessage, kName, kAttribute, kUnsafe };
  Cause cause = Cause::kMessage;
  std::string name;        // or the whole message
  std::string_view owner;  // a type's name, static storage
  std::string message() const;
};

struct String : Object {
  std::string text;  // UTF-8
  bool safe = false;
};

struct Sequence : Object {
  std::vector<Value> items;
  Extent extent;
  bool is_group = false;  // of the groupby filter: (grouper, list)
};

// An ordered dict. Keys compare as in Python (1, 1.0 and true are one key).
class Dict : public Object {
 public:
  using Entry = std::pair<Value, Value>;
  Dict() = default;
  Dict(Dict&& other) noexcept
      : entries_(std::move(other.entries_)), buckets_(std::move(other.buckets_)), extent_(other.extent_) {}

  // Overwrites in place or appends. Throws TemplateError(kType) for a key that can't be hashed.
  void set(Value key, Value value);
  // Null when absent; throws as set().
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  std::span<const Entry> entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Extent& extent() const { return extent_; }

 private:
  template <typename Matches>
  size_t locate(size_t hash, Matches&& matches) const;
  void rebuild_buckets(size_t count);

  std::vector<Entry> entries_;
  std::vector<uint32_t> buckets_;  // open addressing, entry index + 1; empty while the dict is small
  Extent extent_{1, 16};
};

// A dict's value for a name; null where `object` is no dict or has none.
const Value* field(const Value& object, std::string_view name);

struct Range : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
  int64_t at(int64_t index) const;
};

struct DictView : Object {
  enum class Kind : uint8_t { kKeys, kValues, kItems };
  Value dict;
  Kind kind = Kind::kKeys;
};

struct Iterator : Object {
  std::vector<Value> items;
  size_t next = 0;
  Extent extent;
};

struct Namespace : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

struct Native;  // builtins.h

// A built-in function or a method bound to `self`.
struct Function : Object {
  const Native* native = nullptr;
  Value self;
};

// Python's name of a value's type: "int", "str", "NoneType" ...
std::string_view type_name(const Value& value);
// Hash of a dict key. Throws TemplateError(kType) for lists, dicts and the like, kLimit for a huge tuple.
size_t hash(const Value& key);

}  // namespace sluice::jinja
