// IQ1, IQ2 and IQ3: groups of 8 (or 4) weights are indices into a codebook (grids.h), with signs beside the index (IQ2,
// IQ3) or one shift for the whole group (IQ1). Scales are odd: 2 s + 1 of a stored s, times a power of two times d.
#include <bit>

#include "quant/codecs.h"
#include "quant/fields.h"
#include "quant/grids.h"

namespace sluice::quant {
namespace {

constexpr uint64_t kEachByte = 0x0101010101010101u;

int16_t odd_scale(int code) { return static_cast<int16_t>(2 * code + 1); }

// Both groups of 16 of the run-th 32 weights.
void set_odd_scale(UnpackedBlock& out, int run, int code) {
  out.scales[2 * run] = out.scales[2 * run + 1] = odd_scale(code);
}

// Writes the eight magnitudes (all > 0) in the bytes of `magnitudes`, the k-th negated where bit k of `signs` is set.
void store_signed(uint64_t magnitudes, uint8_t signs, int8_t* weights) {
  const uint64_t one_bit_each = (signs * kEachByte) & 0x8040201008040201u;         // byte k: bit k or 0
  const uint64_t negative = ((one_bit_each + 0x7f * kEachByte) >> 7) & kEachByte;  // byte k: 1 or 0
  store<uint64_t>(weights, (magnitudes ^ (negative * 0xff)) + negative);           // -x = ~x + 1, and ~x < 255
}

// Seven stored signs; the eighth makes the number of minus signs even.
uint8_t with_parity(uint32_t seven_signs) {
  return static_cast<uint8_t>(seven_signs | (static_cast<uint32_t>(std::popcount(seven_signs) & 1) << 7));
}

uint64_t two_entries(uint32_t first, uint32_t second) { return first | (static_cast<uint64_t>(second) << 32); }

// A group of IQ1: the entry's weights (-1, 0, 1) plus or minus 1/8, all times 8.
void store_shifted(uint64_t entry, bool negative_shift, int8_t* weights) {
  int8_t codes[8];
  store<uint64_t>(codes, entry);
  const int shift = negative_shift ? -1 : 1;
  for (int i = 0; i < 8; ++i) weights[i] = static_cast<int8_t>(8 * codes[i] + shift);
}

}  // namespace

// d f16, low index bytes qs[32], qh u16[8]: per 32 weights 4 x 3 high index bits, 3-bit scale, sign of the shift
void unpack_iq1_s(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* qs = bytes_of(block) + 2;
  for (int run = 0; run < 8; ++run) {
    const int qh = load<uint16_t>(block + 34 + 2 * run);
    for (int g = 0; g < 4; ++g) {
      const int index = qs[4 * run + g] | (((qh >> (3 * g)) & 7) << 8);
      store_shifted(kIq1Grid[index], (qh & 0x8000) != 0, out.weights + 32 * run + 8 * g);
    }
    set_odd_scale(out, run, (qh >> 12) & 7);
  }
  out.scale[0] = load_f16(block) * 0.125f;
}

// low index bytes qs[32], qh[16]: a nibble per 8 weights (3 high index bits, sign of the shift), then u16[4]: each has
// four 3-bit scales of 16 weights and a nibble of d on top
void unpack_iq1_m(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* b = bytes_of(block);
  for (int g = 0; g < 32; ++g) {
    const int nibble = (b[32 + g / 2] >> (4 * (g % 2))) & 15;
    store_shifted(kIq1Grid[b[g] | ((nibble & 7) << 8)], (nibble & 8) != 0, out.weights + 8 * g);
  }
  uint32_t d = 0;
  for (int quarter = 0; quarter < 4; ++quarter) {
    const uint32_t word = load<uint16_t>(block + 48 + 2 * quarter);
    for (int j = 0; j < 4; ++j) out.scales[4 * quarter + j] = odd_scale((word >> (3 * j)) & 7);
    d |= (word >> 12) << (4 * quarter);
  }
  out.scale[0] = f16_to_f32(static_cast<uint16_t>(d)) * 0.125f;
}

// d f16, then per 32 weights: four index bytes and a u32 of four 7-bit signs and a 4-bit scale
void unpack_iq2_xxs(const std::byte* block, UnpackedBlock& out) {
  for (int run = 0; run < 8; ++run) {
    const uint8_t* indices = bytes_of(block) + 2 + 8 * run;
    const auto word = load<uint32_t>(indices + 4);
    for (int g = 0; g < 4; ++g) {
      store_signed(kIq2XxsGrid[indices[g]], with_parity((word >> (7 * g)) & 127), out.weights + 32 * run + 8 * g);
    }
    set_odd_scale(out, run, static_cast<int>(word >> 28));
  }
  out.scale[0] = load_f16(block) * 0.125f;
}

// d f16, u16[32]: 9-bit index and 7 signs; scales[8]: a nibble per 16 weights
void unpack_iq2_xs(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* scales = bytes_of(block) + 66;
  for (int g = 0; g < 32; ++g) {
    const uint32_t code = load<uint16_t>(block + 2 + 2 * g);
    store_signed(kIq2XsGrid[code & 511], with_parity(code >> 9), out.weights + 8 * g);
  }
  for (int j = 0; j < 16; ++j) out.scales[j] = odd_scale((scales[j / 2] >> (4 * (j % 2))) & 15);
  out.scale[0] = load_f16(block) * 0.125f;
}

// d f16, low index bytes qs[32], sign bytes [32], qh[8]: 4 x 2 high index bits, scales[8]: a nibble per 16 weights
void unpack_iq2_s(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* b = bytes_of(block);
  const uint8_t *qs = b + 2, *signs = b + 34, *qh = b + 66, *scales = b + 74;
  for (int g = 0; g < 32; ++g) {
    const int index = qs[g] | (((qh[g / 4] >> (2 * (g % 4))) & 3) << 8);
    store_signed(kIq2SGrid[index], signs[g], out.weights + 8 * g);
  }
  for (int j = 0; j < 16; ++j) out.scales[j] = odd_scale((scales[j / 2] >> (4 * (j % 2))) & 15);
  out.scale[0] = load_f16(block) * 0.125f;
}

// d f16, index bytes qs[64] of 4 weights each, u32[8]: four 7-bit signs and a 4-bit scale per 32 weights
void unpack_iq3_xxs(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* qs = bytes_of(block) + 2;
  for (int run = 0; run < 8; ++run) {
    const auto word = load<uint32_t>(block + 66 + 4 * run);
    for (int g = 0; g < 4; ++g) {
      const uint8_t* pair = qs + 8 * run + 2 * g;
      store_signed(two_entries(kIq3XxsGrid[pair[0]], kIq3XxsGrid[pair[1]]), with_parity((word >> (7 * g)) & 127),
                   out.weights + 32 * run + 8 * g);
    }
    set_odd_scale(out, run, static_cast<int>(word >> 28));
  }
  out.scale[0] = load_f16(block) * 0.25f;
}

// d f16, low index bytes qs[64] of 4 weights each, ninth index bits qh[8], sign bytes [32], scales[4]: a nibble per 32
void unpack_iq3_s(const std::byte* block, UnpackedBlock& out) {
  const uint8_t* b = bytes_of(block);
  const uint8_t *qs = b + 2, *qh = b + 66, *signs = b + 74, *scales = b + 106;
  const auto entry = [&](int k) { return kIq3SGrid[qs[k] | (((qh[k / 8] >> (k % 8)) & 1) << 8)]; };
  for (int g = 0; g < 32; ++g) {
    store_signed(two_entries(entry(2 * g), entry(2 * g + 1)), signs[g], out.weights + 8 * g);
  }
  for (int run = 0; run < 8; ++run) set_odd_scale(out, run, (scales[run / 2] >> (4 * (run % 2))) & 15);
  out.scale[0] = load_f16(block);
}

}  // namespace sluice::quant
