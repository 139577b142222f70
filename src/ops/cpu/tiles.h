// Products by AMX tiles, for many activation rows: one instruction multiplies 16 of them by the panel's 16 weight rows
// over up to 64 columns. A panel's bytes already lie as the instruction wants its right operand: [k / 4][row][k % 4].
//
// Included by panel.h only, in the unit that has tiles.
//
// Method: where a block has integer scales, each weight is multiplied by its scale first; the product has 16 bits and
// is cut in its two bytes, of which the upper one is signed. Then all 256 columns are summed in two tiles, and sum =
// lower + 256 * upper: the integers of docs/arithmetic.md, so the same bits.

constexpr size_t kTileRows = 16;       // activation rows a tile
constexpr size_t kFewestTileRows = 8;  // for fewer, dot products are as fast

// What a tile instruction reads of a panel.
struct TilePanel {
  alignas(64) uint8_t low[kSpan / 4][4 * kPanelRows];   // the lower bytes of weight * scale; or signed weights
  alignas(64) uint8_t high[kSpan / 4][4 * kPanelRows];  // the upper bytes of weight * scale
};

// Columns a tile instruction takes: those of a segment where its scale is f32.
constexpr size_t tile_columns(Shape s) { return s.group != 0 ? 64 : s.segment < 64 ? s.segment : 64; }

// GCC 12 does not know that tile instructions read memory: what is at p (and all else that others know) is written now.
inline void settle(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

// Tile registers while an object of this lives: 0 and 1 sums [16 activation rows][16 weight rows] of 32 bits, 2
// activations [16 rows][columns], 3 and 4 weights [columns / 4][16 rows][4]. In the instructions' names these are
// literals, since they are part of the instruction.
class Tiles {
 public:
  Tiles(size_t columns, bool used) : used_(used) {
    if (!used) return;
    struct {  // LDTILECFG's operand
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof config == 64);
    const auto set = [&](size_t tile, size_t rows, size_t row_bytes) {
      config.rows[tile] = static_cast<uint8_t>(rows), config.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
    };
    set(0, kTileRows, 64), set(1, kTileRows, 64);
    set(2, kTileRows, columns);
    set(3, columns / 4, 64), set(4, columns / 4, 64);
    settle(&config);
    _tile_loadconfig(&config);
  }
  ~Tiles() {
    if (used_) _tile_release();
  }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

 private:
  bool used_;
};

template <quant::Type kType>
inline void make_tile_panel(const Panel& panel, size_t columns, TilePanel& to) {
  constexpr Shape s = shape_of(kType);
  static_assert(!s.wide());
  if constexpr (s.group == 0) {
    const Quads offset = Quads::all(static_cast<uint8_t>(s.offset));
    for (size_t i = 0; i < columns / 4; ++i) (Quads::load(panel.bytes[0][i]) - offset).store(to.low[i]);
  } else {
    const __m512i offset = _mm512_set1_epi16(s.offset), lower = _mm512_set1_epi16(0xFF);
    const Quads upper = Quads::all_words(0xFF00FF00u);
    for (size_t i = 0; i < kSpan / 4; ++i) {
      const __m512i scale = pick<0, 1, 0, 1>(Quads::load(panel.scales[0][4 * i / s.group])).v;
      const auto times_scale = [&](__m512i bytes) {
        return _mm512_mullo_epi16(_mm512_sub_epi16(bytes, offset), scale);
      };
      const __m512i bytes = Quads::load(panel.bytes[0][i]).v;
      const Quads even = {times_scale(_mm512_and_si512(bytes, lower))};
      const Quads odd = {times_scale(_mm512_srli_epi16(bytes, 8))};
      ((even & Quads{lower}) | shift_bytes_unmasked<-8>(odd)).store(to.low[i]);
      (shift_bytes_unmasked<8>(even) | (odd & upper)).store(to.high[i]);
    }
  }
}

// Sums of 16 activation rows by 16 weight rows over columns `from` .. of a span, `count` instructions long; of the
// upper bytes, too, where there are such. a: the span's activations, `stride` bytes a row.
template <bool kBothBytes>
inline void multiply_tiles(const TilePanel& panel, const int8_t* a, size_t stride, size_t from, size_t columns,
                           size_t count, int32_t (&low)[kTileRows][kPanelRows],
                           int32_t (&high)[kTileRows][kPanelRows]) {
  _tile_zero(0);
  if constexpr (kBothBytes) _tile_zero(1);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = from + i * columns;
    _tile_loadd(2, a + at, stride);
    _tile_loadd(3, panel.low[at / 4], 64);
    if constexpr (kBothBytes) {
      _tile_dpbsud(0, 2, 3);
      _tile_loadd(4, panel.high[at / 4], 64);
      _tile_dpbssd(1, 2, 4);
    } else {
      _tile_dpbssd(0, 2, 3);
    }
  }
  _tile_stored(0, low, 64);
  if constexpr (kBothBytes) _tile_stored(1, high, 64);
  settle(low);
}

// acc [rows, 16] += the span's part of the products with rows first .. of x, by tiles of 16 rows and a last one of no
// fewer than kFewestTileRows; returns how many rows that were.
template <quant::Type kType>
__attribute__((noinline)) size_t multiply_by_tiles(const Panel& panel, size_t span, size_t columns, const Rows& x,
                                                   size_t first, size_t rows, float* acc) {
  constexpr Shape s = shape_of(kType);
  constexpr size_t kTileColumns = tile_columns(s);
  TilePanel tile_panel;
  make_tile_panel<kType>(panel, columns, tile_panel);
  settle(&tile_panel);
  alignas(64) int8_t gathered[kTileRows][kSpan];
  alignas(64) int32_t low[kTileRows][kPanelRows], high[kTileRows][kPanelRows];
  size_t done = 0;
  for (size_t count; rows - done >= kFewestTileRows; done += count, acc += count * kPanelRows) {
    count = rows - done < kTileRows ? rows - done : kTileRows;
    Activation row[kTileRows];
    for (size_t r = 0; r < count; ++r) row[r] = activation_at(x, first + done + r, span);
    const int8_t* a = row[0].q;
    size_t stride = x.n;
    if (x.index != nullptr || count < kTileRows) {  // not sixteen rows at even distances: in a copy
      std::memset(gathered, 0, sizeof gathered);
      for (size_t r = 0; r < count; ++r) std::memcpy(gathered[r], row[r].q, columns);
      a = gathered[0], stride = kSpan;
    }
    settle(a);
    if constexpr (s.group != 0) {
      multiply_tiles<true>(tile_panel, a, stride, 0, kTileColumns, kSpan / kTileColumns, low, high);
      for (size_t r = 0; r < count; ++r) {
        const I32x16 upper = {_mm512_slli_epi32(_mm512_loadu_si512(high[r]), 8)};
        add_block<kType>(panel, row[r], I32x16{_mm512_loadu_si512(low[r])} + upper, acc + r * kPanelRows);
      }
    } else {
      for (size_t g = 0; g < columns / s.segment; ++g) {
        multiply_tiles<false>(tile_panel, a, stride, g * s.segment, kTileColumns, s.segment / kTileColumns, low, high);
        for (size_t r = 0; r < count; ++r)
          add_segment<kType>(panel, g, row[r], {_mm512_loadu_si512(low[r])}, acc + r * kPanelRows);
      }
    }
  }
  return done;
}
