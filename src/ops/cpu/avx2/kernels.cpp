// AVX2, FMA and F16C: x86 processors since 2013 (Haswell, Zen).
#define SLUICE_ISA avx2
#define SLUICE_VEC_AVX2
#include "ops/cpu/unit.inl"
