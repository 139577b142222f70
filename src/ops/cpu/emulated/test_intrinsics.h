// The intrinsics that a processor with AVX2 alone lacks, for tests: so the kernels of every x86 instruction set run,
// and are held to the scalar ones' bits, on any machine. A 512-bit register is two of 256 bits, and an instruction on
// it two AVX2 instructions; only what crosses the halves or has no AVX2 counterpart is spelled out. Just those that the
// kernels use are here. Semantics: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
//
// Included by unit.inl inside the instruction set's namespace, where these names hide the compiler's.
#if !defined(SLUICE_EMULATED)
#error "test_intrinsics.h is for kernel sources that are compiled to be emulated"
#endif

// The names are the compiler's, and so reserved.
// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses)

// Some of them are macros in some compilers.
#undef _mm256_dpbusd_avx_epi32
#undef _mm512_cmp_ps_mask
#undef _mm512_cmpeq_epi8_mask
#undef _mm512_extractf32x8_ps
#undef _mm512_inserti64x4
#undef _mm512_setr_epi32
#undef _mm512_setr_epi64
#undef _mm512_slli_epi16
#undef _mm512_slli_epi32
#undef _mm512_srai_epi16
#undef _mm512_srai_epi32
#undef _mm512_srli_epi16
#undef _mm512_srli_epi32

// Per 32-bit lane: src + the four products of an unsigned byte of a and a signed one of b.
inline __m256i _mm256_dpbusd_avx_epi32(__m256i src, __m256i a, __m256i b) {
  const __m256i even =
      _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(0xFF)), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
  return _mm256_add_epi32(src, _mm256_add_epi32(even, odd));
}

#if defined(SLUICE_VEC_AVX512)

struct Integers512 {
  __m256i lo, hi;
};
struct Floats512 {
  __m256 lo, hi;
};
using __m512i = Integers512;
using __m512 = Floats512;

// A function whose halves are functions of its operands' halves.
#define SLUICE_BY_HALVES_1(result, name, half, type) \
  inline result name(type a) { return {half(a.lo), half(a.hi)}; }
#define SLUICE_BY_HALVES_2(name, half, type) \
  inline type name(type a, type b) { return {half(a.lo, b.lo), half(a.hi, b.hi)}; }
#define SLUICE_BY_HALVES_3(name, half, type) \
  inline type name(type a, type b, type c) { return {half(a.lo, b.lo, c.lo), half(a.hi, b.hi, c.hi)}; }
#define SLUICE_SHIFT_BY_HALVES(name, half) \
  inline __m512i name(__m512i a, int count) { return {half(a.lo, count), half(a.hi, count)}; }
#define SLUICE_IN_BOTH_HALVES(result, name, half, type) \
  inline result name(type x) { return {half(x), half(x)}; }

