// The 16-bit float conversions against slow ones that follow the definition of the formats.
#include "quant/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace sluice::quant {
namespace {

// A float of `mantissa_bits` and smallest normal exponent `min_exponent`, by its definition.
double value_of(uint16_t half, int mantissa_bits, int min_exponent) {
  const int exponent = (half & 0x7fff) >> mantissa_bits, mantissa = half & ((1 << mantissa_bits) - 1);
  const int all_ones = 0x7fff >> mantissa_bits;
  double value = std::ldexp(mantissa, min_exponent - mantissa_bits);
  if (exponent > 0) {
    value = std::ldexp(mantissa + (1 << mantissa_bits), exponent - 1 + min_exponent - mantissa_bits);
  }
  if (exponent == all_ones) value = mantissa == 0 ? INFINITY : NAN;
  return (half & 0x8000) != 0 ? -value : value;
}

double f16_value(uint16_t half) { return value_of(half, 10, -14); }
double bf16_value(uint16_t half) { return value_of(half, 7, -126); }

// The nearest of all finite values and infinity (which rounds as if it were the next power of two), ties to even codes.
uint16_t nearest_code(float x, double (*value)(uint16_t), uint16_t infinity_code) {
  const double magnitude = std::fabs(static_cast<double>(x));
  uint16_t low = 0, high = infinity_code;  // value(low) <= magnitude
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (value(middle) <= magnitude ? low : high) = middle;
  }
  const double step = value(low) - value(static_cast<uint16_t>(low - 1)),
               above = low == 0 ? value(1) : value(low) + step;
  const double next = high == infinity_code ? above : value(high);
  const double middle = (value(low) + next) / 2;
  uint16_t code = magnitude < middle || (magnitude == middle && low % 2 == 0) ? low : high;
  if (std::isinf(x)) code = infinity_code;
  return static_cast<uint16_t>(code | (std::signbit(x) ? 0x8000 : 0));
}

std::vector<float> interesting_floats() {
  std::vector<float> out = {0.0f,
                            -0.0f,
                            INFINITY,
                            -INFINITY,
                            65504.0f,
                            65519.996f,
                            65520.0f,
                            65536.0f,
                            std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::denorm_min()};
  for (uint32_t code = 0; code < 0x7f80; code += 3) {  // every third bf16, its upper neighbour's midpoint and beside it
    for (const uint32_t low : {0u, 0x7fffu, 0x8000u, 0x8001u}) out.push_back(std::bit_cast<float>(code << 16 | low));
  }
  for (uint32_t code = 0; code < 0x7c00; ++code) {  // midpoints of all f16 and beside them
    const auto middle = static_cast<float>((f16_value(static_cast<uint16_t>(code)) +
                                            (code == 0x7bff ? 65536.0 : f16_value(static_cast<uint16_t>(code + 1)))) /
                                           2);
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) out.push_back(-x);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(x)) out.push_back(x);
  }
  return out;
}

TEST(Half, EveryF16WidensToItsValue) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const double want = f16_value(static_cast<uint16_t>(code));
    const float got = f16_to_f32(static_cast<uint16_t>(code));
    ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want)) << code;
  }
}

TEST(Half, EveryBf16WidensToItsValue) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const double want = bf16_value(static_cast<uint16_t>(code));
    const float got = bf16_to_f32(static_cast<uint16_t>(code));
    ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want)) << code;
  }
}

TEST(Half, NarrowingRoundsToNearestEven) {
  for (const float x : interesting_floats()) {
    ASSERT_EQ(f32_to_f16(x), nearest_code(x, f16_value, 0x7c00)) << x;
    ASSERT_EQ(f32_to_bf16(x), nearest_code(x, bf16_value, 0x7f80)) << x;
  }
}

TEST(Half, NansStayNansAndKeepTheirSign) {
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    const float nan = std::bit_cast<float>(bits);
    for (const float got : {f16_to_f32(f32_to_f16(nan)), bf16_to_f32(f32_to_bf16(nan))}) {
      EXPECT_TRUE(std::isnan(got)) << bits;
      EXPECT_EQ(std::signbit(got), std::signbit(nan)) << bits;
    }
  }
}

TEST(Half, ConversionsAreConstantExpressions) {
  static_assert(f16_to_f32(0x3c00) == 1.0f && f16_to_f32(0x0001) == 0x1p-24f);
  static_assert(f32_to_f16(-2.0f) == 0xc000 && f32_to_bf16(1.0f) == 0x3f80);
}

}  // namespace
}  // namespace sluice::quant
