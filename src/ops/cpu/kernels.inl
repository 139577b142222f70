// Every kernel, written once over sixteen f32 lanes. Each instruction set's kernels.cpp includes this file inside a
// namespace of its own, compiled with its own flags; the scalar one is the definition. Element-wise work is plain
// loops, since one IEEE operation is one IEEE operation on any unit; reductions go through F32x16, whose lanes and tree
// are fixed.
//
// Only C functions and this namespace's own templates are used here: an inline function of the standard library
// compiled with AVX flags could be the copy that the linker keeps for the whole program.

#include "ops/cpu/vec16.h"

// Sixteen values of which only the first `n` are there; the others are 0.
template <typename T>
inline F32x16 load_tail(const T* p, size_t n) {
  T padded[16] = {};
  std::memcpy(padded, p, n * sizeof(T));
  return F32x16::load(padded);
}

inline void store_tail(float* p, F32x16 x, size_t n) {
  float padded[16];
  x.store(padded);
  std::memcpy(p, padded, n * sizeof(float));
}

// y[i] = op(a[i], b[i]) for any n.
template <typename Op>
inline void map(const float* a, const float* b, size_t n, float* y, Op op) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) op(F32x16::load(a + i), F32x16::load(b + i)).store(y + i);
  if (i < n) store_tail(y + i, op(load_tail(a + i, n - i), load_tail(b + i, n - i)), n - i);
}

// ---- products ------------------------------------------------------------------------------------------------------

// kOut weight rows of T times one activation row: element i goes to lane i mod 16, one fused multiply-add each.
template <size_t kOut, typename T>
inline void float_dots(const T* w, size_t n, const float* x, float* y) {
  F32x16 acc[kOut];
  for (F32x16& a : acc) a = F32x16::all(0.0f);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32x16 xi = F32x16::load(x + i);
    for (size_t o = 0; o < kOut; ++o) acc[o] = fma(F32x16::load(w + o * n + i), xi, acc[o]);
  }
  if (i < n) {
    const F32x16 xi = load_tail(x + i, n - i);
    for (size_t o = 0; o < kOut; ++o) acc[o] = fma(load_tail(w + o * n + i, n - i), xi, acc[o]);
  }
  for (size_t o = 0; o < kOut; ++o) y[o] = sum(acc[o]);
}

template <typename T>
inline void matmul_float(const std::byte* weights, size_t n_out, const Rows& x, float* y, size_t y_stride) {
  constexpr size_t kOut = 4;  // rows at a time: hides the latency of the fused multiply-adds
  const T* w = reinterpret_cast<const T*>(weights);
  size_t o = 0;
  for (; o + kOut <= n_out; o += kOut)
    for (size_t r = 0; r < x.n_rows; ++r)
      float_dots<kOut>(w + o * x.n, x.n, x.f32 + x.at(r) * x.n, y + x.to(r) * y_stride + o);
  for (; o < n_out; ++o)
    for (size_t r = 0; r < x.n_rows; ++r)
      float_dots<1>(w + o * x.n, x.n, x.f32 + x.at(r) * x.n, y + x.to(r) * y_stride + o);
}

#if defined(SLUICE_VEC_AVX512) || defined(SLUICE_VEC_AVX2) || defined(SLUICE_VEC_NEON)

#include "ops/cpu/quads.h"

#include "ops/cpu/panel.h"

#else

#include "ops/cpu/scalar/products.h"

#endif

inline void matmul(const quant::Format& format, const std::byte* weights, size_t n_out, const Rows& x, float* y,
                   size_t y_stride, const std::byte* next) {
  switch (format.type) {
    case quant::Type::kF32:
      return matmul_float<float>(weights, n_out, x, y, y_stride);
    case quant::Type::kF16:
      return matmul_float<Half>(weights, n_out, x, y, y_stride);
    case quant::Type::kBF16:
      return matmul_float<Bfloat16>(weights, n_out, x, y, y_stride);
    default:
      return matmul_int8(format, weights, n_out, x, y, y_stride, next);
  }
}

