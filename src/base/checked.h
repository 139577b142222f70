// Arithmetic on sizes that come from files and requests: overflow is an Error, never a wrapped number.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

#include "base/error.h"

namespace sluice {

template <std::integral T>
std::optional<T> try_mul(T a, T b) {
  T out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

template <std::integral T>
std::optional<T> try_add(T a, T b) {
  T out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// a * b; throws Error(kFormat) naming `what` on overflow.
template <std::integral T>
T checked_mul(T a, T b, const char* what) {
  if (auto out = try_mul(a, b)) return *out;
  fail(ErrorKind::kFormat, "{}: {} x {} does not fit in {} bits", what, a, b, 8 * sizeof(T));
}

// a + b; throws Error(kFormat) naming `what` on overflow.
template <std::integral T>
T checked_add(T a, T b, const char* what) {
  if (auto out = try_add(a, b)) return *out;
  fail(ErrorKind::kFormat, "{}: {} + {} does not fit in {} bits", what, a, b, 8 * sizeof(T));
}

// The smallest multiple of `alignment` (a power of two) that is >= n; nullopt on overflow.
template <std::unsigned_integral T>
std::optional<T> try_align_up(T n, T alignment) {
  auto sum = try_add<T>(n, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

}  // namespace sluice
