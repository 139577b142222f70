#include "base/hash.h"

#include <bit>

#include "base/bytes.h"

namespace sluice {

namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F, kPrime3 = 0x165667B19E3779F9,
                   kPrime4 = 0x85EBCA77C2B2AE63, kPrime5 = 0x27D4EB2F165667C5;

uint64_t round(uint64_t sum, uint64_t lane) { return std::rotl(sum + lane * kPrime2, 31) * kPrime1; }

uint64_t merge(uint64_t hash, uint64_t sum) { return (hash ^ round(0, sum)) * kPrime1 + kPrime4; }

// Takes stripes of 32 bytes off the front: four sums that don't wait for one another, which is where the speed is from.
uint64_t hash_stripes(std::span<const std::byte>& bytes) {
  uint64_t a = kPrime1 + kPrime2, b = kPrime2, c = 0, d = 0 - kPrime1;
  for (; bytes.size() >= 32; bytes = bytes.subspan(32)) {
    a = round(a, load<uint64_t>(&bytes[0]));
    b = round(b, load<uint64_t>(&bytes[8]));
    c = round(c, load<uint64_t>(&bytes[16]));
    d = round(d, load<uint64_t>(&bytes[24]));
  }
  const uint64_t hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
  return merge(merge(merge(merge(hash, a), b), c), d);
}

}  // namespace

uint64_t xxh64(std::span<const std::byte> bytes) {
  const uint64_t length = bytes.size();
  uint64_t hash = (length >= 32 ? hash_stripes(bytes) : kPrime5) + length;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8))
    hash = std::rotl(hash ^ round(0, load<uint64_t>(bytes.data())), 27) * kPrime1 + kPrime4;
  if (bytes.size() >= 4) {
    hash = std::rotl(hash ^ load<uint32_t>(bytes.data()) * kPrime1, 23) * kPrime2 + kPrime3;
    bytes = bytes.subspan(4);
  }
  for (const std::byte byte : bytes) hash = std::rotl(hash ^ static_cast<uint64_t>(byte) * kPrime5, 11) * kPrime1;
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

}  // namespace sluice
