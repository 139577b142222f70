// Unpacking the formats whose weights are entries of a codebook (see quant/grid_quants.cpp): indices of sixteen rows
// are put together lane by lane, entries are looked up one by one straight into the panel, signs are put on lane by
// lane again.
//
// Included by unpack.h only.

// The eight runs of 32 weights that a block is: indices of entries of 8 weights (kEntryQuads 2) or 4 (1), and a word a
// row that says what is to be done with them. All are put together first, and then looked up: so GCC keeps constants in
// registers.
template <size_t kEntryQuads>
struct Runs {
  uint16_t indices[8][2 / kEntryQuads][4 * kPanelRows];  // as store_wide stores them
  Quads marks[8];
};

// Looks all entries up; finish<quad of the run>(entries, marks) makes a quad of the panel of each.
template <size_t kEntryQuads, typename Finish>
inline void put_runs(Panel& panel, const uint32_t* book, const Runs<kEntryQuads>& runs, Finish finish) {
  for (size_t run = 0; run < 8; ++run) {
    const Quads marks = runs.marks[run];
    unrolled<8 / kEntryQuads>([&]<uint32_t i>() SLUICE_INLINE {
      const auto entry = [&](size_t row) {
        size_t index = runs.indices[run][i / 4][4 * wide_slot(row) + i % 4];
        asm volatile("" : "+r"(index));  // one by one: GCC would load them as a vector, and take it apart again
        return book + index * kEntryQuads;
      };
      uint8_t(*to)[4 * kPanelRows] = panel.bytes[0] + 8 * run + i * kEntryQuads;
      if constexpr (kEntryQuads == 1) {
        finish.template operator()<i>(load_words(entry), marks).store(to[0]);
      } else {
        Quads first, second;
        load_pairs(entry, first, second);
        finish.template operator()<2 * i>(first, marks).store(to[0]);
        finish.template operator()<2 * i + 1>(second, marks).store(to[1]);
      }
    });
  }
}

// The same with magnitudes for entries. Weights whose bit of the row's mark is set are negated.
template <quant::Type kType, size_t kEntryQuads>
inline void put_signed(Panel& panel, const uint32_t* book, const Runs<kEntryQuads>& runs) {
  const Quads offset = Quads::all(static_cast<uint8_t>(shape_of(kType).offset));
  put_runs(panel, book, runs, [=]<uint32_t i>(Quads magnitudes, Quads signs) {
    const Quads negative = bit_mask<4 * i>(signs);
    return (magnitudes ^ negative) - (negative - offset);  // -x = ~x + 1, and ~x = x ^ -1
  });
}

// Bytes of seven signs get the eighth, which makes the number of minus signs even.
inline Quads with_parity(Quads sevens) {
  Quads fold = sevens ^ bits<4, 4>(sevens);
  fold = fold ^ bits<2, 2>(fold);
  fold = fold ^ bits<1, 1>(fold);
  return sevens | bits<0, 1, 7>(fold);
}

// Words of four 7-bit fields and four bits above: the fields as bytes.
inline Quads seven_bit_fields(Quads words) {
  const auto field = [&](uint32_t mask) { return words & Quads::all_words(mask); };
  return field(0x7Fu) | shift_words_left<1>(field(0x7Fu << 7)) | shift_words_left<2>(field(0x7Fu << 14)) |
         shift_words_left<3>(field(0x7Fu << 21));
}

// Stored scales s stand for 2 s + 1.
inline Quads odd_scales(Quads nibbles) { return shift_bytes_unmasked<-1>(nibbles) | Quads::all(1); }

// The scale of a group of 32 weights: byte kByte of a word.
template <quant::Type kType, uint32_t kByte>
inline void put_odd_scale_32(Panel& panel, size_t group, Quads stored) {
  constexpr auto kOffset = static_cast<int16_t>(shape_of(kType).offset);
  const Quads scales = odd_scales(stored);
  unsigned_scales<kByte>(scales).store(panel.scales[0][group]);
  times_pairs(unsigned_pairs<kByte, kByte>(scales), kOffset).store(panel.pairs[group]);
}

