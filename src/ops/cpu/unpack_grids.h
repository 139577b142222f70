// Unpacking the formats whose weights are entries of a codebook (see quant/grid_quants.cpp): indices of sixteen rows
// are put together lane by lane, entries are looked up one by one straight into the panel, signs are put on lane by
// lane again.
//
// Included by unpack.h only.

// A run of 32 weights: eight quads, looked up in a codebook whose entries are 8 weights (kEntryQuads 2) or 4 (1). The
// indices of a row are four in a row, then the next row's; those of a run's second half after all of the first. Weights
// whose bit of the row's word of signs is set are negated.
template <quant::Type kType, size_t kEntryQuads>
inline void put_run(Panel& panel, size_t run, const uint32_t* book, const uint16_t* indices, Quads signs) {
  const Quads offset = Quads::all(static_cast<uint8_t>(shape_of(kType).offset));
  unrolled<8>([&]<uint32_t i>() SLUICE_INLINE {
    constexpr size_t kEntry = i / kEntryQuads, kPart = i % kEntryQuads;
    const uint16_t* at = indices + kEntry / 4 * (4 * kPanelRows) + kEntry % 4;
    const Quads magnitudes = from_words([&](size_t row) {
      size_t index = at[4 * row];
      asm("" : "+r"(index));  // one by one: GCC would load them as a vector, and take it apart again
      return book[index * kEntryQuads + kPart];
    });
    const Quads negative = bit_mask<4 * i>(signs);
    // -x = ~x + 1, and ~x = x ^ -1
    ((magnitudes ^ negative) - (negative - offset)).store(panel.bytes[0][8 * run + i]);
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

// Four scales of 32 weights each from group `group` on: bytes of a word.
template <quant::Type kType, uint32_t i = 0>
inline void put_odd_scales_32(Panel& panel, size_t group, size_t step, Quads nibbles) {
  if constexpr (i < 4) {
    constexpr auto kOffset = static_cast<int16_t>(shape_of(kType).offset);
    const Quads scales = odd_scales(nibbles);
    unsigned_scales<i>(scales).store(panel.scales[0][group]);
    times_pairs(unsigned_pairs<i, i>(scales), kOffset).store(panel.pairs[group]);
    put_odd_scales_32<kType, i + 1>(panel, group + step, step, nibbles);
  }
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

inline void put_block_scale(BlockRows& rows, float factor, Panel& panel) {
  (low_halves(rows.words(0)) * F32x16::all(factor)).store(panel.scale[0]);
}

// The word that ends a run of 32 weights in IQ2_XXS and IQ3_XXS has four times seven signs, and a scale.
template <quant::Type kType>
inline Quads run_signs(Panel& panel, size_t run, Quads words) {
  constexpr auto kOffset = static_cast<int16_t>(shape_of(kType).offset);
  const Quads scales = odd_scales(bits<4, 4>(words));
  unsigned_scales<3>(scales).store(panel.scales[0][run]);
  times_pairs(unsigned_pairs<3, 3>(scales), kOffset).store(panel.pairs[run]);
  return with_parity(seven_bit_fields(words));
}

inline void unpack_iq2_xxs(BlockRows& rows, Panel& panel) {
  constexpr auto kType = quant::Type::kIQ2_XXS;
  const auto* book = reinterpret_cast<const uint32_t*>(&quant::kIq2XxsGrid);
  for (size_t pair = 0; pair < 4; ++pair) {
    Quads q[4];  // four indices, signs and scale, four indices, signs and scale
    rows.quads(2 + 16 * pair, q);
    for (size_t i = 0; i < 2; ++i) {
      const size_t run = 2 * pair + i;
      uint16_t indices[4 * kPanelRows];
      store_wide(q[2 * i], Quads::all(0), indices);
      put_run<kType, 2>(panel, run, book, indices, run_signs<kType>(panel, run, q[2 * i + 1]));
    }
  }
  put_block_scale(rows, 0.125f, panel);
}

inline void unpack_iq2_xs(BlockRows& rows, Panel& panel) {
  constexpr auto kType = quant::Type::kIQ2_XS;
  const auto* book = reinterpret_cast<const uint32_t*>(&quant::kIq2XsGrid);
  for (size_t pair = 0; pair < 4; ++pair) {
    Quads q[4];  // two codes each: nine bits of index below seven of signs
    rows.quads(2 + 16 * pair, q);
    for (size_t i = 0; i < 2; ++i) {
      const Quads a = q[2 * i], b = q[2 * i + 1];
      const Quads low = pick<0, 2, 0x80, 0x80>(a) | pick<0x80, 0x80, 0, 2>(b);
      const Quads high = pick<1, 3, 0x80, 0x80>(a) | pick<0x80, 0x80, 1, 3>(b);
      uint16_t indices[4 * kPanelRows];
      store_wide(low, bits<0, 1>(high), indices);
      put_run<kType, 2>(panel, 2 * pair + i, book, indices, with_parity(bits<1, 7>(high)));
    }
  }
  put_odd_scales_16<kType>(rows, 66, panel);
  put_block_scale(rows, 0.125f, panel);
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
  for (size_t half = 0; half < 2; ++half) {
    Quads low[4], signs[4];
    rows.quads(2 + 16 * half, low);
    rows.quads(34 + 16 * half, signs);
    const Quads upper = rows.words(66 + 4 * half);
    unrolled<4>([&]<uint32_t i>() SLUICE_INLINE {
      uint16_t indices[4 * kPanelRows];
      store_wide(low[i], two_bit_fields<i>(upper), indices);
      put_run<kType, 2>(panel, 4 * half + i, book, indices, signs[i]);
    });
  }
  put_odd_scales_16<kType>(rows, 74, panel);
  put_block_scale(rows, 0.125f, panel);
}

inline void unpack_iq3_xxs(BlockRows& rows, Panel& panel) {
  constexpr auto kType = quant::Type::kIQ3_XXS;
  const auto* book = reinterpret_cast<const uint32_t*>(&quant::kIq3XxsGrid);
  for (size_t half = 0; half < 2; ++half) {
    Quads ends[4];
    rows.quads(66 + 16 * half, ends);
    for (size_t pair = 0; pair < 2; ++pair) {
      Quads q[4];  // four indices each
      rows.quads(2 + 32 * half + 16 * pair, q);
      for (size_t i = 0; i < 2; ++i) {
        const size_t run = 4 * half + 2 * pair + i;
        uint16_t indices[8 * kPanelRows];
        store_wide(q[2 * i], Quads::all(0), indices);
        store_wide(q[2 * i + 1], Quads::all(0), indices + 4 * kPanelRows);
        put_run<kType, 1>(panel, run, book, indices, run_signs<kType>(panel, run, ends[2 * pair + i]));
      }
    }
  }
  put_block_scale(rows, 0.25f, panel);
}

inline void unpack_iq3_s(BlockRows& rows, Panel& panel) {
  constexpr auto kType = quant::Type::kIQ3_S;
  const auto* book = reinterpret_cast<const uint32_t*>(&quant::kIq3SGrid);
  const Quads one = Quads::all(1);
  for (size_t half = 0; half < 2; ++half) {
    Quads signs[4];
    rows.quads(74 + 16 * half, signs);
    const Quads ninth = rows.words(66 + 4 * half);  // a bit of every index
    Quads q[2][4];                                  // four indices each
    rows.quads(2 + 32 * half, q[0]);
    rows.quads(18 + 32 * half, q[1]);
    unrolled<4>([&]<uint32_t i>() SLUICE_INLINE {
      uint16_t indices[8 * kPanelRows];
      store_wide(q[i / 2][i % 2 * 2], bit_mask<8 * i>(ninth) & one, indices);
      store_wide(q[i / 2][i % 2 * 2 + 1], bit_mask<8 * i + 4>(ninth) & one, indices + 4 * kPanelRows);
      put_run<kType, 1>(panel, 4 * half + i, book, indices, signs[i]);
    });
  }
  const Quads scales = rows.words(106);
  put_odd_scales_32<kType>(panel, 0, 2, bits<0, 4>(scales));
  put_odd_scales_32<kType>(panel, 1, 2, bits<4, 4>(scales));
  put_block_scale(rows, 1.0f, panel);
}
