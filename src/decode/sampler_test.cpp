#include "decode/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "decode/random.h"

namespace sluice::decode {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers of the paper's own implementation (Random123, kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DrawsDependOnEveryCoordinate) {
  std::set<double> seen;
  for (uint64_t seed : {0ull, 1ull, 1ull << 40})
    for (uint64_t sequence : {0ull, 1ull, 1ull << 40})
      for (uint32_t position : {0u, 1u, 70000u})
        for (uint32_t index : {0u, 1u}) {
          const double u = uniform(seed, sequence, position, index);
          EXPECT_TRUE(u >= 0.0 && u < 1.0);
          EXPECT_TRUE(seen.insert(u).second);
        }
}

SamplingParameters plain() {
  SamplingParameters p;
  p.temperature = 1.0f, p.top_k = 0, p.top_p = 1.0f, p.min_p = 0.0f;
  return p;
}

std::map<int32_t, double> frequencies(const SamplingParameters& p, const std::vector<float>& logits, int n = 20000) {
  const Sampler sampler(p, logits.size(), {});
  std::map<int32_t, double> counts;
  for (int i = 0; i < n; ++i) counts[sampler.sample(logits, {}, static_cast<uint32_t>(i))] += 1.0 / n;
  return counts;
}

TEST(Sampler, GreedyTakesTheLowerIdOnATie) {
  SamplingParameters p;
  p.temperature = 0.0f;
  EXPECT_EQ(Sampler(p, 4, {}).sample(std::vector<float>{1, 3, 3, 2}, {}, 0), 1);
}

TEST(Sampler, DrawsFollowTheSoftmaxAtATemperature) {
  SamplingParameters p = plain();
  p.temperature = 0.5f;
  const std::vector<float> logits{0.0f, 1.0f, 0.5f};
  double total = 0;
  for (const float l : logits) total += std::exp(l / 0.5);
  for (const auto& [id, share] : frequencies(p, logits))
    EXPECT_NEAR(share, std::exp(logits[static_cast<size_t>(id)] / 0.5) / total, 0.02);
}

TEST(Sampler, TopKTopPAndMinPKeepTheLikeliest) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const auto kept = [&](SamplingParameters p) {
    std::set<int32_t> ids;
    for (const auto& [id, share] : frequencies(p, logits)) ids.insert(id);
    return ids;
  };
  SamplingParameters k = plain(), p = plain(), m = plain();
  k.top_k = 2;
  EXPECT_EQ(kept(k), (std::set<int32_t>{0, 1}));
  p.top_p = 0.79f;
  EXPECT_EQ(kept(p), (std::set<int32_t>{0, 1}));
  p.top_p = 0.81f;
  EXPECT_EQ(kept(p), (std::set<int32_t>{0, 1, 2}));
  m.min_p = 0.25f;
  EXPECT_EQ(kept(m), (std::set<int32_t>{0, 1, 2}));
  p.top_p = 0.0f;
  EXPECT_EQ(kept(p), (std::set<int32_t>{0})) << "the likeliest always stays";
}

TEST(Sampler, PenaltiesLookAtTheWindowOnly) {
  SamplingParameters p;
  p.temperature = 0.0f, p.penalty_window = 3, p.repeat_penalty = 2.0f;
  const std::vector<float> logits{4.0f, 3.0f, -1.0f};
  EXPECT_EQ(Sampler(p, 3, {}).sample(logits, std::vector<int32_t>{0}, 1), 1) << "4 / 2 < 3";
  EXPECT_EQ(Sampler(p, 3, {}).sample(logits, std::vector<int32_t>{0, 2, 2, 2}, 4), 0) << "out of the window";
  p.repeat_penalty = 1.0f, p.presence_penalty = 0.6f, p.frequency_penalty = 0.5f;
  EXPECT_EQ(Sampler(p, 3, {}).sample(logits, std::vector<int32_t>{0}, 1), 1) << "4 - 1.1 < 3";
  EXPECT_EQ(Sampler(p, 3, {}).sample(logits, std::vector<int32_t>{0, 1}, 2), 0);
}

TEST(Sampler, BiasAndForbiddenTokens) {
  SamplingParameters p;
  p.temperature = 0.0f;
  p.logit_bias = {{2, 100.0f}};
  EXPECT_EQ(Sampler(p, 3, {}).sample(std::vector<float>{1, 2, 0}, {}, 0), 2);
  EXPECT_EQ(Sampler(p, 3, std::vector<int32_t>{2}).sample(std::vector<float>{1, 2, 0}, {}, 0), 1);
  p.temperature = 1.0f, p.top_k = 0, p.min_p = 0;
  for (uint32_t i = 0; i < 200; ++i)
    EXPECT_NE(Sampler(p, 3, std::vector<int32_t>{2}).sample(std::vector<float>{1, 2, 0}, {}, i), 2);
}

TEST(Sampler, TheSameSeedGivesTheSameText) {
  std::mt19937 random(1);
  std::vector<float> logits(500);
  for (float& l : logits) l = static_cast<float>(random() % 1000) / 200.0f;
  SamplingParameters a, b;
  a.seed = b.seed = 42;
  uint32_t different = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    const int32_t first = Sampler(a, 500, {}).sample(logits, {}, i);
    EXPECT_EQ(first, Sampler(b, 500, {}).sample(logits, {}, i));
    b.seed = 43;
    different += first != Sampler(b, 500, {}).sample(logits, {}, i);
    b.seed = 42;
  }
  EXPECT_GT(different, 50u);
}

TEST(Sampler, BadParametersAndLogitsAreNamed) {
  const auto with = [](auto set) {
    SamplingParameters p;
    set(p);
    return Sampler(p, 10, {});
  };
  EXPECT_THROW(with([](auto& p) { p.temperature = -1; }), Error);
  EXPECT_THROW(with([](auto& p) { p.top_p = 1.5f; }), Error);
  EXPECT_THROW(with([](auto& p) { p.min_p = std::nanf(""); }), Error);
  EXPECT_THROW(with([](auto& p) { p.repeat_penalty = 0; }), Error);
  EXPECT_THROW(with([](auto& p) { p.logit_bias = {{10, 1.0f}}; }), Error);
  EXPECT_THROW(with([](auto&) {}).sample(std::vector<float>(10, std::nanf("")), {}, 0), Error);
}

}  // namespace
}  // namespace sluice::decode
