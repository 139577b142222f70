// Products with quantized weights. Sixteen weight rows are unpacked, 256 columns at a time, into a panel in the first
// level cache, where byte k of all rows lies together; then the panel meets every activation row. One row or a
// thousand, the same code runs: only the share of unpacking differs.
//
// Included by kernel sources only, once per instruction set, inside that set's namespace (see kernels.inl).
//
// Method: the integers of docs/arithmetic.md. Weights become unsigned by an offset, since x86 multiplies unsigned by
// signed bytes; what the offset adds to a sum, scale * offset * (sum of 16 activations), is taken off as an integer.
#if !defined(SLUICE_ISA)
#error "panel.h is for kernel sources that define SLUICE_ISA"
#endif

constexpr size_t kPanelRows = 16, kSpan = 256;
// What makes weights of eight bits bytes: x86 multiplies unsigned by signed ones, ARM signed by signed.
#if defined(SLUICE_VEC_NEON)
constexpr int kByteOffset = 0, kLargestByte = 127;
#else
constexpr int kByteOffset = 128, kLargestByte = 255;
#endif

// How a format's integers are held in a panel.
struct Shape {
  size_t block;    // weights a block
  size_t segment;  // weights an f32 scale: the block, but for NVFP4
  size_t group;    // weights an integer scale: 16 or 32; 0 where scales are 1
  int offset;      // a panel's byte is weight + offset
  int largest;     // and at most this
  bool minimum;    // there is one; then the offset is 0

  // Weights that 16-bit sums cannot hold even one pair of are cut in two nibbles, whose sums are added up as integers.
  constexpr bool wide() const { return 2 * 127 * largest > kMaxSum; }
  constexpr int largest_stored() const { return wide() ? 15 : largest; }
  // Quads whose products Sums can hold, at most those of one group or segment.
  constexpr size_t quads_per_sum() const {
    const size_t most = static_cast<size_t>(kMaxSum / (2 * 127 * largest_stored()));
    const size_t unit = (group != 0 ? group : segment < 32 ? segment : 32) / 4;
    size_t quads = unit;
    while (quads > most) quads /= 2;
    return quads;
  }
};

constexpr Shape shape_of(quant::Type type) {
  using quant::Type;
  switch (type) {
    case Type::kQ4_0:
      return {32, 32, 0, 8, 15, false};
    case Type::kQ4_1:
      return {32, 32, 0, 0, 15, true};
    case Type::kQ5_0:
      return {32, 32, 0, 16, 31, false};
    case Type::kQ5_1:
      return {32, 32, 0, 0, 31, true};
    case Type::kQ8_0:
    case Type::kIQ4_NL:
      return {32, 32, 0, kByteOffset, kLargestByte, false};
    case Type::kMXFP4:
      return {32, 32, 0, 12, 24, false};
    case Type::kNVFP4:
      return {64, 16, 0, 12, 24, false};
    case Type::kQ2_K:
      return {256, 256, 16, 0, 3, true};
    case Type::kQ3_K:
      return {256, 256, 16, 4, 7, false};
    case Type::kQ4_K:
      return {256, 256, 32, 0, 15, true};
    case Type::kQ5_K:
      return {256, 256, 32, 0, 31, true};
    case Type::kQ6_K:
      return {256, 256, 16, 32, 63, false};
    case Type::kIQ1_S:
      return {256, 256, 32, 9, 18, false};
    case Type::kIQ1_M:
      return {256, 256, 16, 9, 18, false};
    case Type::kIQ2_XXS:
      return {256, 256, 32, 43, 86, false};
    case Type::kIQ2_XS:
    case Type::kIQ2_S:
      return {256, 256, 16, 43, 86, false};
    case Type::kIQ3_XXS:
      return {256, 256, 32, 62, 124, false};
    case Type::kIQ3_S:
      return {256, 256, 32, 15, 30, false};
    case Type::kIQ4_XS:
      return {256, 256, 32, kByteOffset, kLargestByte, false};
    default:  // TQ1_0, TQ2_0
      return {256, 256, 0, 1, 3, false};
  }
}

