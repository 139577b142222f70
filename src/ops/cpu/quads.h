// Integers of sixteen weight rows side by side: the vector types that products with quantized weights are written in
// (panel.h, unpack.h). A Quads holds four consecutive bytes of each of 16 rows, row r in 32-bit lane r, so that one
// instruction multiplies them with four activations and every lane sums a row of its own: nothing ever crosses lanes.
//
// Included by kernel sources only, once per instruction set, inside that set's namespace (see kernels.inl).
#if !defined(SLUICE_ISA)
#error "quads.h is for kernel sources that define SLUICE_ISA"
#endif

// body<0>(), body<1>(), .. body<n - 1>(): loops that must be unrolled, since their vectors only then stay in registers.
template <uint32_t n, uint32_t i = 0, typename Body>
__attribute__((always_inline)) inline void unrolled(Body body) {
  if constexpr (i < n) {
    body.template operator()<i>();
    unrolled<n, i + 1>(body);
  }
}
#define SLUICE_INLINE __attribute__((always_inline))

// Four consecutive activations of a row, the same in every lane: made by `broadcast`. Sums holds the products' sums of
// a few Quads: 16 bits a pair of weights on sets without dot-product instructions, 32 bits a lane on the others.
// kMaxSum is how far they go; formats whose weights are too wide for it are cut in two planes (see panel.h).

#if defined(SLUICE_VEC_AVX512) || defined(SLUICE_VEC_AVX2)

// Four words from four places. In this order: GCC would rather compute all places of many first, and spill them.
inline __m128i load_four(const void* a, const void* b, const void* c, const void* d) {
  const auto word = [](const void* p) {
    int w;
    std::memcpy(&w, p, sizeof w);
    return w;
  };
  __m128i words = _mm_cvtsi32_si128(word(a));
  words = _mm_insert_epi32(words, word(b), 1);
  words = _mm_insert_epi32(words, word(c), 2);
  words = _mm_insert_epi32(words, word(d), 3);
  asm volatile("" : "+x"(words));
  return words;
}
inline __m128 load_two_pairs(const void* a, const void* b) {
  const __m128i low = _mm_loadl_epi64(static_cast<const __m128i*>(a));
  return _mm_loadh_pi(_mm_castsi128_ps(low), static_cast<const __m64*>(b));
}

#endif

#if defined(SLUICE_VEC_AVX512)

struct I32x16 {
  __m512i v;
  static I32x16 zero() { return {_mm512_setzero_si512()}; }
};
inline I32x16 operator+(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I32x16 operator-(I32x16 a, I32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline F32x16 to_float(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline I32x16 all_lanes(int32_t x) { return {_mm512_set1_epi32(x)}; }
// Have this sum now: GCC would rather keep many products in flight, and spill them, than add them up as they come.
template <typename T>
inline void hold([[maybe_unused]] T& sum) {
#if !defined(SLUICE_EMULATED)
  asm("" : "+v"(sum.v));
#endif
}

struct Quads {
  __m512i v;
  static Quads load(const void* p) { return {_mm512_loadu_si512(p)}; }
  void store(void* p) const { _mm512_storeu_si512(p, v); }
  static Quads all(uint8_t byte) { return {_mm512_set1_epi8(static_cast<char>(byte))}; }
  static Quads all_words(uint32_t word) { return {_mm512_set1_epi32(static_cast<int>(word))}; }
};
inline Quads operator&(Quads a, Quads b) { return {_mm512_and_si512(a.v, b.v)}; }
inline Quads operator|(Quads a, Quads b) { return {_mm512_or_si512(a.v, b.v)}; }
inline Quads operator^(Quads a, Quads b) { return {_mm512_xor_si512(a.v, b.v)}; }
inline Quads operator-(Quads a, Quads b) { return {_mm512_sub_epi8(a.v, b.v)}; }

inline Quads join_rows(__m256i low, __m256i high) { return {_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)}; }

// Row r's word, from where at(row) points on.
template <typename At>
inline Quads load_words(At at) {
  const auto four_rows = [&](size_t row) { return load_four(at(row), at(row + 1), at(row + 2), at(row + 3)); };
  const auto eight_rows = [&](size_t row) { return _mm256_set_m128i(four_rows(row + 4), four_rows(row)); };
  return join_rows(eight_rows(0), eight_rows(8));
}

// Two consecutive words of each row, likewise.
template <typename At>
inline void load_pairs(At at, Quads& first, Quads& second) {
  const auto four_rows = [&](size_t row) {  // rows row, row + 1, row + 4 and row + 5
    return _mm256_set_m128(load_two_pairs(at(row + 4), at(row + 5)), load_two_pairs(at(row), at(row + 1)));
  };
  const __m256 a = four_rows(0), b = four_rows(2), c = four_rows(8), d = four_rows(10);
  const auto even = [](__m256 x, __m256 y) { return _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0b10001000)); };
  const auto odd = [](__m256 x, __m256 y) { return _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0b11011101)); };
  first = join_rows(even(a, b), even(c, d));
  second = join_rows(odd(a, b), odd(c, d));
}

