// The fields of requests as tables: what each is called, what it may be and what becomes of it. The same tables check a
// request, make docs/api.md and the OpenAPI file. What a field does is up to its reader.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/value.h"

namespace sluice::server {

enum class FieldUse {
  kTaken,
  kRefused,  // with 400, unless its value is `neutral`: without it the answer would be another one
  kIgnored,  // whatever it holds; named in the log
};

// JSON types of a value, as a set.
using JsonTypes = uint8_t;
inline constexpr JsonTypes kInteger = 1, kNumber = 2, kBoolean = 4, kString = 8, kArray = 16, kObject = 32;
inline constexpr JsonTypes kAnything = 63;

struct Field {
  std::string_view name;
  JsonTypes types = kAnything;
  std::string_view text;  // for people, a line without a period
  // Of a number.
  std::optional<double> minimum = {}, maximum = {};
  FieldUse use = FieldUse::kTaken;
  bool required = false;
  // Of a refused field: the value that means the same as leaving it out.
  bool (*neutral)(const jinja::Value&) = nullptr;
};

// The fields of one endpoint; of a name that occurs twice, the first.
class FieldTable {
 public:
  FieldTable(std::initializer_list<std::span<const Field>> parts);
  const std::vector<Field>& fields() const { return fields_; }
  const Field* find(std::string_view name) const;

 private:
  std::vector<Field> fields_;
};

const FieldTable& completion_fields();         // POST /completion
const FieldTable& openai_completion_fields();  // POST /v1/completions
const FieldTable& chat_fields();               // POST /v1/chat/completions
const FieldTable& template_fields();           // POST /apply-template
const FieldTable& tokenize_fields();
const FieldTable& detokenize_fields();
const FieldTable& slot_fields();  // POST /slots/{id}

// "integer or string"
std::string describe(JsonTypes types);

// A request's object read by a table. A field that is null counts as left out. A name that isn't in the table is
// ignored.
class Fields {
 public:
  // Throws ApiError(400) naming the first field that is refused, has a wrong type or lies outside of its range, or that
  // is required and isn't there. Both must outlive this.
  Fields(const jinja::Value& object, const FieldTable& table);

  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Null if it was left out. The table knows the name.
  const jinja::Value* find(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name) const;
  std::optional<bool> boolean(std::string_view name) const;
  bool flag(std::string_view name, bool otherwise) const { return boolean(name).value_or(otherwise); }
  std::optional<std::string> text(std::string_view name) const;

  // What was there and has no effect, in the request's order.
  const std::vector<std::string>& ignored() const { return ignored_; }

 private:
  void check(const Field& field, const jinja::Value& value) const;

  const jinja::Value& object_;
  const FieldTable& table_;
  std::vector<std::string> ignored_;
};

// A number without a fraction that an int64 holds; a number such as 4.0 is one.
std::optional<int64_t> as_integer(const jinja::Value& value);

}  // namespace sluice::server