// Sixteen scales of 16 weights each: nibbles of eight bytes from `offset` on.
template <quant::Type kType>
inline void put_odd_scales_16(BlockRows& rows, size_t offset, Panel& panel) {
  constexpr auto kOffset = static_cast<int16_t>(shape_of(kType).offset);
  const auto put_eight = [&]<size_t kHalf>(Quads bytes) {
    const Quads even = odd_scales(bits<0, 4>(bytes)), odd = odd_scales(bits<4, 4>(bytes));
    put_scales_16<2 * kHalf, false>(panel, pick<0, 0x80, 1, 0x80>(even) | pick<0x80, 0, 0x80, 1>(odd), kOffset);
    put_scales_16<2 * kHalf + 1, false>(panel, pick<2, 0x80, 3, 0x80>(even) | pick<0x80, 2, 0x80, 3>(odd), kOffset);
  };
  put_eight.template operator()<0>(rows.words(offset));
  put_eight.template operator()<1>(rows.words(offset + 4));
}

inline void put_block_scale(Quads words, float factor, Panel& panel) {
  (low_halves(words) * F32x16::all(factor)).store(panel.scale[0]);
}

// The word that ends a run of 32 weights in IQ2_XXS and IQ3_XXS has four times seven signs, and a scale.
template <quant::Type kType>
inline Quads run_signs(Panel& panel, size_t run, Quads words) {
  put_odd_scale_32<kType, 3>(panel, run, bits<4, 4>(words));
  return with_parity(seven_bit_fields(words));
}

inline void unpack_iq2_xxs(BlockRows& rows, Panel& panel) {
  constexpr auto kType = quant::Type::kIQ2_XXS;
  const auto* book = reinterpret_cast<const uint32_t*>(&quant::kIq2XxsGrid);
  Runs<2> runs;
  for (size_t pair = 0; pair < 4; ++pair) {
    Quads q[4];  // four indices, signs and scale, four indices, signs and scale
    rows.quads(2 + 16 * pair, q);
    for (size_t i = 0; i < 2; ++i) {
      const size_t run = 2 * pair + i;
      store_wide(q[2 * i], Quads::all(0), runs.indices[run][0]);
      runs.marks[run] = run_signs<kType>(panel, run, q[2 * i + 1]);
    }
  }
  put_signed<kType>(panel, book, runs);
  put_block_scale(rows.words(0), 0.125f, panel);
}

inline void unpack_iq2_xs(BlockRows& rows, Panel& panel) {
  constexpr auto kType = quant::Type::kIQ2_XS;
  const auto* book = reinterpret_cast<const uint32_t*>(&quant::kIq2XsGrid);
  Runs<2> runs;
  for (size_t pair = 0; pair < 4; ++pair) {
    Quads q[4];  // two codes each: nine bits of index below seven of signs
    rows.quads(2 + 16 * pair, q);
    for (size_t i = 0; i < 2; ++i) {
      const Quads a = q[2 * i], b = q[2 * i + 1];
      const Quads low = pick<0, 2, 0x80, 0x80>(a) | pick<0x80, 0x80, 0, 2>(b);
      const Quads high = pick<1, 3, 0x80, 0x80>(a) | pick<0x80, 0x80, 1, 3>(b);
      store_wide(low, bits<0, 1>(high), runs.indices[2 * pair + i][0]);
      runs.marks[2 * pair + i] = with_parity(bits<1, 7>(high));
    }
  }
  put_signed<kType>(panel, book, runs);
  put_odd_scales_16<kType>(rows, 66, panel);
  put_block_scale(rows.words(0), 0.125f, panel);
}

// Byte i of the result: bits 2 i and 2 i + 1 of byte kByte of the word.
template <uint32_t kByte>
inline Quads two_bit_fields(Quads words) {
  const Quads b = pick<kByte, kByte, kByte, kByte>(words);
  return (bits<0, 2>(b) & Quads::all_words(0x000000FFu)) | (bits<2, 2>(b) & Quads::all_words(0x0000FF00u)) |
         (bits<4, 2>(b) & Quads::all_words(0x00FF0000u)) | (bits<6, 2>(b) & Quads::all_words(0xFF000000u));
}

