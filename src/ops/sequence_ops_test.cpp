// The operations that read and write a sequence's state, attention over pages and the gated delta net, against naive
// code in double: layouts, heads, runs of several sequences, and the same bits for any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/ops.h"
#include "ops/test_data.h"

namespace sluice::ops {
namespace {

using test::kUnit;
using test::Random;
using test::random_floats;
using test::same_bits;

const cpu::Kernels& best() { return *cpu::usable_kernels()[0]; }

// ---- attention over pages ------------------------------------------------------------------------------------------

// Sequences with their own pages, written by store_key_value.
struct PagedCache {
  AttentionShape shape;
  std::vector<std::vector<std::vector<std::byte>>> pages;  // [sequence][page]
  std::vector<std::vector<const std::byte*>> tables;
  std::vector<std::vector<float>> keys, values;  // [sequence], [position, kv head, dim]

  PagedCache(cpu::CacheType type, std::vector<size_t> lengths) {
    shape = {.n_heads = 6,
             .n_kv_heads = 2,
             .key_dim = 24,
             .value_dim = 16,
             .key_value_type = type,
             .layer_offset = 192,
             .scale = 0.7f};
    Random random(lengths.size());
    for (const size_t n : lengths) {
      auto& own = pages.emplace_back((n + cpu::kTile - 1) / cpu::kTile);
      auto& table = tables.emplace_back();
      for (auto& page : own) {
        page.resize(shape.layer_offset + shape.n_kv_heads * shape.head_bytes());
        table.push_back(page.data());
      }
      keys.push_back(random_floats(random, n * shape.n_kv_heads * shape.key_dim));
      values.push_back(random_floats(random, n * shape.n_kv_heads * shape.value_dim));
      for (size_t p = 0; p < n; ++p)
        store_key_value(shape, own[p / cpu::kTile].data(), p, keys.back().data() + p * shape.n_kv_heads * shape.key_dim,
                        values.back().data() + p * shape.n_kv_heads * shape.value_dim);
    }
  }
};

TEST(Attention, EachRowSeesItsOwnSequenceUpToItsPosition) {
  struct Case {
    cpu::CacheType type;
    double tolerance;  // of what the cache's type rounds keys and values to
  };
  for (const auto& [type, tolerance] :
       {Case{cpu::CacheType::kF32, 2e-6}, Case{cpu::CacheType::kF16, 3e-3}, Case{cpu::CacheType::kBf16, 2e-2}}) {
    const PagedCache cache(type, {100, 1, 200});
    const AttentionShape& shape = cache.shape;
    const std::vector<std::pair<size_t, size_t>> seen = {{0, 99}, {0, 100}, {1, 1}, {2, 64}, {2, 65}, {2, 200}};
    constexpr size_t head_stride = 30, row_stride = 200;
    Random random(3);
    const std::vector<float> q = random_floats(random, seen.size() * row_stride);
    const auto run = [&](int threads) {
      ThreadPool pool(threads);
      std::vector<AttentionRow> rows;
      for (const auto& [sequence, n] : seen) rows.push_back({cache.tables[sequence].data(), n});
      std::vector<float> out(seen.size() * shape.n_heads * shape.value_dim);
      AttentionScratch scratch(shape.n_heads, shape.value_dim);
      attention({pool, best()}, shape, rows, q.data(), row_stride, head_stride, scratch, out.data());
      return out;
    };
    const std::vector<float> got = run(1);
    EXPECT_TRUE(same_bits(run(2), got));
    EXPECT_TRUE(same_bits(run(3), got));
    for (size_t r = 0; r < seen.size(); ++r)
      for (size_t h = 0; h < shape.n_heads; ++h) {
        const auto [sequence, n_keys] = seen[r];
        const size_t kv = h / 3;
        std::vector<double> want(shape.value_dim, 0.0);
        double total = 0;
        for (size_t p = 0; p < n_keys; ++p) {
          double score = 0;
          for (size_t d = 0; d < shape.key_dim; ++d)
            score += double{q[r * row_stride + h * head_stride + d]} *
                     cache.keys[sequence][(p * shape.n_kv_heads + kv) * shape.key_dim + d];
          const double weight = std::exp(score * double{shape.scale});
          total += weight;
          for (size_t d = 0; d < shape.value_dim; ++d)
            want[d] += weight * cache.values[sequence][(p * shape.n_kv_heads + kv) * shape.value_dim + d];
        }
        for (size_t d = 0; d < shape.value_dim; ++d)
          EXPECT_NEAR(got[(r * shape.n_heads + h) * shape.value_dim + d], want[d] / total, tolerance)
              << "row " << r << ", head " << h;
      }
  }
}

// ---- gated delta net -----------------------------------------------------------------------------------------------

// A layer with sequences of several lengths, their state before, and what the layer makes of them.
struct DeltaLayer {
  DeltaShape shape{.n_key_heads = 2, .n_value_heads = 4, .key_dim = 16, .value_dim = 32, .taps = 4, .eps = 1e-6f};
  size_t n_rows;
  std::vector<float> conv_weight, dt_bias, a, norm, x, z, alpha, beta;

