// The definition: plain C++ on any processor. Every other instruction set must give these bits.
#define SLUICE_ISA scalar
#include "ops/cpu/unit.inl"
