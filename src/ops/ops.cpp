#include "ops/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/math.h"
#include "quant/half.h"

namespace sluice::ops {

namespace {

// Weight rows that one thread takes at a time: enough to amortise a block's set-up, few enough to balance.
constexpr size_t kRowGrain = 16;
constexpr size_t kMinimumBlock = 32, kScaleGroup = quant::kScaleGroup;

// Calls body(row) for each of n_rows.
template <typename Body>
void for_rows(const Context& context, size_t n_rows, Body body) {
  context.pool.run(n_rows, 1, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) body(r);
  });
}

// Rows [begin, end) of w times x, into column `begin` on of y. `next`: what this thread multiplies with next, or null.
void product(const Context& context, const Matrix& w, size_t begin, size_t end, const cpu::Rows& x, float* y,
             size_t y_stride, const std::byte* next = nullptr) {
  context.kernels.matmul(*w.format, w.row(begin), end - begin, x, y + begin, y_stride, next);
  if (w.scale == 1.0f) return;
  for (size_t r = 0; r < x.n_rows; ++r)
    for (size_t o = begin; o < end; ++o) y[x.to(r) * y_stride + o] *= w.scale;
}

}  // namespace

// ---- activations and products --------------------------------------------------------------------------------------

size_t Activations::bytes(size_t max_values) {
  const size_t per_form = max_values + max_values / kScaleGroup * sizeof(int16_t);
  return 2 * per_form + max_values / kMinimumBlock * sizeof(float) + max_values / 256 * sizeof(float);
}

Activations::Activations(size_t max_values) : max_values_(max_values) {
  const auto make = [&](Form& form, size_t block) {
    form.q = Buffer(max_values, "quantized activations");
    form.scale = Buffer(max_values / block * sizeof(float), "scales of activations");
    form.sums = Buffer(max_values / kScaleGroup * sizeof(int16_t), "sums of activations");
  };
  make(per_32_, 32);
  make(per_256_, 256);
}

void Activations::reset(const float* x, size_t n_rows, size_t n) {
  if (n_rows * n > max_values_)
    fail(ErrorKind::kInternal, "{} rows of {} activations in a room for {}", n_rows, n, max_values_);
  n_rows_ = n_rows, n_ = n;
  plain_ = cpu::Rows{.f32 = x, .n = n, .n_rows = n_rows};
  per_32_.made = per_256_.made = false;
}

const cpu::Rows& Activations::form(const Context& context, Form& form, size_t block) {
  if (form.made) return form.rows;
  const float* x = plain_.f32;
  auto* q = reinterpret_cast<int8_t*>(form.q.data());
  float* scale = form.scale.as<float>().data();
  int16_t* sums = form.sums.as<int16_t>().data();
  for_rows(context, n_rows_, [&](size_t r) {
    context.kernels.quantize_row(x + r * n_, n_, block, q + r * n_, scale + r * (n_ / block),
                                 sums + r * (n_ / kScaleGroup));
  });
  form.rows = cpu::Rows{.q = q, .scale = scale, .sums = sums, .n = n_, .block = block, .n_rows = n_rows_};
  form.made = true;
  return form.rows;
}

const cpu::Rows& Activations::rows_for(const Context& context, const quant::Format& format) {
  switch (format.activation) {
    case quant::Activation::kInt8Per32:
      return form(context, per_32_, 32);
    case quant::Activation::kInt8Per256:
      return form(context, per_256_, 256);
    case quant::Activation::kFloat:
      break;
  }
  return plain_;
}

void linear(const Context& context, const Matrix& w, Activations& x, float* y, size_t y_stride) {
  const cpu::Rows& rows = x.rows_for(context, *w.format);
  context.pool.run(w.n_out, kRowGrain,
                   [&](size_t begin, size_t end) { product(context, w, begin, end, rows, y, y_stride); });
}

void add_bias(const Context& context, const float* bias, size_t n_rows, size_t n, float* y) {
  for_rows(context, n_rows, [&](size_t r) {
    for (size_t i = 0; i < n; ++i) y[r * n + i] += bias[i];
  });
}

void add(const Context& context, const float* y, size_t n_rows, size_t n, float* x) {
  for_rows(context, n_rows, [&](size_t r) {
    for (size_t i = r * n; i < (r + 1) * n; ++i) x[i] += y[i];
  });
}

void embed(const Context& context, const Matrix& table, std::span<const int32_t> ids, float* out) {
  for_rows(context, ids.size(), [&](size_t r) {
    const std::byte* row = table.data + static_cast<size_t>(ids[r]) * table.row_bytes();
    table.format->dequantize(row, table.n_in / table.format->block_weights, out + r * table.n_in);
  });
}