inline void unpack_iq2_s(BlockRows& rows, Panel& panel) {
  constexpr auto kType = quant::Type::kIQ2_S;
  const auto* book = reinterpret_cast<const uint32_t*>(&quant::kIq2SGrid);
  Runs<2> runs;
  for (size_t half = 0; half < 2; ++half) {
    Quads low[4], signs[4];
    rows.quads(2 + 16 * half, low);
    rows.quads(34 + 16 * half, signs);
    const Quads upper = rows.words(66 + 4 * half);
    unrolled<4>([&]<uint32_t i>() SLUICE_INLINE {
      store_wide(low[i], two_bit_fields<i>(upper), runs.indices[4 * half + i][0]);
      runs.marks[4 * half + i] = signs[i];
    });
  }
  put_signed<kType>(panel, book, runs);
  put_odd_scales_16<kType>(rows, 74, panel);
  put_block_scale(rows.words(0), 0.125f, panel);
}

inline void unpack_iq3_xxs(BlockRows& rows, Panel& panel) {
  constexpr auto kType = quant::Type::kIQ3_XXS;
  const auto* book = reinterpret_cast<const uint32_t*>(&quant::kIq3XxsGrid);
  Runs<1> runs;
  for (size_t half = 0; half < 2; ++half) {
    Quads ends[4];
    rows.quads(66 + 16 * half, ends);
    for (size_t pair = 0; pair < 2; ++pair) {
      Quads q[4];  // four indices each
      rows.quads(2 + 32 * half + 16 * pair, q);
      for (size_t i = 0; i < 2; ++i) {
        const size_t run = 4 * half + 2 * pair + i;
        store_wide(q[2 * i], Quads::all(0), runs.indices[run][0]);
        store_wide(q[2 * i + 1], Quads::all(0), runs.indices[run][1]);
        runs.marks[run] = run_signs<kType>(panel, run, ends[2 * pair + i]);
      }
    }
  }
  put_signed<kType>(panel, book, runs);
  put_block_scale(rows.words(0), 0.25f, panel);
}

inline void unpack_iq3_s(BlockRows& rows, Panel& panel) {
  constexpr auto kType = quant::Type::kIQ3_S;
  const auto* book = reinterpret_cast<const uint32_t*>(&quant::kIq3SGrid);
  Runs<1> runs;
  const Quads one = Quads::all(1);
  for (size_t half = 0; half < 2; ++half) {
    Quads signs[4];
    rows.quads(74 + 16 * half, signs);
    const Quads ninth = rows.words(66 + 4 * half);  // a bit of every index
    Quads q[2][4];                                  // four indices each
    rows.quads(2 + 32 * half, q[0]);
    rows.quads(18 + 32 * half, q[1]);
    unrolled<4>([&]<uint32_t i>() SLUICE_INLINE {
      auto& indices = runs.indices[4 * half + i];
      store_wide(q[i / 2][i % 2 * 2], bit_mask<8 * i>(ninth) & one, indices[0]);
      store_wide(q[i / 2][i % 2 * 2 + 1], bit_mask<8 * i + 4>(ninth) & one, indices[1]);
      runs.marks[4 * half + i] = signs[i];
    });
  }
  put_signed<kType>(panel, book, runs);
  const Quads scales = rows.words(106);
  unrolled<4>([&]<uint32_t i>() SLUICE_INLINE {
    put_odd_scale_32<kType, i>(panel, 2 * i, bits<0, 4>(scales));
    put_odd_scale_32<kType, i>(panel, 2 * i + 1, bits<4, 4>(scales));
  });
  put_block_scale(rows.words(0), 1.0f, panel);
}

// Byte i of the result: the three bits from bit 3 i on of a word's low or high half.
template <uint32_t kHalf>
inline Quads three_bit_fields(Quads words) {
  const Quads w = pick<2 * kHalf, 2 * kHalf + 1, 0x80, 0x80>(words);
  return (w & Quads::all_words(7)) | (shift_words_left<5>(w) & Quads::all_words(7u << 8)) |
         (shift_words_left<10>(w) & Quads::all_words(7u << 16)) |
         (shift_words_left<15>(w) & Quads::all_words(7u << 24));
}

