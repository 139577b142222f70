// Answers are what they would be alone, whatever runs beside them, is reused, cancelled or put back; and what is reused
// is not computed.
#include "engine/step_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/memory.h"
#include "engine/test_loop.h"

namespace sluice {
namespace {

using test::expect_same;
using test::first;
using test::Loop;
using test::Recorder;
using test::request;
using test::some_tokens;
using test::operator+;
using Tokens = std::vector<int32_t>;

EngineOptions options_for(uint32_t sequences, uint32_t micro_batch = 64) {
  EngineOptions options = test::micro_options();
  options.sequences = sequences;
  options.micro_batch = micro_batch;
  options.context = 512;
  options.cache_bytes = 64 << 20;
  return options;
}

std::shared_ptr<Recorder> alone(GenerationRequest r) { return Loop(options_for(1)).answer(std::move(r)); }

// Prompts of many lengths, some with a common beginning.
GenerationRequest some_request(uint32_t i) {
  const size_t lengths[] = {1, 3, 64, 65, 150, 20, 90, 7, 127, 40};
  Tokens prompt = some_tokens(lengths[i % 10], i % 3 == 0 ? 5 : i);
  GenerationRequest r = request(std::move(prompt), 3 + i % 7, i % 2 == 0 ? 0.0f : 1.5f, i);
  if (i % 4 == 1) r.turn_starts = {r.prompt.size() / 2};
  return r;
}

TEST(StepLoop, AnswersAreWhatTheyAreAloneWhateverRunsBeside) {
  for (const double step_seconds : {0.05, 0.0}) {  // with no time for prompts, they are walked layer by layer
    for (const uint32_t micro_batch : {64u, 5u, 512u}) {
      Loop all(options_for(4, micro_batch), {.step_seconds = step_seconds});
      std::vector<std::shared_ptr<Recorder>> got;
      std::mt19937 random(micro_batch);
      for (uint32_t i = 0; i < 20; ++i) {
        got.push_back(all.submit(some_request(i)));
        for (uint32_t steps = random() % 6; steps > 0; --steps) all.loop.step();
      }
      all.run();
      for (uint32_t i = 0; i < 20; ++i) {
        SCOPED_TRACE(fmt::format("request {}, batches of {}", i, micro_batch));
        expect_same(*got[i], *alone(some_request(i)));
      }
    }
  }
}

TEST(StepLoop, ComputesOnlyWhatIsNew) {
  Loop loop(options_for(2));
  const Tokens prompt = some_tokens(100);
  const auto one = loop.answer(request(prompt));
  EXPECT_EQ(one->stats.cached_tokens, 0u);
  EXPECT_EQ(one->stats.computed_tokens, 100u);
  EXPECT_EQ(one->stats.cache_reason, CacheReason::kNothingToReuse);

  const Tokens next = prompt + one->tokens + some_tokens(20, 3);
  const auto two = loop.answer(request(next));
  EXPECT_EQ(two->stats.cached_tokens, 107u) << "all but the answer's last token, which was never computed";
  EXPECT_EQ(two->stats.cache_reason, CacheReason::kExtended);
  expect_same(*two, *alone(request(next)));

  const auto again = loop.answer(request(next));
  EXPECT_EQ(again->stats.computed_tokens, 1u);
  EXPECT_EQ(again->stats.cache_reason, CacheReason::kWhole);
  expect_same(*again, *two);
}

TEST(StepLoop, AnotherEndResumesFromTheTurnsStart) {
  Loop loop(options_for(2));
  const Tokens shared = some_tokens(70, 1);
  GenerationRequest r = request(shared + some_tokens(30, 2));
  r.turn_starts = {70};
  loop.answer(r);
  const GenerationRequest other = request(shared + some_tokens(40, 3));
  const auto got = loop.answer(other);
  EXPECT_EQ(got->stats.cached_tokens, 70u);
  EXPECT_EQ(got->stats.cache_reason, CacheReason::kDiverged);
  EXPECT_EQ(got->stats.diverged_at, 70u);
  expect_same(*got, *alone(other));
}

TEST(StepLoop, WithoutAStateInBetweenItSaysSo) {
  Loop loop(options_for(2));
  loop.answer(request(some_tokens(60, 1) + some_tokens(30, 2)));
  const GenerationRequest other = request(some_tokens(60, 1) + some_tokens(30, 3));
  const auto got = loop.answer(other);
  EXPECT_EQ(got->stats.cached_tokens, 0u);
  EXPECT_EQ(got->stats.cache_reason, CacheReason::kNoSnapshot);
  EXPECT_EQ(got->stats.diverged_at, 60u);
  EXPECT_EQ(got->stats.instead, first(some_tokens(30, 2), 16));
  expect_same(*got, *alone(other));
}

TEST(StepLoop, WhatWasEvictedIsTold) {
  EngineOptions options = options_for(1);
  options.cache_bytes = 300000;  // one state and its pages
  Loop loop(options);
  const GenerationRequest r = request(some_tokens(400, 1));
  loop.answer(r);
  for (uint32_t i = 2; i < 6; ++i) loop.answer(request(some_tokens(400, i)));
  EXPECT_GT(loop.loop.cache().evicted(), 0u);
  const auto got = loop.answer(request(r.prompt + some_tokens(5, 9)));
  EXPECT_EQ(got->stats.cache_reason, CacheReason::kEvicted);
  EXPECT_LE(loop.loop.cache().bytes(), options.cache_bytes);
}

TEST(StepLoop, ARequestMayLeaveTheCacheAlone) {
  Loop loop(options_for(2));
  GenerationRequest r = request(some_tokens(50));
  r.use_cache = false;
  loop.answer(r);
  EXPECT_EQ(loop.loop.cache().size(), 0u);
  EXPECT_EQ(loop.answer(r)->stats.cached_tokens, 0u);
  EXPECT_EQ(loop.answer(r)->stats.cache_reason, CacheReason::kNotWanted);
}

TEST(StepLoop, StatesServeOtherSlots) {
  Loop loop(options_for(3));
  GenerationRequest r = request(some_tokens(80));
  r.slot = 0;
  const auto one = loop.answer(r);
  r.prompt = r.prompt + some_tokens(5, 1);
  r.slot = 2;
  const auto two = loop.answer(r);
  EXPECT_EQ(two->stats.slot, 2u);
  EXPECT_EQ(two->stats.cached_tokens, 79u);
  r.slot.reset();
  expect_same(*two, *alone(r));
}

TEST(StepLoop, TheSamePromptIsComputedOnceForSeveralAnswers) {
  Loop loop(options_for(3, 16));
  std::vector<std::shared_ptr<Recorder>> got;
  GenerationRequest r = request(some_tokens(100));
  for (r.sequence = 0; r.sequence < 3; ++r.sequence) got.push_back(loop.submit(r));
  loop.run();
  for (r.sequence = 0; r.sequence < 3; ++r.sequence) {
    EXPECT_EQ(got[r.sequence]->stats.computed_tokens, r.sequence == 0 ? 100u : 1u);
    expect_same(*got[r.sequence], *alone(r));
  }
}

TEST(StepLoop, CancelsInThePromptInTheAnswerAndInTheQueue) {
  for (const bool walked : {false, true}) {
    Loop loop(options_for(2, 16), {.step_seconds = walked ? 0.0 : 0.05});
    const auto in_answer = loop.submit(request(some_tokens(10, 1), 200));
    for (int i = 0; i < 30; ++i) loop.loop.step();
    const auto in_prompt = loop.submit(request(some_tokens(400, 2), 5));
    const auto in_queue = loop.submit(request(some_tokens(10, 3), 5));
    while (in_prompt->progressed.empty()) loop.loop.step();
    ASSERT_FALSE(in_answer->tokens.empty());
    ASSERT_TRUE(in_prompt->tokens.empty());
    for (uint64_t id = 1; id <= 3; ++id) loop.loop.cancel(id);
    for (const auto& recorder : {in_answer, in_prompt, in_queue}) EXPECT_EQ(recorder->reason, StopReason::kInterrupted);
    loop.loop.cancel(17);  // nobody
    loop.run();
    const GenerationRequest next = request(some_tokens(400, 2), 5);
    expect_same(*loop.answer(next), *alone(next));
  }
}

TEST(StepLoop, ACancelledPromptLeavesTheOthersOfItsPassTheirTokens) {
  Loop loop(options_for(2, 64), {.step_seconds = 0.0});
  loop.submit(request(some_tokens(400, 1)));  // more than the pass takes of it
  const GenerationRequest other = request(some_tokens(20, 2));
  const auto got = loop.submit(other);
  loop.loop.step();
  ASSERT_TRUE(got->progressed.empty()) << "the pass is over already";
  loop.loop.cancel(1);
  loop.run();
  expect_same(*got, *alone(other));
}

TEST(StepLoop, AnswersGoOnWhileALongPromptComesIn) {
  for (const double step_seconds : {0.0, 0.002}) {
    Loop loop(options_for(2, 512), {.step_seconds = step_seconds});
    const auto running = loop.submit(request(some_tokens(10), 400, 1.5f));
    while (running->tokens.size() < 5) loop.loop.step();
    const auto prompt = loop.submit(request(some_tokens(450, 1), 1));
    const size_t before = running->tokens.size();
    while (prompt->tokens.empty()) loop.loop.step();
    EXPECT_GT(running->tokens.size(), before + 2);
    loop.loop.cancel(1);
  }
}

TEST(StepLoop, WhenTheCacheIsFullTheYoungestWaitsAndComesToTheSame) {
  EngineOptions options = options_for(3);
  options.context = 256, options.cache_bytes = 0;
  Loop loop(options);
  std::vector<std::shared_ptr<Recorder>> got;
  for (uint32_t i = 0; i < 3; ++i) got.push_back(loop.submit(request(some_tokens(20, i), 200, 1.5f, i)));
  loop.run();
  EXPECT_GT(loop.loop.counters().preempted, 0u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got[i]->stats.prompt_tokens, 20u);
    expect_same(*got[i], *alone(request(some_tokens(20, i), 200, 1.5f, i)));
  }
}

TEST(StepLoop, AFullContextEndsAnAnswer) {
  EngineOptions options = options_for(2);
  options.context = 100;
  Loop loop(options);
  const auto got = loop.answer(request(some_tokens(90), 1000));
  EXPECT_EQ(got->reason, StopReason::kLimit);
  EXPECT_EQ(got->tokens.size(), 11u) << "ten that fit, and the one that follows them";
}

TEST(StepLoop, DeadlinesEndAnswersAndWaiting) {
  Loop loop(options_for(1));
  GenerationRequest r = request(some_tokens(10), 100000);
  r.answer_limit_s = 1e-9;
  const auto late = loop.submit(r);
  r.answer_limit_s = 0, r.total_limit_s = 1e-9;
  const auto waiting = loop.submit(r);
  loop.run();
  EXPECT_EQ(late->reason, StopReason::kDeadline);
  EXPECT_FALSE(late->tokens.empty());
  EXPECT_EQ(waiting->reason, StopReason::kDeadline);
  EXPECT_TRUE(waiting->tokens.empty());
}

TEST(StepLoop, ThinkingIsEndedWhenItsTokensAreUsedUp) {
  Loop loop(options_for(1));
  const Tokens end = loop.engine.tokenizer().encode("</think>\n\n", true);
  GenerationRequest r = request(some_tokens(10), 20);
  const auto free = loop.answer(r);
  r.reasoning_limit = ReasoningLimit{5, end};
  const auto got = loop.answer(r);
  EXPECT_EQ(first(got->tokens, 5), first(free->tokens, 5));
  EXPECT_EQ(Tokens(got->tokens.begin() + 5, got->tokens.begin() + 5 + static_cast<ptrdiff_t>(end.size())), end);
  EXPECT_EQ(got->tokens.size(), 20u);
}

TEST(StepLoop, WhatCanNeverBeAnsweredIsRefused) {
  Loop loop(options_for(2));
  const auto refused = [&](ErrorKind kind, auto change, const char* word) {
    GenerationRequest r = request(some_tokens(10));
    change(r);
    try {
      loop.loop.check(r);
      ADD_FAILURE() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      EXPECT_THAT(error.what(), ::testing::HasSubstr(word));
    }
  };
  refused(
      ErrorKind::kUsage, [](auto& r) { r.prompt.clear(); }, "empty");
  refused(
      ErrorKind::kLimit, [](auto& r) { r.prompt = some_tokens(513); }, "512");
  refused(
      ErrorKind::kUsage, [](auto& r) { r.prompt[3] = 640; }, "640");
  refused(
      ErrorKind::kUsage, [](auto& r) { r.prompt[3] = -1; }, "-1");
  refused(
      ErrorKind::kUsage, [](auto& r) { r.slot = 2; }, "slot 2");
  refused(
      ErrorKind::kUsage, [](auto& r) { r.sampling.top_p = 2; }, "top_p");
}

TEST(StepLoop, FailedAllocationsCostStatesNotAnswers) {
  const GenerationRequest r = request(some_tokens(100), 4);
  const auto expected = alone(r);
  for (int n = 0; n < 4; ++n) {
    Loop loop(options_for(1));
    fail_allocation_after(n);
    const auto got = loop.answer(r);
    fail_allocation_after(-1);
    expect_same(*got, *expected);
  }
}

TEST(StepLoop, IdleSlotsAreSavedRestoredAndErased) {
  Loop loop(options_for(2));
  GenerationRequest r = request(some_tokens(30), 5);
  r.slot = 0;
  const auto one = loop.answer(r);
  {
    const SavedSlot saved = loop.loop.saved(0);
    EXPECT_EQ(saved.tokens, r.prompt + first(one->tokens, 4));
    EXPECT_EQ(saved.kept.size(), 2u) << "at the prompt's end and at the answer's";
    loop.loop.restore(1, saved.tokens, saved.state);
  }
  loop.loop.erase(0);
  EXPECT_EQ(loop.loop.slots()[0].tokens, 0u);
  EXPECT_EQ(loop.loop.slots()[1].tokens, 34u);
  EXPECT_THROW(loop.loop.erase(2), Error);
  loop.submit(r);
  loop.loop.step();
  EXPECT_THROW(loop.loop.saved(0), Error) << "busy";
  loop.run();
  loop.loop.clear();
  EXPECT_EQ(loop.engine.pages().free_pages(), loop.engine.pages().size());
}

}  // namespace
}  // namespace sluice
