// What an engine makes of options and file: the memory that it says it will take, defaults of sampling, errors.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <map>
#include <thread>

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
    const MemoryPlan plan = ModelFile::open(options).plan(options, 0);
    const uint64_t before = allocated_bytes();
    const Engine planned(options);  // as an engine that is never asked anything
    Engine engine(options);
    const uint64_t engines = allocated_bytes() - before;
    const Session session(engine);
    const uint64_t sessions = allocated_bytes() - before - engines;
    EXPECT_EQ(by_name(engine.plan()), by_name(plan));
    EXPECT_EQ(sessions, by_name(plan).at("recurrent state"));
    // Of the cache, whole pages; they take memory when they are used.
    const uint64_t part_of_page = by_name(plan).at("prompt cache") % engine.pages().page_bytes();
    EXPECT_EQ(engines / 2 + sessions, plan.total() - part_of_page);
  }
}

TEST(MemoryPlan, GrowsWithWhatIsAskedFor) {
  const ModelFile file = ModelFile::open(test::micro_options());
  EngineOptions options = test::micro_options();
  auto small = by_name(file.plan(options, 0));
  options.context = 512;
  options.micro_batch = 128;
  options.sequences = 3;
  auto large = by_name(file.plan(options, 0));
  EXPECT_EQ(large["recurrent state"], 3 * small["recurrent state"]);
  EXPECT_EQ(large["KV cache"] * 5, small["KV cache"] * 11) << "8 pages and 4, and one to copy for each sequence";
  EXPECT_GT(large["scratch"], small["scratch"]);
  EXPECT_EQ(large["expert slots"], small["expert slots"]);
  EXPECT_EQ(large["dense weights"], small["dense weights"]);
  options.cache_type = ops::cpu::CacheType::kF32;
  EXPECT_EQ(by_name(file.plan(options, 0))["KV cache"], 2 * large["KV cache"]);
}

TEST(ModelFile, BytesPerTokenAreDenseWeightsARowAndTheExpertsInUse) {
  // Of the file's 828096 bytes of tensors: 430080 of experts, of which 2 in 8 are used, and 640 rows of the embedding
  // in 65280 bytes, of which one is.
  EXPECT_EQ(ModelFile::open(test::micro_options()).bytes_per_token(), 828096u - 430080 + 430080 / 4 - 65280 + 102);
}

// The logits of a batch of tokens on a fresh sequence, where the last of them wants logits.
std::vector<float> logits_of(Engine& engine, const std::vector<int32_t>& tokens, model::Profile* profile = nullptr) {
  state::Sequence sequence(engine.pages(), engine.model().layout.recurrent_floats());
  model::Batch batch{{&sequence}, {}, {}, false};
  for (const int32_t token : tokens) batch.rows.push_back({0, token, token == tokens.back(), false});
  model::Pass pass = engine.begin_pass(std::move(batch), profile);
  pass.finish();
  return {pass.logits(0).begin(), pass.logits(0).end()};
}

TEST(Profile, CountsTheBytesAndOperationsThatTheFileCallsFor) {
  Engine engine(test::micro_options());
  const ModelFile file = ModelFile::open(test::micro_options());
  model::Profile profile;
  EXPECT_TRUE(test::same_bits(logits_of(engine, {7}, &profile), logits_of(engine, {7}))) << "measuring changes nothing";
  double bytes = 0, operations = 0;
  for (const model::Part part :
       {model::Part::kAttentionProjections, model::Part::kDeltaProjections, model::Part::kRouter, model::Part::kExperts,
        model::Part::kSharedExpert, model::Part::kFeedForward, model::Part::kHead}) {
    bytes += profile.of(part).bytes;
    operations += profile.of(part).operations;
  }
  // The shared experts' gates are products with vectors, which the file does not count.
  const double gates = 2.0 * file.hp.n_embd * file.hp.n_layers;
  EXPECT_EQ(operations, static_cast<double>(file.operations_per_token(true)) + gates);
  // Norms, convolutions and the row of the embedding are no products: a few percent of this small model.
  EXPECT_LT(bytes, static_cast<double>(file.bytes_per_token()));
  EXPECT_GT(bytes, 0.9 * static_cast<double>(file.bytes_per_token()));
  const model::Hyperparameters& hp = file.hp;
  const double state = 4.0 * hp.n_value_heads * hp.state_key_dim * hp.state_value_dim;
  EXPECT_EQ(profile.of(model::Part::kDeltaNet).bytes, 2 * state * hp.n_layers / 2) << "read and written";
  EXPECT_EQ(profile.of(model::Part::kAttention).bytes,
            2.0 * hp.n_kv_heads * (hp.key_dim + hp.value_dim) * hp.n_layers / 2)
      << "one position of f16";
}

TEST(Engine, PassesOfSeveralRowsRunOnThreadsOfTheirOwnNumber) {
  EngineOptions options = test::micro_options();
  const std::vector<float> one = logits_of(*std::make_unique<Engine>(options), {7}),
                           several = logits_of(*std::make_unique<Engine>(options), {7, 8, 9});
  options.threads = 2;
  options.threads_batch = 3;
  Engine engine(options);
  EXPECT_TRUE(test::same_bits(logits_of(engine, {7}), one));
  EXPECT_EQ(engine.context().pool.active(), 2);
  EXPECT_TRUE(test::same_bits(logits_of(engine, {7, 8, 9}), several));
  EXPECT_EQ(engine.context().pool.active(), 3);
}

TEST(Engine, RunsOnTheCpusAskedFor) {
  EngineOptions options = test::micro_options();
  options.cpus = {1 << 20};
  EXPECT_THROW(Engine{options}, Error) << "no machine has so many";
  // In a thread of its own, since the restriction stays with the thread that asked for it.
  std::thread([&] {
    cpu_set_t allowed;
    ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int last = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &allowed)) last = cpu;
    options.cpus = {last};
    options.threads = 0;
    Engine engine(options);
    EXPECT_EQ(engine.threads(), 1) << "as many as cores asked for";
    ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
    EXPECT_EQ(CPU_COUNT(&allowed), 1);
    EXPECT_TRUE(CPU_ISSET(last, &allowed));
  }).join();
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
