// Unpacking sixteen rows of a format's blocks into a panel, lane by lane. What the bytes of a block mean stands beside
// the unpackers of src/quant.
//
// Included by panel.h only.

// Puts quad `quad` of 16 rows, as bytes with the format's offset, into the panel.
template <quant::Type kType>
inline void put(Panel& panel, size_t quad, Quads bytes) {
  if constexpr (shape_of(kType).wide()) {
    bits<0, 4>(bytes).store(panel.bytes[0][quad]);
    bits<4, 4>(bytes).store(panel.bytes[1][quad]);
  } else {
    bytes.store(panel.bytes[0][quad]);
  }
}

// Sixteen rows of blocks that are being read, and what will be read one panel later. That is asked for while this is
// read, and while it is multiplied (multiply_quads), since sixteen rows are too many streams for the processor's own
// prefetcher, and requests in one burst would wait for each other. Past a matrix's end they do no harm.
struct BlockRows {
  const uint8_t* p;  // the first row's block
  size_t stride;     // bytes to the next row's
  const uint8_t* ahead;

  // Bytes offset .. offset + 15 of each row.
  void quads(size_t offset, Quads (&out)[4]) {
    for (int line = 0; line < 3; ++line, ahead += 64) __builtin_prefetch(ahead, 0, 2);
    load_quads(p + offset, stride, out);
  }
  Quads words(size_t offset) const {
    return load_words([=, this](size_t row) { return p + offset + row * stride; });
  }
};

// ---- super-blocks of 256 weights -----------------------------------------------------------------------------------

// Four scales of 16 weights each, from group 4 * kQuarter on, bytes that are signed or not; offset: see Shape.
template <size_t kQuarter, bool kSigned>
inline void put_scales_16(Panel& panel, Quads scales, int16_t offset) {
  unrolled<4>([&]<uint32_t i>() SLUICE_INLINE {
    const Quads words = kSigned ? signed_scales<i>(scales) : unsigned_scales<i>(scales);
    words.store(panel.scales[0][4 * kQuarter + i]);
  });
  if (offset == 0) return;
  times_pairs(kSigned ? signed_pairs<0, 1>(scales) : unsigned_pairs<0, 1>(scales), offset)
      .store(panel.pairs[2 * kQuarter]);
  times_pairs(kSigned ? signed_pairs<2, 3>(scales) : unsigned_pairs<2, 3>(scales), offset)
      .store(panel.pairs[2 * kQuarter + 1]);
}

// Four minimums of 16 weights each.
template <size_t kQuarter>
inline void put_minimums_16(Panel& panel, Quads minimums) {
  unsigned_pairs<0, 1>(minimums).store(panel.pairs[2 * kQuarter]);
  unsigned_pairs<2, 3>(minimums).store(panel.pairs[2 * kQuarter + 1]);
}

// Four scales and four minimums of 32 weights each, from group 4 * kHalf on.
template <size_t kHalf>
inline void put_scales_32(Panel& panel, Quads scales, Quads minimums) {
  unrolled<4>([&]<uint32_t i>() SLUICE_INLINE {
    unsigned_scales<i>(scales).store(panel.scales[0][4 * kHalf + i]);
    unsigned_pairs<i, i>(minimums).store(panel.pairs[4 * kHalf + i]);
  });
}

// What Q4_K and Q5_K begin with: d f16, dmin f16, eight 6-bit scales and minimums in 12 bytes (see quant/k_quants.cpp).
inline void unpack_six_bit_scales(BlockRows& rows, Panel& panel) {
  Quads head[4];
  rows.quads(0, head);
  low_halves(head[0]).store(panel.scale[0]);
  (F32x16::all(-0.0f) - high_halves(head[0])).store(panel.minimum[0]);
  put_scales_32<0>(panel, bits<0, 6>(head[1]), bits<0, 6>(head[2]));
  put_scales_32<1>(panel, bits<0, 4>(head[3]) | bits<6, 2, 4>(head[1]), bits<4, 4>(head[3]) | bits<6, 2, 4>(head[2]));
}