  explicit DeltaLayer(size_t rows) : n_rows(rows) {
    Random random(17);
    conv_weight = random_floats(random, shape.taps * shape.channels());
    dt_bias = random_floats(random, shape.n_value_heads);
    for (size_t h = 0; h < shape.n_value_heads; ++h) a.push_back(static_cast<float>(-0.1 - random.uniform()));
    norm = random_floats(random, shape.value_dim);
    x = random_floats(random, n_rows * shape.channels());
    z = random_floats(random, n_rows * shape.n_value_heads * shape.value_dim);
    alpha = random_floats(random, n_rows * shape.n_value_heads, test::Kind::kPlain, 4.0f);
    beta = random_floats(random, n_rows * shape.n_value_heads, test::Kind::kPlain, 4.0f);
  }

  struct State {
    std::vector<float> history, memory;
  };
  State random_state(uint64_t seed) const {
    Random random(seed);
    return {random_floats(random, shape.history_floats()), random_floats(random, shape.state_floats())};
  }

  // Runs rows [first, first + lengths[0]), [.., + lengths[1]) ... on their states; the first run gives `captures`.
  std::vector<float> run(int threads, size_t first, const std::vector<size_t>& lengths, std::vector<State>& states,
                         std::vector<DeltaCapture> captures = {}) const {
    ThreadPool pool(threads);
    std::vector<DeltaRun> runs;
    size_t at = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      runs.push_back({at, lengths[i], states[i].history.data(), states[i].memory.data()});
      at += lengths[i];
    }
    runs[0].captures = std::move(captures);
    const auto rows = [&](const std::vector<float>& all) {
      const size_t width = all.size() / n_rows;
      const auto begin = all.begin() + static_cast<ptrdiff_t>(first * width);
      return std::vector<float>(begin, begin + static_cast<ptrdiff_t>(at * width));
    };
    std::vector<float> own_x = rows(x), own_z = rows(z), own_alpha = rows(alpha), own_beta = rows(beta);
    std::vector<float> conv(own_x.size()), out(own_z.size());
    const DeltaWeights weights{conv_weight.data(), dt_bias.data(), a.data(), norm.data()};
    delta_net({pool, best()}, shape, weights, runs, own_x.data(), own_z.data(), own_alpha.data(), own_beta.data(),
              conv.data(), out.data());
    return out;
  }
};

// Rows [0, n) of one sequence from `state` on, in double, as the paper has it.
std::vector<double> slow_delta_net(const DeltaLayer& layer, size_t n, const DeltaLayer::State& state) {
  const DeltaShape& shape = layer.shape;
  const size_t channels = shape.channels(), kept = shape.taps - 1, dim = shape.key_dim, width = shape.value_dim;
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  std::vector<double> memory(state.memory.begin(), state.memory.end()), out;
  for (size_t t = 0; t < n; ++t) {
    std::vector<double> qkv(channels, 0.0);
    for (size_t c = 0; c < channels; ++c) {
      for (size_t tap = 0; tap < shape.taps; ++tap) {
        const size_t from = t + tap;
        const double input = from < kept ? state.history[from * channels + c] : layer.x[(from - kept) * channels + c];
        qkv[c] += layer.conv_weight[tap * channels + c] * input;
      }
      qkv[c] *= sigmoid(qkv[c]);
    }
    for (size_t h = 0; h < 2 * shape.n_key_heads; ++h) {
      double squares = 0;
      for (size_t i = 0; i < dim; ++i) squares += qkv[h * dim + i] * qkv[h * dim + i];
      const double factor = (h < shape.n_key_heads ? 1 / std::sqrt(static_cast<double>(dim)) : 1) / std::sqrt(squares);
      for (size_t i = 0; i < dim; ++i) qkv[h * dim + i] *= factor;
    }
    for (size_t h = 0; h < shape.n_value_heads; ++h) {
      const double* q = qkv.data() + h % shape.n_key_heads * dim;
      const double* k = q + shape.n_key_heads * dim;
      const double* v = qkv.data() + 2 * shape.n_key_heads * dim + h * width;
      const size_t at = t * shape.n_value_heads + h;
      const double decay = std::exp(layer.a[h] * std::log1p(std::exp(double{layer.alpha[at]} + layer.dt_bias[h])));
      const double strength = sigmoid(layer.beta[at]);
      std::vector<double> answer(width, 0.0);
      double squares = 0;
      for (size_t d = 0; d < width; ++d) {
        // Column d of the head's matrix: group d / 16, then [key dim, 16].
        double* column = memory.data() + (h * width / 16 + d / 16) * dim * 16 + d % 16;
        double read = 0;
        for (size_t i = 0; i < dim; ++i) read += (column[16 * i] *= decay) * k[i];
        for (size_t i = 0; i < dim; ++i) answer[d] += (column[16 * i] += k[i] * strength * (v[d] - read)) * q[i];
        squares += answer[d] * answer[d];
      }
      for (size_t d = 0; d < width; ++d) {
        const double gate = layer.z[at * width + d];
        out.push_back(answer[d] / std::sqrt(squares / static_cast<double>(width) + 1e-6) * layer.norm[d] * gate *
                      sigmoid(gate));
      }
    }
  }
  return out;
}

TEST(DeltaNet, MatchesTheLayerInDouble) {
  const DeltaLayer layer(20);
  std::vector<DeltaLayer::State> states = {layer.random_state(1)};
  const std::vector<double> want = slow_delta_net(layer, 20, states[0]);
  const std::vector<float> got = layer.run(1, 0, {20}, states);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5) << i;
}

