// AVX2 with AVX-VNNI, byte dot products of 256 bits: x86 processors without AVX-512 since 2021 (Alder Lake, Zen 5).
#define SLUICE_ISA avxvnni
#define SLUICE_VEC_AVX2
#define SLUICE_VEC_VNNI
#include "ops/cpu/unit.inl"