template <int kShift>
inline Quads shift_bytes_unmasked(Quads a) {
  if constexpr (kShift > 0) return {_mm512_srli_epi16(a.v, kShift)};
  if constexpr (kShift < 0) return {_mm512_slli_epi16(a.v, -kShift)};
  return a;
}

inline void load_quads(const uint8_t* p, size_t stride, Quads (&out)[4]) {
  __m512i rows[4];
  for (size_t r = 0; r < 4; ++r) {
    const auto at = [&](size_t row) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + row * stride)); };
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(at(r)), at(r + 4), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(at(r + 8)), at(r + 12), 1);
    rows[r] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  const __m512i a = _mm512_unpacklo_epi32(rows[0], rows[1]), b = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const __m512i c = _mm512_unpacklo_epi32(rows[2], rows[3]), d = _mm512_unpackhi_epi32(rows[2], rows[3]);
  out[0] = {_mm512_unpacklo_epi64(a, c)}, out[1] = {_mm512_unpackhi_epi64(a, c)};
  out[2] = {_mm512_unpacklo_epi64(b, d)}, out[3] = {_mm512_unpackhi_epi64(b, d)};
}

inline Quads lookup(const uint8_t (&table)[16], Quads indices) {
  const __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm512_shuffle_epi8(t, indices.v)};
}

// Per 32-bit lane, by the byte numbers kA .. kD within it; 0x80 gives a zero byte.
template <uint32_t kA, uint32_t kB, uint32_t kC, uint32_t kD>
inline Quads pick(Quads a) {
  constexpr auto word = [](uint32_t lane) {
    const auto byte = [&](uint32_t i) { return i & 0x80 ? i : i + 4 * lane; };
    return static_cast<int>(byte(kA) | byte(kB) << 8 | byte(kC) << 16 | byte(kD) << 24);
  };
  return {_mm512_shuffle_epi8(a.v, _mm512_broadcast_i32x4(_mm_setr_epi32(word(0), word(1), word(2), word(3))))};
}
// Whole words.
template <int kShift>
inline Quads shift_words_left(Quads a) {
  return {_mm512_slli_epi32(a.v, kShift)};
}
// Four 16-bit integers a row, low byte i + 256 * high byte i. They come to stand row by row, but in the order that
// interleaving a register's parts gives: row r's at 4 * wide_slot(r).
inline void store_wide(Quads low, Quads high, uint16_t* out) {
  _mm512_storeu_si512(out, _mm512_unpacklo_epi8(low.v, high.v));
  _mm512_storeu_si512(out + 32, _mm512_unpackhi_epi8(low.v, high.v));
}
constexpr size_t wide_slot(size_t row) { return ((row & 2) << 2) | ((row >> 1) & 6) | (row & 1); }
// 0xFF in the bytes of `a` that equal those of `b`.
inline Quads equal_bytes(Quads a, Quads b) { return {_mm512_movm_epi8(_mm512_cmpeq_epi8_mask(a.v, b.v))}; }
// `a` as pairs of 16-bit integers: the upper byte of each, with its sign; the same of 32-bit words; times a constant.
inline Quads shift_pairs_signed(Quads a) { return {_mm512_srai_epi16(a.v, 8)}; }
inline Quads shift_words_signed(Quads a) { return {_mm512_srai_epi32(a.v, 24)}; }
inline Quads times_pairs(Quads a, int16_t factor) { return {_mm512_mullo_epi16(a.v, _mm512_set1_epi16(factor))}; }
// f16 in the low or high half of each lane.
inline F32x16 low_halves(Quads a) { return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a.v))}; }
inline F32x16 high_halves(Quads a) { return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(a.v, 16)))}; }