SLUICE_IN_BOTH_HALVES(__m512i, _mm512_set1_epi8, _mm256_set1_epi8, char)
SLUICE_IN_BOTH_HALVES(__m512i, _mm512_set1_epi16, _mm256_set1_epi16, short)
SLUICE_IN_BOTH_HALVES(__m512i, _mm512_set1_epi32, _mm256_set1_epi32, int)
SLUICE_IN_BOTH_HALVES(__m512, _mm512_set1_ps, _mm256_set1_ps, float)
SLUICE_IN_BOTH_HALVES(__m512i, _mm512_broadcast_i32x4, _mm256_broadcastsi128_si256, __m128i)
SLUICE_BY_HALVES_2(_mm512_and_si512, _mm256_and_si256, __m512i)
SLUICE_BY_HALVES_2(_mm512_or_si512, _mm256_or_si256, __m512i)
SLUICE_BY_HALVES_2(_mm512_xor_si512, _mm256_xor_si256, __m512i)
SLUICE_BY_HALVES_2(_mm512_sub_epi8, _mm256_sub_epi8, __m512i)
SLUICE_BY_HALVES_2(_mm512_add_epi16, _mm256_add_epi16, __m512i)
SLUICE_BY_HALVES_2(_mm512_add_epi32, _mm256_add_epi32, __m512i)
SLUICE_BY_HALVES_2(_mm512_sub_epi32, _mm256_sub_epi32, __m512i)
SLUICE_BY_HALVES_2(_mm512_sub_epi16, _mm256_sub_epi16, __m512i)
SLUICE_BY_HALVES_2(_mm512_mullo_epi16, _mm256_mullo_epi16, __m512i)
SLUICE_BY_HALVES_2(_mm512_mullo_epi32, _mm256_mullo_epi32, __m512i)
SLUICE_BY_HALVES_2(_mm512_madd_epi16, _mm256_madd_epi16, __m512i)
SLUICE_BY_HALVES_2(_mm512_maddubs_epi16, _mm256_maddubs_epi16, __m512i)
SLUICE_BY_HALVES_3(_mm512_dpbusd_epi32, _mm256_dpbusd_avx_epi32, __m512i)
SLUICE_SHIFT_BY_HALVES(_mm512_slli_epi16, _mm256_slli_epi16)
SLUICE_SHIFT_BY_HALVES(_mm512_srli_epi16, _mm256_srli_epi16)
SLUICE_SHIFT_BY_HALVES(_mm512_srai_epi16, _mm256_srai_epi16)
SLUICE_SHIFT_BY_HALVES(_mm512_slli_epi32, _mm256_slli_epi32)
SLUICE_SHIFT_BY_HALVES(_mm512_srli_epi32, _mm256_srli_epi32)
SLUICE_SHIFT_BY_HALVES(_mm512_srai_epi32, _mm256_srai_epi32)
// These stay within 128 bits, so within a half.
SLUICE_BY_HALVES_2(_mm512_shuffle_epi8, _mm256_shuffle_epi8, __m512i)
SLUICE_BY_HALVES_2(_mm512_unpacklo_epi8, _mm256_unpacklo_epi8, __m512i)
SLUICE_BY_HALVES_2(_mm512_unpackhi_epi8, _mm256_unpackhi_epi8, __m512i)
SLUICE_BY_HALVES_2(_mm512_unpacklo_epi32, _mm256_unpacklo_epi32, __m512i)
SLUICE_BY_HALVES_2(_mm512_unpackhi_epi32, _mm256_unpackhi_epi32, __m512i)
SLUICE_BY_HALVES_2(_mm512_unpacklo_epi64, _mm256_unpacklo_epi64, __m512i)
SLUICE_BY_HALVES_2(_mm512_unpackhi_epi64, _mm256_unpackhi_epi64, __m512i)
SLUICE_BY_HALVES_2(_mm512_add_ps, _mm256_add_ps, __m512)
SLUICE_BY_HALVES_2(_mm512_sub_ps, _mm256_sub_ps, __m512)
SLUICE_BY_HALVES_2(_mm512_mul_ps, _mm256_mul_ps, __m512)
SLUICE_BY_HALVES_2(_mm512_div_ps, _mm256_div_ps, __m512)
SLUICE_BY_HALVES_2(_mm512_max_ps, _mm256_max_ps, __m512)
SLUICE_BY_HALVES_3(_mm512_fmadd_ps, _mm256_fmadd_ps, __m512)
SLUICE_BY_HALVES_1(__m512, _mm512_cvtepi32_ps, _mm256_cvtepi32_ps, __m512i)
SLUICE_BY_HALVES_1(__m512, _mm512_castsi512_ps, _mm256_castsi256_ps, __m512i)
SLUICE_BY_HALVES_1(__m512i, _mm512_castps_si512, _mm256_castps_si256, __m512)

inline __m512i _mm512_setzero_si512() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline __m512i _mm512_loadu_si512(const void* p) {
  const auto* from = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
}
inline void _mm512_storeu_si512(void* p, __m512i a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(static_cast<__m256i*>(p) + 1, a.hi);
}
inline __m512 _mm512_loadu_ps(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void _mm512_storeu_ps(float* p, __m512 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline __m512i _mm512_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l,
                                 int m, int n, int o, int p) {
  return {_mm256_setr_epi32(a, b, c, d, e, f, g, h), _mm256_setr_epi32(i, j, k, l, m, n, o, p)};
}
inline __m512i _mm512_setr_epi64(long long a, long long b, long long c, long long d, long long e, long long f,
                                 long long g, long long h) {
  return {_mm256_set_epi64x(d, c, b, a), _mm256_set_epi64x(h, g, f, e)};
}

// Lane i is lane index[i] of a's and b's sixteen.
inline __m512i _mm512_permutex2var_epi64(__m512i a, __m512i index, __m512i b) {
  uint64_t from[16], at[8], to[8];
  _mm512_storeu_si512(from, a);
  _mm512_storeu_si512(from + 8, b);
  _mm512_storeu_si512(at, index);
  for (int i = 0; i < 8; ++i) to[i] = from[at[i] & 15];
  return _mm512_loadu_si512(to);
}

// Halves by name.
inline __m512i _mm512_castsi256_si512(__m256i a) { return {a, _mm256_setzero_si256()}; }
inline __m512i _mm512_inserti64x4(__m512i a, __m256i b, int half) { return half ? __m512i{a.lo, b} : __m512i{b, a.hi}; }
inline __m256 _mm512_castps512_ps256(__m512 a) { return a.lo; }
inline __m256 _mm512_extractf32x8_ps(__m512 a, int half) { return half ? a.hi : a.lo; }

// Lanes that change their width.
inline __m512 _mm512_cvtph_ps(__m256i a) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))};
}
inline __m512i _mm512_cvtepu16_epi32(__m256i a) {
  return {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1))};
}
inline __m256i _mm512_cvtepi32_epi16(__m512i a) {  // the low 16 bits
  uint32_t wide[16];
  uint16_t narrow[16];
  _mm512_storeu_si512(wide, a);
  for (int i = 0; i < 16; ++i) narrow[i] = static_cast<uint16_t>(wide[i]);
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(narrow));
}

