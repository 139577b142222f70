// "a.b.0": how filters name an attribute of the items they get.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "chat/jinja/value.h"

namespace sluice::jinja {

class Call;

class AttributePath {
 public:
  // Of a text with dots, or of an integer, which is one index.
  explicit AttributePath(std::string_view path);
  explicit AttributePath(const Value& path);
  // Of a call's parameter, if it is given and not None.
  static std::optional<AttributePath> of(const Call& call, size_t index);

  // Taken where a step of the path is undefined.
  void set_fallback(Value fallback) { fallback_ = std::move(fallback); }
  Value get(const Value& item) const;

 private:
  std::vector<Value> steps_;
  std::optional<Value> fallback_;
};

}  // namespace sluice::jinja