// ---- norms, activation functions, rotary angles --------------------------------------------------------------------

void rms_norm(const Context& context, const float* x, size_t x_stride, const float* weight, size_t n_rows, size_t n,
              float eps, float* y, size_t y_stride) {
  for_rows(context, n_rows,
           [&](size_t r) { context.kernels.rms_norm(x + r * x_stride, weight, n, eps, y + r * y_stride); });
}

void silu_mul(const Context& context, const float* gate, const float* up, size_t stride, size_t n_rows, size_t n,
              float* y) {
  for_rows(context, n_rows,
           [&](size_t r) { context.kernels.silu_mul(gate + r * stride, up + r * stride, n, y + r * n); });
}

void sigmoid_mul(const Context& context, const float* gate, size_t gate_stride, size_t n_rows, size_t n, float* x,
                 size_t x_stride) {
  for_rows(context, n_rows,
           [&](size_t r) { context.kernels.sigmoid_mul(x + r * x_stride, gate + r * gate_stride, n); });
}

void rope_angles(const RopeTable& table, std::span<const int32_t> positions, float* cos_sin) {
  const size_t half = table.frequencies.size();
  for (size_t r = 0; r < positions.size(); ++r) {
    float* row = cos_sin + r * 2 * half;
    for (size_t j = 0; j < half; ++j) {
      const SinCos angle = sincos(positions[r] * table.frequencies[j]);
      row[j] = static_cast<float>(angle.cos) * table.size;
      row[half + j] = static_cast<float>(angle.sin) * table.size;
    }
  }
}

void rope(const Context& context, const RopeTable& table, const float* cos_sin, size_t n_rows, size_t n_heads,
          size_t head_stride, size_t row_stride, float* x) {
  const size_t half = table.frequencies.size();
  const size_t step = table.adjacent_pairs ? 2 : 1, partner = table.adjacent_pairs ? 1 : half;
  for_rows(context, n_rows, [&](size_t r) {
    const float* cos = cos_sin + r * 2 * half;
    const float* sin = cos + half;
    for (size_t h = 0; h < n_heads; ++h) {
      context.kernels.rope(x + r * row_stride + h * head_stride, cos, sin, half, step, partner);
    }
  });
}

// ---- experts -------------------------------------------------------------------------------------------------------

void route(const Context& context, float* logits, size_t n_rows, size_t n_experts, size_t top_k, float scale,
           uint32_t* ids, float* weights) {
  constexpr float kSmallestSum = 0x1p-14f;  // the smallest normal f16, as the reference implementations guard it
  for_rows(context, n_rows, [&](size_t r) {
    float* row = logits + r * n_experts;
    std::vector<uint32_t> order(n_experts);
    for (size_t e = 0; e < n_experts; ++e) order[e] = static_cast<uint32_t>(e);
    // NaN sorts last, so that the order stays an order whatever comes in.
    const auto better = [&](uint32_t a, uint32_t b) {
      const bool a_nan = row[a] != row[a], b_nan = row[b] != row[b];
      if (a_nan != b_nan) return b_nan;
      if (!a_nan && row[a] != row[b]) return row[a] > row[b];
      return a < b;
    };
    std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(top_k), order.end(), better);
    context.kernels.softmax(row, n_experts);
    float sum = 0.0f;
    for (size_t k = 0; k < top_k; ++k) sum += row[order[k]];
    const float inverse = scale / std::max(sum, kSmallestSum);
    for (size_t k = 0; k < top_k; ++k) {
      ids[r * top_k + k] = order[k];
      weights[r * top_k + k] = row[order[k]] * inverse;
    }
  });
}

ExpertScratch::ExpertScratch(size_t max_pairs, size_t n_ff)
    : gate(max_pairs * n_ff * sizeof(float), "experts' gates"),
      up(max_pairs * n_ff * sizeof(float), "experts' ups"),
      hidden(max_pairs * n_ff) {}

size_t ExpertScratch::bytes(size_t max_pairs, size_t n_ff) {
  return 2 * max_pairs * n_ff * sizeof(float) + Activations::bytes(max_pairs * n_ff);
}