// The largest magnitude as bits: integers compare like the magnitudes they stand for, and NaN is above infinity.
inline uint32_t largest_magnitude(const float* x, size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7FFFFFFFu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

inline void quantize_row(const float* x, size_t n, size_t block, int8_t* q, float* scale, int16_t* sums) {
  for (size_t b = 0; b < n / block; ++b, x += block, q += block) {
    const uint32_t bits = largest_magnitude(x, block);
    float amax;
    std::memcpy(&amax, &bits, sizeof amax);
    if (bits >= kInfinityBits || amax < kSmallestScaled) {
      std::memset(q, 0, block);
      scale[b] = bits >= kInfinityBits ? kNaN : 0.0f;  // what isn't finite must stay visible in the result
    } else {
      scale[b] = amax / 127.0f;
      const float inverse = 127.0f / amax;
      for (size_t i = 0; i < block; ++i) {
        // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
        const float shifted = x[i] * inverse + kRoundMagic;
        int32_t rounded;
        std::memcpy(&rounded, &shifted, sizeof rounded);
        q[i] = static_cast<int8_t>(rounded - kRoundMagicBits);
      }
    }
    for (size_t g = 0; g < block / 16; ++g) {
      int32_t total = 0;
      for (size_t i = 0; i < 16; ++i) total += q[16 * g + i];
      *sums++ = static_cast<int16_t>(total);
    }
  }
}

// ---- norms and activation functions --------------------------------------------------------------------------------

inline float sum_of_squares(const float* x, size_t n) {
  F32x16 acc = F32x16::all(0.0f);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32x16 v = F32x16::load(x + i);
    acc = fma(v, v, acc);
  }
  if (i < n) {
    const F32x16 v = load_tail(x + i, n - i);
    acc = fma(v, v, acc);
  }
  return sum(acc);
}

inline void rms_norm(const float* x, const float* weight, size_t n, float eps, float* y) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const float inverse = 1.0f / sqrt_f32(mean + eps);
  for (size_t i = 0; i < n; ++i) y[i] = x[i] * inverse * weight[i];
}

inline void l2_norm(float* x, size_t n, float eps, float factor) {
  const float length = sqrt_f32(sum_of_squares(x, n));
  const float inverse = 1.0f / (length > eps ? length : eps);
  for (size_t i = 0; i < n; ++i) x[i] = x[i] * inverse * factor;
}

inline void silu_mul(const float* gate, const float* up, size_t n, float* y) {
  map(gate, up, n, y, [](F32x16 g, F32x16 u) { return g * sigmoid(g) * u; });
}

inline void sigmoid_mul(float* x, const float* gate, size_t n) {
  map(x, gate, n, x, [](F32x16 v, F32x16 g) { return v * sigmoid(g); });
}

inline float largest(const float* x, size_t n) {
  float m = x[0];
  for (size_t i = 1; i < n; ++i) m = x[i] > m ? x[i] : m;
  return m;
}

inline void softmax(float* x, size_t n) {
  const F32x16 top = F32x16::all(largest(x, n));
  F32x16 acc = F32x16::all(0.0f);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32x16 e = exp(F32x16::load(x + i) - top);
    e.store(x + i);
    acc = acc + e;
  }
  if (i < n) {
    store_tail(x + i, exp(load_tail(x + i, n - i) - top), n - i);
    acc = acc + load_tail(x + i, n - i);
  }
  const float inverse = 1.0f / sum(acc);
  for (size_t j = 0; j < n; ++j) x[j] *= inverse;
}

inline void add_scaled(float w, const float* x, size_t n, float* y) {
  for (size_t i = 0; i < n; ++i) y[i] = fma_f32(w, x[i], y[i]);
}

inline void rope(float* x, const float* cos, const float* sin, size_t n_pairs, size_t step, size_t partner) {
  for (size_t j = 0; j < n_pairs; ++j) {
    const float a = x[j * step], b = x[j * step + partner];
    x[j * step] = fma_f32(a, cos[j], -(b * sin[j]));
    x[j * step + partner] = fma_f32(a, sin[j], b * cos[j]);
  }
}

// ---- attention -----------------------------------------------------------------------------------------------------

// Query heads that go over a tile together, so that its keys and values are loaded and widened once for all.
constexpr size_t kMostHeads = 4;