struct Panel {
  alignas(64) uint8_t bytes[2][kSpan / 4][4 * kPanelRows];  // [plane][k / 4][row * 4 + k % 4]; plane 1: upper nibbles
  alignas(64) uint32_t scales[2][16][kPanelRows];           // [plane][group][row]: what `weigh` takes
  alignas(64) uint32_t pairs[8][kPanelRows];                // [pair of 16-groups][row]: minimums, or scale * offset
  alignas(64) float scale[16][kPanelRows];                  // [segment][row]
  alignas(64) float minimum[8][kPanelRows];                 // [block][row]
  const uint8_t* ahead;                                     // what is to be asked for from memory meanwhile
};

#include "ops/cpu/unpack.h"

// Where a kernel's rows of activations begin for one span.
struct Activation {
  const int8_t* q;
  const float* scale;
  const int16_t* sums;
};

inline Activation activation_at(const Rows& x, size_t r, size_t span) {
  const size_t row = x.at(r), at = row * x.n + span * kSpan;
  return {x.q + at, x.scale + row * (x.n / x.block) + span * (kSpan / x.block), x.sums + at / 16};
}

// The sum of a segment's activations times `factor`, the same for all weight rows.
template <size_t kSegmentWeights>
inline I32x16 segment_sum(const int16_t* sums, int16_t factor) {
  if constexpr (kSegmentWeights == 16) return all_lanes(int32_t{sums[0]} * factor);
  I32x16 total = pair_sum(broadcast(sums), factor);
  for (size_t i = 2; i < kSegmentWeights / 16; i += 2) total = total + pair_sum(broadcast(sums + i), factor);
  return total;
}

// The sums of a row's activations, 16 at a time, times the panel's pairs: minimums, or what offsets have added.
SLUICE_INLINE inline I32x16 beside(const Panel& panel, const Activation& x) {
  I32x16 total = I32x16::zero();
  for (size_t p = 0; p < 8; ++p) {
    total = total + pair_products(panel.pairs[p], broadcast(x.sums + 2 * p));
    hold(total);
  }
  return total;
}

// acc [16] += a block of 16 weight rows times an activation row, given the sum of its integers.
template <quant::Type kType>
SLUICE_INLINE inline void add_block(const Panel& panel, const Activation& x, I32x16 total, float* acc) {
  const F32x16 scale = F32x16::all(x.scale[0]);
  F32x16 sum = fma(F32x16::load(panel.scale[0]) * scale, to_float(total), F32x16::load(acc));
  if constexpr (shape_of(kType).minimum)
    sum = fma(F32x16::load(panel.minimum[0]) * scale, to_float(beside(panel, x)), sum);
  sum.store(acc);
}

// The same for segment g of the span, where scales are all f32.
template <quant::Type kType>
SLUICE_INLINE inline void add_segment(const Panel& panel, size_t g, const Activation& x, I32x16 total, float* acc) {
  constexpr Shape s = shape_of(kType);
  const F32x16 scale = F32x16::all(x.scale[g * s.segment / 32]);
  F32x16 sum = fma(F32x16::load(panel.scale[g]) * scale, to_float(total), F32x16::load(acc));
  if constexpr (s.minimum) {
    const I32x16 activations = segment_sum<s.segment>(x.sums + g * s.segment / 16, 1);
    sum = fma(F32x16::load(panel.minimum[g]) * scale, to_float(activations), sum);
  }
  sum.store(acc);
}

// Adds the products of kQuads quads from `first` on to sums, for each activation row.
template <size_t kQuads, size_t kRows>
SLUICE_INLINE inline void multiply_quads(const Panel& panel, size_t plane, size_t first, const Activation (&x)[kRows],
                                         Sums (&sums)[kRows]) {
  for (Sums& s : sums) s = Sums::zero();
  unrolled<kQuads>([&]<uint32_t i>() SLUICE_INLINE {
    const Quads w = Quads::load(panel.bytes[plane][first + i]);
    if constexpr (i % 2 == 0) __builtin_prefetch(panel.ahead + 32 * (first + i), 0, 2);
    unrolled<kRows>([&]<uint32_t r>() SLUICE_INLINE { add_products(sums[r], w, broadcast(x[r].q + 4 * (first + i))); });
  });
}