using Broadcast = __m512i;
inline Broadcast broadcast(const void* p) {
  int word;
  std::memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}

#if defined(SLUICE_VEC_VNNI)
using Sums = I32x16;
constexpr int kMaxSum = 1 << 30;
inline void add_products(Sums& sums, Quads w, Broadcast q) { sums.v = _mm512_dpbusd_epi32(sums.v, w.v, q); }
inline I32x16 weigh(Sums sums, const uint32_t* scales) {
  return {_mm512_mullo_epi32(sums.v, _mm512_loadu_si512(scales))};
}
template <int16_t kScale>
inline I32x16 weigh_all(Sums sums) {
  static_assert(kScale == 1);
  return sums;
}
#else
struct Sums {
  __m512i v;
  static Sums zero() { return {_mm512_setzero_si512()}; }
};
constexpr int kMaxSum = 32767;
inline void add_products(Sums& sums, Quads w, Broadcast q) {
  sums.v = _mm512_add_epi16(sums.v, _mm512_maddubs_epi16(w.v, q));
  hold(sums);
}
inline I32x16 weigh(Sums sums, const uint32_t* scales) {
  return {_mm512_madd_epi16(sums.v, _mm512_loadu_si512(scales))};
}
template <int16_t kScale>
inline I32x16 weigh_all(Sums sums) {
  return {_mm512_madd_epi16(sums.v, _mm512_set1_epi16(kScale))};
}
#endif

// Sums of pairs of 16-bit integers, row by row; and of one such pair with a constant, the same in every lane.
inline I32x16 pair_products(const uint32_t* pairs, Broadcast sums) {
  return {_mm512_madd_epi16(_mm512_loadu_si512(pairs), sums)};
}
inline I32x16 pair_sum(Broadcast pair, int16_t factor) { return {_mm512_madd_epi16(pair, _mm512_set1_epi16(factor))}; }

#elif defined(SLUICE_VEC_AVX2)