void expert_ffn(const Context& context, std::span<const ExpertGroup> groups, Activations& x, ExpertScratch& scratch,
                size_t n_embd, float* y) {
  if (groups.empty()) return;
  const size_t n_ff = groups[0].weights.gate.n_out;
  float* gate = scratch.gate.as<float>().data();
  float* up = scratch.up.as<float>().data();
  std::vector<size_t> start(groups.size() + 1, 0);  // of each group's pairs
  for (size_t g = 0; g < groups.size(); ++g) {
    start[g + 1] = start[g] + groups[g].rows.size();
    x.rows_for(context, *groups[g].weights.gate.format);  // made here, by all threads, before the job below reads them
    x.rows_for(context, *groups[g].weights.up.format);
  }
  // A thread takes the same outputs of every group, so that no group's number of rows makes one wait for the others.
  context.pool.run(n_ff, kRowGrain, [&](size_t begin, size_t end) {
    for (size_t g = 0; g < groups.size(); ++g) {
      const ExpertWeights& w = groups[g].weights;
      const auto multiply = [&](const Matrix& matrix, float* out, const std::byte* next) {
        cpu::Rows rows = x.rows_for(context, *matrix.format);
        rows.index = groups[g].rows.data(), rows.n_rows = groups[g].rows.size();
        product(context, matrix, begin, end, rows, out + start[g] * n_ff, n_ff, next);
      };
      multiply(w.gate, gate, w.up.row(begin));
      multiply(w.up, up, g + 1 < groups.size() ? groups[g + 1].weights.gate.row(begin) : nullptr);
      for (size_t pair = start[g]; pair < start[g + 1]; ++pair) {
        const size_t at = pair * n_ff + begin;
        context.kernels.silu_mul(gate + at, up + at, end - begin, gate + at);
      }
    }
  });
  scratch.hidden.reset(gate, start.back(), n_ff);
  for (const ExpertGroup& group : groups) scratch.hidden.rows_for(context, *group.weights.down.format);
  context.pool.run(n_embd, kRowGrain, [&](size_t begin, size_t end) {
    for (size_t g = 0; g < groups.size(); ++g) {
      const Matrix& down = groups[g].weights.down;
      cpu::Rows rows = scratch.hidden.rows_for(context, *down.format).part(start[g], groups[g].rows.size());
      rows.out = groups[g].out.data();
      product(context, down, begin, end, rows, y, n_embd,
              g + 1 < groups.size() ? groups[g + 1].weights.down.row(begin) : nullptr);
    }
  });
}

void combine_experts(const Context& context, const float* weights, const float* outputs, size_t n_rows, size_t top_k,
                     size_t n, const float* shared_gate, const float* shared, float* y) {
  for_rows(context, n_rows, [&](size_t r) {
    float* row = y + r * n;
    std::fill(row, row + n, 0.0f);
    for (size_t k = 0; k < top_k; ++k)
      context.kernels.add_scaled(weights[r * top_k + k], outputs + (r * top_k + k) * n, n, row);
    if (shared != nullptr)
      context.kernels.add_scaled(static_cast<float>(sigmoid(shared_gate[r])), shared + r * n, n, row);
  });
}

// ---- attention -----------------------------------------------------------------------------------------------------

namespace {

// Rows that go side by side, and the segments of each that do.
struct AttentionRound {
  std::span<const AttentionRow> rows;
  size_t first_segment, n_segments;
};

// The running softmaxes of all segments of a round that there are, at [row, segment, head] of `out`. q is of its first
// row.
void attend_segments(const Context& context, const AttentionShape& shape, const AttentionRound& round, const float* q,
                     size_t q_stride, size_t q_head_stride, float* out) {
  const size_t group = shape.n_heads / shape.n_kv_heads, floats = cpu::running_floats(shape.value_dim);
  const size_t places = round.rows.size() * round.n_segments, jobs = places * shape.n_kv_heads;
  // Rows see more and more positions: each thread takes every n-th job, so that all get of the short and the long.
  const auto threads = static_cast<size_t>(context.pool.size());
  context.pool.run(threads, 1, [&](size_t begin, size_t end) {
    for (size_t thread = begin; thread < end; ++thread)
      for (size_t job = thread; job < jobs; job += threads) {
        const size_t place = job % places, kv_head = job / places;
        const size_t r = place / round.n_segments;
        const size_t first = (round.first_segment + place % round.n_segments) * cpu::kSegment;
        if (first >= round.rows[r].n_keys) continue;
        const size_t keys = shape.layer_offset + kv_head * shape.head_bytes();
        context.kernels.attention({
            .q = q + r * q_stride + kv_head * group * q_head_stride,
            .q_stride = q_head_stride,
            .running = out + (place * shape.n_heads + kv_head * group) * floats,
            .n_heads = group,
            .head_dim = shape.key_dim,
            .value_dim = shape.value_dim,
            .first = first,
            .end = std::min(first + cpu::kSegment, round.rows[r].n_keys),
            .pages = round.rows[r].pages,
            .key_offset = keys,
            .value_offset = keys + cpu::kTile * shape.key_dim * cpu::element_bytes(shape.key_value_type),
            .type = shape.key_value_type,
            .scale = shape.scale,
        });
      }
  });
}

// Merges a round's segments into what the rounds before gave, [row, head] of `all`; out is of the round's first row.
void merge_segments(const Context& context, const AttentionShape& shape, const AttentionRound& round,
                    const float* segments, float* all, float* out) {
  const size_t floats = cpu::running_floats(shape.value_dim);
  for_rows(context, round.rows.size() * shape.n_heads, [&](size_t i) {
    const size_t r = i / shape.n_heads, h = i % shape.n_heads;
    const size_t there = (round.rows[r].n_keys + cpu::kSegment - 1) / cpu::kSegment;
    if (there <= round.first_segment) return;
    float* running = all + i * floats;
    if (round.first_segment == 0) {
      std::fill(running, running + floats, 0.0f);
      running[shape.value_dim] = -std::numeric_limits<float>::infinity();
    }
    const size_t count = std::min(round.n_segments, there - round.first_segment);
    const bool last = round.first_segment + count == there;
    context.kernels.attention_merge(segments + (r * round.n_segments * shape.n_heads + h) * floats, count,
                                    shape.n_heads * floats, shape.value_dim, running,
                                    last ? out + i * shape.value_dim : nullptr);
  });
}

}  // namespace