// Scores of one tile: lane j is position j of the tile, and the products of a head are summed in order of dimension.
template <size_t kHeads, typename T>
inline void tile_scores(const AttentionJob& job, const float* q, const T* keys, float (*scores)[kTile]) {
  for (size_t j = 0; j < kTile; j += 16) {
    F32x16 acc[kHeads];
    for (F32x16& a : acc) a = F32x16::all(0.0f);
    for (size_t d = 0; d < job.head_dim; ++d) {
      const F32x16 k = F32x16::load(keys + d * kTile + j);
      for (size_t h = 0; h < kHeads; ++h) acc[h] = fma(F32x16::all(q[h * job.q_stride + d]), k, acc[h]);
    }
    for (size_t h = 0; h < kHeads; ++h) (acc[h] * F32x16::all(job.scale)).store(scores[h] + j);
  }
}

// Turns a tile's scores p, of which `count` are there, into weights, and moves the running softmax's largest score and
// sum on. Returns what the values so far fade by.
inline float tile_weights(float* p, size_t count, float& running_top, float& total) {
  const float tile_top = largest(p, count);
  const float top = tile_top > running_top ? tile_top : running_top;
  float fade[16];
  exp(F32x16::all(running_top - top)).store(fade);
  F32x16 acc = F32x16::all(0.0f);
  for (size_t j = 0; j < kTile; j += 16) {
    F32x16 e = exp(F32x16::load(p + j) - F32x16::all(top));
    e.store(p + j);
    if (j + 16 > count) {
      for (size_t i = j > count ? j : count; i < j + 16; ++i) p[i] = 0.0f;
      e = F32x16::load(p + j);
    }
    acc = acc + e;
  }
  running_top = top;
  total = fma_f32(total, fade[0], sum(acc));
  return fade[0];
}

// Adds the tile's first `count` positions to the running softmaxes of kHeads query heads.
template <size_t kHeads, typename T>
inline void add_tile(const AttentionJob& job, const float* q, const T* keys, const T* values, size_t count,
                     float* running) {
  const size_t n = job.value_dim, stride = running_floats(n);
  float p[kHeads][kTile], fade[kHeads];
  tile_scores<kHeads>(job, q, keys, p);
  for (size_t h = 0; h < kHeads; ++h)
    fade[h] = tile_weights(p[h], count, running[h * stride + n], running[h * stride + n + 1]);
  for (size_t d = 0; d < n; d += 16) {
    F32x16 acc[kHeads];
    for (size_t h = 0; h < kHeads; ++h) acc[h] = F32x16::load(running + h * stride + d) * F32x16::all(fade[h]);
    for (size_t j = 0; j < count; ++j) {
      const F32x16 v = F32x16::load(values + j * n + d);
      for (size_t h = 0; h < kHeads; ++h) acc[h] = fma(F32x16::all(p[h][j]), v, acc[h]);
    }
    for (size_t h = 0; h < kHeads; ++h) acc[h].store(running + h * stride + d);
  }
}

template <size_t kHeads, typename T>
inline void attend_heads(const AttentionJob& job, size_t head) {
  const size_t n = job.value_dim, stride = running_floats(n);
  const float* q = job.q + head * job.q_stride;
  float* running = job.running + head * stride;
  for (size_t h = 0; h < kHeads; ++h) {
    std::memset(running + h * stride, 0, stride * sizeof(float));
    running[h * stride + n] = -kInfinity;
  }
  for (size_t at = job.first; at < job.end; at += kTile) {
    const std::byte* page = job.pages[at / kTile];
    const size_t left = job.end - at;
    add_tile<kHeads>(job, q, reinterpret_cast<const T*>(page + job.key_offset),
                     reinterpret_cast<const T*>(page + job.value_offset), left < kTile ? left : kTile, running);
  }
}

template <typename T>
inline void attention_of(const AttentionJob& job) {
  size_t h = 0;
  for (; h + kMostHeads <= job.n_heads; h += kMostHeads) attend_heads<kMostHeads, T>(job, h);
  for (; h + 2 <= job.n_heads; h += 2) attend_heads<2, T>(job, h);
  if (h < job.n_heads) attend_heads<1, T>(job, h);
}

