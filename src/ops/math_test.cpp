// The bounds that math.h states, against long double functions of the C library on dense grids and random arguments.
#include "ops/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/test_data.h"

namespace sluice::ops {
namespace {

static_assert(std::numeric_limits<long double>::digits >= 64, "the reference must be finer than double");

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The largest of error(x) over `n` even steps and as many random points of [low, high].
template <typename Error>
double worst_over(double low, double high, int n, Error error) {
  test::Random random(42);
  double worst = 0;
  for (int i = 0; i <= n; ++i) {
    worst = std::max(worst, static_cast<double>(error(low + (high - low) * i / n)));
    worst = std::max(worst, static_cast<double>(error(low + (high - low) * random.uniform())));
  }
  return worst;
}

long double relative(long double got, long double want) { return std::fabs(got - want) / std::fabs(want); }

TEST(ExpOfDouble, RelativeErrorIsBelowItsBound) {
  const auto error = [](double x) { return relative(exp(x), std::exp(static_cast<long double>(x))); };
  EXPECT_LT(worst_over(-708.0, 709.7, 500000, error), 0x1p-51);
  EXPECT_LT(worst_over(-1.0, 1.0, 200000, error), 0x1p-51);
  EXPECT_LT(worst_over(-1e-9, 1e-9, 10000, error), 0x1p-51);
}

TEST(ExpOfDouble, SubnormalResultsAreWithinOneLastPlace) {
  const auto error = [](double x) { return std::fabs(exp(x) - std::exp(static_cast<long double>(x))); };
  EXPECT_LE(worst_over(-745.0, -708.0, 20000, error), 0x1p-1074);
}

TEST(ExpOfDouble, EndsAndSpecialValues) {
  EXPECT_EQ(exp(0.0), 1.0);
  EXPECT_EQ(exp(-745.1), 0.0);
  EXPECT_EQ(exp(-kInfinity), 0.0);
  EXPECT_EQ(exp(710.0), kInfinity);
  EXPECT_EQ(exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exp(kNaN)));
}

TEST(Log, ErrorIsBelowItsBound) {
  const auto error = [](double x) {
    const long double want = std::log(static_cast<long double>(x));
    return std::fabs(log(x) - want) / std::max(std::fabs(want), 0x1p-52L);
  };
  EXPECT_LT(worst_over(0.25, 4.0, 500000, error), 0x1p-50);
  EXPECT_LT(worst_over(1.0 - 1e-6, 1.0 + 1e-6, 100000, error), 0x1p-50);
  const auto of_power = [&](double y) { return error(std::exp2(y)); };
  EXPECT_LT(worst_over(-1074.0, 1023.99, 300000, of_power), 0x1p-50);
}

TEST(Log, EndsAndSpecialValues) {
  EXPECT_EQ(log(1.0), 0.0);
  EXPECT_EQ(log(0.0), -kInfinity);
  EXPECT_EQ(log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(log(-1.0)));
  EXPECT_TRUE(std::isnan(log(kNaN)));
}

TEST(SinCosine, AbsoluteErrorIsBelowItsBound) {
  const auto error = [](double x) {
    const SinCos got = sincos(x);
    const long double wide = x;
    return std::max(std::fabs(got.sin - std::sin(wide)), std::fabs(got.cos - std::cos(wide)));
  };
  EXPECT_LT(worst_over(-10.0, 10.0, 300000, error), 0x1p-51);
  EXPECT_LT(worst_over(0.0, 1048576.0, 300000, error), 0x1p-51);
  EXPECT_LT(worst_over(-0x1p30, 0x1p30, 300000, error), 0x1p-51);
  // Next to multiples of pi / 2 almost everything cancels.
  test::Random random(9);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::nearbyint(random.uniform() * 0x1p29) * 1.5707963267948966;
    EXPECT_LT(error(x), 0x1p-51) << x;
  }
}

TEST(SinCosine, WholePositionsUpToAMillion) {
  for (int position = 0; position < 1048576; position += 7) {
    const SinCos got = sincos(position);
    ASSERT_NEAR(got.sin, std::sin(static_cast<long double>(position)), 0x1p-51);
    ASSERT_NEAR(got.cos, std::cos(static_cast<long double>(position)), 0x1p-51);
  }
}

TEST(Pow, RelativeErrorGrowsWithTheExponentOnly) {
  // Bases and exponents of rotary frequencies and of the temperature's like.
  for (const double base : {1e-3, 0.5, 0.97, 2.0, 1e4, 1e7}) {
    const auto error = [&](double y) {
      const long double want = std::pow(static_cast<long double>(base), static_cast<long double>(y));
      return relative(pow(base, y), want) / (1 + std::fabs(y * std::log(base)));
    };
    EXPECT_LT(worst_over(-8.0, 8.0, 50000, error), 0x1p-51) << base;
  }
}

TEST(Softplus, ErrorIsBelowItsBound) {
  const auto error = [](double x) {
    const long double want = std::log1p(std::exp(static_cast<long double>(x)));
    return std::fabs(softplus(x) - want) / std::max(want, 1.0L);
  };
  EXPECT_LT(worst_over(-700.0, 800.0, 500000, error), 0x1p-50);
  EXPECT_LT(worst_over(-20.0, 1.0, 500000, error), 0x1p-50);
  const auto relative_error = [](double x) {
    return relative(softplus(x), std::log1p(std::exp(static_cast<long double>(x))));
  };
  EXPECT_LT(worst_over(-700.0, -20.01, 100000, relative_error), 0x1p-29);
  EXPECT_EQ(softplus(kInfinity), kInfinity);
  EXPECT_EQ(softplus(-kInfinity), 0.0);
  EXPECT_TRUE(std::isnan(softplus(kNaN)));
}

TEST(Sigmoid, RelativeErrorIsBelowItsBound) {
  const auto error = [](double x) {
    return relative(sigmoid(x), 1.0L / (1.0L + std::exp(-static_cast<long double>(x))));
  };
  EXPECT_LT(worst_over(-700.0, 700.0, 500000, error), 0x1p-50);
  EXPECT_EQ(sigmoid(0.0), 0.5);
  EXPECT_EQ(sigmoid(-kInfinity), 0.0);
  EXPECT_EQ(sigmoid(kInfinity), 1.0);
  EXPECT_TRUE(std::isnan(sigmoid(kNaN)));
}

}  // namespace
}  // namespace sluice::ops