inline void unpack_q4_k(BlockRows& rows, Panel& panel) {
  unpack_six_bit_scales(rows, panel);
  for (size_t i = 0; i < 8; ++i) {  // 16 bytes: 16 low nibbles, and 16 high ones 32 weights on
    Quads q[4];
    rows.quads(16 + 16 * i, q);
    const size_t quad = i / 2 * 16 + i % 2 * 4;
    for (size_t j = 0; j < 4; ++j) {
      bits<0, 4>(q[j]).store(panel.bytes[0][quad + j]);
      bits<4, 4>(q[j]).store(panel.bytes[0][quad + 8 + j]);
    }
  }
}

inline void unpack_q5_k(BlockRows& rows, Panel& panel) {
  unpack_six_bit_scales(rows, panel);
  for (size_t half = 0; half < 2; ++half) {
    Quads fifth[4];  // bit `run` of a byte belongs to its weight of the run-th 32
    rows.quads(16 + 16 * half, fifth);
    unrolled<4>([&]<uint32_t kPair>() SLUICE_INLINE {
      Quads q[4];
      rows.quads(48 + 32 * kPair + 16 * half, q);
      for (size_t j = 0; j < 4; ++j) {
        const size_t quad = 16 * kPair + 4 * half + j;
        (bits<0, 4>(q[j]) | bits<2 * kPair, 1, 4>(fifth[j])).store(panel.bytes[0][quad]);
        (bits<4, 4>(q[j]) | bits<2 * kPair + 1, 1, 4>(fifth[j])).store(panel.bytes[0][quad + 8]);
      }
    });
  }
}

inline void unpack_q6_k(BlockRows& rows, Panel& panel) {
  for (size_t part = 0; part < 4; ++part) {  // 16 columns of each of a half's four runs of 32 weights
    const size_t half = part / 2, column = part % 2 * 16;
    Quads low[4], next[4], upper[4];
    rows.quads(64 * half + column, low);
    rows.quads(64 * half + 32 + column, next);
    rows.quads(128 + 32 * half + column, upper);
    for (size_t j = 0; j < 4; ++j) {
      uint8_t(*to)[4 * kPanelRows] = panel.bytes[0] + 32 * half + column / 4 + j;
      (bits<0, 4>(low[j]) | bits<0, 2, 4>(upper[j])).store(to[0]);
      (bits<0, 4>(next[j]) | bits<2, 2, 4>(upper[j])).store(to[8]);
      (bits<4, 4>(low[j]) | bits<4, 2, 4>(upper[j])).store(to[16]);
      (bits<4, 4>(next[j]) | bits<6, 2, 4>(upper[j])).store(to[24]);
    }
  }
  Quads scales[4], tail[4];
  rows.quads(192, scales);
  rows.quads(194, tail);  // ends with d
  put_scales_16<0, true>(panel, scales[0], 32);
  put_scales_16<1, true>(panel, scales[1], 32);
  put_scales_16<2, true>(panel, scales[2], 32);
  put_scales_16<3, true>(panel, scales[3], 32);
  high_halves(tail[3]).store(panel.scale[0]);
}

// Two-bit codes of 64 weights' worth of bytes: run i of 32 weights has bits 2 i of 32 bytes; extra(run, byte quad) is
// joined to them.
template <typename Extra>
inline void put_bit_pairs(BlockRows& rows, size_t offset, size_t first_quad, Panel& panel, Extra extra) {
  for (size_t column = 0; column < 2; ++column) {
    Quads q[4];
    rows.quads(offset + 16 * column, q);
    for (size_t j = 0; j < 4; ++j) {
      const size_t at = 4 * column + j;
      uint8_t(*to)[4 * kPanelRows] = panel.bytes[0] + first_quad + at;
      (bits<0, 2>(q[j]) | extra(0, at)).store(to[0]);
      (bits<2, 2>(q[j]) | extra(1, at)).store(to[8]);
      (bits<4, 2>(q[j]) | extra(2, at)).store(to[16]);
      (bits<6, 2>(q[j]) | extra(3, at)).store(to[24]);
    }
  }
}

