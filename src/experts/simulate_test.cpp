// Replays against slow, obvious ones, and the clairvoyant bound against trying everything.
#include "experts/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "experts/policy.h"

namespace sluice::experts {
namespace {

Trace random_trace(uint32_t n_layers, uint32_t n_experts, uint32_t top_k, uint32_t tokens, uint64_t seed) {
  Trace trace{"random", n_layers, n_experts, top_k, {}, {}};
  std::mt19937_64 random(seed);
  std::vector<uint16_t> experts(n_experts);
  std::iota(experts.begin(), experts.end(), uint16_t{0});
  for (uint32_t i = 0; i < tokens * n_layers; ++i) {
    // Low numbers more often than high ones.
    for (uint32_t e = 0; e + 1 < n_experts; ++e)
      if (random() % 3 == 0) std::swap(experts[e], experts[e + random() % (n_experts - e)]);
    trace.experts.insert(trace.experts.end(), experts.begin(), experts.begin() + top_k);
    std::sort(experts.begin(), experts.end());
  }
  return trace;
}

// The distinct units that each layer of each step needs, in order of first use.
std::vector<std::vector<uint32_t>> needs_of(const Trace& trace, uint32_t step_tokens) {
  std::vector<std::vector<uint32_t>> needs;
  for (size_t token = 0; token < trace.tokens(); token += step_tokens) {
    for (uint32_t layer = 0; layer < trace.n_layers; ++layer) {
      auto& need = needs.emplace_back();
      for (size_t t = token; t < std::min<size_t>(token + step_tokens, trace.tokens()); ++t)
        for (const uint16_t e : trace.at(t, layer)) {
          const uint32_t unit = layer * trace.n_experts + e;
          if (!std::ranges::count(need, unit)) need.push_back(unit);
        }
    }
  }
  return needs;
}

uint64_t slow_lru_misses(const Trace& trace, uint32_t slots, uint32_t step_tokens) {
  std::list<uint32_t> bank;  // least recently used first
  uint64_t misses = 0;
  for (const auto& need : needs_of(trace, step_tokens)) {
    uint64_t missing = 0;
    for (const uint32_t unit : need) {
      const auto at = std::ranges::find(bank, unit);
      if (at == bank.end())
        ++missing;
      else
        bank.erase(at);
    }
    misses += missing;
    // All of the need is held while the others make room.
    while (bank.size() + need.size() > slots) bank.pop_front();
    bank.insert(bank.end(), need.begin(), need.end());
  }
  return misses;
}

// The fewest loads there can be, by following every set of experts that a bank may hold.
uint64_t fewest_misses(const Trace& trace, uint32_t slots, uint32_t step_tokens) {
  std::map<uint32_t, uint64_t> best = {{0, 0}};  // set of resident units -> misses so far
  for (const auto& need : needs_of(trace, step_tokens)) {
    uint32_t needed = 0;
    for (const uint32_t unit : need) needed |= 1u << unit;
    std::map<uint32_t, uint64_t> after;
    for (const auto& [bank, misses] : best) {
      const uint32_t others = bank & ~needed;
      const uint64_t now = misses + static_cast<uint64_t>(__builtin_popcount(needed & ~bank));
      for (uint32_t kept = others;; kept = (kept - 1) & others) {  // every subset of the others may stay
        if (static_cast<uint32_t>(__builtin_popcount(kept | needed)) <= slots) {
          const auto at = after.try_emplace(kept | needed, now).first;
          at->second = std::min(at->second, now);
        }
        if (kept == 0) break;
      }
    }
    best = std::move(after);
  }
  uint64_t fewest = UINT64_MAX;
  for (const auto& [bank, misses] : best) fewest = std::min(fewest, misses);
  return fewest;
}

TEST(Simulate, ReplaysLeastRecentlyUsedAsASlowListDoes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Trace trace = random_trace(3, 12, 3, 200, seed);
    for (const uint32_t step : {1u, 4u})
      for (const uint32_t slots : {12u, 13u, 20u, 35u, 36u}) {
        const Replay got = replay(trace, "lru", slots, step);
        EXPECT_EQ(got.misses, slow_lru_misses(trace, slots, step)) << slots << " slots, seed " << seed;
      }
  }
}

TEST(Simulate, ClairvoyantHasTheFewestMissesThereCanBe) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto top_k = static_cast<uint32_t>(1 + seed % 2), n_layers = static_cast<uint32_t>(1 + seed / 2 % 2);
    const Trace trace = random_trace(n_layers, 8 / n_layers, top_k, 24, seed);
    for (const uint32_t step : {1u, 2u})
      for (uint32_t slots = top_k * step; slots <= 8; ++slots)
        EXPECT_EQ(replay(trace, kClairvoyant, slots, step).misses, fewest_misses(trace, slots, step))
            << slots << " slots, seed " << seed;
  }
}

TEST(Simulate, NoPolicyBeatsTheClairvoyantOne) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Trace trace = random_trace(4, 16, 4, 300, seed);
    for (const uint32_t slots : {4u, 5u, 16u, 40u, 63u, 64u})
      for (const PolicyInfo& policy : policies())
        EXPECT_LE(replay(trace, policy.name, slots).hits, replay(trace, kClairvoyant, slots).hits) << policy.name;
  }
}

