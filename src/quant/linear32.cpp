// Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0: 32 weights on evenly spaced levels, with one scale and at most one minimum. The
// quantizers are the plain ones: the scale follows from the extreme values, with no search. Their bytes are those of
// GGUF's reference quantizers, so the order of the f32 operations matters.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/codecs.h"
#include "quant/encode.h"
#include "quant/fields.h"

namespace sluice::quant {
namespace {

constexpr size_t kWeights = 32;

// codes + 16 where the weight's bit of `fifth_bits` is set, + shift for all.
void add_fifth_bits(uint32_t fifth_bits, int shift, int8_t* codes) {
  for (size_t i = 0; i < kWeights; ++i) {
    codes[i] = static_cast<int8_t>(codes[i] + static_cast<int>((fifth_bits >> i) & 1) * 16 + shift);
  }
}

// 1 / scale, or 0 for a block of zeros.
float inverse(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

// `level` cut off to an integer 0..max. A scale so far below the smallest f16 that its inverse overflows f32 gives
// infinities and NaNs here; any code will do for it, since the stored scale is 0, and the reference has 0.
uint8_t to_code(float level, int max) {
  return std::isfinite(level) ? static_cast<uint8_t>(std::min(static_cast<int>(level), max)) : uint8_t{0};
}

// Levels that are symmetric but for one more on the side of the value of the largest magnitude (the first, if several):
// that value lies on level -2^(bits - 1). Returns the scale; codes [32] are offset by 2^(bits - 1).
float fit_symmetric(const float* in, int bits, uint8_t* codes) {
  const float* extreme =
      std::max_element(in, in + kWeights, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const int half_range = 1 << (bits - 1);
  const float scale = *extreme / static_cast<float>(-half_range);
  const float factor = inverse(scale), offset = static_cast<float>(half_range) + 0.5f;
  for (size_t i = 0; i < kWeights; ++i) codes[i] = to_code(in[i] * factor + offset, 2 * half_range - 1);
  return scale;
}

struct ScaleAndMinimum {
  float scale, minimum;
};

// Levels from the smallest to the largest value; codes [32].
ScaleAndMinimum fit_range(const float* in, int bits, uint8_t* codes) {
  const auto [low, high] = std::minmax_element(in, in + kWeights);
  const int max_code = (1 << bits) - 1;
  const float scale = (*high - *low) / static_cast<float>(max_code);
  const float factor = inverse(scale);
  for (size_t i = 0; i < kWeights; ++i) codes[i] = to_code((in[i] - *low) * factor + 0.5f, max_code);
  return {scale, *low};
}

uint32_t fifth_bits_of(const uint8_t* codes) {
  uint32_t bits = 0;
  for (size_t i = 0; i < kWeights; ++i) bits |= static_cast<uint32_t>((codes[i] >> 4) & 1) << i;
  return bits;
}

// Calls encode(place, the 32 weights, the bytes) for every block.
template <size_t block_bytes, typename Encode>
void for_each_block(const char* format, const float* in, size_t n_blocks, std::byte* out, Encode encode) {
  for (size_t b = 0; b < n_blocks; ++b) {
    const float* weights = in + b * kWeights;
    const Place place{format, b};
    require_finite(place, {weights, kWeights});
    encode(place, weights, out + b * block_bytes);
  }
}

}  // namespace

// d f16, qs[16]
void unpack_q4_0(const std::byte* block, UnpackedBlock& out) {
  unpack_nibbles<16>(bytes_of(block) + 2, out.weights);
  for (size_t i = 0; i < kWeights; ++i) out.weights[i] = static_cast<int8_t>(out.weights[i] - 8);
  set_unit_scales(out, 2);
  out.scale[0] = load_f16(block);
}

void quantize_q4_0(const float* in, size_t n_blocks, std::byte* out) {
  for_each_block<18>("Q4_0", in, n_blocks, out, [](Place place, const float* weights, std::byte* block) {
    uint8_t codes[kWeights];
    store(block, encode_scale(place, fit_symmetric(weights, 4, codes)));
    pack_nibbles<16>(codes, block + 2);
  });
}

// d f16, m f16, qs[16]
void unpack_q4_1(const std::byte* block, UnpackedBlock& out) {
  unpack_nibbles<16>(bytes_of(block) + 4, out.weights);
  set_unit_scales(out, 2);
  out.minimums[0] = out.minimums[1] = 1;
  out.scale[0] = load_f16(block);
  out.minimum = load_f16(block + 2);
}

void quantize_q4_1(const float* in, size_t n_blocks, std::byte* out) {
  for_each_block<20>("Q4_1", in, n_blocks, out, [](Place place, const float* weights, std::byte* block) {
    uint8_t codes[kWeights];
    const auto [scale, minimum] = fit_range(weights, 4, codes);
    store(block, encode_scale(place, scale));
    store(block + 2, encode_scale(place, minimum));
    pack_nibbles<16>(codes, block + 4);
  });
}

// d f16, fifth bits u32, qs[16]
void unpack_q5_0(const std::byte* block, UnpackedBlock& out) {
  unpack_nibbles<16>(bytes_of(block) + 6, out.weights);
  add_fifth_bits(load<uint32_t>(block + 2), -16, out.weights);
  set_unit_scales(out, 2);
  out.scale[0] = load_f16(block);
}

void quantize_q5_0(const float* in, size_t n_blocks, std::byte* out) {
  for_each_block<22>("Q5_0", in, n_blocks, out, [](Place place, const float* weights, std::byte* block) {
    uint8_t codes[kWeights];
    store(block, encode_scale(place, fit_symmetric(weights, 5, codes)));
    store(block + 2, fifth_bits_of(codes));
    pack_nibbles<16>(codes, block + 6);
  });
}

// d f16, m f16, fifth bits u32, qs[16]
void unpack_q5_1(const std::byte* block, UnpackedBlock& out) {
  unpack_nibbles<16>(bytes_of(block) + 8, out.weights);
  add_fifth_bits(load<uint32_t>(block + 4), 0, out.weights);
  set_unit_scales(out, 2);
  out.minimums[0] = out.minimums[1] = 1;
  out.scale[0] = load_f16(block);
  out.minimum = load_f16(block + 2);
}

void quantize_q5_1(const float* in, size_t n_blocks, std::byte* out) {
  for_each_block<24>("Q5_1", in, n_blocks, out, [](Place place, const float* weights, std::byte* block) {
    uint8_t codes[kWeights];
    const auto [scale, minimum] = fit_range(weights, 5, codes);
    store(block, encode_scale(place, scale));
    store(block + 2, encode_scale(place, minimum));
    store(block + 4, fifth_bits_of(codes));
    pack_nibbles<16>(codes, block + 8);
  });
}

// d f16, i8[32]
void unpack_q8_0(const std::byte* block, UnpackedBlock& out) {
  std::memcpy(out.weights, block + 2, kWeights);
  set_unit_scales(out, 2);
  out.scale[0] = load_f16(block);
}

void quantize_q8_0(const float* in, size_t n_blocks, std::byte* out) {
  for_each_block<34>("Q8_0", in, n_blocks, out, [](Place place, const float* weights, std::byte* block) {
    float largest = 0.0f;
    for (size_t i = 0; i < kWeights; ++i) largest = std::max(largest, std::fabs(weights[i]));
    const float scale = largest / 127.0f;
    const float factor = inverse(scale);
    store(block, encode_scale(place, scale));
    for (size_t i = 0; i < kWeights; ++i) {
      const float level = weights[i] * factor;  // not finite for the same tiny scales as in to_code
      block[2 + i] = static_cast<std::byte>(std::isfinite(level) ? static_cast<int>(std::round(level)) : 0);
    }
  });
}

}  // namespace sluice::quant
