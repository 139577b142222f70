// Sixteen f32 lanes, the unit in which every f32 operation of docs/arithmetic.md is written. What differs between
// instruction sets is only how the lanes are held: one 512-bit register, two of 256, four of 128, or an array. Each
// lane operation is one IEEE operation, so all of them give the same bits.
//
// Included by kernel sources only, once per instruction set, inside that set's namespace (see kernels.inl).
#if !defined(SLUICE_ISA)
#error "vec16.h is for kernel sources that define SLUICE_ISA"
#endif

struct F32x16;

#if defined(SLUICE_VEC_AVX512) || defined(SLUICE_VEC_AVX2)

// The lower steps of the fixed tree, for eight lanes: lane i with i + 4, then i + 2, i + 1.
inline float sum_eight(__m256 h) {
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

#endif

#if defined(SLUICE_VEC_AVX512)

struct F32x16 {
  __m512 v;
  static F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static F32x16 load(const Half* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static F32x16 load(const Bfloat16* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  static F32x16 all(float x) { return {_mm512_set1_ps(x)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
};
inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
// a * b + c, rounded once.
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// a > b ? a : b, so b where either is NaN.
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
// Per lane: a < b ? x : y.
inline F32x16 where_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
// 2^n for the integer n held in the low bits of (n + kRoundMagic); n in [-126, 127].
inline F32x16 power_of_two(F32x16 shifted) {
  const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(shifted.v), _mm512_set1_epi32(kRoundMagicBits - 127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(n, 23))};
}
// The fixed tree: lane i with i + 8, then i + 4, i + 2, i + 1.
inline float sum(F32x16 a) {
  return sum_eight(_mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1)));
}

#elif defined(SLUICE_VEC_AVX2)

struct F32x16 {
  __m256 lo, hi;
  static F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static F32x16 load(const Half* p) {
    const auto* from = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from + 1))};
  }
  static F32x16 load(const Bfloat16* p) {
    const auto* from = reinterpret_cast<const __m128i*>(p);
    const auto widen = [](__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); };
    return {widen(_mm_loadu_si128(from)), widen(_mm_loadu_si128(from + 1))};
  }
  static F32x16 all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
};
inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline F32x16 where_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
inline F32x16 power_of_two(F32x16 shifted) {
  const auto half = [](__m256 x) {
    const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(kRoundMagicBits - 127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(n, 23));
  };
  return {half(shifted.lo), half(shifted.hi)};
}
inline float sum(F32x16 a) { return sum_eight(_mm256_add_ps(a.lo, a.hi)); }

#elif defined(SLUICE_VEC_NEON)

struct F32x16 {
  float32x4_t v[4];
  static F32x16 load(const float* p) { return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}}; }
  static F32x16 load(const Half* p) {
    F32x16 out;
    for (int i = 0; i < 4; ++i)
      out.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p) + 4 * i)));
    return out;
  }
  static F32x16 load(const Bfloat16* p) {
    F32x16 out;
    for (int i = 0; i < 4; ++i)
      out.v[i] = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p) + 4 * i), 16));
    return out;
  }
  static F32x16 all(float x) { return {{vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x)}}; }
  void store(float* p) const {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, v[i]);
  }
};
template <typename Op>
inline F32x16 each(F32x16 a, F32x16 b, Op op) {
  return {{op(a.v[0], b.v[0]), op(a.v[1], b.v[1]), op(a.v[2], b.v[2]), op(a.v[3], b.v[3])}};
}
inline F32x16 operator+(F32x16 a, F32x16 b) {
  return each(a, b, [](float32x4_t x, float32x4_t y) { return vaddq_f32(x, y); });
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return each(a, b, [](float32x4_t x, float32x4_t y) { return vsubq_f32(x, y); });
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return each(a, b, [](float32x4_t x, float32x4_t y) { return vmulq_f32(x, y); });
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
  return each(a, b, [](float32x4_t x, float32x4_t y) { return vdivq_f32(x, y); });
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  F32x16 out;
  for (int i = 0; i < 4; ++i) out.v[i] = vfmaq_f32(c.v[i], a.v[i], b.v[i]);
  return out;
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return each(a, b, [](float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); });
}
inline F32x16 where_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  F32x16 out;
  for (int i = 0; i < 4; ++i) out.v[i] = vbslq_f32(vcltq_f32(a.v[i], b.v[i]), x.v[i], y.v[i]);
  return out;
}
inline F32x16 power_of_two(F32x16 shifted) {
  F32x16 out;
  for (int i = 0; i < 4; ++i) {
    const int32x4_t n = vsubq_s32(vreinterpretq_s32_f32(shifted.v[i]), vdupq_n_s32(kRoundMagicBits - 127));
    out.v[i] = vreinterpretq_f32_s32(vshlq_n_s32(n, 23));
  }
  return out;
}
inline float sum(F32x16 a) {
  const float32x4_t q = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t h = vadd_f32(vget_low_f32(q), vget_high_f32(q));
  return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}

