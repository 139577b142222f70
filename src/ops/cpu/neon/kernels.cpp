// NEON with dot products of bytes (Armv8.2): 64-bit Arm processors since 2018 (Cortex-A76, Neoverse N1, Apple A11).
#define SLUICE_ISA neon
#define SLUICE_VEC_NEON
#include "ops/cpu/unit.inl"