// Masks: bit i for lane i.
inline __mmask64 _mm512_cmpeq_epi8_mask(__m512i a, __m512i b) {
  const auto half = [](__m256i x, __m256i y) {
    return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, y)));
  };
  return half(a.lo, b.lo) | static_cast<uint64_t>(half(a.hi, b.hi)) << 32;
}
inline __m512i _mm512_movm_epi8(__mmask64 mask) {
  uint8_t bytes[64];
  for (int i = 0; i < 64; ++i) bytes[i] = mask >> i & 1 ? 0xFF : 0;
  return _mm512_loadu_si512(bytes);
}
inline __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int predicate) {
  if (predicate != _CMP_LT_OQ) __builtin_trap();  // the only one in use
  const auto half = [](__m256 x, __m256 y) {
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(x, y, _CMP_LT_OQ)));
  };
  return static_cast<__mmask16>(half(a.lo, b.lo) | half(a.hi, b.hi) << 8);
}
inline __m512 _mm512_mask_blend_ps(__mmask16 mask, __m512 a, __m512 b) {
  float x[16], y[16];
  _mm512_storeu_ps(x, a);
  _mm512_storeu_ps(y, b);
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) x[i] = y[i];
  return _mm512_loadu_ps(x);
}

#endif

#if defined(SLUICE_TILES)

#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbsud

// A thread's tile registers: of each, `rows` rows of `row_bytes` bytes. All zero: no tiles are configured, so that any
// use of one traps, as it would in a processor.
struct EmulatedTiles {
  uint8_t bytes[8][16][64];
  size_t rows[8], row_bytes[8];
};
static thread_local EmulatedTiles emulated_tiles;

inline void require(bool holds) {
  if (!holds) __builtin_trap();
}

inline void _tile_release() { emulated_tiles = {}; }
inline void _tile_loadconfig(const void* p) {
  uint8_t config[64];  // palette, first row, 14 reserved, 16 counts of bytes a row (16 bits), 16 counts of rows
  std::memcpy(config, p, sizeof config);
  require(config[0] == 1 && config[1] == 0);
  for (int i = 2; i < 16; ++i) require(config[i] == 0);
  _tile_release();
  for (int i = 0; i < 16; ++i) {
    const int row_bytes = config[16 + 2 * i] | config[17 + 2 * i] << 8, rows = config[48 + i];
    require(rows <= 16 && row_bytes <= 64 && (rows == 0) == (row_bytes == 0));
    require(i < 8 || rows == 0);  // eight registers
    if (i < 8)
      emulated_tiles.rows[i] = static_cast<size_t>(rows), emulated_tiles.row_bytes[i] = static_cast<size_t>(row_bytes);
  }
}
inline void _tile_zero(int tile) {
  require(emulated_tiles.rows[tile] != 0);
  std::memset(emulated_tiles.bytes[tile], 0, sizeof emulated_tiles.bytes[tile]);
}
inline void _tile_loadd(int tile, const void* base, size_t stride) {
  _tile_zero(tile);
  for (size_t r = 0; r < emulated_tiles.rows[tile]; ++r)
    std::memcpy(emulated_tiles.bytes[tile][r], static_cast<const uint8_t*>(base) + r * stride,
                emulated_tiles.row_bytes[tile]);
}
inline void _tile_stored(int tile, void* base, size_t stride) {
  require(emulated_tiles.rows[tile] != 0);
  for (size_t r = 0; r < emulated_tiles.rows[tile]; ++r)
    std::memcpy(static_cast<uint8_t*>(base) + r * stride, emulated_tiles.bytes[tile][r],
                emulated_tiles.row_bytes[tile]);
}

// c[m][n] += sum over k and i < 4 of a[m][k][i], signed, times b[k][n][i], of type B.
template <typename B>
inline void tile_products(int c, int a, int b) {
  const EmulatedTiles& t = emulated_tiles;
  require(t.rows[c] != 0 && t.rows[a] == t.rows[c] && t.row_bytes[b] == t.row_bytes[c]);
  require(t.row_bytes[a] == 4 * t.rows[b]);
  for (size_t m = 0; m < t.rows[c]; ++m)
    for (size_t n = 0; n < t.row_bytes[c] / 4; ++n) {
      uint32_t sum;  // wraps
      std::memcpy(&sum, t.bytes[c][m] + 4 * n, 4);
      for (size_t k = 0; k < t.rows[b]; ++k)
        for (size_t i = 0; i < 4; ++i)
          sum += static_cast<uint32_t>(static_cast<int8_t>(t.bytes[a][m][4 * k + i]) *
                                       static_cast<B>(t.bytes[b][k][4 * n + i]));
      std::memcpy(emulated_tiles.bytes[c][m] + 4 * n, &sum, 4);
    }
}
inline void _tile_dpbssd(int c, int a, int b) { tile_products<int8_t>(c, a, b); }
inline void _tile_dpbsud(int c, int a, int b) { tile_products<uint8_t>(c, a, b); }

#endif

// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses)