#else

struct F32x16 {
  float v[16];
  static F32x16 load(const float* p) {
    F32x16 out;
    std::memcpy(out.v, p, sizeof out.v);
    return out;
  }
  static F32x16 load(const Half* p) {
    F32x16 out;
    for (int i = 0; i < 16; ++i) out.v[i] = to_float(p[i]);
    return out;
  }
  static F32x16 load(const Bfloat16* p) {
    F32x16 out;
    for (int i = 0; i < 16; ++i) out.v[i] = to_float(p[i]);
    return out;
  }
  static F32x16 all(float x) {
    F32x16 out;
    for (float& lane : out.v) lane = x;
    return out;
  }
  void store(float* p) const { std::memcpy(p, v, sizeof v); }
};
template <typename Op>
inline F32x16 each(F32x16 a, F32x16 b, Op op) {
  F32x16 out;
  for (int i = 0; i < 16; ++i) out.v[i] = op(a.v[i], b.v[i]);
  return out;
}
inline F32x16 operator+(F32x16 a, F32x16 b) {
  return each(a, b, [](float x, float y) { return x + y; });
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return each(a, b, [](float x, float y) { return x - y; });
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return each(a, b, [](float x, float y) { return x * y; });
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
  return each(a, b, [](float x, float y) { return x / y; });
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  F32x16 out;
  for (int i = 0; i < 16; ++i) out.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
  return out;
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return each(a, b, [](float x, float y) { return x > y ? x : y; });
}
inline F32x16 where_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  F32x16 out;
  for (int i = 0; i < 16; ++i) out.v[i] = a.v[i] < b.v[i] ? x.v[i] : y.v[i];
  return out;
}
inline F32x16 power_of_two(F32x16 shifted) {
  F32x16 out;
  for (int i = 0; i < 16; ++i) {
    uint32_t bits;  // unsigned, so that arguments out of range wrap here as they do in a register
    std::memcpy(&bits, &shifted.v[i], sizeof bits);
    bits = (bits - static_cast<uint32_t>(kRoundMagicBits - 127)) << 23;
    std::memcpy(&out.v[i], &bits, sizeof bits);
  }
  return out;
}
inline float sum(F32x16 a) {
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) a.v[i] += a.v[i + width];
  return a.v[0];
}

#endif

// exp(x), relative error below 2^-23 (vectors_test.cpp). Below -87.33, where results would be denormal, it is
// 0; above 88.37 infinity; NaN stays NaN.
//
// Method: x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 7; times 2^n.
inline F32x16 exp(F32x16 x) {
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // high part: 10 bits, so n * high is exact
  const F32x16 magic = F32x16::all(kRoundMagic);
  const F32x16 shifted = fma(x, F32x16::all(1.44269504f), magic);
  const F32x16 n = shifted - magic;
  F32x16 r = fma(n, F32x16::all(-kLn2High), x);
  r = fma(n, F32x16::all(-kLn2Low), r);
  F32x16 p = F32x16::all(1.0f / 5040);
  for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = fma(p, r, F32x16::all(c));
  p = p * power_of_two(shifted);
  p = where_less(x, F32x16::all(-87.33f), F32x16::all(0.0f), p);
  p = where_less(F32x16::all(88.37f), x, F32x16::all(kInfinity), p);
  // NaN fails both comparisons and has come through the polynomial, times whatever its bits made of 2^n: restore it.
  return where_less(x, F32x16::all(kInfinity), p, where_less(F32x16::all(0.0f), x, p, x + x));
}

// 1 / (1 + exp(-x)).
inline F32x16 sigmoid(F32x16 x) {
  const F32x16 one = F32x16::all(1.0f);
  return one / (one + exp(F32x16::all(0.0f) - x));
}