inline void unpack_q2_k(BlockRows& rows, Panel& panel) {
  const auto none = [](size_t, size_t) { return Quads::all(0); };
  put_bit_pairs(rows, 16, 0, panel, none);
  put_bit_pairs(rows, 48, 32, panel, none);
  Quads scales[4];
  rows.quads(0, scales);
  unrolled<4>([&]<uint32_t i>() SLUICE_INLINE {
    put_scales_16<i, false>(panel, bits<0, 4>(scales[i]), 0);
    put_minimums_16<i>(panel, bits<4, 4>(scales[i]));
  });
  const Quads d = rows.words(80);
  low_halves(d).store(panel.scale[0]);
  (F32x16::all(-0.0f) - high_halves(d)).store(panel.minimum[0]);
}

inline void unpack_q3_k(BlockRows& rows, Panel& panel) {
  Quads third[8];  // bit `run` of a byte belongs to its weight of the run-th 32
  for (size_t column = 0; column < 2; ++column) {
    Quads q[4];
    rows.quads(16 * column, q);
    for (size_t j = 0; j < 4; ++j) third[4 * column + j] = q[j];
  }
  put_bit_pairs(rows, 32, 0, panel, [&](size_t run, size_t at) {
    switch (run) {
      case 0:
        return bits<0, 1, 2>(third[at]);
      case 1:
        return bits<1, 1, 2>(third[at]);
      case 2:
        return bits<2, 1, 2>(third[at]);
      default:
        return bits<3, 1, 2>(third[at]);
    }
  });
  put_bit_pairs(rows, 64, 32, panel, [&](size_t run, size_t at) {
    switch (run) {
      case 0:
        return bits<4, 1, 2>(third[at]);
      case 1:
        return bits<5, 1, 2>(third[at]);
      case 2:
        return bits<6, 1, 2>(third[at]);
      default:
        return bits<7, 1, 2>(third[at]);
    }
  });
  const Quads a = rows.words(96), b = rows.words(100), c = rows.words(104);
  const Quads bias = Quads::all(32);
  put_scales_16<0, true>(panel, (bits<0, 4>(a) | bits<0, 2, 4>(c)) - bias, 4);
  put_scales_16<1, true>(panel, (bits<0, 4>(b) | bits<2, 2, 4>(c)) - bias, 4);
  put_scales_16<2, true>(panel, (bits<4, 4>(a) | bits<4, 2, 4>(c)) - bias, 4);
  put_scales_16<3, true>(panel, (bits<4, 4>(b) | bits<6, 2, 4>(c)) - bias, 4);
  high_halves(rows.words(106)).store(panel.scale[0]);
}

// ---- blocks of 32 weights ------------------------------------------------------------------------------------------

// Nibbles of 16 bytes, all low ones, then all high ones, each through `value`.
template <quant::Type kType, typename Value>
inline void put_nibbles(BlockRows& rows, size_t offset, size_t block, Panel& panel, Value value) {
  Quads q[4];
  rows.quads(offset, q);
  for (size_t j = 0; j < 4; ++j) {
    put<kType>(panel, 8 * block + j, value(bits<0, 4>(q[j]), j));
    put<kType>(panel, 8 * block + 4 + j, value(bits<4, 4>(q[j]), 4 + j));
  }
}

inline void unpack_q4_01(BlockRows& rows, size_t block, bool minimum, Panel& panel) {
  const auto as_is = [](Quads codes, size_t) { return codes; };
  put_nibbles<quant::Type::kQ4_0>(rows, (minimum ? 4 : 2), block, panel, as_is);
  const Quads head = rows.words(0);
  low_halves(head).store(panel.scale[block]);
  if (minimum) high_halves(head).store(panel.minimum[block]);
}