struct I32x16 {
  __m256i lo, hi;
  static I32x16 zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
};
inline I32x16 operator+(I32x16 a, I32x16 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
inline I32x16 operator-(I32x16 a, I32x16 b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
inline F32x16 to_float(I32x16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline I32x16 all_lanes(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
// Have this sum now: GCC would rather keep many products in flight, and spill them, than add them up as they come.
template <typename T>
inline void hold(T& sum) {
  asm("" : "+x"(sum.lo), "+x"(sum.hi));
}

inline __m256i load_256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

struct Quads {
  __m256i lo, hi;
  static Quads load(const void* p) { return {load_256(p), load_256(static_cast<const uint8_t*>(p) + 32)}; }
  void store(void* p) const {
    _mm256_storeu_si256(static_cast<__m256i*>(p), lo);
    _mm256_storeu_si256(static_cast<__m256i*>(p) + 1, hi);
  }
  static Quads all(uint8_t byte) {
    const __m256i v = _mm256_set1_epi8(static_cast<char>(byte));
    return {v, v};
  }
  static Quads all_words(uint32_t word) {
    const __m256i v = _mm256_set1_epi32(static_cast<int>(word));
    return {v, v};
  }
};
inline Quads operator&(Quads a, Quads b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
inline Quads operator|(Quads a, Quads b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
inline Quads operator^(Quads a, Quads b) { return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
inline Quads operator-(Quads a, Quads b) { return {_mm256_sub_epi8(a.lo, b.lo), _mm256_sub_epi8(a.hi, b.hi)}; }

// Row r's word, from where at(row) points on.
template <typename At>
inline Quads load_words(At at) {
  const auto four_rows = [&](size_t row) { return load_four(at(row), at(row + 1), at(row + 2), at(row + 3)); };
  const auto eight_rows = [&](size_t row) {
    const __m128i low = four_rows(row);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), four_rows(row + 4), 1);
  };
  const __m256i low = eight_rows(0);
  return {low, eight_rows(8)};
}
// Two consecutive words of each row, likewise.
template <typename At>
inline void load_pairs(At at, Quads& first, Quads& second) {
  const auto eight_rows = [&](size_t from, __m256i& even, __m256i& odd) {
    const auto four_rows = [&](size_t row) {
      return _mm256_set_m128(load_two_pairs(at(row + 4), at(row + 5)), load_two_pairs(at(row), at(row + 1)));
    };
    const __m256 a = four_rows(from), b = four_rows(from + 2);
    even = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0b10001000));
    odd = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0b11011101));
  };
  eight_rows(0, first.lo, second.lo);
  eight_rows(8, first.hi, second.hi);
}

// Bits move across the bytes of a 16-bit lane: to be masked by the caller.
template <int kShift>
inline Quads shift_bytes_unmasked(Quads a) {
  if constexpr (kShift > 0) return {_mm256_srli_epi16(a.lo, kShift), _mm256_srli_epi16(a.hi, kShift)};
  if constexpr (kShift < 0) return {_mm256_slli_epi16(a.lo, -kShift), _mm256_slli_epi16(a.hi, -kShift)};
  return a;
}

// out[i] = bytes 4 i .. 4 i + 3 of 16 rows, `stride` bytes apart, from 16 bytes of each.
inline void load_quads(const uint8_t* p, size_t stride, Quads (&out)[4]) {
  const auto eight_rows = [stride](const uint8_t* from, __m256i(&quads)[4]) {
    __m256i rows[4];
    for (size_t r = 0; r < 4; ++r) {
      const auto at = [&](size_t row) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * stride));
      };
      rows[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(at(r)), at(r + 4), 1);
    }
    const __m256i a = _mm256_unpacklo_epi32(rows[0], rows[1]), b = _mm256_unpackhi_epi32(rows[0], rows[1]);
    const __m256i c = _mm256_unpacklo_epi32(rows[2], rows[3]), d = _mm256_unpackhi_epi32(rows[2], rows[3]);
    quads[0] = _mm256_unpacklo_epi64(a, c), quads[1] = _mm256_unpackhi_epi64(a, c);
    quads[2] = _mm256_unpacklo_epi64(b, d), quads[3] = _mm256_unpackhi_epi64(b, d);
  };
  __m256i low[4], high[4];
  eight_rows(p, low);
  eight_rows(p + 8 * stride, high);
  for (size_t i = 0; i < 4; ++i) out[i] = {low[i], high[i]};
}

inline Quads lookup(const uint8_t (&table)[16], Quads indices) {
  const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(t, indices.lo), _mm256_shuffle_epi8(t, indices.hi)};
}

