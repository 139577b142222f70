#include "ops/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sluice::ops {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ln 2 and pi / 2 as a head with trailing zero bits, so that small integer multiples are exact, and the rest.
constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kPio2High = 0x1.921fb54400000p+0, kPio2Middle = 0x1.0b4611a600000p-34,
                 kPio2Low = 0x1.3198a2e037073p-69;

// 2^n for n in [-1022, 1023].
double power_of_two(int n) { return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52); }

}  // namespace

double exp(double x) {
  if (x != x) return x;
  if (x > 709.7) return kInfinity;
  if (x < -745.0) return 0.0;
  const double n = std::nearbyint(x * 1.4426950408889634);
  double r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  // Taylor series to the 13th power: |r| <= 0.347 leaves a remainder below 2^-58.
  double p = 1.0;
  for (int k = 13; k >= 1; --k) p = std::fma(p, r / k, 1.0);
  const int half = static_cast<int>(n) / 2;
  return p * power_of_two(half) * power_of_two(static_cast<int>(n) - half);
}

double log(double x) {
  if (x != x || x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return -kInfinity;
  if (x == kInfinity) return x;
  int exponent = 0;
  if (x < 0x1p-1022) x *= 0x1p54, exponent = -54;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  exponent += static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);  // [1, 2)
  if (m > 1.4142135623730951) m *= 0.5, ++exponent;
  // log m = 2 artanh(s), s = (m - 1) / (m + 1), |s| <= 0.172: the series to s^21 leaves less than 2^-58.
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 0.0;
  for (int k = 21; k >= 3; k -= 2) p = std::fma(p, z, 1.0 / k);
  const double e = exponent;
  const double tail = std::fma(2.0 * s * z, p, e * kLn2Low);
  return std::fma(e, kLn2High, 2.0 * s + tail);
}

SinCos sincos(double x) {
  const double n = std::nearbyint(x * 0.63661977236758134);
  double r = std::fma(n, -kPio2High, x);
  r = std::fma(n, -kPio2Middle, r);
  r = std::fma(n, -kPio2Low, r);
  const double z = r * r;
  double s = 1.0, c = 1.0;
  for (int k = 17; k >= 3; k -= 2) s = std::fma(s, -z / (k * (k - 1)), 1.0);
  for (int k = 18; k >= 2; k -= 2) c = std::fma(c, -z / (k * (k - 1)), 1.0);
  s *= r;
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

double pow(double x, double y) { return exp(y * log(x)); }

double softplus(double x) { return x > 40.0 ? x : x < -20.0 ? exp(x) : log(1.0 + exp(x)); }

double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

}  // namespace sluice::ops
