// The key-value part of a GGUF file: values in file order, typed look-up with errors that say what to do, overrides
// from the command line. How values lie in a file is reader.h and writer.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/value.h"

namespace sluice::gguf {

class Metadata {
 public:
  struct Entry {
    std::string key;
    Value value;
  };

  // `source` names where the values come from, in messages.
  explicit Metadata(std::string source = "metadata");
  // Not in line: a variant of so many types would take seconds of every source that owns a file.
  Metadata(const Metadata&);
  Metadata(Metadata&&) noexcept;
  Metadata& operator=(const Metadata&);
  Metadata& operator=(Metadata&&) noexcept;
  ~Metadata();

  const std::string& source() const { return source_; }
  std::span<const Entry> entries() const { return entries_; }

  // Appends; false, and nothing changed, when the key is there already.
  bool add(std::string key, Value value);
  // Replaces the value in its place, or appends.
  void set(std::string key, Value value);
  // Applies "KEY=TYPE:VALUE" with TYPE int, float, bool (true or false) or str, as llama.cpp's --override-kv spells it.
  // Throws Error(kUsage) when the text is not of that form, or when the key describes the file itself
  // (general.alignment, split.*) and not the model.
  void apply_override(std::string_view text);

  const Value* find_value(std::string_view key) const;

  // The value of `key` as a T; nullopt when the key is absent. Throws Error(kFormat) naming source, key, found and
  // wanted type when the value is no T. T is one of
  //   bool, std::string;
  //   int32_t, uint32_t, int64_t, uint64_t: from an integer of any width that T can hold (converters differ in widths);
  //   float, double: from f32 or f64, finite;
  //   std::vector of int32_t, uint32_t, int64_t, float, bool: from an array whose elements convert so.
  template <typename T>
  std::optional<T> find(std::string_view key) const;

  // As find; a missing key is an Error(kFormat) too.
  template <typename T>
  T get(std::string_view key) const;

  // An array of strings in place, for vocabularies of hundreds of thousands; nullptr when absent, errors as find.
  const std::vector<std::string>* find_strings(std::string_view key) const;
  const std::vector<std::string>& get_strings(std::string_view key) const;

 private:
  [[noreturn]] void fail_missing(std::string_view key) const;

  std::string source_;
  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> index_;  // key -> place in entries_; a tree: no input makes it slow
};

}  // namespace sluice::gguf
