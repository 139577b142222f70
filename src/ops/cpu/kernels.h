// The table of kernels: one per instruction set, chosen at start-up, all computing the same bits (docs/arithmetic.md).
// A kernel works on what one thread does in one go; ops.cpp spreads the work over threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quant/format.h"

namespace sluice::ops::cpu {

// Positions in one KV page, which is also one attention tile: softmax advances by whole tiles at absolute positions.
constexpr size_t kTile = 64;
// Positions that one online softmax runs over before it is merged with the ones before; a multiple of kTile. Segments
// may be computed by different threads, so their borders are absolute as well.
constexpr size_t kSegment = 1024;
// Columns of delta-net state that are updated together: one vector of lanes.
constexpr size_t kColumns = 16;

enum class CacheType { kF32, kF16, kBf16 };
constexpr size_t element_bytes(CacheType type) { return type == CacheType::kF32 ? 4 : 2; }

// Rows of activations as a product reads them: [n_rows, n] f32, or the int8 form of the same rows.
struct Rows {
  const float* f32 = nullptr;       // [.., n]; read by products with F32, F16 and BF16 weights
  const int8_t* q = nullptr;        // [.., n]; read by the others
  const float* scale = nullptr;     // [.., n / block]
  const int16_t* sums = nullptr;    // [.., n / 16]: sums of 16 consecutive q
  size_t n = 0;                     // values a row
  size_t block = 0;                 // activations a scale: 32 or 256
  const uint32_t* index = nullptr;  // row r of the product is stored row index[r]; null: row r itself
  const uint32_t* out = nullptr;    // and its result goes to row out[r] of y; null: row r
  size_t n_rows = 0;

  // The n_rows rows from `first` on.
  Rows part(size_t first, size_t count) const {
    Rows rows = *this;
    if (index) rows.index += first;
    if (out) rows.out += first;
    if (!index && f32) rows.f32 += first * n;
    if (!index && q) rows.q += first * n, rows.scale += first * (n / block), rows.sums += first * (n / 16);
    rows.n_rows = count;
    return rows;
  }
  size_t at(size_t r) const { return index ? index[r] : r; }
  size_t to(size_t r) const { return out ? out[r] : r; }
};

// A running softmax over some positions, of one query head: the weighted sum of values [value_dim], then the largest
// score and the sum of the exponentials.
constexpr size_t running_floats(size_t value_dim) { return value_dim + 2; }

// One segment's attention of one query row, for the query heads that share a KV head.
struct AttentionJob {
  const float* q;  // [n_heads, head_dim], heads q_stride apart
  size_t q_stride;
  float* running;  // [n_heads, running_floats(value_dim)]
  size_t n_heads, head_dim, value_dim;
  size_t first, end;              // positions that are attended to; first begins a segment, end is in the same
  const std::byte* const* pages;  // page p holds positions 64 p ..
  size_t key_offset,
      value_offset;  // bytes into a page of this layer's and head's keys [head_dim, 64], values [64, value_dim]
  CacheType type;
  float scale;
};

// Sixteen columns of one value head's state, over consecutive tokens of one sequence.
struct DeltaJob {
  float* state;  // [key_dim, 16]
  size_t n_tokens, key_dim;
  const float* q;  // token t: q + t * qk_stride, [key_dim], normalised and scaled
  const float* k;
  size_t qk_stride;
  const float* v;  // token t: v + t * v_stride, [16]
  size_t v_stride;
  const float* decay;  // token t: decay[t * head_stride]
  const float* beta;
  size_t head_stride;
  float* out;  // token t: out + t * out_stride, [16]
  size_t out_stride;
};

// A causal convolution over time, per channel, for consecutive tokens of one sequence, then SiLU.
struct ConvJob {
  const float* history;  // [taps - 1, n_channels]: the inputs before the first token, oldest first
  const float* x;        // token t: x + t * stride
  const float* weight;   // [taps, n_channels], the newest token's tap last
  float* out;            // token t: out + t * stride
  size_t n_tokens, n_channels, taps, stride;
  size_t begin, end;  // channels to compute
};

struct Kernels {
  const char* name;

  // y[x.to(r) * y_stride + o] = dot(weight row o, row x.at(r) of x) for o < n_out, r < x.n_rows. Any weight format.
  // `next`: weights that will be read after these, to be asked for ahead of time, or null.
  void (*matmul)(const quant::Format& format, const std::byte* weights, size_t n_out, const Rows& x, float* y,
                 size_t y_stride, const std::byte* next);
  // n values to int8 with a scale per `block`, and sums of 16.
  void (*quantize_row)(const float* x, size_t n, size_t block, int8_t* q, float* scale, int16_t* sums);
  // y = x / rms(x) * weight; y may be x.
  void (*rms_norm)(const float* x, const float* weight, size_t n, float eps, float* y);
  // x /= max(|x|, eps), then * factor.
  void (*l2_norm)(float* x, size_t n, float eps, float factor);
  // y = silu(gate) * up; y may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, size_t n, float* y);
  // x *= sigmoid(gate).
  void (*sigmoid_mul)(float* x, const float* gate, size_t n);
  // x = softmax(x).
  void (*softmax)(float* x, size_t n);
  // y = w * x + y, fused.
  void (*add_scaled)(float w, const float* x, size_t n, float* y);
  // Turns n_pairs pairs (x[j * step], x[j * step + partner]) by the angles whose cosines and sines are given.
  void (*rope)(float* x, const float* cos, const float* sin, size_t n_pairs, size_t step, size_t partner);
  void (*attention)(const AttentionJob& job);
  // all := all merged with the n_segments running softmaxes that follow it, `stride` floats apart; then, where out is
  // given, out [value_dim] = what all stands for.
  void (*attention_merge)(const float* segments, size_t n_segments, size_t stride, size_t value_dim, float* all,
                          float* out);
  void (*delta_net)(const DeltaJob& job);
  void (*conv_silu)(const ConvJob& job);
};

// The kernels this program has and this processor and operating system can run, best first; scalar, the definition of
// all, is always there and last.
std::span<const Kernels* const> usable_kernels();

// The names of all kernels compiled in, usable or not.
std::span<const std::string_view> compiled_kernels();

// By name. Throws Error(kUsage) naming what this program has and what this machine can run.
const Kernels& find_kernels(std::string_view name);

}  // namespace sluice::ops::cpu
