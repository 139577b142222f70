#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "engine/session.h"
#include "engine/test_loop.h"
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

TEST(ExpertMemory, BatchesAreLargeOnlyWhereTheirScratchIsSmallAgainstTheExperts) {
  EngineOptions options = test::micro_options();
  options.micro_batch = 0;
  options.context = 4096;
  options.beyond_training = true;
  const ModelFile file = ModelFile::open(options);
  EXPECT_EQ(file.plan(options, kPlenty).micro_batch, 512u);
  for (const std::optional<BankSize> size : {std::optional<BankSize>(), std::optional(BankSize::per_layer(4))}) {
    options.experts.size = size;
    const uint64_t room = file.plan(options, 0).total() + (uint64_t{200} << 20) - 1000000;
    const MemoryPlan plan = file.plan(options, size ? kPlenty : room);
    EXPECT_TRUE(plan.micro_batch == 512 || plan.of(MemoryPlan::kScratch) <= plan.of(MemoryPlan::kExpertSlots) / 8)
        << plan.micro_batch;
  }
  options.most_micro_batch = 100;
  EXPECT_EQ(file.plan(options, kPlenty).micro_batch, 100u);
  options.max_logits = 120;
  EXPECT_EQ(file.plan(options, kPlenty).micro_batch, 120u) << "rows that want logits fit into a batch";
  options.max_logits = 1;
  options.context = 64;
  EXPECT_EQ(file.plan(options, kPlenty).micro_batch, 64u) << "as many as the context has";
}

// What a refusal says, and that taking its advice helps.
class Refusal : public ::testing::TestWithParam<uint32_t> {
 protected:
  Refusal() { options.micro_batch = GetParam(), options.experts.size = BankSize::all(); }
  std::string refusal(uint64_t available) const {
    try {
      ModelFile::open(options).plan_that_fits(options, available);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kLimit);
      EXPECT_THAT(error.what(), ::testing::HasSubstr(options.path));
      return error.what();
    }
    return "";
  }
  static uint64_t number_after(const std::string& text, const std::string& option) {
    const size_t at = text.find(option + " ");
    return at == std::string::npos ? 0 : std::stoull(text.substr(at + option.size() + 1));
  }

  EngineOptions options = test::micro_options();
};

TEST_P(Refusal, AdvisesLessMemoryForExpertsThatFits) {
  const uint64_t whole = ModelFile::open(options).plan(options, 0).total(), available = whole - 300000;
  EXPECT_EQ(refusal(whole), "");
  EXPECT_EQ(refusal(0), "") << "not known";
  const uint64_t kib = number_after(refusal(available), "--expert-memory");
  ASSERT_GT(kib, 0u) << refusal(available);
  options.experts.size = BankSize::bytes(kib << 10);
  EXPECT_EQ(refusal(available), "");
}

TEST_P(Refusal, AdvisesAShorterContextThatFits) {
  options.beyond_training = true;
  options.context = 8192;
  options.experts.size = BankSize::per_layer(1);
  const uint64_t whole = ModelFile::open(options).plan(options, 0).total();
  for (uint64_t less = 1; less < whole; less += whole / 7) {
    EngineOptions shorter = options;
    const uint64_t context = number_after(refusal(whole - less), "--ctx-size");
    if (context == 0) continue;  // no context is short enough
    shorter.context = static_cast<uint32_t>(context);
    EXPECT_LE(ModelFile::open(shorter).plan(shorter, whole - less).total(), whole - less) << context;
    EXPECT_LT(context, 8192u);
  }
  EXPECT_GT(number_after(refusal(whole - 1), "--ctx-size"), 0u);
}

INSTANTIATE_TEST_SUITE_P(MicroBatch, Refusal, ::testing::Values(0, 64));

// Computes a prompt.
void see(Engine& engine, const std::vector<int32_t>& tokens) {
  GenerateOptions nothing;
  nothing.max_tokens = 0;
  Session(engine).generate(tokens, {}, engine.sampler({}), nothing);
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

// Answers side by side, each evicting what the other needs, on several threads.
TEST(ExpertMemory, AnswersSideBySideAreWhatTheyAreAlone) {
  EngineOptions options = test::micro_options();
  options.threads = 2;
  options.context = 512;
  options.sequences = 2;
  test::Loop whole(options);
  options.experts.size = BankSize::per_layer(1);
  for (const double step_seconds : {0.0, 0.05}) {  // prompts walked layer by layer, and in steps with answers
    for (const ReadEngine io : {ReadEngine::kAuto, ReadEngine::kThreads}) {
      options.experts.bank.engine = io;
      test::Loop loop(options, {.step_seconds = step_seconds});
      const auto one = test::request(some_tokens(40), 16), two = test::request(some_tokens(90, 1), 6);
      const auto first = loop.submit(one);
      while (first->tokens.size() < 4) loop.loop.step();
      const auto second = loop.submit(two);
      loop.run();
      test::expect_same(*first, *whole.answer(one));
      test::expect_same(*second, *whole.answer(two));
    }
  }
}

class WarmStart : public ::testing::Test {
 protected:
  WarmStart() { options.experts.warm_start = folder, options.experts.size = BankSize::per_layer(3); }
  ~WarmStart() override { std::filesystem::remove_all(folder); }

  // Hits of a short prompt with a new engine.
  uint64_t hits() const {
    Engine engine(options);
    see(engine, some_tokens(3));
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

TEST_F(WarmStart, FewerSlotsThanNotedAreSharedByAllLayers) {
  options.experts.size = BankSize::per_layer(6);
  hits();
  options.experts.size = BankSize::per_layer(2);
  for (const bool read_all : {false, true}) {
    options.experts.read_at_start = read_all;
    if (read_all) options.experts.warm_start.clear();
    const Engine engine(options);
    std::vector<uint32_t> of_layer(4);
    for (const auto& unit : engine.bank()->resident()) ++of_layer[unit.layer];
    EXPECT_EQ(of_layer, std::vector<uint32_t>(4, 2));
  }
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
  see(engine, some_tokens(3));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  try {
    see(engine, some_tokens(9, 1));
    ADD_FAILURE() << "went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(path));
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace sluice