// Per 32-bit lane, by the byte numbers kA .. kD within it; 0x80 gives a zero byte.
template <uint32_t kA, uint32_t kB, uint32_t kC, uint32_t kD>
inline Quads pick(Quads a) {
  constexpr auto word = [](uint32_t lane) {
    const auto byte = [&](uint32_t i) { return i & 0x80 ? i : i + 4 * lane; };
    return static_cast<int>(byte(kA) | byte(kB) << 8 | byte(kC) << 16 | byte(kD) << 24);
  };
  const __m256i order = _mm256_broadcastsi128_si256(_mm_setr_epi32(word(0), word(1), word(2), word(3)));
  return {_mm256_shuffle_epi8(a.lo, order), _mm256_shuffle_epi8(a.hi, order)};
}
// Whole words.
template <int kShift>
inline Quads shift_words_left(Quads a) {
  return {_mm256_slli_epi32(a.lo, kShift), _mm256_slli_epi32(a.hi, kShift)};
}
// Four 16-bit integers a row, low byte i + 256 * high byte i. They come to stand row by row, but in the order that
// interleaving a register's parts gives: row r's at 4 * wide_slot(r).
inline void store_wide(Quads low, Quads high, uint16_t* out) {
  auto* to = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(to, _mm256_unpacklo_epi8(low.lo, high.lo));
  _mm256_storeu_si256(to + 1, _mm256_unpackhi_epi8(low.lo, high.lo));
  _mm256_storeu_si256(to + 2, _mm256_unpacklo_epi8(low.hi, high.hi));
  _mm256_storeu_si256(to + 3, _mm256_unpackhi_epi8(low.hi, high.hi));
}
constexpr size_t wide_slot(size_t row) { return (row & 8) | ((row & 2) << 1) | ((row >> 1) & 2) | (row & 1); }
// 0xFF in the bytes of `a` that equal those of `b`.
inline Quads equal_bytes(Quads a, Quads b) { return {_mm256_cmpeq_epi8(a.lo, b.lo), _mm256_cmpeq_epi8(a.hi, b.hi)}; }
// `a` as pairs of 16-bit integers: the upper byte of each, with its sign; the same of 32-bit words; times a constant.
inline Quads shift_pairs_signed(Quads a) { return {_mm256_srai_epi16(a.lo, 8), _mm256_srai_epi16(a.hi, 8)}; }
inline Quads shift_words_signed(Quads a) { return {_mm256_srai_epi32(a.lo, 24), _mm256_srai_epi32(a.hi, 24)}; }
inline Quads times_pairs(Quads a, int16_t factor) {
  const __m256i f = _mm256_set1_epi16(factor);
  return {_mm256_mullo_epi16(a.lo, f), _mm256_mullo_epi16(a.hi, f)};
}
// f16 in the low or high half of each lane.
inline F32x16 low_halves(Quads a) {
  const __m256i mask = _mm256_set1_epi32(0xFFFF);
  const __m256i packed = _mm256_packus_epi32(_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask));
  const __m256i ordered = _mm256_permute4x64_epi64(packed, 0b11011000);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(ordered)), _mm256_cvtph_ps(_mm256_extracti128_si256(ordered, 1))};
}
inline F32x16 high_halves(Quads a) { return low_halves({_mm256_srli_epi32(a.lo, 16), _mm256_srli_epi32(a.hi, 16)}); }

using Broadcast = __m256i;
inline Broadcast broadcast(const void* p) {
  int word;
  std::memcpy(&word, p, sizeof word);
  return _mm256_set1_epi32(word);
}

#if defined(SLUICE_VEC_VNNI)
using Sums = I32x16;
constexpr int kMaxSum = 1 << 30;
inline void add_products(Sums& sums, Quads w, Broadcast q) {
  sums.lo = _mm256_dpbusd_avx_epi32(sums.lo, w.lo, q);
  sums.hi = _mm256_dpbusd_avx_epi32(sums.hi, w.hi, q);
}
inline I32x16 weigh(Sums sums, const uint32_t* scales) {
  return {_mm256_mullo_epi32(sums.lo, load_256(scales)), _mm256_mullo_epi32(sums.hi, load_256(scales + 8))};
}
template <int16_t kScale>
inline I32x16 weigh_all(Sums sums) {
  static_assert(kScale == 1);
  return sums;
}
#else
struct Sums {
  __m256i lo, hi;
  static Sums zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
};
constexpr int kMaxSum = 32767;
inline void add_products(Sums& sums, Quads w, Broadcast q) {
  sums.lo = _mm256_add_epi16(sums.lo, _mm256_maddubs_epi16(w.lo, q));
  sums.hi = _mm256_add_epi16(sums.hi, _mm256_maddubs_epi16(w.hi, q));
  hold(sums);
}
inline I32x16 weigh(Sums sums, const uint32_t* scales) {
  return {_mm256_madd_epi16(sums.lo, load_256(scales)), _mm256_madd_epi16(sums.hi, load_256(scales + 8))};
}
template <int16_t kScale>
inline I32x16 weigh_all(Sums sums) {
  const __m256i s = _mm256_set1_epi16(kScale);
  return {_mm256_madd_epi16(sums.lo, s), _mm256_madd_epi16(sums.hi, s)};
}
#endif