// Entries of -1, 0 and 1, which turn to 8 x entry +- 1 + 9; byte g of a mark is 2 where entry g is shifted up, else 0.
inline void put_ternary(Panel& panel, const Runs<2>& runs) {
  const auto* book = reinterpret_cast<const uint32_t*>(&quant::kIq1Grid);
  const Quads minus_one = Quads::all(0xFF);
  put_runs(panel, book, runs, [=]<uint32_t i>(Quads codes, Quads up) {
    return shift_bytes_unmasked<-3>(codes - minus_one) | pick<i / 2, i / 2, i / 2, i / 2>(up);
  });
}

inline void unpack_iq1_s(BlockRows& rows, Panel& panel) {
  constexpr auto kType = quant::Type::kIQ1_S;
  Runs<2> runs;
  Quads upper[4];  // per 32 weights: three bits of each index, a scale, the sign of the shift
  rows.quads(34, upper);
  for (size_t half = 0; half < 2; ++half) {
    Quads low[4];
    rows.quads(2 + 16 * half, low);
    for (size_t pair = 0; pair < 2; ++pair) {
      const Quads words = upper[2 * half + pair], up = bits<7, 1, 1>(words) ^ Quads::all(2);
      const size_t run = 4 * half + 2 * pair;
      store_wide(low[2 * pair], three_bit_fields<0>(words), runs.indices[run][0]);
      store_wide(low[2 * pair + 1], three_bit_fields<1>(words), runs.indices[run + 1][0]);
      runs.marks[run] = pick<1, 1, 1, 1>(up), runs.marks[run + 1] = pick<3, 3, 3, 3>(up);
      put_odd_scale_32<kType, 1>(panel, run, bits<4, 3>(words));
      put_odd_scale_32<kType, 3>(panel, run + 1, bits<4, 3>(words));
    }
  }
  put_ternary(panel, runs);
  put_block_scale(rows.words(0), 0.125f, panel);
}

inline void unpack_iq1_m(BlockRows& rows, Panel& panel) {
  const Quads even = Quads::all_words(0x00FF00FFu), odd = Quads::all_words(0xFF00FF00u);
  Runs<2> runs;
  Quads upper[4];  // a nibble per 8 weights: three bits of the index, the sign of the shift
  rows.quads(32, upper);
  for (size_t half = 0; half < 2; ++half) {
    Quads low[4];
    rows.quads(16 * half, low);
    for (size_t pair = 0; pair < 2; ++pair) {
      const auto put_one = [&]<uint32_t i>() {
        const Quads nibbles = pick<2 * i, 2 * i, 2 * i + 1, 2 * i + 1>(upper[2 * half + pair]);
        const Quads high = (bits<0, 3>(nibbles) & even) | (bits<4, 3>(nibbles) & odd);
        const Quads down = (bits<3, 1, 1>(nibbles) & even) | (bits<7, 1, 1>(nibbles) & odd);
        const size_t run = 4 * half + 2 * pair + i;
        store_wide(low[2 * pair + i], high, runs.indices[run][0]);
        runs.marks[run] = down ^ Quads::all(2);
      };
      put_one.template operator()<0>();
      put_one.template operator()<1>();
    }
  }
  put_ternary(panel, runs);
  const Quads a = rows.words(48), b = rows.words(52);
  put_scales_16<0, false>(panel, odd_scales(three_bit_fields<0>(a)), 9);
  put_scales_16<1, false>(panel, odd_scales(three_bit_fields<1>(a)), 9);
  put_scales_16<2, false>(panel, odd_scales(three_bit_fields<0>(b)), 9);
  put_scales_16<3, false>(panel, odd_scales(three_bit_fields<1>(b)), 9);
  // d, a nibble on top of every four scales
  const Quads first = pick<1, 0x80, 0x80, 0x80>(a) | pick<0x80, 1, 0x80, 0x80>(b);
  const Quads second = pick<3, 0x80, 0x80, 0x80>(a) | pick<0x80, 3, 0x80, 0x80>(b);
  put_block_scale(bits<4, 4>(first) | bits<4, 4, 4>(second), 0.125f, panel);
}
