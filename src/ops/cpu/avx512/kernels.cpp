// AVX-512 F, BW, DQ and VL: x86 servers since 2017 (Skylake).
#define SLUICE_ISA avx512
#define SLUICE_VEC_AVX512
#include "ops/cpu/unit.inl"