inline I32x16 pair_products(const uint32_t* pairs, Broadcast sums) {
  return {_mm256_madd_epi16(load_256(pairs), sums), _mm256_madd_epi16(load_256(pairs + 8), sums)};
}
inline I32x16 pair_sum(Broadcast pair, int16_t factor) {
  const __m256i sum = _mm256_madd_epi16(pair, _mm256_set1_epi16(factor));
  return {sum, sum};
}

#elif defined(SLUICE_VEC_NEON)

struct I32x16 {
  int32x4_t v[4];
  static I32x16 zero() { return {{vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)}}; }
};
inline I32x16 operator+(I32x16 a, I32x16 b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vaddq_s32(a.v[i], b.v[i]);
  return a;
}
inline I32x16 operator-(I32x16 a, I32x16 b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vsubq_s32(a.v[i], b.v[i]);
  return a;
}
inline F32x16 to_float(I32x16 a) {
  F32x16 out;
  for (int i = 0; i < 4; ++i) out.v[i] = vcvtq_f32_s32(a.v[i]);
  return out;
}
inline I32x16 all_lanes(int32_t x) { return {{vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x)}}; }
template <typename T>
inline void hold(T&) {}  // see AVX2

struct Quads {
  uint8x16_t v[4];
  static Quads load(const void* p) {
    const auto* bytes = static_cast<const uint8_t*>(p);
    return {{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
  }
  void store(void* p) const {
    for (int i = 0; i < 4; ++i) vst1q_u8(static_cast<uint8_t*>(p) + 16 * i, v[i]);
  }
  static Quads all(uint8_t byte) {
    const uint8x16_t x = vdupq_n_u8(byte);
    return {{x, x, x, x}};
  }
  static Quads all_words(uint32_t word) {
    const uint8x16_t x = vreinterpretq_u8_u32(vdupq_n_u32(word));
    return {{x, x, x, x}};
  }
};
inline Quads operator&(Quads a, Quads b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vandq_u8(a.v[i], b.v[i]);
  return a;
}
inline Quads operator|(Quads a, Quads b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vorrq_u8(a.v[i], b.v[i]);
  return a;
}
inline Quads operator^(Quads a, Quads b) {
  for (int i = 0; i < 4; ++i) a.v[i] = veorq_u8(a.v[i], b.v[i]);
  return a;
}
inline Quads operator-(Quads a, Quads b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vsubq_u8(a.v[i], b.v[i]);
  return a;
}

template <typename At>
inline Quads load_words(At at) {
  uint32_t words[16];
  for (size_t r = 0; r < 16; ++r) std::memcpy(words + r, at(r), sizeof words[r]);
  return Quads::load(words);
}
template <typename At>
inline void load_pairs(At at, Quads& first, Quads& second) {
  for (size_t g = 0; g < 4; ++g) {
    const auto pair = [&](size_t row) { return vld1_u32(reinterpret_cast<const uint32_t*>(at(row))); };
    const uint32x4_t a = vcombine_u32(pair(4 * g), pair(4 * g + 1));
    const uint32x4_t b = vcombine_u32(pair(4 * g + 2), pair(4 * g + 3));
    first.v[g] = vreinterpretq_u8_u32(vuzp1q_u32(a, b));
    second.v[g] = vreinterpretq_u8_u32(vuzp2q_u32(a, b));
  }
}

template <int kShift>
inline Quads shift_bytes_unmasked(Quads a) {
  for (int i = 0; i < 4; ++i) {
    if constexpr (kShift > 0) a.v[i] = vshrq_n_u8(a.v[i], kShift);
    if constexpr (kShift < 0) a.v[i] = vshlq_n_u8(a.v[i], -kShift);
  }
  return a;
}

inline void load_quads(const uint8_t* p, size_t stride, Quads (&out)[4]) {
  for (size_t g = 0; g < 4; ++g) {
    uint32x4_t rows[4];
    for (size_t r = 0; r < 4; ++r) rows[r] = vreinterpretq_u32_u8(vld1q_u8(p + (4 * g + r) * stride));
    const uint32x4_t a = vtrn1q_u32(rows[0], rows[1]), b = vtrn2q_u32(rows[0], rows[1]);
    const uint32x4_t c = vtrn1q_u32(rows[2], rows[3]), d = vtrn2q_u32(rows[2], rows[3]);
    const auto join = [](uint32x4_t x, uint32x4_t y, bool high) {
      const uint64x2_t p64 = vreinterpretq_u64_u32(x), q64 = vreinterpretq_u64_u32(y);
      return vreinterpretq_u8_u64(high ? vtrn2q_u64(p64, q64) : vtrn1q_u64(p64, q64));
    };
    out[0].v[g] = join(a, c, false), out[1].v[g] = join(b, d, false);
    out[2].v[g] = join(a, c, true), out[3].v[g] = join(b, d, true);
  }
}

inline Quads lookup(const uint8_t (&table)[16], Quads indices) {
  const uint8x16_t t = vld1q_u8(table);
  for (int i = 0; i < 4; ++i) indices.v[i] = vqtbl1q_u8(t, indices.v[i]);
  return indices;
}

template <uint32_t kA, uint32_t kB, uint32_t kC, uint32_t kD>
inline Quads pick(Quads a) {
  uint8_t order[16];
  for (uint32_t lane = 0; lane < 4; ++lane) {
    const uint32_t bytes[4] = {kA, kB, kC, kD};
    for (uint32_t i = 0; i < 4; ++i)
      order[4 * lane + i] = static_cast<uint8_t>(bytes[i] & 0x80 ? 0x80 : bytes[i] + 4 * lane);
  }
  const uint8x16_t o = vld1q_u8(order);
  for (int i = 0; i < 4; ++i) a.v[i] = vqtbl1q_u8(a.v[i], o);
  return a;
}
template <int kShift>
inline Quads shift_words_left(Quads a) {
  for (int i = 0; i < 4; ++i) a.v[i] = vreinterpretq_u8_u32(vshlq_n_u32(vreinterpretq_u32_u8(a.v[i]), kShift));
  return a;
}
inline void store_wide(Quads low, Quads high, uint16_t* out) {
  for (int i = 0; i < 4; ++i) {
    vst1q_u16(out + 16 * i, vreinterpretq_u16_u8(vzip1q_u8(low.v[i], high.v[i])));
    vst1q_u16(out + 16 * i + 8, vreinterpretq_u16_u8(vzip2q_u8(low.v[i], high.v[i])));
  }
}
constexpr size_t wide_slot(size_t row) { return row; }
inline Quads equal_bytes(Quads a, Quads b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vceqq_u8(a.v[i], b.v[i]);
  return a;
}
inline Quads shift_pairs_signed(Quads a) {
  for (int i = 0; i < 4; ++i) a.v[i] = vreinterpretq_u8_s16(vshrq_n_s16(vreinterpretq_s16_u8(a.v[i]), 8));
  return a;
}
inline Quads shift_words_signed(Quads a) {
  for (int i = 0; i < 4; ++i) a.v[i] = vreinterpretq_u8_s32(vshrq_n_s32(vreinterpretq_s32_u8(a.v[i]), 24));
  return a;
}
inline Quads times_pairs(Quads a, int16_t factor) {
  for (int i = 0; i < 4; ++i) a.v[i] = vreinterpretq_u8_s16(vmulq_n_s16(vreinterpretq_s16_u8(a.v[i]), factor));
  return a;
}
inline F32x16 low_halves(Quads a) {
  F32x16 out;
  for (int i = 0; i < 4; ++i) out.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_u8(a.v[i]))));
  return out;
}
inline F32x16 high_halves(Quads a) {
  F32x16 out;
  for (int i = 0; i < 4; ++i)
    out.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(vreinterpretq_u32_u8(a.v[i]), 16)));
  return out;
}