inline void unpack_q5_01(BlockRows& rows, size_t block, bool minimum, Panel& panel) {
  const size_t start = minimum ? 4 : 2;
  const Quads word = rows.words(start), sixteen = Quads::all(16);
  const Quads fifth[8] = {bit_mask<0>(word),  bit_mask<4>(word),  bit_mask<8>(word),  bit_mask<12>(word),
                          bit_mask<16>(word), bit_mask<20>(word), bit_mask<24>(word), bit_mask<28>(word)};
  put_nibbles<quant::Type::kQ5_0>(rows, start + 4, block, panel,
                                  [&](Quads codes, size_t i) { return codes | (fifth[i] & sixteen); });
  const Quads head = rows.words(0);
  low_halves(head).store(panel.scale[block]);
  if (minimum) high_halves(head).store(panel.minimum[block]);
}

inline void unpack_q8_0(BlockRows& rows, size_t block, Panel& panel) {
  const Quads flip = Quads::all(static_cast<uint8_t>(kByteOffset));  // adding 128 is turning the highest bit
  for (size_t half = 0; half < 2; ++half) {
    Quads q[4];
    rows.quads(2 + 16 * half, q);
    for (size_t j = 0; j < 4; ++j) put<quant::Type::kQ8_0>(panel, 8 * block + 4 * half + j, q[j] ^ flip);
  }
  low_halves(rows.words(0)).store(panel.scale[block]);
}

// The levels of the four-bit codes (see quant/level16.cpp) with their formats' offsets.
struct Levels {
  uint8_t bytes[16];
};
constexpr Levels levels_with_offset(const int8_t (&levels)[16], int offset) {
  Levels out = {};
  for (size_t i = 0; i < 16; ++i) out.bytes[i] = static_cast<uint8_t>(levels[i] + offset);
  return out;
}
constexpr Levels kCurveBytes = levels_with_offset(quant::kCurve, kByteOffset);
constexpr Levels kE2m1Bytes = levels_with_offset(quant::kDoubledE2M1, 12);

inline void unpack_iq4_nl(BlockRows& rows, size_t block, Panel& panel) {
  put_nibbles<quant::Type::kIQ4_NL>(rows, 2, block, panel,
                                    [](Quads codes, size_t) { return lookup(kCurveBytes.bytes, codes); });
  low_halves(rows.words(0)).store(panel.scale[block]);
}

inline void unpack_mxfp4(BlockRows& rows, size_t block, Panel& panel) {
  put_nibbles<quant::Type::kMXFP4>(rows, 1, block, panel,
                                   [](Quads codes, size_t) { return lookup(kE2m1Bytes.bytes, codes); });
  for (size_t r = 0; r < kPanelRows; ++r) panel.scale[block][r] = quant::kHalfE8m0[rows.p[r * rows.stride]];
}

// Halves of the unsigned E4M3 in byte i of every row's word: as an f16 with the same fields, exponents are 7 too low.
// 0x7f is 0, but not 0xff (see quant/level16.cpp).
template <uint32_t i>
inline F32x16 half_ue4m3(Quads codes) {
  const Quads numbers = codes ^ (codes & equal_bytes(codes, Quads::all(0x7F)));
  const Quads code = pick<i, 0x80, 0x80, 0x80>(numbers & Quads::all(0x7F));
  return low_halves(shift_words_left<7>(code)) * F32x16::all(128.0f);
}