TEST(DeltaNet, RunsThreadsAndCutsGiveTheSameBits) {
  const std::vector<size_t> lengths = {5, 1, 2, 9};
  const DeltaLayer layer(17);
  std::vector<DeltaLayer::State> want_states;
  std::vector<float> want;
  for (size_t i = 0, first = 0; i < lengths.size(); first += lengths[i++]) {  // each sequence alone, row by row
    std::vector<DeltaLayer::State> state = {layer.random_state(i)};
    for (size_t r = 0; r < lengths[i]; ++r) {
      const std::vector<float> row = layer.run(1, first + r, {1}, state);
      want.insert(want.end(), row.begin(), row.end());
    }
    want_states.push_back(state[0]);
  }
  for (const int threads : {1, 2, 3}) {
    std::vector<DeltaLayer::State> states;
    for (size_t i = 0; i < lengths.size(); ++i) states.push_back(layer.random_state(i));
    EXPECT_TRUE(same_bits(layer.run(threads, 0, lengths, states), want)) << threads << " threads";
    for (size_t i = 0; i < lengths.size(); ++i) {
      EXPECT_TRUE(same_bits(states[i].history, want_states[i].history)) << threads << " threads, run " << i;
      EXPECT_TRUE(same_bits(states[i].memory, want_states[i].memory)) << threads << " threads, run " << i;
    }
  }
}

// A snapshot within a run is the state that a run of that length leaves, and taking it changes nothing.
TEST(DeltaNet, CapturesAreTheStatesOfShorterRuns) {
  constexpr size_t n = 7;
  const DeltaLayer layer(n);
  std::vector<DeltaLayer::State> want_end = {layer.random_state(5)};
  const std::vector<float> want = layer.run(1, 0, {n}, want_end);
  const std::vector<size_t> at = {1, 2, 5, n};
  for (const int threads : {1, 3}) {
    std::vector<DeltaLayer::State> end = {layer.random_state(5)}, copies(at.size(), end[0]);
    std::vector<DeltaCapture> captures;
    for (size_t i = 0; i < at.size(); ++i)
      captures.push_back({at[i], copies[i].history.data(), copies[i].memory.data()});
    EXPECT_TRUE(same_bits(layer.run(threads, 0, {n}, end, captures), want));
    EXPECT_TRUE(same_bits(end[0].memory, want_end[0].memory));
    for (size_t i = 0; i < at.size(); ++i) {
      std::vector<DeltaLayer::State> shorter = {layer.random_state(5)};
      layer.run(1, 0, {at[i]}, shorter);
      EXPECT_TRUE(same_bits(copies[i].history, shorter[0].history)) << "after " << at[i];
      EXPECT_TRUE(same_bits(copies[i].memory, shorter[0].memory)) << "after " << at[i];
    }
  }
}

}  // namespace
}  // namespace sluice::ops
