// The definition: plain C++ on any processor. Every other instruction set must give these bits.
#include "ops/cpu/isa.h"

#define SLUICE_ISA scalar

namespace sluice::ops::cpu::scalar {

inline float fma_f32(float a, float b, float c) { return std::fma(a, b, c); }
inline float sqrt_f32(float x) { return std::sqrt(x); }

#include "ops/cpu/kernels.inl"

extern const Kernels kKernels;
const Kernels kKernels = {"scalar", matmul,     quantize_row, rms_norm,  l2_norm,         silu_mul,  sigmoid_mul,
                          softmax,  add_scaled, rope,         attention, attention_merge, delta_net, conv_silu};

}  // namespace sluice::ops::cpu::scalar
