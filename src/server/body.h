// The JSON of a request as values: those that chat templates compute with, so that messages and tools go to them as
// they came, in the order of their keys. Not here: which fields there are (fields.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chat/jinja/value.h"

namespace sluice::server {

struct BodyLimits {
  uint32_t depth = 64;                // lists and objects inside one another
  size_t elements = size_t{4} << 20;  // items of lists and members of objects, in all: a prompt of tokens has so many
};

// The object that `text` holds; an empty text is an empty object. Of a key that occurs twice the last value counts, as
// in most readers of JSON. Takes time and memory linear in the text. Throws ApiError(400), saying where, for what is no
// JSON (lone surrogates, bytes that are no UTF-8, NaN and numbers that no double holds among it), for integers beyond
// 64 bits, for another value than an object, and beyond the limits.
jinja::Value parse_body(std::string_view text, const BodyLimits& limits = {});

}  // namespace sluice::server
