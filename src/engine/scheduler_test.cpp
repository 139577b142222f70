#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using Shares = std::vector<SlotShare>;

constexpr bool kAnswer = true, kPrompt = false;

TEST(ShareRows, EveryAnswerGetsItsRowBeforePromptsGetAny) {
  const std::vector<SlotWant> wants = {{0, 500, kPrompt}, {1, 1, kAnswer}, {2, 1, kAnswer}};
  EXPECT_EQ(share_rows(wants, 64, 512), (Shares{{0, 62}, {1, 1}, {2, 1}}));
  EXPECT_EQ(share_rows(wants, 64, 10), (Shares{{0, 10}, {1, 1}, {2, 1}}));
  EXPECT_EQ(share_rows(wants, 64, 0), (Shares{{1, 1}, {2, 1}}));
}

TEST(ShareRows, ShortPromptsDoNotWaitForLongOnes) {
  const std::vector<SlotWant> wants = {{0, 5000, kPrompt}, {1, 20, kPrompt}, {2, 5000, kPrompt}};
  EXPECT_EQ(share_rows(wants, 512, 512), (Shares{{0, 246}, {1, 20}, {2, 246}}));
}

TEST(ShareRows, FewerRowsThanAnswersGoToTheFirst) {
  const std::vector<SlotWant> wants = {{2, 1, kAnswer}, {0, 1, kAnswer}, {1, 1, kAnswer}};
  EXPECT_EQ(share_rows(wants, 2, 512), (Shares{{2, 1}, {0, 1}}));
}

TEST(ShareRows, GivesNeverMoreThanWantedOrThereAreAndWastesNone) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<SlotWant> wants;
    for (uint32_t slot = 0; slot < random() % 9; ++slot) {
      const bool answering = random() % 2 == 0;
      wants.push_back({slot, answering ? 1 : random() % 300, answering});
    }
    const size_t max_rows = 1 + random() % 256, max_prompt = random() % 256;
    size_t given = 0, prompts = 0, wanted_prompts = 0, answers = 0;
    for (const SlotWant& want : wants) (want.answering ? answers : wanted_prompts) += want.rows;
    for (const SlotShare& share : share_rows(wants, max_rows, max_prompt)) {
      const SlotWant& want = wants[share.slot];
      EXPECT_GE(share.rows, 1u);
      EXPECT_LE(share.rows, want.rows);
      given += share.rows;
      prompts += want.answering ? 0 : share.rows;
    }
    const size_t left = max_rows - std::min(max_rows, answers);
    EXPECT_EQ(prompts, std::min({left, max_prompt, wanted_prompts}));
    EXPECT_EQ(given - prompts, std::min(max_rows, answers));
  }
}

TEST(StepCost, LearnsHowManyRowsOfPromptsFit) {
  StepCost cost;
  EXPECT_GT(cost.prompt_rows_within(0.05), 0u) << "something must be tried first";
  for (int i = 0; i < 50; ++i) {
    cost.observe(4, 0, 0.010);
    cost.observe(4, 40, 0.010 + 40 * 0.001);
  }
  EXPECT_NEAR(static_cast<double>(cost.prompt_rows_within(0.05)), 40, 1);
  for (int i = 0; i < 50; ++i) cost.observe(8, 0, 0.060);
  EXPECT_EQ(cost.prompt_rows_within(0.05), 0u) << "answers alone take longer";
}

TEST(StepCost, FollowsASlowerMachine) {
  StepCost cost;
  for (int i = 0; i < 20; ++i) cost.observe(0, 100, 0.1);
  EXPECT_NEAR(static_cast<double>(cost.prompt_rows_within(0.05)), 50, 1);
  for (int i = 0; i < 20; ++i) cost.observe(0, 100, 0.4);
  EXPECT_NEAR(static_cast<double>(cost.prompt_rows_within(0.05)), 12, 1);
}

}  // namespace
}  // namespace sluice
