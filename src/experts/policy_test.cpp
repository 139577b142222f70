// What each policy keeps, shown on sequences whose answer is plain.
#include "experts/policy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "experts/slot_map.h"

namespace sluice::experts {
namespace {

// Tokens of one layer that use one expert each; returns the share that was there.
double hit_rate(std::string_view policy, uint32_t n_experts, uint32_t slots, const std::vector<uint32_t>& experts) {
  SlotMap map(n_experts, {0}, {slots}, make_policy(policy, n_experts));
  uint32_t hits = 0;
  for (const uint32_t e : experts) {
    map.advance(1);
    const auto place = map.acquire(0, std::vector{e}, std::vector{1u})[0];
    if (place.outcome == SlotMap::Outcome::kLoad) map.loaded(place.slot);
    hits += place.outcome == SlotMap::Outcome::kReady;
    map.release(place.slot);
  }
  return hits / static_cast<double>(experts.size());
}

std::vector<uint32_t> cycle(uint32_t n_experts, uint32_t rounds) {
  std::vector<uint32_t> out;
  for (uint32_t r = 0; r < rounds; ++r)
    for (uint32_t e = 0; e < n_experts; ++e) out.push_back(e);
  return out;
}

TEST(Policy, LeastRecentlyUsedIsWorthLeast) {
  const auto policy = make_policy("lru", 4);
  const double first = policy->used(0, 1, false, 1), second = policy->used(1, 9, true, 1);
  const double third = policy->used(0, 1, true, 2);
  EXPECT_LT(first, second);  // in the order of use, also within a token
  EXPECT_LT(second, third);
}

TEST(Policy, FrequencyPrefersWhatIsUsedOftenUntilItsUsesHaveFaded) {
  const auto policy = make_policy("frequency", 4);
  double often = 0;
  for (int i = 0; i < 4; ++i) often = policy->used(0, 1, true, 0);
  EXPECT_LT(policy->used(1, 1, true, 16), often);  // four uses of one half-life ago weigh as two
  EXPECT_DOUBLE_EQ(policy->used(2, 1, true, 32), often);
  EXPECT_GT(policy->used(3, 1, true, 48), often);
}

TEST(Policy, FrequencyCountsEveryRowOfABatch) {
  const auto policy = make_policy("frequency", 4);
  EXPECT_DOUBLE_EQ(policy->used(0, 2, true, 16), policy->used(1, 4, true, 0));
}

TEST(Policy, GuardedDoesNotCountTheUseThatBroughtAnExpertIn) {
  const auto policy = make_policy("guarded", 4);
  const double once = policy->used(0, 1, false, 0);
  EXPECT_LT(once, policy->used(1, 1, true, 0));
  EXPECT_LT(once, policy->used(2, 2, false, 0));  // two rows of the batch that brought it: one of them counts
  EXPECT_EQ(policy->used(0, 1, false, 0), policy->used(3, 1, true, 0));  // the second time, the first one counts
}

TEST(Policy, LeastRecentLosesEveryExpertOfALongCycle) { EXPECT_EQ(hit_rate("lru", 16, 12, cycle(16, 100)), 0.0); }

TEST(Policy, GuardedKeepsItsPartOfALongCycle) {
  for (const uint32_t slots : {2u, 4u, 8u, 12u, 15u})
    EXPECT_NEAR(hit_rate("guarded", 16, slots, cycle(16, 400)), (slots - 1) / 16.0, 0.01) << slots << " slots";
}

TEST(Policy, GuardedKeepsHotExpertsThroughAScan) {
  std::vector<uint32_t> uses;
  for (uint32_t i = 0; i < 3000; ++i) uses.push_back(i % 3 != 0 ? i / 3 * 2 % 6 + i % 3 - 1 : 6 + i / 3 % 58);
  EXPECT_GT(hit_rate("guarded", 64, 8, uses), 0.65);  // two of three uses are of six hot experts
}

// First the working set just fits, where the least recently used is best; then a cycle follows, which it loses.
TEST(Policy, AdaptiveFollowsTheBestOfItsContestants) {
  std::vector<uint32_t> fits;
  for (uint32_t phase = 0; phase < 20; ++phase)
    for (uint32_t i = 0; i < 100; ++i) fits.push_back(phase % 2 * 8 + (i * 7 + phase) % 8);
  EXPECT_GT(hit_rate("lru", 16, 8, fits), hit_rate("guarded", 16, 8, fits) + 0.05);
  EXPECT_GE(hit_rate("adaptive", 16, 8, fits), hit_rate("lru", 16, 8, fits) - 0.01);
  const std::vector<uint32_t> round = cycle(16, 400);
  EXPECT_GT(hit_rate("adaptive", 16, 8, round), hit_rate("guarded", 16, 8, round) - 0.01);
  std::vector<uint32_t> both = fits;
  both.insert(both.end(), round.begin(), round.end());
  const double share = static_cast<double>(fits.size()) / static_cast<double>(both.size());
  EXPECT_GT(hit_rate("adaptive", 16, 8, both),
            share * hit_rate("lru", 16, 8, fits) + (1 - share) * hit_rate("guarded", 16, 8, round) - 0.03);
}

TEST(Policy, KeepsAllThatFits) {
  for (const PolicyInfo& info : policies())
    EXPECT_DOUBLE_EQ(hit_rate(info.name, 16, 16, cycle(16, 10)), 0.9) << info.name;
}

TEST(Policy, RefusesAnUnknownNameWithThoseThereAre) {
  try {
    make_policy("clairvoyant", 4);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(error.what()).find("lru"), std::string::npos) << error.what();
  }
}

TEST(Policy, ListsTheDefault) {
  const auto all = policies();
  EXPECT_TRUE(std::ranges::any_of(all, [](const PolicyInfo& info) { return info.name == kDefaultPolicy; }));
}

}  // namespace
}  // namespace sluice::experts