TEST(Simulate, WithSlotsForAllOnlyFirstUsesMiss) {
  const Trace trace = random_trace(3, 12, 3, 200, 1);
  std::set<uint32_t> used;
  for (const auto& need : needs_of(trace, 1)) used.insert(need.begin(), need.end());
  for (const PolicyInfo& policy : policies()) {
    const Replay got = replay(trace, policy.name, 36);
    EXPECT_EQ(got.misses, used.size()) << policy.name;
    EXPECT_EQ(got.hits + got.misses, 3u * 3 * 200);
    EXPECT_EQ(replay(trace, policy.name, 100).misses, used.size());
  }
}

TEST(Simulate, CountsBytesByLayerWhereTheTraceKnowsThem) {
  Trace trace{"two", 2, 4, 1, {}, {0, 0, 0, 1, 1, 1}};  // layer 0: experts 0 0 1; layer 1: 0 1 1
  EXPECT_EQ(replay(trace, "lru", 8).bytes, 0u);
  trace.expert_bytes = {1000, 10};
  for (const std::string_view policy : {std::string_view("lru"), kClairvoyant}) {
    const Replay got = replay(trace, policy, 8);
    EXPECT_EQ(got.misses, 4u);
    EXPECT_EQ(got.bytes, 2020u);
    EXPECT_DOUBLE_EQ(got.hit_rate(), 2.0 / 6);
  }
}

TEST(Simulate, AStepCountsAnExpertOnce) {
  const Trace trace{"one", 1, 4, 2, {}, {0, 1, 1, 0, 0, 1, 2, 3}};
  EXPECT_EQ(replay(trace, "lru", 4, 2).misses, 4u);
  EXPECT_EQ(replay(trace, "lru", 4, 2).hits, 2u);  // 0 1 | 0 1 2 3
}

TEST(Simulate, RefusesFewerSlotsThanAStepNeeds) {
  const Trace trace = random_trace(1, 8, 3, 50, 3);
  for (const std::string_view policy : {std::string_view("lru"), kClairvoyant}) {
    EXPECT_NO_THROW(replay(trace, policy, 3));
    EXPECT_THROW(replay(trace, policy, 2), Error);
    EXPECT_THROW(replay(trace, policy, 3, 8), Error);
  }
}

TEST(Simulate, AnEmptyTraceHasNoHits) {
  const Trace trace{"empty", 2, 8, 3, {}, {}};
  EXPECT_EQ(replay(trace, "lru", 4).hit_rate(), 0.0);
  EXPECT_EQ(replay(trace, kClairvoyant, 4).misses, 0u);
}

// ---- the default policy on the traces of the tree, see docs/findings.md, "Which experts stay"

class FixedTraces : public testing::TestWithParam<std::string> {
 protected:
  static Trace whole() {
    return read_trace(*open_file(SLUICE_SOURCE_DIR "/tests/data/traces/" + GetParam() + ".trace"));
  }
  // An eighth, a quarter, half and three quarters of the experts.
  static std::vector<uint32_t> sizes(const Trace& trace) {
    const uint32_t units = trace.n_layers * trace.n_experts;
    return {units / 8, units / 4, units / 2, units / 4 * 3};
  }
  static double rate(const Trace& trace, std::string_view policy, uint32_t slots) {
    return replay(trace, policy, slots).hit_rate();
  }
};

TEST_P(FixedTraces, DefaultIsNeverAPointBelowLeastRecentNorAboveTheBound) {
  const Trace trace = whole(), second = trace.part(trace.tokens() / 2, trace.tokens());
  for (const Trace& part : {trace, second})
    for (const uint32_t slots : sizes(trace)) {
      EXPECT_GE(rate(part, kDefaultPolicy, slots), rate(part, "lru", slots) - 0.01) << slots << " slots";
      EXPECT_LE(rate(part, kDefaultPolicy, slots), rate(part, kClairvoyant, slots)) << slots << " slots";
    }
}

INSTANTIATE_TEST_SUITE_P(Tree, FixedTraces,
                         testing::Values("demo-mixed", "demo-story", "demo-tasks", "uniform", "topics", "drift",
                                         "cycle", "scan", "phases"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Simulate, DefaultIsClearlyAboveLeastRecentOnCyclesAndScans) {
  for (const char* name : {"cycle", "scan"}) {
    const Trace trace = read_trace(*open_file(std::string(SLUICE_SOURCE_DIR "/tests/data/traces/") + name + ".trace"));
    for (const uint32_t eighths : {2u, 4u, 6u}) {
      const uint32_t slots = trace.n_layers * trace.n_experts * eighths / 8;
      EXPECT_GT(replay(trace, kDefaultPolicy, slots).hit_rate(), replay(trace, "lru", slots).hit_rate() + 0.02)
          << name << ", " << slots << " slots";
    }
  }
}

}  // namespace
}  // namespace sluice::experts
