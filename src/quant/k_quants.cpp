// Q2_K to Q6_K, reading: super-blocks of 256 weights in 8 or 16 sub-blocks, whose scales (and minima) are small
// integers times one f16 of the super-block. The searches that write Q4_K, Q5_K and Q6_K are in paired_scales.cpp and
// signed_scales.cpp.
#include "quant/codecs.h"
#include "quant/fields.h"

namespace sluice::quant {
namespace {

// Eight pairs of 6-bit (scale, minimum) in 12 bytes: the first four scales and minima in the low six bits of bytes 0-3
// and 4-7; the other four split into low nibbles (bytes 8-11, minimum above scale) and the two bits left over above.
// Each pair stands for 32 weights, that is two groups of 16.
void unpack_six_bit_pairs(const uint8_t* packed, UnpackedBlock& out) {
  for (int j = 0; j < 4; ++j) {
    const uint8_t scale_byte = packed[j], minimum_byte = packed[j + 4], low_bits = packed[j + 8];
    const auto set = [&](int sub_block, int scale, int minimum) {
      out.scales[2 * sub_block] = out.scales[2 * sub_block + 1] = static_cast<int16_t>(scale);
      out.minimums[2 * sub_block] = out.minimums[2 * sub_block + 1] = static_cast<int16_t>(minimum);
    };
    set(j, scale_byte & 63, minimum_byte & 63);
    set(j + 4, (low_bits & 15) | ((scale_byte >> 6) << 4), (low_bits >> 4) | ((minimum_byte >> 6) << 4));
  }
}

}  // namespace

// scales[16] (scale low, minimum high nibble), qs[64], d f16, dmin f16
void unpack_q2_k(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* b = bytes_of(block);
  unpack_bit_pairs(b + 16, out.weights);
  unpack_bit_pairs(b + 48, out.weights + 128);
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = b[g] & 15;
    out.minimums[g] = b[g] >> 4;
  }
  out.scale[0] = load_f16(block + 80);
  out.minimum = -load_f16(block + 82);
}

// high bits hmask[32], low bits qs[64], sixteen 6-bit scales in 12 bytes, d f16
void unpack_q3_k(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* b = bytes_of(block);
  unpack_bit_pairs(b + 32, out.weights);
  unpack_bit_pairs(b + 64, out.weights + 128);
  for (int run = 0; run < 8; ++run) {  // bit `run` of the mask belongs to the run-th 32 weights; unset means - 4
    int8_t* weights = out.weights + 32 * run;
    for (int l = 0; l < 32; ++l) weights[l] = static_cast<int8_t>(weights[l] + 4 * ((b[l] >> run) & 1) - 4);
  }
  const uint8_t* packed = b + 96;
  for (int g = 0; g < 16; ++g) {
    const int low = (packed[g % 8] >> (4 * (g / 8))) & 15;
    const int high = (packed[8 + g % 4] >> (2 * (g / 4))) & 3;
    out.scales[g] = static_cast<int16_t>((low | (high << 4)) - 32);
  }
  out.scale[0] = load_f16(block + 108);
}

// d f16, dmin f16, scales[12], qs[128]
void unpack_q4_k(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* b = bytes_of(block);
  for (int pair = 0; pair < 4; ++pair) unpack_nibbles<32>(b + 16 + 32 * pair, out.weights + 64 * pair);
  unpack_six_bit_pairs(b + 4, out);
  out.scale[0] = load_f16(block);
  out.minimum = -load_f16(block + 2);
}

// d f16, dmin f16, scales[12], fifth bits qh[32], qs[128]
void unpack_q5_k(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* b = bytes_of(block);
  for (int pair = 0; pair < 4; ++pair) unpack_nibbles<32>(b + 48 + 32 * pair, out.weights + 64 * pair);
  for (int run = 0; run < 8; ++run) {
    int8_t* weights = out.weights + 32 * run;
    for (int l = 0; l < 32; ++l) weights[l] = static_cast<int8_t>(weights[l] + 16 * ((b[16 + l] >> run) & 1));
  }
  unpack_six_bit_pairs(b + 4, out);
  out.scale[0] = load_f16(block);
  out.minimum = -load_f16(block + 2);
}

// low nibbles ql[128], upper bit pairs qh[64], i8 scales[16], d f16
void unpack_q6_k(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* b = bytes_of(block);
  for (int half = 0; half < 2; ++half) {
    int8_t* weights = out.weights + 128 * half;
    unpack_nibbles<64>(b + 64 * half, weights);
    int8_t upper[128];
    unpack_bit_pairs(b + 128 + 32 * half, upper);
    for (int l = 0; l < 128; ++l) weights[l] = static_cast<int8_t>(weights[l] + 16 * upper[l] - 32);
  }
  for (int g = 0; g < 16; ++g) out.scales[g] = static_cast<int8_t>(b[192 + g]);
  out.scale[0] = load_f16(block + 208);
}

}  // namespace sluice::quant
