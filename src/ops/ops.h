// The vocabulary of tensor operations that a forward pass is written in: few and coarse, so that another backend is a
// small, finite job. Shapes are [rows, columns] with columns contiguous. Each operation spreads its work over threads
// by absolute index; what it computes depends on nothing but its inputs (docs/arithmetic.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "ops/cpu/kernels.h"
#include "quant/format.h"

namespace sluice::ops {

// Who computes: threads and the instruction set's kernels.
struct Context {
  ThreadPool& pool;
  const cpu::Kernels& kernels;
};

// A linear layer's weights, [n_out] rows of n_in in any format; not owned.
struct Matrix {
  const quant::Format* format = nullptr;
  size_t n_in = 0, n_out = 0;
  const std::byte* data = nullptr;
  float scale = 1.0f;  // multiplies the product (the side tensor of NVFP4 files)

  bool empty() const { return data == nullptr; }
  size_t row_bytes() const { return n_in / format->block_weights * format->block_bytes; }
  const std::byte* row(size_t o) const { return data + o * row_bytes(); }
};

// Rows of activations together with the int8 forms that products with quantized weights read. A form is made at most
// once for a set of rows, however many matrices they meet.
class Activations {
 public:
  // Room for `max_values` = rows x columns. Throws Error(kLimit) when memory runs out.
  explicit Activations(size_t max_values);
  static size_t bytes(size_t max_values);  // what the constructor allocates

  // Takes x [n_rows, n], which must stay as it is until the next reset.
  void reset(const float* x, size_t n_rows, size_t n);
  // The rows as products with `format` read them.
  const cpu::Rows& rows_for(const Context& context, const quant::Format& format);

  size_t n_rows() const { return n_rows_; }
  size_t n() const { return n_; }

 private:
  struct Form {
    Buffer q, scale, sums;
    cpu::Rows rows;
    bool made = false;
  };
  const cpu::Rows& form(const Context& context, Form& form, size_t block);

  size_t max_values_;
  size_t n_rows_ = 0, n_ = 0;
  cpu::Rows plain_;
  Form per_32_, per_256_;
};

// y [n_rows, n_out] (rows y_stride apart) = x [n_rows, n_in] times w.
void linear(const Context& context, const Matrix& w, Activations& x, float* y, size_t y_stride);

// y [n_rows, n] += bias [n].
void add_bias(const Context& context, const float* bias, size_t n_rows, size_t n, float* y);

// x [n_rows, n] += y [n_rows, n].
void add(const Context& context, const float* y, size_t n_rows, size_t n, float* x);

// out [n_ids, n_in] = the rows `ids` of a table, as f32.
void embed(const Context& context, const Matrix& table, std::span<const int32_t> ids, float* out);

// y [n_rows, n] = x / sqrt(mean(x^2) + eps) * weight; rows are x_stride and y_stride apart, y may be x.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
void rms_norm(const Context& context, const float* x, size_t x_stride, const float* weight, size_t n_rows, size_t n,
              float eps, float* y, size_t y_stride);

// y [n_rows, n] = silu(gate) * up, with rows of gate and up `stride` apart, rows of y contiguous.
void silu_mul(const Context& context, const float* gate, const float* up, size_t stride, size_t n_rows, size_t n,
              float* y);

// x [n_rows, n] *= sigmoid(gate [n_rows, n]), rows `gate_stride` and `x_stride` apart.
void sigmoid_mul(const Context& context, const float* gate, size_t gate_stride, size_t n_rows, size_t n, float* x,
                 size_t x_stride);

// Rotary position embedding: the angles of each row's position, shared by all heads and layers of a step.
// Source: Su et al., "RoFormer" (2021); scaling: Peng et al., "YaRN" (2023), and the `rope.scaling.*` keys of GGUF.
struct RopeTable {
  bool adjacent_pairs = false;                               // pairs (2j, 2j + 1) as in llama, else (j, j + n/2)
  std::vector<double> frequencies;                           // [n / 2] angle per position of each pair
  float size = 1.0f;                                         // factor on cos and sin (yarn)
  size_t rotated() const { return 2 * frequencies.size(); }  // leading dimensions of a head that turn
};
// cos_sin [n_rows, 2, n / 2] for the given positions.
void rope_angles(const RopeTable& table, std::span<const int32_t> positions, float* cos_sin);
// Turns the heads x [n_rows, n_heads, head_dim] in place; heads of a row are head_stride apart, rows row_stride.
void rope(const Context& context, const RopeTable& table, const float* cos_sin, size_t n_rows, size_t n_heads,
          size_t head_stride, size_t row_stride, float* x);

// The router: for each row of logits [n_rows, n_experts], the `top_k` experts of highest logit (the lower index on a
// tie), best first, and their shares of the softmax over all experts, renormalised to sum to 1 (the sum is not taken
// smaller than 2^-14), times `scale`. The logits are overwritten. Source: Qwen3MoE's router (softmax, then top-k, then
// renormalise).
void route(const Context& context, float* logits, size_t n_rows, size_t n_experts, size_t top_k, float scale,
           uint32_t* ids, float* weights);

// One expert's weights, wherever they lie now.
struct ExpertWeights {
  Matrix gate, up, down;
};
// The rows that chose one expert.
struct ExpertGroup {
  ExpertWeights weights;
  std::vector<uint32_t> rows;  // rows of x, ascending
  std::vector<uint32_t> out;   // for each of them, the row of y that gets the result: row * top_k + rank
};
// Scratch of expert_ffn for `pairs` = sum of the groups' rows.
struct ExpertScratch {
  ExpertScratch(size_t max_pairs, size_t n_ff);
  static size_t bytes(size_t max_pairs, size_t n_ff);
  Buffer gate, up;  // [pairs, n_ff]
  Activations hidden;
};
// y [rows * top_k, n_embd]: row out[i] = down(silu(gate x) * up x) of row rows[i], for all groups as one job.
void expert_ffn(const Context& context, std::span<const ExpertGroup> groups, Activations& x, ExpertScratch& scratch,
                size_t n_embd, float* y);

// y [n_rows, n] = sum over ranks, in order, of weights [n_rows, top_k] x outputs [n_rows * top_k, n]; then, where
// `shared` is given, + sigmoid(gate [n_rows]) x shared [n_rows, n].
void combine_experts(const Context& context, const float* weights, const float* outputs, size_t n_rows, size_t top_k,
                     size_t n, const float* shared_gate, const float* shared, float* y);

// Attention of rows over their sequences' pages, causal: a row sees positions up to its own.
struct AttentionRow {
  const std::byte* const* pages;  // of its sequence, each kTile positions
  size_t n_keys;                  // its position + 1
};
struct AttentionShape {
  size_t n_heads, n_kv_heads, key_dim, value_dim;
  cpu::CacheType key_value_type;
  size_t layer_offset;  // bytes into a page where this layer's keys and values begin
  float scale;
  // A layer's part of a page: per KV head, keys [key_dim, kTile], then values [kTile, value_dim].
  size_t head_bytes() const { return cpu::kTile * (key_dim + value_dim) * cpu::element_bytes(key_value_type); }
};
// Running softmaxes of segments, for as many rows or segments as go side by side. Its size is the context's no matter.
class AttentionScratch {
 public:
  // Throws Error(kLimit) when memory runs out.
  AttentionScratch(size_t n_heads, size_t value_dim) : memory_(bytes(n_heads, value_dim), "running softmaxes") {}
  static size_t bytes(size_t n_heads, size_t value_dim) {
    return 2 * kPlaces * n_heads * cpu::running_floats(value_dim) * sizeof(float);
  }
  // [kPlaces, n_heads]: segments, one or several of a row; then the rows they are merged into.
  float* segments() { return memory_.as<float>().data(); }
  float* rows() { return segments() + memory_.size() / sizeof(float) / 2; }

