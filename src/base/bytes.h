// Unaligned little-endian loads and stores. Files and quantized blocks are aligned to 2 bytes at best.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace sluice {

static_assert(std::endian::native == std::endian::little, "Sluice reads little-endian files on little-endian machines");

template <typename T>
requires std::is_trivially_copyable_v<T> T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
requires std::is_trivially_copyable_v<T>
void store(void* to, const T& value) { std::memcpy(to, &value, sizeof(T)); }

}  // namespace sluice
