// A session computes what is new and nothing else, and whatever it reuses, its logits are those of a session that has
// computed everything.
#include "engine/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/test_models.h"

namespace sluice {
namespace {

using test::first;
using test::same_bits;
using test::some_tokens;
using test::operator+;
using Tokens = std::vector<int32_t>;

EngineOptions one_row_at_a_time() {
  EngineOptions options = test::micro_options();
  options.micro_batch = 1;
  return options;
}

// The logits after `tokens` in a session that has seen nothing else.
std::vector<float> fresh_logits(const Tokens& tokens) {
  Engine engine(test::micro_options());
  Session session(engine);
  session.synchronize(tokens);
  return {session.logits().begin(), session.logits().end()};
}

struct Work {
  size_t cached, batches;  // tokens not computed; batches that were
};

Work synchronize(Session& session, const Tokens& tokens, const std::vector<size_t>& snapshot_after = {}) {
  Work work{0, 0};
  bool complete = false;
  const auto count = [&] {
    ++work.batches;
    return false;
  };
  work.cached = session.synchronize(tokens, snapshot_after, count, &complete);
  EXPECT_TRUE(complete);
  EXPECT_EQ(Tokens(session.tokens().begin(), session.tokens().end()), tokens);
  return work;
}

TEST(Session, ComputesOnlyTheTokensThatAreNew) {
  Engine engine(one_row_at_a_time());
  Session session(engine);
  const Tokens tokens = some_tokens(14);
  Work work = synchronize(session, first(tokens, 10));
  EXPECT_EQ(work.cached, 0u);
  EXPECT_EQ(work.batches, 10u);
  work = synchronize(session, tokens);
  EXPECT_EQ(work.cached, 10u);
  EXPECT_EQ(work.batches, 4u);
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(tokens)));
}

TEST(Session, ComputesNothingForTheTokensItHas) {
  Engine engine(one_row_at_a_time());
  Session session(engine);
  const Tokens tokens = some_tokens(5);
  synchronize(session, tokens);
  const Work work = synchronize(session, tokens);
  EXPECT_EQ(work.cached, 5u);
  EXPECT_EQ(work.batches, 0u);
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(tokens)));
}

TEST(Session, ADivergingContinuationStartsFromASnapshotWithTheSameBits) {
  for (const uint32_t micro_batch : {1u, 7u, 64u}) {
    EngineOptions options = test::micro_options();
    options.micro_batch = micro_batch;
    Engine engine(options);
    Session session(engine);
    const Tokens shared = some_tokens(70, 1), other = shared + some_tokens(9, 3);  // more than a page of the cache
    synchronize(session, shared + some_tokens(20, 2), {70});
    EXPECT_EQ(synchronize(session, other).cached, 70u);
    EXPECT_TRUE(same_bits(session.logits(), fresh_logits(other))) << "batches of " << micro_batch;
    // The snapshot is still what it was: the first continuation can be had again.
    EXPECT_EQ(synchronize(session, shared + some_tokens(20, 2)).cached, 70u);
    EXPECT_TRUE(same_bits(session.logits(), fresh_logits(shared + some_tokens(20, 2))));
  }
}

TEST(Session, WithoutASnapshotADivergingContinuationIsComputedWhole) {
  Engine engine(one_row_at_a_time());
  Session session(engine);
  const Tokens shared = some_tokens(10, 1), other = shared + some_tokens(3, 3);
  synchronize(session, shared + some_tokens(4, 2));
  const Work work = synchronize(session, other);
  EXPECT_EQ(work.cached, 0u);
  EXPECT_EQ(work.batches, 13u);
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(other)));
}

TEST(Session, TheLongestUsefulSnapshotCounts) {
  Engine engine(one_row_at_a_time());
  Session session(engine);
  const Tokens tokens = some_tokens(20);
  synchronize(session, tokens, {5, 10, 15});
  EXPECT_EQ(synchronize(session, first(tokens, 12) + some_tokens(3, 9)).cached, 10u);
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(first(tokens, 12) + some_tokens(3, 9))));
  // A state that is a prefix does not hide a snapshot that is a longer one.
  synchronize(session, first(tokens, 2));
  EXPECT_EQ(synchronize(session, tokens).cached, 15u);
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(tokens)));
}

TEST(Session, FourSnapshotsAreKeptAndTheOldestGoesFirst) {
  EngineOptions options = one_row_at_a_time();
  options.context = 1024;  // each snapshot holds a page of its own here
  Engine engine(options);
  Session session(engine);
  const Tokens tokens = some_tokens(20);
  synchronize(session, tokens, {2, 4, 6, 8, 10});
  EXPECT_EQ(synchronize(session, first(tokens, 5) + some_tokens(2, 9)).cached, 4u);
  EXPECT_EQ(synchronize(session, first(tokens, 3) + some_tokens(2, 9)).cached, 0u);
}

TEST(Session, ASnapshotOfAllTokensHasNoLogitsAndIsNotTaken) {
  Engine engine(test::micro_options());
  Session session(engine);
  const Tokens tokens = some_tokens(10);
  synchronize(session, tokens + some_tokens(3, 1), {4, 10});
  EXPECT_EQ(synchronize(session, tokens).cached, 4u);
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(tokens)));
}

