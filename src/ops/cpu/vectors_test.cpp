// What the element-wise kernels and the reductions over one row compute, against plain double. The bounds are derived
// from the number of roundings, so that a wrong term can't hide below them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/cpu/isa.h"
#include "ops/cpu/kernels.h"
#include "ops/test_data.h"

// The lanes themselves, to measure exp alone.
#define SLUICE_ISA test
namespace sluice::ops::cpu::test_lanes {
#include "ops/cpu/vec16.h"
}

namespace sluice::ops::cpu {
namespace {

using test::Kind;
using test::kUnit;
using test::Random;
using test::random_floats;
using test::same_bits;

constexpr size_t kSizes[] = {1, 15, 16, 17, 31, 160, 192, 256, 1000};
// Bound of exp's relative error.
constexpr double kExpError = 0x1p-23;

const Kernels& scalar() { return find_kernels("scalar"); }

double silu(double x) { return x / (1 + std::exp(-x)); }
double sum_of_squares(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += double{v} * v;
  return sum;
}

// ---- exp -----------------------------------------------------------------------------------------------------------

float exp_of(float x) {
  float lanes[16];
  test_lanes::exp(test_lanes::F32x16::all(x)).store(lanes);
  return lanes[7];
}

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

// Every 1009th float; over all 2,237,573,367 of them the largest relative error is 7.9e-8, 2^-23.6.
TEST(ExpOfLanes, RelativeErrorIsBelowItsBound) {
  double worst = 0;
  float worst_at = 0;
  for (const uint32_t sign : {0u, 0x80000000u})
    for (uint32_t bits = 0; bits < 0x42B00000u; bits += 1009) {
      const float x = from_bits(sign | bits);
      if (x < -87.33f || x > 88.37f) continue;
      const double want = std::exp(static_cast<double>(x));
      const double error = std::fabs(exp_of(x) - want) / want;
      if (error > worst) worst = error, worst_at = x;
    }
  EXPECT_LT(worst, 0x1p-23) << "at " << worst_at;
}

TEST(ExpOfLanes, EndsAndSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(same_bits(std::vector{exp_of(0.0f), exp_of(-0.0f)}, std::vector{1.0f, 1.0f}));
  EXPECT_GT(exp_of(-87.33f), 0.0f);
  EXPECT_LT(exp_of(88.37f), infinity);
  const float below = std::nextafter(-87.33f, -infinity), above = std::nextafter(88.37f, infinity);
  // -8.7e6 and its like make the rounding trick leave its range: the result must not depend on what that gives.
  for (const float x : {below, -100.0f, -8.7e6f, -8.8e6f, -1.7e7f, -1e30f, -infinity}) {
    EXPECT_TRUE(same_bits(std::vector{exp_of(x)}, std::vector{0.0f})) << x;
  }
  for (const float x : {above, 100.0f, 8.7e6f, 1e30f, infinity}) EXPECT_EQ(exp_of(x), infinity) << x;
  EXPECT_TRUE(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(exp_of(-std::numeric_limits<float>::quiet_NaN())));
}

// ---- norms ---------------------------------------------------------------------------------------------------------

TEST(RmsNormKernel, MatchesDouble) {
  for (const size_t n : kSizes)
    for (const float scale : {1e-3f, 1.0f, 1e4f}) {
      Random random(n);
      const std::vector<float> x = random_floats(random, n, Kind::kPlain, scale), weight = random_floats(random, n);
      std::vector<float> y(n);
      scalar().rms_norm(x.data(), weight.data(), n, 1e-6f, y.data());
      const double inverse = 1 / std::sqrt(sum_of_squares(x) / static_cast<double>(n) + double{1e-6f});
      for (size_t i = 0; i < n; ++i) {
        const double want = x[i] * inverse * weight[i];
        EXPECT_NEAR(y[i], want, (static_cast<double>(n) / 32 + 8) * kUnit * std::fabs(want)) << i << " of " << n;
      }
    }
}

TEST(RmsNormKernel, EpsilonKeepsZeroRowsZero) {
  std::vector<float> x(48, 0.0f), weight(48, 2.0f);
  scalar().rms_norm(x.data(), weight.data(), 48, 1e-6f, x.data());
  EXPECT_TRUE(same_bits(x, std::vector<float>(48, 0.0f)));
}

TEST(L2NormKernel, MatchesDouble) {
  for (const size_t n : kSizes) {
    Random random(n);
    const std::vector<float> x = random_floats(random, n);
    std::vector<float> y = x;
    scalar().l2_norm(y.data(), n, 1e-6f, 0.125f);
    const double inverse = 0.125 / std::sqrt(sum_of_squares(x));
    for (size_t i = 0; i < n; ++i) {
      const double want = x[i] * inverse;
      EXPECT_NEAR(y[i], want, (static_cast<double>(n) / 32 + 8) * kUnit * std::fabs(want)) << i << " of " << n;
    }
  }
}

TEST(L2NormKernel, DividesByEpsilonWhereTheLengthIsSmaller) {
  // The length is compared with eps, not added to it.
  std::vector<float> x = {6e-8f, 8e-8f};
  scalar().l2_norm(x.data(), 2, 1e-6f, 1.0f);
  EXPECT_NEAR(x[0], 0.06, 1e-8);
  EXPECT_NEAR(x[1], 0.08, 1e-8);
  std::vector<float> longer = {7.2e-7f, 9.6e-7f};  // 1.2 eps
  scalar().l2_norm(longer.data(), 2, 1e-6f, 1.0f);
  EXPECT_NEAR(longer[0], 0.6, 1e-6);
}

// ---- activation functions ------------------------------------------------------------------------------------------

TEST(SiluMulKernel, MatchesDouble) {
  for (const size_t n : kSizes)
    for (const float scale : {0.01f, 1.0f, 20.0f, 200.0f}) {
      Random random(n);
      const std::vector<float> gate = random_floats(random, n, Kind::kPlain, scale), up = random_floats(random, n);
      std::vector<float> y(n);
      scalar().silu_mul(gate.data(), up.data(), n, y.data());
      for (size_t i = 0; i < n; ++i) {
        const double want = silu(gate[i]) * up[i];
        // Below -88.37 the sigmoid is 0 where it should be some 1e-39.
        EXPECT_NEAR(y[i], want, (kExpError + 5 * kUnit) * std::fabs(want) + 1e-36) << gate[i];
      }
    }
}

TEST(SigmoidMulKernel, MatchesDouble) {
  for (const size_t n : kSizes)
    for (const float scale : {0.01f, 1.0f, 20.0f, 200.0f}) {
      Random random(n);
      const std::vector<float> gate = random_floats(random, n, Kind::kPlain, scale), x = random_floats(random, n);
      std::vector<float> y = x;
      scalar().sigmoid_mul(y.data(), gate.data(), n);
      for (size_t i = 0; i < n; ++i) {
        const double want = x[i] / (1 + std::exp(-double{gate[i]}));
        EXPECT_NEAR(y[i], want, (kExpError + 4 * kUnit) * std::fabs(want) + 1e-38) << gate[i];
      }
    }
}

TEST(SoftmaxKernel, MatchesDoubleAndSumsToOne) {
  for (const size_t n : kSizes)
    for (const float scale : {0.01f, 1.0f, 30.0f, 1e4f}) {
      Random random(n);
      const std::vector<float> x = random_floats(random, n, Kind::kPlain, scale);
      std::vector<float> y = x;
      scalar().softmax(y.data(), n);
      const double top = *std::max_element(x.begin(), x.end());
      double total = 0, sum = 0;
      for (const float v : x) total += std::exp(v - top);
      for (size_t i = 0; i < n; ++i) {
        // The f32 difference from the largest value is rounded, and exp turns absolute into relative errors.
        const double argument = x[i] - top, want = std::exp(argument) / total;
        const double bound = 2 * kExpError + (static_cast<double>(n) / 16 + 8 - argument) * kUnit;
        EXPECT_NEAR(y[i], want, bound * want + 2e-38) << i << " of " << n;
        sum += y[i];
      }
      EXPECT_NEAR(sum, 1.0, (static_cast<double>(n) / 16 + 8) * kUnit);
    }
}

TEST(SoftmaxKernel, NanAnywhereMakesAllNan) {
  for (const size_t at : {0, 5, 16, 18}) {
    std::vector<float> x(19, 1.0f);
    x[at] = std::numeric_limits<float>::quiet_NaN();
    scalar().softmax(x.data(), x.size());
    for (const float v : x) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(AddScaledKernel, RoundsOnce) {
  Random random(2);
  const std::vector<float> x = random_floats(random, 100), y = random_floats(random, 100);
  std::vector<float> got = y, want(100);
  for (size_t i = 0; i < 100; ++i) want[i] = std::fma(0.7f, x[i], y[i]);
  scalar().add_scaled(0.7f, x.data(), 100, got.data());
  EXPECT_TRUE(same_bits(got, want));
}

// ---- rotary position embedding -------------------------------------------------------------------------------------

class RopeKernel : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Pairings, RopeKernel, testing::Bool(),
                         [](const auto& test_case) { return test_case.param ? "Adjacent" : "Halves"; });

TEST_P(RopeKernel, TurnsEachPairByItsAngleAndKeepsTheRest) {
  constexpr size_t n_pairs = 24, width = 64;
  const bool adjacent = GetParam();
  Random random(4);
  const std::vector<float> x = random_floats(random, width);
  std::vector<float> cos(n_pairs), sin(n_pairs), y = x;
  for (size_t j = 0; j < n_pairs; ++j) {
    const double angle = 100 * random.uniform();
    cos[j] = static_cast<float>(std::cos(angle)), sin[j] = static_cast<float>(std::sin(angle));
  }
  scalar().rope(y.data(), cos.data(), sin.data(), n_pairs, adjacent ? 2 : 1, adjacent ? 1 : n_pairs);
  for (size_t j = 0; j < n_pairs; ++j) {
    const size_t a = adjacent ? 2 * j : j, b = adjacent ? 2 * j + 1 : n_pairs + j;
    const double first = double{x[a]} * cos[j] - double{x[b]} * sin[j];
    const double second = double{x[a]} * sin[j] + double{x[b]} * cos[j];
    EXPECT_NEAR(y[a], first, 2 * kUnit) << j;
    EXPECT_NEAR(y[b], second, 2 * kUnit) << j;
    EXPECT_NEAR(std::hypot(double{y[a]}, double{y[b]}), std::hypot(double{x[a]}, double{x[b]}), 8 * kUnit) << j;
  }
  EXPECT_TRUE(same_bits({y.data() + 2 * n_pairs, width - 2 * n_pairs}, {x.data() + 2 * n_pairs, width - 2 * n_pairs}));
}

}  // namespace
}  // namespace sluice::ops::cpu
