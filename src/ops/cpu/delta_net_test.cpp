// What the convolution and the gated delta rule compute, against their definitions in double, and the promise that a
// run of tokens may be cut anywhere.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/test_data.h"

namespace sluice::ops::cpu {
namespace {

using test::kUnit;
using test::Random;
using test::random_floats;
using test::same_bits;

const Kernels& scalar() { return find_kernels("scalar"); }

// ---- convolution ---------------------------------------------------------------------------------------------------

struct Conv {
  size_t n_tokens, taps;
  static constexpr size_t kChannels = 50;
  std::vector<float> history, x, weight;

  Conv(size_t tokens, size_t n_taps) : n_tokens(tokens), taps(n_taps) {
    Random random(tokens * 10 + n_taps);
    history = random_floats(random, (taps - 1) * kChannels, test::Kind::kPlain, 2.0f);
    x = random_floats(random, n_tokens * kChannels, test::Kind::kPlain, 2.0f);
    weight = random_floats(random, taps * kChannels);
  }
  // The input `at` tokens after the start of the history.
  float input(size_t at, size_t c) const {
    return at < taps - 1 ? history[at * kChannels + c] : x[(at - (taps - 1)) * kChannels + c];
  }
  std::vector<float> run(size_t begin, size_t end, float untouched) const {
    std::vector<float> out(x.size(), untouched);
    scalar().conv_silu({.history = history.data(),
                        .x = x.data(),
                        .weight = weight.data(),
                        .out = out.data(),
                        .n_tokens = n_tokens,
                        .n_channels = kChannels,
                        .taps = taps,
                        .stride = kChannels,
                        .begin = begin,
                        .end = end});
    return out;
  }
};

TEST(ConvSiluKernel, MatchesDouble) {
  for (const size_t taps : {1, 2, 4})
    for (const size_t n_tokens : {1, 2, 3, 4, 9}) {
      const Conv conv(n_tokens, taps);
      const std::vector<float> got = conv.run(0, Conv::kChannels, 0.0f);
      for (size_t t = 0; t < n_tokens; ++t)
        for (size_t c = 0; c < Conv::kChannels; ++c) {
          double sum = 0, magnitude = 0;
          for (size_t tap = 0; tap < taps; ++tap) {
            const double product = double{conv.weight[tap * Conv::kChannels + c]} * conv.input(t + tap, c);
            sum += product, magnitude += std::fabs(product);
          }
          const double want = sum / (1 + std::exp(-sum));
          const double bound = 1.1 * static_cast<double>(taps) * kUnit * magnitude + 0x1p-21 * std::fabs(want);
          EXPECT_NEAR(got[t * Conv::kChannels + c], want, bound) << "token " << t << ", channel " << c;
        }
    }
}

TEST(ConvSiluKernel, ChannelsMayBeSplitAnywhere) {
  const Conv conv(5, 4);
  constexpr float kUntouched = 77.0f;
  const std::vector<float> whole = conv.run(0, Conv::kChannels, kUntouched);
  for (size_t split = 1; split < Conv::kChannels; ++split) {
    const std::vector<float> low = conv.run(0, split, kUntouched), high = conv.run(split, Conv::kChannels, kUntouched);
    for (size_t i = 0; i < whole.size(); ++i) {
      ASSERT_EQ(i % Conv::kChannels < split ? low[i] : high[i], whole[i]);
      ASSERT_EQ(i % Conv::kChannels < split ? high[i] : low[i], kUntouched);
    }
  }
}

// ---- gated delta rule ----------------------------------------------------------------------------------------------

struct Delta {
  size_t n_tokens, key_dim;
  std::vector<float> q, k, v, decay, beta, state;

  Delta(size_t tokens, size_t dim) : n_tokens(tokens), key_dim(dim) {
    Random random(tokens + dim);
    q = random_floats(random, n_tokens * key_dim);
    k = random_floats(random, n_tokens * key_dim);
    v = random_floats(random, n_tokens * kColumns);
    state = random_floats(random, key_dim * kColumns);
    for (size_t t = 0; t < n_tokens; ++t) {
      scalar().l2_norm(q.data() + t * key_dim, key_dim, 1e-6f, 1.0f);
      scalar().l2_norm(k.data() + t * key_dim, key_dim, 1e-6f, 1.0f);
      decay.push_back(static_cast<float>(0.5 + 0.5 * random.uniform()));
      beta.push_back(static_cast<float>(random.uniform()));
    }
  }
  // Runs tokens [begin, end) on `m`, writing their rows of out.
  void run(size_t begin, size_t end, std::vector<float>& m, std::vector<float>& out) const {
    scalar().delta_net({.state = m.data(),
                        .n_tokens = end - begin,
                        .key_dim = key_dim,
                        .q = q.data() + begin * key_dim,
                        .k = k.data() + begin * key_dim,
                        .qk_stride = key_dim,
                        .v = v.data() + begin * kColumns,
                        .v_stride = kColumns,
                        .decay = decay.data() + begin,
                        .beta = beta.data() + begin,
                        .head_stride = 1,
                        .out = out.data() + begin * kColumns,
                        .out_stride = kColumns});
  }
};

// S := decay S; S := S + beta k (v - S^T k)^T; o = S^T q.
TEST(DeltaNetKernel, MatchesTheRecurrenceInDouble) {
  for (const size_t key_dim : {4, 16, 128}) {
    const Delta delta(60, key_dim);
    std::vector<float> state = delta.state, out(60 * kColumns);
    delta.run(0, 60, state, out);
    std::vector<double> s(delta.state.begin(), delta.state.end());
    const double bound = 32 * kUnit;  // the rule contracts: errors of old tokens fade
    for (size_t t = 0; t < 60; ++t)
      for (size_t column = 0; column < kColumns; ++column) {
        double read = 0, answer = 0;
        for (size_t i = 0; i < key_dim; ++i) {
          s[i * kColumns + column] *= delta.decay[t];
          read += s[i * kColumns + column] * delta.k[t * key_dim + i];
        }
        const double change = (delta.v[t * kColumns + column] - read) * delta.beta[t];
        for (size_t i = 0; i < key_dim; ++i) {
          s[i * kColumns + column] += delta.k[t * key_dim + i] * change;
          answer += s[i * kColumns + column] * delta.q[t * key_dim + i];
        }
        EXPECT_NEAR(out[t * kColumns + column], answer, bound) << "token " << t << ", column " << column;
      }
    for (size_t i = 0; i < s.size(); ++i) EXPECT_NEAR(state[i], s[i], bound) << i;
  }
}

TEST(DeltaNetKernel, AnyCutOfTheRunGivesTheSameBits) {
  constexpr size_t n = 13;
  const Delta delta(n, 32);
  std::vector<float> want_state = delta.state, want(n * kColumns);
  delta.run(0, n, want_state, want);
  for (size_t cut = 0; cut <= n; ++cut) {
    std::vector<float> state = delta.state, out(n * kColumns);
    delta.run(0, cut, state, out);
    delta.run(cut, n, state, out);
    EXPECT_TRUE(same_bits(out, want)) << cut;
    EXPECT_TRUE(same_bits(state, want_state)) << cut;
  }
}

}  // namespace
}  // namespace sluice::ops::cpu
