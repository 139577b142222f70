// What every instruction set's kernels.cpp consists of. It defines SLUICE_ISA, the set's name, and how vectors are
// held: SLUICE_VEC_AVX2, SLUICE_VEC_AVX512 (either with SLUICE_VEC_VNNI where the set has byte dot products) or
// SLUICE_VEC_NEON, none of them for plain C++; then it includes this file. What the compiler may use is set in
// CMakeLists.txt.
#if defined(SLUICE_VEC_AVX512) || defined(SLUICE_VEC_AVX2)
#include <immintrin.h>
#elif defined(SLUICE_VEC_NEON)
#include <arm_neon.h>
#endif

#include "ops/cpu/isa.h"

#define SLUICE_TEXT_OF(x) #x
#define SLUICE_TEXT(x) SLUICE_TEXT_OF(x)

namespace sluice::ops::cpu::SLUICE_ISA {

#if defined(SLUICE_EMULATED)  // in tests, for processors that lack the set
#include "ops/cpu/emulated/test_intrinsics.h"
#endif

// One instruction where the set has it, the C library's function in plain C++: the same bits.
inline float fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float sqrt_f32(float x) { return __builtin_sqrtf(x); }

#include "ops/cpu/kernels.inl"

extern const Kernels kKernels;
const Kernels kKernels = {SLUICE_TEXT(SLUICE_ISA),
                          matmul,
                          quantize_row,
                          rms_norm,
                          l2_norm,
                          silu_mul,
                          sigmoid_mul,
                          softmax,
                          add_scaled,
                          rope,
                          attention,
                          attention_merge,
                          delta_net,
                          conv_silu};

}  // namespace sluice::ops::cpu::SLUICE_ISA
