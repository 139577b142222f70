// Elementary functions in double that give the same bits everywhere: IEEE operations only, no library. For the few
// values that are computed one at a time (rotary angles, decays, sampling); vectors have theirs in ops/cpu.
#pragma once

namespace sluice::ops {

// e^x, relative error below 2^-51; 0 below -745, infinity above 709.7. Below -708 results are subnormal and within one
// last place (2^-1074).
double exp(double x);
// Natural logarithm of x > 0, error below 2^-50 of max(|log x|, 2^-52); -infinity at 0, NaN below.
double log(double x);
// sin and cos of |x| <= 2^30, absolute error below 2^-51.
struct SinCos {
  double sin, cos;
};
SinCos sincos(double x);
// x^y for x > 0, relative error below (1 + |y log x|) 2^-51.
double pow(double x, double y);
// log(1 + e^x) without overflow: x itself above 40, e^x below -20. Error below 2^-50 of max(value, 1), and below -20,
// where it is taken for e^x, below 2^-29 of the value.
double softplus(double x);
// 1 / (1 + e^-x), relative error below 2^-50 above -700.
double sigmoid(double x);

}  // namespace sluice::ops
