// Formats whose four-bit codes pick one of 16 unevenly spaced levels: IQ4_NL and IQ4_XS with a fitted curve, MXFP4 and
// NVFP4 with the 4-bit float E2M1 (OCP Microscaling Formats 1.0; NVIDIA's variant with one scale per 16).
#include <bit>

#include "quant/codecs.h"
#include "quant/fields.h"

namespace sluice::quant {
namespace {

// Levels of IQ4_NL and IQ4_XS.
constexpr int8_t kCurve[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// E2M1 doubled, so that all levels are integers; scales are halved in return. Bit 3 is the sign, minus zero is 0.
constexpr int8_t kDoubledE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2n weights of n bytes, low nibbles first.
template <size_t n>
void unpack_levels(const uint8_t* bytes, const int8_t (&levels)[16], int8_t* weights) {
  for (size_t j = 0; j < n; ++j) {
    weights[j] = levels[bytes[j] & 15];
    weights[n + j] = levels[bytes[j] >> 4];
  }
}

// Half of 2^(e - 127), which is subnormal for the exponents 0 and 1. Code 255 is 2^127 here, as in ggml; the OCP text
// makes it NaN.
float half_e8m0(uint8_t exponent) {
  if (exponent < 2) return exponent == 0 ? 0x1p-128f : 0x1p-127f;
  return std::bit_cast<float>(static_cast<uint32_t>(exponent - 1) << 23);
}

// Half of the unsigned E4M3 `code`: exponent bias 7, subnormals, and 0x7f (NaN elsewhere) for 0. The top bit is
// ignored, but 0xff counts as a number, again as in ggml.
float half_ue4m3(uint8_t code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  if (code == 0x7f) return 0.0f;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return std::bit_cast<float>(static_cast<uint32_t>(exponent - 8 + 127) << 23 | static_cast<uint32_t>(mantissa) << 20);
}

}  // namespace

// d f16, qs[16]
void unpack_iq4_nl(const std::byte* block, UnpackedBlock& out) {
  unpack_levels<16>(bytes_of(block) + 2, kCurve, out.weights);
  set_unit_scales(out, 2);
  out.scale[0] = load_f16(block);
}

// d f16, upper pairs of eight 6-bit scales u16, their low nibbles [4], qs[128]
void unpack_iq4_xs(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* b = bytes_of(block);
  const auto upper = load<uint16_t>(block + 2);
  for (int s = 0; s < 8; ++s) {
    unpack_levels<16>(b + 8 + 16 * s, kCurve, out.weights + 32 * s);
    const int low = (b[4 + s / 2] >> (4 * (s % 2))) & 15;
    const int high = (upper >> (2 * s)) & 3;
    out.scales[2 * s] = out.scales[2 * s + 1] = static_cast<int16_t>((low | (high << 4)) - 32);
  }
  out.scale[0] = load_f16(block);
}

// exponent u8, qs[16]
void unpack_mxfp4(const std::byte* block, UnpackedBlock& out) {
  unpack_levels<16>(bytes_of(block) + 1, kDoubledE2M1, out.weights);
  set_unit_scales(out, 2);
  out.scale[0] = half_e8m0(bytes_of(block)[0]);
}

// four UE4M3 scales, then 8 bytes for each 16 weights
void unpack_nvfp4(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* b = bytes_of(block);
  for (int s = 0; s < 4; ++s) {
    unpack_levels<8>(b + 4 + 8 * s, kDoubledE2M1, out.weights + 16 * s);
    out.scale[s] = half_ue4m3(b[s]);
  }
  set_unit_scales(out, 4);
}

}  // namespace sluice::quant