// Formats with integer scales, a block a span: acc[r] [16] += the block's part of 16 weight rows times activation row
// r.
template <quant::Type kType, size_t kRows>
SLUICE_INLINE inline void multiply_scaled(const Panel& panel, const Activation (&x)[kRows], float* acc) {
  constexpr Shape s = shape_of(kType);
  constexpr size_t kQuads = s.quads_per_sum(), kGroupQuads = s.group / 4;
  I32x16 total[kRows];
  for (I32x16& t : total) t = I32x16::zero();
  for (size_t plane = 0; plane < (s.wide() ? 2 : 1); ++plane)
    for (size_t g = 0; g < kSpan / s.group; ++g)
      for (size_t i = 0; i < kGroupQuads; i += kQuads) {
        Sums sums[kRows];
        multiply_quads<kQuads>(panel, plane, g * kGroupQuads + i, x, sums);
        for (size_t r = 0; r < kRows; ++r) total[r] = total[r] + weigh(sums[r], panel.scales[plane][g]);
      }
  for (size_t r = 0; r < kRows; ++r) {
    if constexpr (s.offset != 0) total[r] = total[r] - beside(panel, x[r]);
    add_block<kType>(panel, x[r], total[r], acc + r * kPanelRows);
  }
}

// Formats whose scales are all f32, one a segment: n_segments of them.
template <quant::Type kType, size_t kRows>
SLUICE_INLINE inline void multiply_plain(const Panel& panel, size_t n_segments, const Activation (&x)[kRows],
                                         float* acc) {
  constexpr Shape s = shape_of(kType);
  constexpr size_t kQuads = s.quads_per_sum(), kSegmentQuads = s.segment / 4;
  for (size_t g = 0; g < n_segments; ++g) {
    I32x16 total[kRows];
    for (I32x16& t : total) t = I32x16::zero();
    for (size_t i = 0; i < kSegmentQuads; i += kQuads) {
      Sums sums[kRows];
      multiply_quads<kQuads>(panel, 0, g * kSegmentQuads + i, x, sums);
      for (size_t r = 0; r < kRows; ++r) total[r] = total[r] + weigh_all<1>(sums[r]);
      if constexpr (s.wide()) {
        multiply_quads<kQuads>(panel, 1, g * kSegmentQuads + i, x, sums);
        for (size_t r = 0; r < kRows; ++r) total[r] = total[r] + weigh_all<16>(sums[r]);
      }
    }
    for (size_t r = 0; r < kRows; ++r) {
      if constexpr (s.offset != 0)
        total[r] = total[r] - segment_sum<s.segment>(x[r].sums + g * s.segment / 16, s.offset);
      add_segment<kType>(panel, g, x[r], total[r], acc + r * kPanelRows);
    }
  }
}

// acc [kRows, 16] += the span's part of the products with rows first .. of x; `columns` of the span are there. Not
// inlined: the registers are to be its own.
template <quant::Type kType, size_t kRows>
__attribute__((noinline)) void multiply(const Panel& panel, size_t span, size_t columns, const Rows& x, size_t first,
                                        float* acc) {
  Activation rows[kRows];
  for (size_t r = 0; r < kRows; ++r) rows[r] = activation_at(x, first + r, span);
  if constexpr (shape_of(kType).group != 0)
    multiply_scaled<kType>(panel, rows, acc);
  else
    multiply_plain<kType>(panel, columns / shape_of(kType).segment, rows, acc);
}

#if defined(SLUICE_TILES)
#include "ops/cpu/tiles.h"
#endif

constexpr size_t rows_at_once(Shape s) { return s.quads_per_sum() < 8 ? 3 : 4; }

