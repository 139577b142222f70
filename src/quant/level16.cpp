// Formats whose four-bit codes pick one of 16 unevenly spaced levels: IQ4_NL and IQ4_XS with a fitted curve, MXFP4 and
// NVFP4 with the 4-bit float E2M1 (OCP Microscaling Formats 1.0; NVIDIA's variant with one scale per 16).
#include <bit>

#include "quant/codecs.h"
#include "quant/fields.h"
#include "quant/levels.h"

namespace sluice::quant {
namespace {

// 2n weights of n bytes, low nibbles first.
template <size_t n>
void unpack_levels(const uint8_t* bytes, const int8_t (&levels)[16], int8_t* weights) {
  for (size_t j = 0; j < n; ++j) {
    weights[j] = levels[bytes[j] & 15];
    weights[n + j] = levels[bytes[j] >> 4];
  }
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

// The powers 2^(e - 128), subnormal for the exponents 0 and 1. Code 255 is 2^127 here, as in ggml; the OCP text makes
// it NaN.
const float kHalfE8m0[256] = {
    0x1p-128f, 0x1p-127f, 0x1p-126f, 0x1p-125f, 0x1p-124f, 0x1p-123f, 0x1p-122f, 0x1p-121f, 0x1p-120f, 0x1p-119f,
    0x1p-118f, 0x1p-117f, 0x1p-116f, 0x1p-115f, 0x1p-114f, 0x1p-113f, 0x1p-112f, 0x1p-111f, 0x1p-110f, 0x1p-109f,
    0x1p-108f, 0x1p-107f, 0x1p-106f, 0x1p-105f, 0x1p-104f, 0x1p-103f, 0x1p-102f, 0x1p-101f, 0x1p-100f, 0x1p-99f,
    0x1p-98f,  0x1p-97f,  0x1p-96f,  0x1p-95f,  0x1p-94f,  0x1p-93f,  0x1p-92f,  0x1p-91f,  0x1p-90f,  0x1p-89f,
    0x1p-88f,  0x1p-87f,  0x1p-86f,  0x1p-85f,  0x1p-84f,  0x1p-83f,  0x1p-82f,  0x1p-81f,  0x1p-80f,  0x1p-79f,
    0x1p-78f,  0x1p-77f,  0x1p-76f,  0x1p-75f,  0x1p-74f,  0x1p-73f,  0x1p-72f,  0x1p-71f,  0x1p-70f,  0x1p-69f,
    0x1p-68f,  0x1p-67f,  0x1p-66f,  0x1p-65f,  0x1p-64f,  0x1p-63f,  0x1p-62f,  0x1p-61f,  0x1p-60f,  0x1p-59f,
    0x1p-58f,  0x1p-57f,  0x1p-56f,  0x1p-55f,  0x1p-54f,  0x1p-53f,  0x1p-52f,  0x1p-51f,  0x1p-50f,  0x1p-49f,
    0x1p-48f,  0x1p-47f,  0x1p-46f,  0x1p-45f,  0x1p-44f,  0x1p-43f,  0x1p-42f,  0x1p-41f,  0x1p-40f,  0x1p-39f,
    0x1p-38f,  0x1p-37f,  0x1p-36f,  0x1p-35f,  0x1p-34f,  0x1p-33f,  0x1p-32f,  0x1p-31f,  0x1p-30f,  0x1p-29f,
    0x1p-28f,  0x1p-27f,  0x1p-26f,  0x1p-25f,  0x1p-24f,  0x1p-23f,  0x1p-22f,  0x1p-21f,  0x1p-20f,  0x1p-19f,
    0x1p-18f,  0x1p-17f,  0x1p-16f,  0x1p-15f,  0x1p-14f,  0x1p-13f,  0x1p-12f,  0x1p-11f,  0x1p-10f,  0x1p-9f,
    0x1p-8f,   0x1p-7f,   0x1p-6f,   0x1p-5f,   0x1p-4f,   0x1p-3f,   0x1p-2f,   0x1p-1f,   0x1p0f,    0x1p1f,
    0x1p2f,    0x1p3f,    0x1p4f,    0x1p5f,    0x1p6f,    0x1p7f,    0x1p8f,    0x1p9f,    0x1p10f,   0x1p11f,
    0x1p12f,   0x1p13f,   0x1p14f,   0x1p15f,   0x1p16f,   0x1p17f,   0x1p18f,   0x1p19f,   0x1p20f,   0x1p21f,
    0x1p22f,   0x1p23f,   0x1p24f,   0x1p25f,   0x1p26f,   0x1p27f,   0x1p28f,   0x1p29f,   0x1p30f,   0x1p31f,
    0x1p32f,   0x1p33f,   0x1p34f,   0x1p35f,   0x1p36f,   0x1p37f,   0x1p38f,   0x1p39f,   0x1p40f,   0x1p41f,
    0x1p42f,   0x1p43f,   0x1p44f,   0x1p45f,   0x1p46f,   0x1p47f,   0x1p48f,   0x1p49f,   0x1p50f,   0x1p51f,
    0x1p52f,   0x1p53f,   0x1p54f,   0x1p55f,   0x1p56f,   0x1p57f,   0x1p58f,   0x1p59f,   0x1p60f,   0x1p61f,
    0x1p62f,   0x1p63f,   0x1p64f,   0x1p65f,   0x1p66f,   0x1p67f,   0x1p68f,   0x1p69f,   0x1p70f,   0x1p71f,
    0x1p72f,   0x1p73f,   0x1p74f,   0x1p75f,   0x1p76f,   0x1p77f,   0x1p78f,   0x1p79f,   0x1p80f,   0x1p81f,
    0x1p82f,   0x1p83f,   0x1p84f,   0x1p85f,   0x1p86f,   0x1p87f,   0x1p88f,   0x1p89f,   0x1p90f,   0x1p91f,
    0x1p92f,   0x1p93f,   0x1p94f,   0x1p95f,   0x1p96f,   0x1p97f,   0x1p98f,   0x1p99f,   0x1p100f,  0x1p101f,
    0x1p102f,  0x1p103f,  0x1p104f,  0x1p105f,  0x1p106f,  0x1p107f,  0x1p108f,  0x1p109f,  0x1p110f,  0x1p111f,
    0x1p112f,  0x1p113f,  0x1p114f,  0x1p115f,  0x1p116f,  0x1p117f,  0x1p118f,  0x1p119f,  0x1p120f,  0x1p121f,
    0x1p122f,  0x1p123f,  0x1p124f,  0x1p125f,  0x1p126f,  0x1p127f,
};

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
  out.scale[0] = kHalfE8m0[bytes_of(block)[0]];
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
