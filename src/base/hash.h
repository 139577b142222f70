// XXH64, a checksum of long ranges: it tells damage, not malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

// XXH64 of `bytes` with seed 0, as Collet's "xxHash fast digest algorithm" specifies it.
//
// Chosen over CRC-32C: as fast as memory delivers with multiplications alone, so without code for each instruction set,
// and 64 bits for records of megabytes.
uint64_t xxh64(std::span<const std::byte> bytes);

}  // namespace sluice