inline void unpack_nvfp4(BlockRows& rows, size_t block, Panel& panel) {
  constexpr auto kType = quant::Type::kNVFP4;
  for (size_t half = 0; half < 2; ++half) {
    Quads q[4];  // eight low nibbles, then eight high ones, twice
    rows.quads(4 + 16 * half, q);
    for (size_t j = 0; j < 4; ++j) {
      const size_t quad = 16 * block + 8 * half + j / 2 * 4 + j % 2;
      put<kType>(panel, quad, lookup(kE2m1Bytes.bytes, bits<0, 4>(q[j])));
      put<kType>(panel, quad + 2, lookup(kE2m1Bytes.bytes, bits<4, 4>(q[j])));
    }
  }
  const Quads scales = rows.words(0);
  unrolled<4>([&]<uint32_t i>() SLUICE_INLINE { half_ue4m3<i>(scales).store(panel.scale[4 * block + i]); });
}

inline void unpack_iq4_xs(BlockRows& rows, Panel& panel) {
  constexpr auto kType = quant::Type::kIQ4_XS;
  for (size_t run = 0; run < 8; ++run)
    put_nibbles<kType>(rows, 8 + 16 * run, run, panel,
                       [](Quads codes, size_t) { return lookup(kCurveBytes.bytes, codes); });
  // d f16 and the upper pairs of bits of eight scales, then their nibbles: bytes of scales 0, 2, 4, 6 and 1, 3, 5, 7.
  const Quads head = rows.words(0), nibbles = rows.words(4);
  const Quads first = pick<2, 2, 3, 3>(head);
  const Quads low_pair = Quads::all_words(0x00FF00FFu), upper = Quads::all_words(0xFF00FF00u);
  const Quads even = bits<0, 4>(nibbles) | (bits<0, 2, 4>(first) & low_pair) | (bits<4, 2, 4>(first) & upper);
  const Quads odd = bits<4, 4>(nibbles) | (bits<2, 2, 4>(first) & low_pair) | (bits<6, 2, 4>(first) & upper);
  const Quads bias = Quads::all(32);
  const auto put_group = [&]<uint32_t i>(Quads scales, size_t group) {
    const Quads words = signed_scales<i>(scales);
    words.store(panel.scales[0][group]);
    if constexpr (shape_of(kType).wide()) times_pairs(words, 16).store(panel.scales[1][group]);
    if constexpr (kByteOffset != 0) times_pairs(signed_pairs<i, i>(scales), kByteOffset).store(panel.pairs[group]);
  };
  unrolled<4>([&]<uint32_t i>() SLUICE_INLINE {
    put_group.template operator()<i>(even - bias, 2 * i);
    put_group.template operator()<i>(odd - bias, 2 * i + 1);
  });
  low_halves(head).store(panel.scale[0]);
}

// ---- ternary formats -----------------------------------------------------------------------------------------------

inline void unpack_tq2_0(BlockRows& rows, Panel& panel) {
  const auto none = [](size_t, size_t) { return Quads::all(0); };
  put_bit_pairs(rows, 0, 0, panel, none);
  put_bit_pairs(rows, 32, 32, panel, none);
  high_halves(rows.words(62)).store(panel.scale[0]);
}

// Bytes of kDigits digits in base 3: the leading ones to `quad`, the next ones `step` quads on, and so on. Times 3, in
// 16 bits, a digit stands in the upper byte and what is left of its fraction in the lower one.
template <size_t kDigits>
inline void put_base3(Panel& panel, size_t quad, size_t step, Quads bytes) {
  const Quads lower = Quads::all_words(0x00FF00FFu), upper = Quads::all_words(0xFF00FF00u);
  Quads even = bytes, odd = pick<1, 0x80, 3, 0x80>(bytes);
  for (size_t i = 0; i < kDigits; ++i) {
    even = times_pairs(even & lower, 3), odd = times_pairs(odd & lower, 3);
    (pick<1, 0x80, 3, 0x80>(even) | (odd & upper)).store(panel.bytes[0][quad + i * step]);
  }
}

