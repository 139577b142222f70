// The functions behind the rows of the format table (format.cpp), declared in one place; only this room includes it.
// unpack_* and quantize_* of a format stand beside each other in the .cpp named here. dequantize of a block format is
// made from its unpack by format.cpp.
#pragma once

#include <cstddef>

#include "quant/format.h"

namespace sluice::quant {

// float.cpp
void dequantize_f32(const std::byte* blocks, size_t n_blocks, float* out);
void dequantize_f16(const std::byte* blocks, size_t n_blocks, float* out);
void dequantize_bf16(const std::byte* blocks, size_t n_blocks, float* out);
void quantize_f32(const float* in, size_t n_blocks, std::byte* out);
void quantize_f16(const float* in, size_t n_blocks, std::byte* out);
void quantize_bf16(const float* in, size_t n_blocks, std::byte* out);

// linear32.cpp: 32 weights on evenly spaced levels
void unpack_q4_0(const std::byte* block, UnpackedBlock& out);
void unpack_q4_1(const std::byte* block, UnpackedBlock& out);
void unpack_q5_0(const std::byte* block, UnpackedBlock& out);
void unpack_q5_1(const std::byte* block, UnpackedBlock& out);
void unpack_q8_0(const std::byte* block, UnpackedBlock& out);
void quantize_q4_0(const float* in, size_t n_blocks, std::byte* out);
void quantize_q4_1(const float* in, size_t n_blocks, std::byte* out);
void quantize_q5_0(const float* in, size_t n_blocks, std::byte* out);
void quantize_q5_1(const float* in, size_t n_blocks, std::byte* out);
void quantize_q8_0(const float* in, size_t n_blocks, std::byte* out);

// k_quants.cpp: super-blocks of 256 weights with integer sub-block scales
void unpack_q2_k(const std::byte* block, UnpackedBlock& out);
void unpack_q3_k(const std::byte* block, UnpackedBlock& out);
void unpack_q4_k(const std::byte* block, UnpackedBlock& out);
void unpack_q5_k(const std::byte* block, UnpackedBlock& out);
void unpack_q6_k(const std::byte* block, UnpackedBlock& out);
// paired_scales.cpp and signed_scales.cpp: the scale searches
void quantize_q4_k(const float* in, size_t n_blocks, std::byte* out);
void quantize_q5_k(const float* in, size_t n_blocks, std::byte* out);
void quantize_q6_k(const float* in, size_t n_blocks, std::byte* out);

// grid_quants.cpp: groups of weights picked from a codebook
void unpack_iq1_s(const std::byte* block, UnpackedBlock& out);
void unpack_iq1_m(const std::byte* block, UnpackedBlock& out);
void unpack_iq2_xxs(const std::byte* block, UnpackedBlock& out);
void unpack_iq2_xs(const std::byte* block, UnpackedBlock& out);
void unpack_iq2_s(const std::byte* block, UnpackedBlock& out);
void unpack_iq3_xxs(const std::byte* block, UnpackedBlock& out);
void unpack_iq3_s(const std::byte* block, UnpackedBlock& out);

// level16.cpp: four bits that pick one of 16 unevenly spaced levels
void unpack_iq4_nl(const std::byte* block, UnpackedBlock& out);
void unpack_iq4_xs(const std::byte* block, UnpackedBlock& out);
void unpack_mxfp4(const std::byte* block, UnpackedBlock& out);
void unpack_nvfp4(const std::byte* block, UnpackedBlock& out);

// ternary.cpp
void unpack_tq1_0(const std::byte* block, UnpackedBlock& out);
void unpack_tq2_0(const std::byte* block, UnpackedBlock& out);

}  // namespace sluice::quant
