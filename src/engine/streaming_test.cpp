#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "engine/session.h"
#include "engine/test_models.h"
#include "engine/warm_start.h"

namespace sluice {
namespace {

using experts::BankSize;
using test::some_tokens;

constexpr uint64_t kPlenty = uint64_t{1} << 30;

TEST(ExpertMemory, AllHaveASlotWhereThereIsRoom) {
  const ModelFile file = ModelFile::open(test::micro_options());
  for (const uint64_t available : {uint64_t{0}, kPlenty}) {
    const MemoryPlan plan = file.plan(test::micro_options(), available);
    EXPECT_FALSE(plan.streams());
    EXPECT_EQ(plan.experts, 32u);
  }
}

TEST(ExpertMemory, LessRoomMeansFewerSlotsAndThePlanStaysWithinIt) {
  const EngineOptions options = test::micro_options();
  const ModelFile file = ModelFile::open(options);
  const uint64_t all = file.plan(options, 0).total(), slots = file.plan(options, 0).of(MemoryPlan::kExpertSlots);
  const uint64_t reserve = uint64_t{128} << 20;
  uint32_t last = UINT32_MAX, different = 0;
  for (uint64_t less = 0; less < slots; less += slots / 16) {
    const uint64_t available = (all + reserve) * 32 / 31 + 100 - less;
    const MemoryPlan plan = file.plan(options, available);
    EXPECT_LE(plan.total() + reserve, available);
    EXPECT_LE(plan.slots, last);
    different += plan.slots != last;
    last = plan.slots;
  }
  EXPECT_EQ(different, 8u) << "8 experts a layer, and every layer of a size of its own";
  EXPECT_LT(last, 6u);
}

TEST(ExpertMemory, StreamedModelsTakeLargeBatchesWhereScratchIsSmallAgainstIt) {
  EngineOptions options = test::micro_options();
  options.micro_batch = 0;
  const ModelFile file = ModelFile::open(options);
  EXPECT_EQ(file.plan(options, kPlenty).micro_batch, 512u);
  options.experts.size = BankSize::per_layer(4);
  EXPECT_EQ(file.plan(options, kPlenty).micro_batch, 2048u);
  options.most_micro_batch = 100;
  EXPECT_EQ(file.plan(options, kPlenty).micro_batch, 100u);
}

TEST(ExpertMemory, WhatDoesNotFitIsRefusedWithTheChangeThatWould) {
  EngineOptions options = test::micro_options();
  options.experts.size = BankSize::all();
  const ModelFile file = ModelFile::open(options);
  const MemoryPlan plan = file.plan(options, 0);
  const auto refusal = [&](uint64_t available) -> std::string {
    try {
      file.plan_that_fits(options, available);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kLimit);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(plan.total()), "");
  EXPECT_EQ(refusal(0), "") << "not known";
  const std::string advice = refusal(plan.total() - 300000);
  EXPECT_THAT(advice, ::testing::HasSubstr(options.path));
  // Taking the advice helps.
  const size_t at = advice.find("--expert-memory ");
  ASSERT_NE(at, std::string::npos) << advice;
  options.experts.size = BankSize::bytes(std::stoull(advice.substr(at + 16)) << 10);
  EXPECT_EQ(refusal(plan.total() - 300000), "");
  options.context = 4096;
  EXPECT_THAT(refusal(plan.total()), ::testing::HasSubstr("--ctx-size"));
}

TEST(ExpertMemory, EnginesOfAnySizeSayTheSame) {
  EngineOptions options = test::micro_options();
  const std::vector<int32_t> prompt = some_tokens(20);
  GenerateOptions generate;
  generate.max_tokens = 40;
  std::vector<int32_t> expected;
  decode::SamplingParameters sampling;
  sampling.temperature = 0.8f;
  sampling.seed = 3;
  for (const uint32_t slots : {8u, 7u, 2u, 1u}) {
    options.experts.size = BankSize::per_layer(slots);
    Engine engine(options);
    Session session(engine);
    const Answer answer = session.generate(prompt, {}, engine.sampler(sampling), generate);
    if (expected.empty()) expected = answer.tokens;
    EXPECT_EQ(answer.tokens, expected) << slots;
    const experts::Traffic traffic = engine.bank()->traffic();
    EXPECT_EQ(traffic.misses == 0, slots == 8);
  }
}

class WarmStart : public ::testing::Test {
 protected:
  WarmStart() { options.experts.warm_start = folder, options.experts.size = BankSize::per_layer(3); }
  ~WarmStart() override { std::filesystem::remove_all(folder); }

  // Hits of a short prompt with a new engine.
  uint64_t hits() const {
    Engine engine(options);
    Session session(engine);
    session.synchronize(some_tokens(3));
    return engine.bank()->traffic().hits;
  }

  std::string folder = ::testing::TempDir() + "sluice_warm_start";
  EngineOptions options = test::micro_options();
};

TEST_F(WarmStart, TheNextEngineBeginsWithTheExpertsOfTheLast) {
  const uint64_t cold = hits();
  EXPECT_GT(hits(), cold);
  const std::string file = warm_start_file(folder, gguf::Container::open(test::micro_model()));
  EXPECT_EQ(read_warm_start(file, 4, 8).size(), 12u);
  options.experts.warm_start.clear();
  EXPECT_EQ(hits(), cold);
}

TEST_F(WarmStart, AFileThatIsNoneDoesNoHarm) {
  const uint64_t cold = hits();
  const std::string file = warm_start_file(folder, gguf::Container::open(test::micro_model()));
  for (const char* text :
       {"", "nonsense", "sluice experts in memory, version 1\n9 9\n", "sluice experts in memory, version 2\n1 1\n"}) {
    std::ofstream(file) << text;
    EXPECT_TRUE(read_warm_start(file, 4, 8).empty()) << text;
    std::ofstream(file) << text;
    EXPECT_EQ(hits(), cold) << text;
  }
  std::ofstream(file) << "sluice experts in memory, version 1\n1 1\n1 1\n1 1\n";
  EXPECT_GE(hits(), cold) << "an expert twice is read once";
}

TEST_F(WarmStart, AFolderThatCannotBeWrittenIsANotice) {
  std::ofstream(folder) << "a file";
  std::vector<std::string> notices;
  options.notice = [&](const std::string& text) { notices.push_back(text); };
  hits();
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_THAT(notices[0], ::testing::HasSubstr(folder));
}

TEST(ExpertMemory, AFileThatIsChangedWhileInUseFailsTheAnswer) {
  const std::string path = ::testing::TempDir() + "sluice_changing_model.gguf";
  std::filesystem::copy_file(test::micro_model(), path, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::permissions(path, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  EngineOptions options = test::micro_options();
  options.path = path;
  options.experts.size = BankSize::per_layer(1);
  Engine engine(options);
  Session session(engine);
  session.synchronize(some_tokens(3));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  try {
    session.synchronize(some_tokens(9, 1));
    ADD_FAILURE() << "went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(path));
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace sluice
