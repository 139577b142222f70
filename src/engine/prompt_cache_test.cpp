// What is kept, what serves, and what goes first. States are of a few bytes here: what is in them is no matter.
#include "engine/prompt_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/test_models.h"

namespace sluice {
namespace {

using test::first;
using test::some_tokens;
using ::testing::ElementsAre;
using test::operator+;
using Tokens = std::vector<int32_t>;

constexpr size_t kStateFloats = 256, kStateBytes = kStateFloats * sizeof(float), kPageBytes = 4096;

class PromptCacheTest : public ::testing::Test {
 protected:
  // The state after so many tokens, with pages of its own.
  state::Snapshot state(size_t length, size_t floats = kStateFloats) {
    state::Sequence sequence(pool, floats);
    sequence.begin_step(length);
    sequence.commit_step();
    return sequence.snapshot();
  }
  state::PagePool pool{kPageBytes, 64};
};

TEST_F(PromptCacheTest, TheLongestStateThatIsAPrefixServes) {
  PromptCache cache(pool, 1 << 20, 64, true);
  const Tokens tokens = some_tokens(100);
  for (const size_t n : {10u, 50u, 90u}) cache.keep(first(tokens, n), state(n));
  EXPECT_EQ(cache.find(tokens).usable, 90u);
  EXPECT_EQ(cache.find(first(tokens, 60)).usable, 50u);
  EXPECT_EQ(cache.find(first(tokens, 50)).usable, 10u) << "one token must be left to compute";
  EXPECT_EQ(cache.find(first(tokens, 51)).usable, 50u);
  const PromptCache::Match match = cache.find(first(tokens, 70) + some_tokens(10, 1));
  EXPECT_EQ(match.usable, 50u);
  EXPECT_EQ(match.common, 70u);
  EXPECT_EQ(match.instead, Tokens(tokens.begin() + 70, tokens.begin() + 86));
  EXPECT_EQ(cache.find(some_tokens(10, 3)).usable, 0u);
}

TEST_F(PromptCacheTest, WithoutARecurrentPartAnyCommonBeginningServes) {
  PromptCache cache(pool, 1 << 20, 64, false);
  const Tokens tokens = some_tokens(100);
  cache.keep(tokens, state(100, 0));
  EXPECT_EQ(cache.find(first(tokens, 70) + some_tokens(10, 1)).usable, 70u);
  EXPECT_EQ(cache.find(tokens).usable, 99u);
  cache.keep(tokens + some_tokens(20, 2), state(120, 0));
  EXPECT_EQ(cache.size(), 1u) << "the longer one says all that the shorter one did";
}

TEST_F(PromptCacheTest, TheSameTokensAreKeptOnce) {
  PromptCache cache(pool, 1 << 20, 64, true);
  cache.keep(some_tokens(10), state(10));
  cache.keep(some_tokens(10), state(10));
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_EQ(cache.bytes(), kStateBytes);
}

TEST_F(PromptCacheTest, TheBudgetHoldsAndWhatSavesLeastGoesFirst) {
  PromptCache cache(pool, 3 * kStateBytes, 64, true);
  const Tokens tokens = some_tokens(100);
  cache.keep(first(tokens, 60), state(60));
  cache.keep(first(tokens, 61), state(61));
  cache.keep(first(tokens, 20), state(20));
  cache.keep(some_tokens(50, 7), state(50));
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_LE(cache.bytes(), cache.budget());
  EXPECT_EQ(cache.evicted(), 1u);
  EXPECT_EQ(cache.find(tokens).usable, 60u) << "61 saved one token more than 60";
  EXPECT_TRUE(cache.find(tokens).evicted);
  EXPECT_FALSE(cache.find(first(tokens, 61)).evicted) << "it would have left nothing to compute";
  EXPECT_EQ(cache.find(some_tokens(60, 7)).usable, 50u);
}

TEST_F(PromptCacheTest, WhatIsOfUseStays) {
  PromptCache cache(pool, 2 * kStateBytes, 64, true);
  cache.keep(some_tokens(30, 1), state(30));
  cache.keep(some_tokens(30, 2), state(30));
  cache.touch(cache.find(some_tokens(31, 1)).snapshot);
  cache.keep(some_tokens(30, 3), state(30));
  EXPECT_EQ(cache.find(some_tokens(31, 1)).usable, 30u);
  EXPECT_EQ(cache.find(some_tokens(31, 2)).usable, 0u);
}

TEST_F(PromptCacheTest, AStateLargerThanTheBudgetIsNotKept) {
  PromptCache cache(pool, kStateBytes - 1, 64, true);
  EXPECT_FALSE(cache.make_bytes(kStateBytes));
  cache.keep(some_tokens(10), state(10));
  EXPECT_EQ(cache.size(), 0u);
  PromptCache none(pool, 0, 64, true);
  none.keep(some_tokens(10), state(10));
  EXPECT_EQ(none.size(), 0u);
  EXPECT_EQ(pool.free_pages(), 64u);
}

TEST_F(PromptCacheTest, PagesBeyondTheLiveOnesCountAndAreFreedOnDemand) {
  PromptCache cache(pool, 8 * kPageBytes, 4, true);
  for (uint32_t i = 0; i < 10; ++i) {
    cache.keep(some_tokens(100, i), state(100));  // two pages each
    EXPECT_LE(cache.bytes(), cache.budget());
  }
  EXPECT_EQ(cache.size(), 5u);
  EXPECT_TRUE(cache.make_room(60));
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_FALSE(cache.make_room(65));
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.bytes(), 0u);
}

// Every state alone against all others, after any history: what a state saves is counted against the best of the rest.
TEST_F(PromptCacheTest, WhatStatesSaveIsAsAnObviousCountSays) {
  for (const bool recurrent : {true, false}) {
    PromptCache cache(pool, 12 * kStateBytes, 64, recurrent);
    uint32_t x = 1;
    for (int round = 0; round < 300; ++round) {
      x = x * 1664525u + 1013904223u;
      const size_t n = 1 + (x >> 10) % 40, shared = (x >> 20) % 30;
      const Tokens tokens = first(some_tokens(40), std::min(shared, n)) + some_tokens(n, x);
      cache.keep(tokens, state(tokens.size(), recurrent ? kStateFloats : 0));
      if (round % 3 == 0) cache.make_room(40);
      for (const PromptCache::Kept& kept : cache.kept()) {
        size_t best = 0;
        for (const PromptCache::Kept& other : cache.kept()) {
          if (&other == &kept) continue;
          const size_t common = common_prefix(other.tokens, kept.tokens);
          if (!recurrent || (common == other.tokens.size() && common < kept.tokens.size()))
            best = std::max(best, common);
        }
        ASSERT_EQ(kept.parent, best) << "round " << round;
      }
    }
    EXPECT_GT(cache.evicted(), 100u);
  }
}

TEST(SnapshotPlaces, TurnsTheEndAndMultiples) {
  EXPECT_THAT(snapshot_places(100, 0, std::vector<size_t>{20, 80}, {}), ElementsAre(20, 80, 99));
  EXPECT_THAT(snapshot_places(100, 20, std::vector<size_t>{20, 80, 100}, {}), ElementsAre(80, 99));
  EXPECT_THAT(snapshot_places(5000, 0, {}, {}), ElementsAre(2048, 4096, 4488, 4999));
  EXPECT_THAT(snapshot_places(1000, 0, {}, {}), ElementsAre(488, 999));
  EXPECT_THAT(snapshot_places(5000, 0, {}, {.limit = 2}), ElementsAre(4488, 4999));
  EXPECT_THAT(snapshot_places(5000, 0, {}, {.limit = 0}), ElementsAre());
  EXPECT_THAT(snapshot_places(1, 0, {}, {}), ElementsAre());
  EXPECT_THAT(snapshot_places(0, 0, {}, {}), ElementsAre());
}

}  // namespace
}  // namespace sluice
