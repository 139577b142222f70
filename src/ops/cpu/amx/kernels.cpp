// AMX-INT8, tiles of bytes, beside AVX-512 with VNNI: x86 servers since 2023 (Sapphire Rapids).
#define SLUICE_ISA amx
#define SLUICE_VEC_AVX512
#define SLUICE_VEC_VNNI
#define SLUICE_TILES
#include "ops/cpu/unit.inl"
