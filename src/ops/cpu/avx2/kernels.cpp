// Compiled with AVX2, FMA and F16C; see kernels.inl for the kernels themselves.
#include <immintrin.h>

#include "ops/cpu/isa.h"

#define SLUICE_ISA avx2
#define SLUICE_VEC_AVX2

namespace sluice::ops::cpu::avx2 {

inline float fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float sqrt_f32(float x) { return __builtin_sqrtf(x); }

#include "ops/cpu/kernels.inl"

extern const Kernels kKernels;
const Kernels kKernels = {"avx2",  matmul,     quantize_row, rms_norm,  l2_norm,         silu_mul,  sigmoid_mul,
                          softmax, add_scaled, rope,         attention, attention_merge, delta_net, conv_silu};

}  // namespace sluice::ops::cpu::avx2
