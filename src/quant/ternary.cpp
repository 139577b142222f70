// TQ1_0 and TQ2_0: 256 weights of -1, 0 and 1 with one scale, five to a byte in base 3 or four to a byte in base 4.
#include "quant/codecs.h"
#include "quant/fields.h"

namespace sluice::quant {
namespace {

// n bytes hold `digits` weights each: first the leading digit of every byte, then the next. A byte q stands for the
// fraction q / 256 = 0.d0 d1 d2 d3 d4 in base 3: times 3^k modulo 1 moves digit k to the front, times 3 makes it whole.
template <size_t n, size_t digits>
void unpack_base3(const uint8_t* bytes, int8_t* weights) {
  uint8_t power = 1;
  for (size_t k = 0; k < digits; ++k) {
    for (size_t l = 0; l < n; ++l) {
      const auto fraction = static_cast<uint8_t>(bytes[l] * power);
      weights[k * n + l] = static_cast<int8_t>(((fraction * 3) >> 8) - 1);
    }
    power = static_cast<uint8_t>(power * 3);
  }
}

}  // namespace

// qs[48], qh[4] (four weights each), d f16
void unpack_tq1_0(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* b = bytes_of(block);
  unpack_base3<32, 5>(b, out.weights);
  unpack_base3<16, 5>(b + 32, out.weights + 160);
  unpack_base3<4, 4>(b + 48, out.weights + 240);
  set_unit_scales(out, 16);
  out.scale[0] = load_f16(block + 52);
}

// qs[64], d f16. The fourth code, which no quantizer writes, is the weight 2.
void unpack_tq2_0(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* b = bytes_of(block);
  unpack_bit_pairs(b, out.weights);
  unpack_bit_pairs(b + 32, out.weights + 128);
  for (size_t i = 0; i < 256; ++i) out.weights[i] = static_cast<int8_t>(out.weights[i] - 1);
  set_unit_scales(out, 16);
  out.scale[0] = load_f16(block + 64);
}

}  // namespace sluice::quant