using Broadcast = int8x16_t;
inline Broadcast broadcast(const void* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof word);
  return vreinterpretq_s8_s32(vdupq_n_s32(word));
}

using Sums = I32x16;
constexpr int kMaxSum = 1 << 30;
inline void add_products(Sums& sums, Quads w, Broadcast q) {
  for (int i = 0; i < 4; ++i) sums.v[i] = vdotq_s32(sums.v[i], vreinterpretq_s8_u8(w.v[i]), q);
}
inline I32x16 weigh(Sums sums, const uint32_t* scales) {
  for (int i = 0; i < 4; ++i) sums.v[i] = vmulq_s32(sums.v[i], vreinterpretq_s32_u32(vld1q_u32(scales + 4 * i)));
  return sums;
}
template <int16_t kScale>
inline I32x16 weigh_all(Sums sums) {
  static_assert(kScale == 1);
  return sums;
}
inline I32x16 pair_products(const uint32_t* pairs, Broadcast sums) {
  const int16x8_t s = vreinterpretq_s16_s8(sums);
  I32x16 out;
  for (int i = 0; i < 4; ++i) {
    const int16x8_t p = vreinterpretq_s16_u32(vld1q_u32(pairs + 4 * i));
    out.v[i] = vpaddq_s32(vmull_s16(vget_low_s16(p), vget_low_s16(s)), vmull_high_s16(p, s));
  }
  return out;
}
inline I32x16 pair_sum(Broadcast pair, int16_t factor) {
  const int32x4_t sum = vmulq_n_s32(vpaddlq_s16(vreinterpretq_s16_s8(pair)), factor);
  return {{sum, sum, sum, sum}};
}

