// What an engine makes of options and file: the memory that it says it will take, defaults of sampling, errors.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/memory.h"
#include "engine/session.h"
#include "engine/test_models.h"

namespace sluice {
namespace {

std::map<std::string, uint64_t> by_name(const MemoryPlan& plan) {
  std::map<std::string, uint64_t> bytes;
  for (const MemoryPlan::Category& category : plan.categories) bytes[category.name] = category.bytes;
  return bytes;
}

TEST(MemoryPlan, IsWhatIsAllocated) {
  for (const uint32_t context : {64u, 1000u}) {
    EngineOptions options = test::micro_options();
    options.context = context;
    const MemoryPlan plan = ModelFile::open(options.path).plan(options);
    const uint64_t before = allocated_bytes();
    const Engine planned(options);  // as an engine that is never asked anything
    Engine engine(options);
    const uint64_t engines = allocated_bytes() - before;
    const Session session(engine);
    const uint64_t sessions = allocated_bytes() - before - engines;
    EXPECT_EQ(by_name(engine.plan()), by_name(plan));
    EXPECT_EQ(sessions, by_name(plan).at("recurrent state"));
    EXPECT_EQ(engines / 2 + sessions, plan.total());
  }
}

TEST(MemoryPlan, GrowsWithWhatIsAskedFor) {
  const ModelFile file = ModelFile::open(test::micro_model());
  EngineOptions options = test::micro_options();
  auto small = by_name(file.plan(options));
  options.context = 512;
  options.micro_batch = 128;
  auto large = by_name(file.plan(options, 3));
  EXPECT_EQ(large["recurrent state"], 3 * small["recurrent state"]);
  EXPECT_EQ(large["KV cache"] * 5, small["KV cache"] * 9) << "8 pages and 4, and each time one to copy";
  EXPECT_GT(large["scratch"], small["scratch"]);
  EXPECT_EQ(large["expert slots"], small["expert slots"]);
  EXPECT_EQ(large["dense weights"], small["dense weights"]);
  options.cache_type = ops::cpu::CacheType::kF32;
  EXPECT_EQ(by_name(file.plan(options))["KV cache"], 2 * large["KV cache"]);
}

TEST(ModelFile, BytesPerTokenAreDenseWeightsARowAndTheExpertsInUse) {
  // Of the file's 828096 bytes of tensors: 430080 of experts, of which 2 in 8 are used, and 640 rows of the embedding
  // in 65280 bytes, of which one is.
  EXPECT_EQ(ModelFile::open(test::micro_model()).bytes_per_token(), 828096u - 430080 + 430080 / 4 - 65280 + 102);
}

TEST(Engine, ContextIsAtMostWhatTheModelWasTrainedFor) {
  const auto context_of = [](uint32_t context, bool beyond_training) {
    EngineOptions options = test::micro_options();
    options.overrides = {"qwen35moe.context_length=int:300"};
    options.context = context;
    options.beyond_training = beyond_training;
    return Engine(options).context_size();
  };
  EXPECT_EQ(context_of(0, false), 300u);
  EXPECT_EQ(context_of(200, false), 200u);
  EXPECT_EQ(context_of(UINT32_MAX, false), 300u);
  EXPECT_EQ(context_of(400, true), 400u);
}

TEST(Engine, SamplingDefaultsComeFromTheFile) {
  EngineOptions options = test::micro_options();
  const decode::SamplingParameters plain = Engine(options).sampling_defaults();
  EXPECT_EQ(plain.temperature, decode::SamplingParameters().temperature);
  EXPECT_EQ(plain.top_k, decode::SamplingParameters().top_k);
  options.overrides = {"general.sampling.temp=float:0.25",          "general.sampling.top_k=int:20",
                       "general.sampling.top_p=float:0.5",          "general.sampling.min_p=float:0.125",
                       "general.sampling.penalty_repeat=float:1.5", "general.sampling.penalty_last_n=int:7"};
  const decode::SamplingParameters p = Engine(options).sampling_defaults();
  EXPECT_EQ(p.temperature, 0.25f);
  EXPECT_EQ(p.top_k, 20u);
  EXPECT_EQ(p.top_p, 0.5f);
  EXPECT_EQ(p.min_p, 0.125f);
  EXPECT_EQ(p.repeat_penalty, 1.5f);
  EXPECT_EQ(p.penalty_window, 7u);
}

TEST(Engine, OptionsThatMakeNoSenseAreErrors) {
  const auto with = [](auto set) {
    EngineOptions options = test::micro_options();
    set(options);
    const Engine engine(options);
  };
  EXPECT_THROW(with([](EngineOptions& o) { o.micro_batch = 0; }), Error);
  EXPECT_THROW(with([](EngineOptions& o) { o.max_logits = 0; }), Error);
  EXPECT_THROW(with([](EngineOptions& o) { o.isa = "abacus"; }), Error);
  EXPECT_THROW(with([](EngineOptions& o) { o.path = "/nonexistent.gguf"; }), Error);
  EXPECT_THROW(with([](EngineOptions& o) { o.overrides = {"nonsense"}; }), Error);
}

TEST(Engine, FailedAllocationsAreErrorsThatLeaveNothingBehind) {
  const uint64_t before = allocated_bytes();
  int64_t failures = 0;
  for (bool done = false; !done && failures < 100;) {
    fail_allocation_after(failures);
    try {
      const Engine engine(test::micro_options());
      done = true;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kLimit);
      ++failures;
    }
    EXPECT_EQ(allocated_bytes(), before);
  }
  fail_allocation_after(-1);
  EXPECT_GE(failures, 4) << "weights, slots, scratch and cache";
}

TEST(Engine, ProgressEndsAtTheWhole) {
  EngineOptions options = test::micro_options();
  uint64_t last = 0, whole = 0;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    last = done, whole = total;
  };
  const Engine engine(options);
  EXPECT_GT(whole, 0u);
  EXPECT_EQ(last, whole);
}

}  // namespace
}  // namespace sluice
