// AVX-512 with VNNI, byte dot products: x86 processors since 2019 (Cascade Lake, Ice Lake, Zen 4).
#define SLUICE_ISA avx512vnni
#define SLUICE_VEC_AVX512
#define SLUICE_VEC_VNNI
#include "ops/cpu/unit.inl"
