// The operations of a forward pass as they spread over threads and rows: shapes, strides and indices against naive
// code, and the same bits for any number of threads. The kernels inside are judged in cpu/.
#include "ops/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/memory.h"
#include "ops/math.h"
#include "ops/test_data.h"

namespace sluice::ops {
namespace {

using test::kUnit;
using test::Random;
using test::random_blocks;
using test::random_floats;
using test::same_bits;

const cpu::Kernels& best() { return *cpu::usable_kernels()[0]; }

// Calls compute(context) with pools of 1, 2 and 3 threads and expects the same bits of each; returns them.
std::vector<float> with_any_threads(const std::function<std::vector<float>(const Context&)>& compute) {
  std::vector<float> want;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    std::vector<float> got = compute({pool, best()});
    if (threads == 1) want = got;
    EXPECT_TRUE(same_bits(got, want)) << threads << " threads";
  }
  return want;
}

// A matrix that owns its weights.
struct OwnedMatrix {
  std::vector<std::byte> bytes;
  Matrix matrix;

  OwnedMatrix(Random& random, quant::Type type, size_t n_in, size_t n_out, float scale = 1.0f) {
    const quant::Format& format = quant::format(type);
    bytes = random_blocks(random, format, n_out * n_in / format.block_weights);
    matrix = {.format = &format, .n_in = n_in, .n_out = n_out, .data = bytes.data(), .scale = scale};
  }
  OwnedMatrix(OwnedMatrix&&) = default;
  std::vector<float> dequantized() const {
    std::vector<float> out(matrix.n_in * matrix.n_out);
    matrix.format->dequantize(bytes.data(), out.size() / matrix.format->block_weights, out.data());
    return out;
  }
};

// ---- products ------------------------------------------------------------------------------------------------------

TEST(Linear, WritesEveryOutputOfEveryRowAndNothingBetween) {
  constexpr size_t n_in = 512, n_out = 37, n_rows = 3, stride = 40;
  for (const quant::Type type : {quant::Type::kF32, quant::Type::kQ8_0, quant::Type::kQ4_K, quant::Type::kNVFP4}) {
    Random random(1);
    const OwnedMatrix w(random, type, n_in, n_out, 0.75f);
    const std::vector<float> x = random_floats(random, n_rows * n_in), weights = w.dequantized();
    const std::vector<float> y = with_any_threads([&](const Context& context) {
      Activations activations(x.size());
      activations.reset(x.data(), n_rows, n_in);
      std::vector<float> out(n_rows * stride, 5.0f);
      linear(context, w.matrix, activations, out.data(), stride);
      return out;
    });
    for (size_t r = 0; r < n_rows; ++r)
      for (size_t o = 0; o < stride; ++o) {
        if (o >= n_out) {
          EXPECT_EQ(y[r * stride + o], 5.0f);
          continue;
        }
        double sum = 0, magnitude = 0;
        for (size_t i = 0; i < n_in; ++i) {
          sum += 0.75 * weights[o * n_in + i] * x[r * n_in + i];
          magnitude += std::fabs(weights[o * n_in + i]);
        }
        // Rounding activations costs up to half a 127th of the largest (at most 1) on every weight.
        const double bound = type == quant::Type::kF32 ? 40 * kUnit * magnitude : 0.75 * magnitude / 254 * 1.01;
        EXPECT_NEAR(y[r * stride + o], sum, bound) << w.matrix.format->name << " [" << r << ", " << o << "]";
      }
  }
}

TEST(Activations, ServeEachFormatItsFormAndForgetOnReset) {
  ThreadPool pool(1);
  const Context context{pool, best()};
  Random random(2);
  const std::vector<float> first = random_floats(random, 512), second = random_floats(random, 512);
  Activations activations(512);
  activations.reset(first.data(), 2, 256);
  EXPECT_EQ(activations.rows_for(context, quant::format(quant::Type::kBF16)).f32, first.data());
  EXPECT_EQ(activations.rows_for(context, quant::format(quant::Type::kQ8_0)).block, 32u);
  const cpu::Rows& rows = activations.rows_for(context, quant::format(quant::Type::kQ6_K));
  EXPECT_EQ(rows.block, 256u);
  EXPECT_EQ(rows.n_rows, 2u);
  const float before = rows.scale[1];
  activations.reset(second.data(), 2, 256);
  EXPECT_NE(activations.rows_for(context, quant::format(quant::Type::kQ6_K)).scale[1], before);
}

TEST(Activations, AllocateWhatTheyTellThePlanner) {
  for (const size_t n : {4096, 12345}) {
    const uint64_t before = allocated_bytes();
    const Activations activations(n);
    EXPECT_EQ(allocated_bytes() - before, Activations::bytes(n)) << n;
  }
  const uint64_t before = allocated_bytes();
  const ExpertScratch scratch(10, 192);
  EXPECT_EQ(allocated_bytes() - before, ExpertScratch::bytes(10, 192));
}

TEST(Activations, RefuseMoreRowsThanTheyHaveRoomFor) {
  Activations activations(100);
  const std::vector<float> x(150);
  EXPECT_THROW(activations.reset(x.data(), 3, 50), Error);
}

TEST(Embed, CopiesTheRowsOfTheTable) {
  Random random(3);
  for (const quant::Type type : {quant::Type::kF16, quant::Type::kQ6_K}) {
    const OwnedMatrix table(random, type, 256, 20);
    const std::vector<float> rows = table.dequantized();
    const std::vector<int32_t> ids = {7, 0, 19, 7};
    const std::vector<float> got = with_any_threads([&](const Context& context) {
      std::vector<float> out(ids.size() * 256);
      embed(context, table.matrix, ids, out.data());
      return out;
    });
    for (size_t r = 0; r < ids.size(); ++r)
      EXPECT_TRUE(same_bits({got.data() + r * 256, 256}, {rows.data() + static_cast<size_t>(ids[r]) * 256, 256}));
  }
}

// ---- element-wise --------------------------------------------------------------------------------------------------

TEST(Elementwise, RowsAndStridesAreThoseOfTheHeader) {
  constexpr size_t n_rows = 3, n = 21, stride = 25;
  Random random(4);
  const std::vector<float> x = random_floats(random, n_rows * stride), g = random_floats(random, n_rows * stride);
  const std::vector<float> weight = random_floats(random, n);
  const std::vector<float> got = with_any_threads([&](const Context& context) {
    std::vector<float> sum = x, biased = x, normed(n_rows * stride, 9.0f), silu(n_rows * n), gated = x;
    add(context, g.data(), n_rows, stride, sum.data());
    add_bias(context, weight.data(), n_rows, n, biased.data());
    rms_norm(context, x.data(), stride, weight.data(), n_rows, n, 1e-5f, normed.data(), stride);
    silu_mul(context, g.data(), x.data(), stride, n_rows, n, silu.data());
    sigmoid_mul(context, g.data(), stride, n_rows, n, gated.data(), stride);
    for (const auto& part : {biased, normed, silu, gated}) sum.insert(sum.end(), part.begin(), part.end());
    return sum;
  });
  const float* sum = got.data();
  const float *biased = sum + x.size(), *normed = biased + x.size(), *silu = normed + x.size(),
              *gated = silu + n_rows * n;
  for (size_t r = 0; r < n_rows; ++r) {
    double squares = 0;
    for (size_t i = 0; i < n; ++i) squares += double{x[r * stride + i]} * x[r * stride + i];
    for (size_t i = 0; i < stride; ++i) {
      const size_t at = r * stride + i;
      EXPECT_EQ(sum[at], x[at] + g[at]);
      if (i >= n) {
        EXPECT_EQ(normed[at], 9.0f);
        EXPECT_EQ(gated[at], x[at]);
        continue;
      }
      const double open = 1 / (1 + std::exp(-double{g[at]}));
      EXPECT_NEAR(normed[at], x[at] / std::sqrt(squares / n + 1e-5) * weight[i], 1e-6);
      EXPECT_NEAR(silu[r * n + i], g[at] * open * x[at], 1e-6);
      EXPECT_NEAR(gated[at], x[at] * open, 1e-6);
      EXPECT_EQ(biased[r * n + i], x[r * n + i] + weight[i]);
    }
  }
}

TEST(Rope, AnglesAreThoseOfThePositionInDouble) {
  RopeTable table;
  for (int j = 0; j < 16; ++j) table.frequencies.push_back(std::pow(1e6, -j / 16.0));
  table.size = 1.25f;
  const std::vector<int32_t> positions = {0, 1, 4095, 262143, 1000000};
  std::vector<float> cos_sin(positions.size() * 32);
  rope_angles(table, positions, cos_sin.data());
  for (size_t r = 0; r < positions.size(); ++r)
    for (size_t j = 0; j < 16; ++j) {
      const double angle = positions[r] * table.frequencies[j];
      // The last place of an f32 below 1, twice: a sine that lies next to a tie may round either way.
      EXPECT_NEAR(cos_sin[r * 32 + j], 1.25 * std::cos(angle), 2.5 * kUnit) << positions[r];
      EXPECT_NEAR(cos_sin[r * 32 + 16 + j], 1.25 * std::sin(angle), 2.5 * kUnit) << positions[r];
    }
}

TEST(Rope, TurnsTheLeadingDimensionsOfEveryHead) {
  constexpr size_t n_rows = 2, n_heads = 3, head_stride = 12, row_stride = 40;
  for (const bool adjacent : {false, true}) {
    RopeTable table;
    table.adjacent_pairs = adjacent;
    table.frequencies = {1.0, 0.25, 0.01, 0.001};
    ASSERT_EQ(table.rotated(), 8u);
    std::vector<float> cos_sin(n_rows * 8);
    rope_angles(table, std::vector<int32_t>{3, 1000}, cos_sin.data());
    Random random(5);
    const std::vector<float> x = random_floats(random, n_rows * row_stride);
    const std::vector<float> y = with_any_threads([&](const Context& context) {
      std::vector<float> out = x;
      rope(context, table, cos_sin.data(), n_rows, n_heads, head_stride, row_stride, out.data());
      return out;
    });
    std::vector<double> want(x.begin(), x.end());
    for (size_t r = 0; r < n_rows; ++r)
      for (size_t h = 0; h < n_heads; ++h)
        for (size_t j = 0; j < 4; ++j) {
          const size_t head = r * row_stride + h * head_stride;
          const size_t a = head + (adjacent ? 2 * j : j), b = head + (adjacent ? 2 * j + 1 : j + 4);
          const double angle = (r == 0 ? 3 : 1000) * table.frequencies[j];
          want[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
          want[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
        }
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], want[i], 4 * kUnit) << i;
  }
}

// ---- experts -------------------------------------------------------------------------------------------------------

struct Routed {
  std::vector<uint32_t> ids;
  std::vector<float> weights;
};

Routed route_one(std::vector<float> logits, size_t top_k, float scale = 1.0f) {
  ThreadPool pool(1);
  Routed out{std::vector<uint32_t>(top_k), std::vector<float>(top_k)};
  route({pool, best()}, logits.data(), 1, logits.size(), top_k, scale, out.ids.data(), out.weights.data());
  return out;
}

TEST(Route, TakesTheBestWithTheirRenormalisedSoftmax) {
  Random random(6);
  for (const size_t n_experts : {8, 60, 256, 512}) {
    const std::vector<float> logits = random_floats(random, n_experts, test::Kind::kPlain, 5.0f);
    const size_t top_k = std::min<size_t>(n_experts, 10);
    const Routed got = route_one(logits, top_k, 2.5f);
    std::vector<uint32_t> order(n_experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    double total = 0, sum = 0;
    for (size_t k = 0; k < top_k; ++k) total += std::exp(double{logits[order[k]]} - logits[order[0]]);
    for (size_t k = 0; k < top_k; ++k) {
      EXPECT_EQ(got.ids[k], order[k]);
      const double want = 2.5 * std::exp(double{logits[order[k]]} - logits[order[0]]) / total;
      EXPECT_NEAR(got.weights[k], want, 2e-6 * want);
      sum += got.weights[k];
    }
    EXPECT_NEAR(sum, 2.5, 1e-6);
  }
}

TEST(Route, TiesGoToTheLowerIndex) {
  EXPECT_EQ(route_one({1, 3, 2, 3, 3, 2}, 4).ids, (std::vector<uint32_t>{1, 3, 4, 2}));
  EXPECT_EQ(route_one(std::vector<float>(40, 0.0f), 3).ids, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(route_one({0.0f, -0.0f, 0.0f}, 3).ids, (std::vector<uint32_t>{0, 1, 2}));
}

TEST(Route, NanRanksLastAndShowsInTheWeights) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Routed got = route_one({nan, 1.0f, nan, -5.0f, 2.0f}, 4);
  EXPECT_EQ(got.ids, (std::vector<uint32_t>{4, 1, 3, 0}));
  for (const float weight : got.weights) EXPECT_TRUE(std::isnan(weight));
}

TEST(Route, TinySharesAreNotBlownUp) {
  // One of 200000 equal experts holds less than 2^-14 of the softmax: its share is taken of that guard, not of itself.
  const Routed got = route_one(std::vector<float>(200000, 0.0f), 1);
  EXPECT_NEAR(got.weights[0], 1.0 / 200000 / 0x1p-14, 1e-5);
}

TEST(Route, RowsAreIndependentOfThreads) {
  Random random(7);
  const std::vector<float> logits = random_floats(random, 5 * 64);
  with_any_threads([&](const Context& context) {
    std::vector<float> scratch = logits, weights(5 * 4);
    std::vector<uint32_t> ids(5 * 4);
    route(context, scratch.data(), 5, 64, 4, 1.0f, ids.data(), weights.data());
    for (const uint32_t id : ids) weights.push_back(static_cast<float>(id));
    return weights;
  });
}

// Four experts of different formats, one without rows that chose it; 5 rows, top 2.
struct Experts {
  static constexpr size_t kRows = 5, kTopK = 2, kEmbd = 256, kFf = 512;
  std::vector<OwnedMatrix> matrices;
  std::vector<ExpertGroup> groups;
  std::vector<float> x;

  explicit Experts(std::initializer_list<quant::Type> types) {
    Random random(8);
    x = random_floats(random, kRows * kEmbd, test::Kind::kPlain, 0.3f);
    const std::vector<std::vector<uint32_t>> rows = {{0, 2, 4}, {1}, {0, 1, 2, 3, 4}, {3}};
    const std::vector<std::vector<uint32_t>> out = {{0, 5, 8}, {3}, {1, 2, 4, 7, 9}, {6}};
    matrices.reserve(12);
    for (size_t e = 0; e < 4; ++e) {
      const quant::Type type = types.begin()[e % types.size()];
      matrices.emplace_back(random, type, kEmbd, kFf, 0.5f);
      matrices.emplace_back(random, type, kEmbd, kFf);
      matrices.emplace_back(random, type, kFf, kEmbd, 0.25f);
      const Matrix* m[] = {&matrices[3 * e].matrix, &matrices[3 * e + 1].matrix, &matrices[3 * e + 2].matrix};
      groups.push_back({.weights = {.gate = *m[0], .up = *m[1], .down = *m[2]}, .rows = rows[e], .out = out[e]});
    }
  }

  std::vector<float> run(const Context& context, std::span<const ExpertGroup> which) const {
    Activations activations(x.size());
    activations.reset(x.data(), kRows, kEmbd);
    ExpertScratch scratch(kRows * kTopK, kFf);
    std::vector<float> y(kRows * kTopK * kEmbd);
    expert_ffn(context, which, activations, scratch, kEmbd, y.data());
    return y;
  }
};

TEST(ExpertFfn, MatchesTheFormulaInDouble) {
  const Experts experts({quant::Type::kF32});
  const std::vector<float> y =
      with_any_threads([&](const Context& context) { return experts.run(context, experts.groups); });
  for (size_t e = 0; e < 4; ++e) {
    const std::vector<float> gate = experts.matrices[3 * e].dequantized(),
                             up = experts.matrices[3 * e + 1].dequantized(),
                             down = experts.matrices[3 * e + 2].dequantized();
    for (size_t i = 0; i < experts.groups[e].rows.size(); ++i) {
      const float* x = experts.x.data() + experts.groups[e].rows[i] * Experts::kEmbd;
      std::vector<double> hidden(Experts::kFf);
      for (size_t f = 0; f < Experts::kFf; ++f) {
        double g = 0, u = 0;
        for (size_t j = 0; j < Experts::kEmbd; ++j) {
          g += 0.5 * gate[f * Experts::kEmbd + j] * x[j];
          u += double{up[f * Experts::kEmbd + j]} * x[j];
        }
        hidden[f] = g / (1 + std::exp(-g)) * u;
      }
      for (size_t o = 0; o < Experts::kEmbd; ++o) {
        double want = 0;
        for (size_t f = 0; f < Experts::kFf; ++f) want += 0.25 * down[o * Experts::kFf + f] * hidden[f];
        EXPECT_NEAR(y[experts.groups[e].out[i] * Experts::kEmbd + o], want, 1e-4) << "expert " << e << ", row " << i;
      }
    }
  }
}

// One expert at a time, in any order, with any threads: what arrives when must not show.
TEST(ExpertFfn, DoesNotDependOnTheCompanyOrOrderOfExperts) {
  const Experts experts({quant::Type::kQ4_K, quant::Type::kQ8_0, quant::Type::kIQ2_S, quant::Type::kBF16});
  const std::vector<float> want =
      with_any_threads([&](const Context& context) { return experts.run(context, experts.groups); });
  ThreadPool pool(2);
  std::vector<ExpertGroup> reversed(experts.groups.rbegin(), experts.groups.rend());
  EXPECT_TRUE(same_bits(experts.run({pool, best()}, reversed), want));
  std::vector<float> one_by_one(want.size(), 0.0f);
  for (const ExpertGroup& group : experts.groups)
    for (size_t i = 0; i < group.rows.size(); ++i) {
      const ExpertGroup single{.weights = group.weights, .rows = {group.rows[i]}, .out = {group.out[i]}};
      const std::vector<float> y = experts.run({pool, best()}, {&single, 1});
      const size_t at = group.out[i] * Experts::kEmbd;
      std::copy_n(y.begin() + static_cast<ptrdiff_t>(at), Experts::kEmbd,
                  one_by_one.begin() + static_cast<ptrdiff_t>(at));
    }
  EXPECT_TRUE(same_bits(one_by_one, want));
  EXPECT_EQ(experts.run({pool, best()}, {}), std::vector<float>(want.size(), 0.0f));
}

TEST(CombineExperts, SumsByRankThenTheSharedExpert) {
  constexpr size_t n_rows = 3, top_k = 4, n = 40;
  Random random(9);
  const std::vector<float> weights = random_floats(random, n_rows * top_k);
  const std::vector<float> outputs = random_floats(random, n_rows * top_k * n);
  const std::vector<float> gate = random_floats(random, n_rows), shared = random_floats(random, n_rows * n);
  for (const bool with_shared : {false, true}) {
    const std::vector<float> got = with_any_threads([&](const Context& context) {
      std::vector<float> y(n_rows * n, 3.0f);
      combine_experts(context, weights.data(), outputs.data(), n_rows, top_k, n, with_shared ? gate.data() : nullptr,
                      with_shared ? shared.data() : nullptr, y.data());
      return y;
    });
    for (size_t i = 0; i < n_rows * n; ++i) {
      float want = 0.0f;
      const size_t r = i / n;
      for (size_t k = 0; k < top_k; ++k)
        want = std::fma(weights[r * top_k + k], outputs[(r * top_k + k) * n + i % n], want);
      if (with_shared) want = std::fma(static_cast<float>(1 / (1 + std::exp(-double{gate[r]}))), shared[i], want);
      // The gate may be one last place off where the C library's exp is; everything else is exact.
      EXPECT_NEAR(got[i], want, with_shared ? 2 * kUnit : 0) << i;
    }
  }
}

}  // namespace
}  // namespace sluice::ops