template <quant::Type kType>
inline void matmul_panels(const quant::Format& format, const std::byte* weights, size_t n_out, const Rows& x, float* y,
                          size_t y_stride, const std::byte* next) {
  constexpr size_t kRowTile = 512;  // a usual micro-batch: it then reads the weights once; its sums are 32 KiB
  constexpr size_t kBlock = shape_of(kType).block;
  const size_t row_bytes = x.n / kBlock * format.block_bytes, n_spans = (x.n + kSpan - 1) / kSpan;
  const size_t span_bytes = kSpan / kBlock * format.block_bytes;
  Panel panel;
  alignas(64) float acc[kRowTile * kPanelRows];
#if defined(SLUICE_TILES)
  const Tiles tiles(tile_columns(shape_of(kType)), x.n_rows >= kFewestTileRows);
#endif
  for (size_t first = 0; first < x.n_rows; first += kRowTile) {
    const size_t rows = x.n_rows - first < kRowTile ? x.n_rows - first : kRowTile;
    for (size_t o = 0; o < n_out; o += kPanelRows) {
      const size_t present = n_out - o < kPanelRows ? n_out - o : kPanelRows;
      const std::byte* panel_rows = weights + o * row_bytes;
      const std::byte* ahead = present < n_out - o ? panel_rows + kPanelRows * row_bytes : next ? next : panel_rows;
      std::memset(acc, 0, rows * kPanelRows * sizeof(float));
      for (size_t span = 0; span < n_spans; ++span) {
        const size_t columns = x.n - span * kSpan < kSpan ? x.n - span * kSpan : kSpan;
        panel.ahead = reinterpret_cast<const uint8_t*>(ahead + span * kPanelRows * span_bytes);
        unpack_panel<kType>(format, panel_rows + span * span_bytes, row_bytes, present, columns / kBlock, panel);
        size_t r = 0;
#if defined(SLUICE_TILES)
        r = multiply_by_tiles<kType>(panel, span, columns, x, first, rows, acc);
#endif
        const auto take = [&]<size_t kRows>() {
          for (; r + kRows <= rows; r += kRows) {
            multiply<kType, kRows>(panel, span, columns, x, first + r, acc + r * kPanelRows);
            panel.ahead = panel.bytes[0][0];  // once is enough
          }
        };
        take.template operator()<rows_at_once(shape_of(kType))>();
        take.template operator()<2>();
        take.template operator()<1>();
      }
      for (size_t r = 0; r < rows; ++r)
        std::memcpy(y + x.to(first + r) * y_stride + o, acc + r * kPanelRows, present * sizeof(float));
    }
  }
}

inline void matmul_int8(const quant::Format& format, const std::byte* weights, size_t n_out, const Rows& x, float* y,
                        size_t y_stride, const std::byte* next) {
  using quant::Type;
  const auto run = [&]<Type kType>() { matmul_panels<kType>(format, weights, n_out, x, y, y_stride, next); };
  switch (format.type) {
    case Type::kQ4_0:
      return run.template operator()<Type::kQ4_0>();
    case Type::kQ4_1:
      return run.template operator()<Type::kQ4_1>();
    case Type::kQ5_0:
      return run.template operator()<Type::kQ5_0>();
    case Type::kQ5_1:
      return run.template operator()<Type::kQ5_1>();
    case Type::kQ8_0:
      return run.template operator()<Type::kQ8_0>();
    case Type::kQ2_K:
      return run.template operator()<Type::kQ2_K>();
    case Type::kQ3_K:
      return run.template operator()<Type::kQ3_K>();
    case Type::kQ4_K:
      return run.template operator()<Type::kQ4_K>();
    case Type::kQ5_K:
      return run.template operator()<Type::kQ5_K>();
    case Type::kQ6_K:
      return run.template operator()<Type::kQ6_K>();
    case Type::kIQ1_S:
      return run.template operator()<Type::kIQ1_S>();
    case Type::kIQ1_M:
      return run.template operator()<Type::kIQ1_M>();
    case Type::kIQ2_XXS:
      return run.template operator()<Type::kIQ2_XXS>();
    case Type::kIQ2_XS:
      return run.template operator()<Type::kIQ2_XS>();
    case Type::kIQ2_S:
      return run.template operator()<Type::kIQ2_S>();
    case Type::kIQ3_XXS:
      return run.template operator()<Type::kIQ3_XXS>();
    case Type::kIQ3_S:
      return run.template operator()<Type::kIQ3_S>();
    case Type::kIQ4_NL:
      return run.template operator()<Type::kIQ4_NL>();
    case Type::kIQ4_XS:
      return run.template operator()<Type::kIQ4_XS>();
    case Type::kTQ1_0:
      return run.template operator()<Type::kTQ1_0>();
    case Type::kTQ2_0:
      return run.template operator()<Type::kTQ2_0>();
    case Type::kMXFP4:
      return run.template operator()<Type::kMXFP4>();
    case Type::kNVFP4:
      return run.template operator()<Type::kNVFP4>();
    default:
      return;  // float formats don't come here
  }
}