inline void attention_merge(const float* segments, size_t n_segments, size_t stride, size_t value_dim, float* all,
                            float* out) {
  for (size_t s = 0; s < n_segments; ++s) {
    const float* segment = segments + s * stride;
    const float segment_top = segment[value_dim], all_top = all[value_dim];
    const float top = segment_top > all_top ? segment_top : all_top;
    float a[16], b[16];
    exp(F32x16::all(all_top - top)).store(a);
    exp(F32x16::all(segment_top - top)).store(b);
    all[value_dim] = top;
    all[value_dim + 1] = fma_f32(all[value_dim + 1], a[0], segment[value_dim + 1] * b[0]);
    for (size_t d = 0; d < value_dim; ++d) all[d] = fma_f32(all[d], a[0], segment[d] * b[0]);
  }
  if (out)
    for (size_t d = 0; d < value_dim; ++d) out[d] = all[d] / all[value_dim + 1];
}

inline void attention(const AttentionJob& job) {
  switch (job.type) {
    case CacheType::kF32:
      return attention_of<float>(job);
    case CacheType::kF16:
      return attention_of<Half>(job);
    case CacheType::kBf16:
      return attention_of<Bfloat16>(job);
  }
}

// ---- gated delta net -----------------------------------------------------------------------------------------------

// sum over key dimensions in four chains (dimension mod 4), so that latency does not bound it.
inline F32x16 join(const F32x16 (&chain)[4]) { return (chain[0] + chain[1]) + (chain[2] + chain[3]); }

inline void delta_net(const DeltaJob& job) {
  const F32x16 zero = F32x16::all(0.0f);
  for (size_t t = 0; t < job.n_tokens; ++t) {
    const float* k = job.k + t * job.qk_stride;
    const float* q = job.q + t * job.qk_stride;
    const F32x16 decay = F32x16::all(job.decay[t * job.head_stride]);
    // What the decayed state already answers to this key.
    F32x16 read[4] = {zero, zero, zero, zero};
    for (size_t i = 0; i < job.key_dim; i += 4)
      for (size_t c = 0; c < 4; ++c) {
        const F32x16 m = F32x16::load(job.state + (i + c) * kColumns) * decay;
        m.store(job.state + (i + c) * kColumns);
        read[c] = fma(m, F32x16::all(k[i + c]), read[c]);
      }
    const F32x16 beta = F32x16::all(job.beta[t * job.head_stride]);
    const F32x16 delta = (F32x16::load(job.v + t * job.v_stride) - join(read)) * beta;
    // Correct it, and ask it with the query.
    F32x16 answer[4] = {zero, zero, zero, zero};
    for (size_t i = 0; i < job.key_dim; i += 4)
      for (size_t c = 0; c < 4; ++c) {
        const F32x16 m = fma(F32x16::all(k[i + c]), delta, F32x16::load(job.state + (i + c) * kColumns));
        m.store(job.state + (i + c) * kColumns);
        answer[c] = fma(m, F32x16::all(q[i + c]), answer[c]);
      }
    join(answer).store(job.out + t * job.out_stride);
  }
}

inline void conv_silu(const ConvJob& job) {
  for (size_t t = 0; t < job.n_tokens; ++t) {
    float* out = job.out + t * job.stride;
    for (size_t tap = 0; tap < job.taps; ++tap) {
      const size_t back = job.taps - 1 - tap;  // tokens before t
      const float* x =
          back <= t ? job.x + (t - back) * job.stride : job.history + (job.taps - 1 + t - back) * job.n_channels;
      const float* w = job.weight + tap * job.n_channels;
      if (tap == 0)
        for (size_t c = job.begin; c < job.end; ++c) out[c] = w[c] * x[c];
      else
        for (size_t c = job.begin; c < job.end; ++c) out[c] = fma_f32(w[c], x[c], out[c]);
    }
    map(out + job.begin, out + job.begin, job.end - job.begin, out + job.begin,
        [](F32x16 v, F32x16) { return v * sigmoid(v); });
  }
}