void attention(const Context& context, const AttentionShape& shape, std::span<const AttentionRow> rows, const float* q,
               size_t q_stride, size_t q_head_stride, AttentionScratch& scratch, float* out) {
  constexpr size_t kPlaces = AttentionScratch::kPlaces;
  const size_t side_by_side = std::min(rows.size(), kPlaces), n_segments = kPlaces / std::max<size_t>(side_by_side, 1);
  for (size_t first = 0; first < rows.size(); first += side_by_side) {
    const std::span<const AttentionRow> some = rows.subspan(first, std::min(side_by_side, rows.size() - first));
    size_t most = 0;
    for (const AttentionRow& row : some) most = std::max(most, row.n_keys);
    for (size_t segment = 0; segment * cpu::kSegment < most; segment += n_segments) {
      const size_t left = (most + cpu::kSegment - 1) / cpu::kSegment - segment;
      const AttentionRound round = {some, segment, std::min(n_segments, left)};
      attend_segments(context, shape, round, q + first * q_stride, q_stride, q_head_stride, scratch.segments());
      merge_segments(context, shape, round, scratch.segments(), scratch.rows(),
                     out + first * shape.n_heads * shape.value_dim);
    }
  }
}

namespace {

// Writes n values, `stride` elements apart, in the cache's type.
void store_values(cpu::CacheType type, const float* from, size_t n, std::byte* to, size_t first, size_t stride) {
  for (size_t i = 0; i < n; ++i) {
    const size_t at = first + i * stride;
    switch (type) {
      case cpu::CacheType::kF32:
        reinterpret_cast<float*>(to)[at] = from[i];
        break;
      case cpu::CacheType::kF16:
        reinterpret_cast<uint16_t*>(to)[at] = quant::f32_to_f16(from[i]);
        break;
      case cpu::CacheType::kBf16:
        reinterpret_cast<uint16_t*>(to)[at] = quant::f32_to_bf16(from[i]);
        break;
    }
  }
}

}  // namespace

void store_key_value(const AttentionShape& shape, std::byte* page, size_t position, const float* k, const float* v) {
  const size_t slot = position % cpu::kTile;
  for (size_t h = 0; h < shape.n_kv_heads; ++h) {
    std::byte* keys = page + shape.layer_offset + h * shape.head_bytes();
    std::byte* values = keys + cpu::kTile * shape.key_dim * cpu::element_bytes(shape.key_value_type);
    store_values(shape.key_value_type, k + h * shape.key_dim, shape.key_dim, keys, slot, cpu::kTile);
    store_values(shape.key_value_type, v + h * shape.value_dim, shape.value_dim, values, slot * shape.value_dim, 1);
  }
}

// ---- gated delta net -----------------------------------------------------------------------------------------------