  static constexpr size_t kPlaces = 64;

 private:
  Buffer memory_;
};
// out [n_rows, n_heads * value_dim] from q [n_rows, n_heads, key_dim] (rows q_stride, heads q_head_stride apart).
// Source: online softmax, Milakov and Gimelshein (2018); tiles as in Dao et al., "FlashAttention" (2022).
void attention(const Context& context, const AttentionShape& shape, std::span<const AttentionRow> rows, const float* q,
               size_t q_stride, size_t q_head_stride, AttentionScratch& scratch, float* out);
// Writes one row's keys k [n_kv_heads, key_dim] and values v [n_kv_heads, value_dim] at `position` of its page.
void store_key_value(const AttentionShape& shape, std::byte* page, size_t position, const float* k, const float* v);

// Gated delta net over runs of consecutive rows, one run a sequence.
// Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks" (2024); conventions of Qwen3-Next / Qwen3.5.
struct DeltaShape {
  size_t n_key_heads, n_value_heads, key_dim, value_dim;  // value_dim a multiple of 16, key_dim of 4
  size_t taps;                                            // of the convolution
  float eps;
  size_t channels() const { return 2 * n_key_heads * key_dim + n_value_heads * value_dim; }
  size_t state_floats() const { return n_value_heads * value_dim * key_dim; }
  size_t history_floats() const { return (taps - 1) * channels(); }
};
struct DeltaWeights {
  const float* conv;     // [taps, channels]
  const float* dt_bias;  // [n_value_heads]
  const float* a;        // [n_value_heads], negative: -exp(A_log)
  const float* norm;     // [value_dim]
};
// A copy of the state as it is after the first `n_rows` (at least one) rows of a run.
struct DeltaCapture {
  size_t n_rows;
  float *history, *state;
};
// A run of a sequence's rows, and the state it reads and leaves behind.
struct DeltaRun {
  size_t first_row, n_rows;
  float* history;                           // [taps - 1, channels], oldest first
  float* state;                             // [n_value_heads, value_dim / 16, key_dim, 16]
  std::vector<DeltaCapture> captures = {};  // ascending
};
// x [n_rows, channels]: the in-projection. z [n_rows, n_value_heads * value_dim]: gate. alpha, beta [n_rows,
// n_value_heads]: overwritten with decay and write strength. conv [n_rows, channels]: gets the convolved and normalised
// q, k, v. out [n_rows, n_value_heads * value_dim]. The runs cover the rows.
void delta_net(const Context& context, const DeltaShape& shape, const DeltaWeights& weights,
               std::span<const DeltaRun> runs, const float* x, const float* z, float* alpha, float* beta, float* conv,
               float* out);

}  // namespace sluice::ops