inline void unpack_tq1_0(BlockRows& rows, Panel& panel) {
  for (size_t column = 0; column < 3; ++column) {
    Quads q[4];
    rows.quads(16 * column, q);
    for (size_t j = 0; j < 4; ++j) {
      if (column < 2)
        put_base3<5>(panel, 4 * column + j, 8, q[j]);
      else
        put_base3<5>(panel, 40 + j, 4, q[j]);
    }
  }
  put_base3<4>(panel, 60, 1, rows.words(48));
  high_halves(rows.words(50)).store(panel.scale[0]);
}

// ---- codebooks -----------------------------------------------------------------------------------------------------

#include "ops/cpu/unpack_grids.h"

// ---- by format -----------------------------------------------------------------------------------------------------

// One block of each of 16 rows.
template <quant::Type kType>
inline void unpack_rows(BlockRows& rows, size_t block, Panel& panel) {
  using quant::Type;
  if constexpr (kType == Type::kQ4_0 || kType == Type::kQ4_1) unpack_q4_01(rows, block, kType == Type::kQ4_1, panel);
  if constexpr (kType == Type::kQ5_0 || kType == Type::kQ5_1) unpack_q5_01(rows, block, kType == Type::kQ5_1, panel);
  if constexpr (kType == Type::kQ8_0) unpack_q8_0(rows, block, panel);
  if constexpr (kType == Type::kIQ4_NL) unpack_iq4_nl(rows, block, panel);
  if constexpr (kType == Type::kMXFP4) unpack_mxfp4(rows, block, panel);
  if constexpr (kType == Type::kIQ4_XS) unpack_iq4_xs(rows, panel);
  if constexpr (kType == Type::kNVFP4) unpack_nvfp4(rows, block, panel);
  if constexpr (kType == Type::kQ2_K) unpack_q2_k(rows, panel);
  if constexpr (kType == Type::kQ3_K) unpack_q3_k(rows, panel);
  if constexpr (kType == Type::kQ4_K) unpack_q4_k(rows, panel);
  if constexpr (kType == Type::kQ5_K) unpack_q5_k(rows, panel);
  if constexpr (kType == Type::kQ6_K) unpack_q6_k(rows, panel);
  if constexpr (kType == Type::kIQ2_XXS) unpack_iq2_xxs(rows, panel);
  if constexpr (kType == Type::kIQ2_XS) unpack_iq2_xs(rows, panel);
  if constexpr (kType == Type::kIQ2_S) unpack_iq2_s(rows, panel);
  if constexpr (kType == Type::kIQ3_XXS) unpack_iq3_xxs(rows, panel);
  if constexpr (kType == Type::kIQ3_S) unpack_iq3_s(rows, panel);
  if constexpr (kType == Type::kIQ1_S) unpack_iq1_s(rows, panel);
  if constexpr (kType == Type::kIQ1_M) unpack_iq1_m(rows, panel);
  if constexpr (kType == Type::kTQ1_0) unpack_tq1_0(rows, panel);
  if constexpr (kType == Type::kTQ2_0) unpack_tq2_0(rows, panel);
}

// n_blocks blocks of each of `present` rows.
template <quant::Type kType>
inline void unpack_panel(const quant::Format& format, const std::byte* blocks, size_t row_bytes, size_t present,
                         size_t n_blocks, Panel& panel) {
  constexpr size_t kMost = 8 * 36;  // bytes of a span's blocks, any format
  uint8_t copy[kPanelRows][kMost];
  BlockRows rows = {reinterpret_cast<const uint8_t*>(blocks), row_bytes, panel.ahead};
  if (present < kPanelRows) {  // the last rows of a matrix: in a copy, so that none is read that isn't there
    for (size_t r = 0; r < kPanelRows; ++r)
      std::memcpy(copy[r], blocks + (r < present ? r : present - 1) * row_bytes, n_blocks * format.block_bytes);
    rows.p = copy[0], rows.stride = kMost;
  }
  for (size_t b = 0; b < n_blocks; ++b, rows.p += format.block_bytes) unpack_rows<kType>(rows, b, panel);
  panel.ahead = rows.ahead;
}