TEST(Session, AnInterruptRightAfterGoingBackLeavesNoStateWithoutLogits) {
  Engine engine(test::micro_options());
  Session session(engine);
  const Tokens tokens = some_tokens(10);
  synchronize(session, tokens + some_tokens(3, 1), {10});
  bool complete = true;
  EXPECT_EQ(session.synchronize(
                tokens + some_tokens(3, 2), {}, [] { return true; }, &complete),
            10u);
  EXPECT_FALSE(complete);
  // It stands at the snapshot, whose logits nobody has: these very tokens must be computed.
  EXPECT_LT(synchronize(session, tokens).cached, 10u);
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(tokens)));
}

TEST(Session, AnInterruptedPromptGoesOnWhereItStopped) {
  EngineOptions options = test::micro_options();
  options.micro_batch = 4;
  Engine engine(options);
  Session session(engine);
  const Tokens tokens = some_tokens(18);
  size_t asked = 0;
  bool complete = true;
  session.synchronize(
      tokens, {}, [&] { return ++asked > 2; }, &complete);
  EXPECT_FALSE(complete);
  EXPECT_EQ(session.tokens().size(), 8u);
  EXPECT_EQ(synchronize(session, tokens).cached, 8u);
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(tokens)));
}

TEST(Session, APromptLongerThanTheContextIsAnErrorThatChangesNothing) {
  Engine engine(test::micro_options());
  Session session(engine);
  const Tokens tokens = some_tokens(20);
  synchronize(session, tokens);
  try {
    session.synchronize(tokens + some_tokens(237, 1));
    FAIL() << "257 tokens fit into a context of 256";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLimit);
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("257"), ::testing::HasSubstr("256"),
                                               ::testing::HasSubstr("--ctx-size")));
  }
  EXPECT_EQ(synchronize(session, tokens).cached, 20u);
  EXPECT_EQ(synchronize(session, tokens + some_tokens(236, 1)).cached, 20u) << "just as many as fit";
}

TEST(Session, AnEmptyPromptIsAnError) {
  Engine engine(test::micro_options());
  Session session(engine);
  EXPECT_THROW(session.synchronize({}), Error);
}

TEST(Session, SnapshotsGiveWayWhenTheCacheIsFull) {
  EngineOptions options = test::micro_options();
  options.context = 128;
  Engine engine(options);
  Session session(engine);
  const Tokens old = some_tokens(128, 1), tokens = some_tokens(128, 2);
  synchronize(session, old, {30, 64, 90, 127});
  EXPECT_EQ(synchronize(session, tokens).cached, 0u);
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(tokens)));
  synchronize(session, old);
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(old)));
}

TEST(Session, ACacheFilledByAnotherSessionIsAnErrorThatLeavesBothUsable) {
  EngineOptions options = test::micro_options();
  options.context = 128;
  Engine engine(options);
  Session first_one(engine), second(engine);
  const Tokens a = some_tokens(120, 1), b = some_tokens(120, 2);
  synchronize(first_one, a);
  EXPECT_THROW(second.synchronize(b), Error);
  EXPECT_EQ(synchronize(first_one, a + some_tokens(1, 3)).cached, 120u);
  first_one.clear();
  synchronize(second, b);
  EXPECT_TRUE(same_bits(second.logits(), fresh_logits(b)));
}

TEST(Session, FailedAllocationsLeaveItAsItWas) {
  Engine engine(test::micro_options());
  Session session(engine);
  const Tokens start = some_tokens(6), tokens = start + some_tokens(6, 1);
  synchronize(session, start);
  const std::vector<size_t> snapshots = {7, 9, 12};
  int failures = 0;
  for (bool done = false; !done && failures < 20;) {
    fail_allocation_after(failures);
    try {
      session.synchronize(tokens, snapshots);
      done = true;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kLimit);
      EXPECT_EQ(session.tokens().size(), start.size());
      ++failures;
    }
  }
  fail_allocation_after(-1);
  EXPECT_EQ(failures, 3) << "each snapshot allocates";
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(tokens)));
}

TEST(Session, ATokenThatIsNoneIsAnErrorThatLeavesItUsable) {
  Engine engine(test::micro_options());
  Session session(engine);
  const Tokens start = some_tokens(6);
  synchronize(session, start);
  EXPECT_THROW(session.synchronize(start + Tokens{640}), Error);
  EXPECT_THROW(session.synchronize(start + Tokens{-1}), Error);
  const Tokens tokens = start + some_tokens(3, 1);
  EXPECT_EQ(synchronize(session, tokens).cached, 6u);
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(tokens)));
}

TEST(Session, ClearForgetsTokensAndSnapshots) {
  Engine engine(test::micro_options());
  Session session(engine);
  const size_t free_pages = engine.pages().free_pages();
  const Tokens tokens = some_tokens(80);
  synchronize(session, tokens, {40});
  session.clear();
  EXPECT_TRUE(session.tokens().empty());
  EXPECT_EQ(engine.pages().free_pages(), free_pages);
  EXPECT_EQ(synchronize(session, tokens).cached, 0u);
  EXPECT_TRUE(same_bits(session.logits(), fresh_logits(tokens)));
}

}  // namespace
}  // namespace sluice