namespace {

// The history after `n_rows` rows of a run, for channels [begin, end): `out` may be the run's own history.
void copy_history(const DeltaShape& shape, const DeltaRun& run, const float* x, size_t n_rows, size_t begin, size_t end,
                  float* out) {
  const size_t channels = shape.channels(), kept = shape.taps - 1;
  for (size_t i = 0; i < kept; ++i) {
    // Entry i becomes the input n_rows after it: still in the history, or one of the run's own rows.
    const size_t from = i + n_rows;
    const float* source = from < kept ? run.history + from * channels : x + (run.first_row + from - kept) * channels;
    std::copy(source + begin, source + end, out + i * channels + begin);
  }
}

// Convolves a run's channels and moves the history on.
void convolve(const Context& context, const DeltaShape& shape, const DeltaWeights& weights, const DeltaRun& run,
              const float* x, float* out) {
  const size_t channels = shape.channels();
  context.pool.run(channels, 64, [&](size_t begin, size_t end) {
    context.kernels.conv_silu({.history = run.history,
                               .x = x + run.first_row * channels,
                               .weight = weights.conv,
                               .out = out + run.first_row * channels,
                               .n_tokens = run.n_rows,
                               .n_channels = channels,
                               .taps = shape.taps,
                               .stride = channels,
                               .begin = begin,
                               .end = end});
    for (const DeltaCapture& capture : run.captures)
      copy_history(shape, run, x, capture.n_rows, begin, end, capture.history);
    copy_history(shape, run, x, run.n_rows, begin, end, run.history);
  });
}

// Walks one group of columns of one value head over a run, stopping to copy its state where that is asked for.
void walk_columns(const Context& context, const DeltaShape& shape, const DeltaRun& run, size_t head, size_t group,
                  const float* conv, const float* decay, const float* beta, float* out) {
  const size_t channels = shape.channels(), heads = shape.n_value_heads, width = heads * shape.value_dim;
  const size_t keys = shape.n_key_heads * shape.key_dim;
  const size_t key_head = head % shape.n_key_heads;  // files store value heads tiled over the key heads
  const size_t column = head * shape.value_dim + group * cpu::kColumns;
  const size_t group_floats = shape.key_dim * cpu::kColumns, at = column * shape.key_dim;
  size_t done = 0;
  const auto advance = [&](size_t until) {
    const size_t row = run.first_row + done;
    context.kernels.delta_net({.state = run.state + at,
                               .n_tokens = until - done,
                               .key_dim = shape.key_dim,
                               .q = conv + row * channels + key_head * shape.key_dim,
                               .k = conv + row * channels + keys + key_head * shape.key_dim,
                               .qk_stride = channels,
                               .v = conv + row * channels + 2 * keys + column,
                               .v_stride = channels,
                               .decay = decay + row * heads + head,
                               .beta = beta + row * heads + head,
                               .head_stride = heads,
                               .out = out + row * width + column,
                               .out_stride = width});
    done = until;
  };
  for (const DeltaCapture& capture : run.captures) {
    advance(capture.n_rows);
    std::copy(run.state + at, run.state + at + group_floats, capture.state + at);
  }
  advance(run.n_rows);
}

}  // namespace

void delta_net(const Context& context, const DeltaShape& shape, const DeltaWeights& weights,
               std::span<const DeltaRun> runs, const float* x, const float* z, float* alpha, float* beta, float* conv,
               float* out) {
  constexpr float kL2Eps = 1e-6f;
  const size_t channels = shape.channels(), heads = shape.n_value_heads, groups = shape.value_dim / cpu::kColumns;
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  for (const DeltaRun& run : runs) convolve(context, shape, weights, run, x, conv);
  size_t n_rows = 0;
  for (const DeltaRun& run : runs) n_rows = std::max(n_rows, run.first_row + run.n_rows);
  for_rows(context, n_rows, [&](size_t r) {
    for (size_t h = 0; h < 2 * shape.n_key_heads; ++h)  // q heads, then k heads
      context.kernels.l2_norm(conv + r * channels + h * shape.key_dim, shape.key_dim, kL2Eps,
                              h < shape.n_key_heads ? query_scale : 1.0f);
    for (size_t h = 0; h < heads; ++h) {
      float& a = alpha[r * heads + h];
      float& b = beta[r * heads + h];
      a = static_cast<float>(exp(weights.a[h] * softplus(static_cast<double>(a) + weights.dt_bias[h])));
      b = static_cast<float>(sigmoid(b));
    }
  });
  context.pool.run(runs.size() * heads * groups, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      walk_columns(context, shape, runs[i / (heads * groups)], i / groups % heads, i % groups, conv, alpha, beta, out);
  });
  for_rows(context, n_rows * heads, [&](size_t i) {
    float* head = out + i * shape.value_dim;
    context.kernels.rms_norm(head, weights.norm, shape.value_dim, shape.eps, head);
    context.kernels.silu_mul(z + i * shape.value_dim, head, shape.value_dim, head);
  });
}

}  // namespace sluice::ops