#endif

// Of every byte, the kCount bits from bit kFrom on, moved to bit kTo.
template <int kFrom, int kCount, int kTo = 0>
inline Quads bits(Quads a) {
  return shift_bytes_unmasked<kFrom - kTo>(a) & Quads::all(static_cast<uint8_t>(((1 << kCount) - 1) << kTo));
}

// 0xFF in byte i where bit kFirst + i of the row's word is set; kFirst a multiple of 4.
template <uint32_t kFirst>
inline Quads bit_mask(Quads word) {
  constexpr uint32_t kByte = kFirst / 8;
  constexpr uint32_t kBits = kFirst % 8 == 0 ? 0x08040201u : 0x80402010u;
  const Quads one_bit = Quads::all_words(kBits);
  return equal_bytes(pick<kByte, kByte, kByte, kByte>(word) & one_bit, one_bit);
}

// What `weigh` takes for a scale: pairs of 16-bit integers where Sums are such pairs, else 32 bits.
constexpr bool kScalesArePairs = kMaxSum == 32767;
constexpr uint32_t scale_word(int32_t scale) {
  const auto word = static_cast<uint32_t>(scale);
  return kScalesArePairs ? (word & 0xFFFF) | word << 16 : word;
}
// The same of byte kByte of every row's word, an unsigned or a signed integer.
template <uint32_t kByte>
inline Quads unsigned_scales(Quads bytes) {
  return pick < kByte, 0x80, kScalesArePairs ? kByte : 0x80, 0x80 > (bytes);
}
template <uint32_t kByte>
inline Quads signed_scales(Quads bytes) {
  if constexpr (kScalesArePairs) return shift_pairs_signed(pick<0x80, kByte, 0x80, kByte>(bytes));
  return shift_words_signed(pick<0x80, 0x80, 0x80, kByte>(bytes));
}
// Two bytes of every row's word as a pair of 16-bit integers.
template <uint32_t kA, uint32_t kB>
inline Quads unsigned_pairs(Quads bytes) {
  return pick<kA, 0x80, kB, 0x80>(bytes);
}
template <uint32_t kA, uint32_t kB>
inline Quads signed_pairs(Quads bytes) {
  return shift_pairs_signed(pick<0x80, kA, 0x80, kB>(bytes));
}
