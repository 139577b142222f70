// What the tests of this room share: reproducible random data, quantized rows and blocks, and comparison by bits.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/cpu/kernels.h"
#include "quant/format.h"

namespace sluice::test {

// A small generator whose draws are the same on every machine (SplitMix64: Steele, Lea and Flood, 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits();
  double uniform();  // [0, 1)
  float symmetric() { return static_cast<float>(2.0 * uniform() - 1.0); }
  size_t below(size_t n) { return static_cast<size_t>(bits() % n); }

 private:
  uint64_t state_;
};

enum class Kind {
  kPlain,    // evenly in [-1, 1]
  kExtreme,  // any sign and magnitude that an f32 has, zeros and denormals among them, all finite
  kSpecial,  // plain values, some of them infinite or NaN
};
std::vector<float> random_floats(Random& random, size_t n, Kind kind = Kind::kPlain, float scale = 1.0f);

// Blocks whose every code may occur and whose f32 scales are between 2^-12 and 2^4 (or zero), so that sums stay finite.
std::vector<std::byte> random_blocks(Random& random, const quant::Format& format, size_t n_blocks);

// A row of activations per 32 or 256 values as int8, or as it is, in the form that products with `format` read.
class Activated {
 public:
  // Takes x [n_rows, n] and quantizes it with `kernels` if the format's products want that.
  Activated(const ops::cpu::Kernels& kernels, const quant::Format& format, std::vector<float> x, size_t n);
  // Takes the int8 form itself: q [n], scale [n / block].
  Activated(std::vector<int8_t> q, std::vector<float> scale);

  const ops::cpu::Rows& rows() const { return rows_; }
  // Value i of row r as the products see it: q * scale, or the f32.
  double value(size_t r, size_t i) const;

 private:
  std::vector<float> x_, scale_;
  std::vector<int8_t> q_;
  std::vector<int16_t> sums_;
  ops::cpu::Rows rows_;
};

// The whole of one query row's attention over positions 0 .. n_keys - 1, segment by segment: out [n_heads, value_dim].
// `job` needs no running softmaxes and no positions.
void attend(const ops::cpu::Kernels& kernels, ops::cpu::AttentionJob job, size_t n_keys, float* out);

// Equal bit for bit, but for NaN, whose sign and payload are nobody's promise.
testing::AssertionResult same_bits(std::span<const float> got, std::span<const float> want);

// Rounding unit of f32: half the distance of 1 and the next float.
constexpr double kUnit = 0x1p-24;

}  // namespace sluice::test
