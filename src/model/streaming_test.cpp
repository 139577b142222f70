// Experts that are read while the model computes: how many have a slot, which of them stay, how they are read and what
// is guessed change no bit of a logit; and a read that fails fails its pass, not the next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "model/test_edited_model.h"
#include "model/test_reference_model.h"
#include "support/reference.h"

namespace sluice::model {
namespace {

using Tokens = std::vector<int32_t>;
using experts::BankSize;
using experts::LookAhead;

std::string micro_path() { return test::test_data_dir() + "/models/qwen35moe-micro/model.gguf"; }

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<std::string> folders_with_experts() {
  std::vector<std::string> folders;
  for (const std::string& folder : reference_folders())
    if (read_hyperparameters(gguf::Container::open(folder + "/model.gguf")).n_experts > 0) folders.push_back(folder);
  return folders;
}

class Streaming : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<float> logits(TestEngine& engine, const Tokens& tokens, size_t split) {
    const auto sequence = engine.sequence();
    return engine.logits(*sequence, tokens, split);
  }
  TestEngine with(const LoadOptions& options) const {
    return TestEngine(gguf::Container::open(reference.model_path()), options);
  }

  ReferenceModel reference{GetParam()};
};

TEST_P(Streaming, NoNumberOfSlotsChangesABit) {
  TestEngine whole = with({});
  const Tokens tokens = reference.prompt(65);
  const std::vector<float> expected = logits(whole, tokens, 64);
  const uint32_t n = whole.model.hp.n_experts, k = whole.model.hp.n_experts_used;
  const auto policies = experts::policies();
  uint32_t trial = 0;
  for (const uint32_t slots : {1u, k - 1, k, k + 1, n / 2, n - 1, n, n + 1}) {
    if (slots == 0) continue;
    LoadOptions options{.bank_size = BankSize::per_layer(slots)};
    options.bank.policy = policies[trial % policies.size()].name;
    options.bank.engine = trial % 2 == 0 ? ReadEngine::kAuto : ReadEngine::kThreads;
    options.bank.look_ahead = trial % 3 == 0 ? LookAhead::Mode::kOff : LookAhead::Mode::kOn;
    TestEngine engine = with(options);
    EXPECT_EQ(engine.model.weights.bank->streams(), slots < n);
    for (const size_t split : {1, 5, 64})
      EXPECT_TRUE(same_bits(logits(engine, tokens, split), expected)) << slots << " slots, batches of " << split;
    ++trial;
  }
}

// Two sequences take turns, each evicting what the other needs.
TEST_P(Streaming, SequencesThatEvictEachOthersExpertsKeepTheirBits) {
  TestEngine whole = with({}), engine = with({.bank_size = BankSize::per_layer(1)});
  const Tokens a = reference.prompt(65), b(a.rbegin(), a.rend());
  const auto first = engine.sequence(), second = engine.sequence();
  std::vector<float> got_a, got_b;
  for (size_t i = 0; i < 20; ++i) {
    const std::vector<float> row_a = engine.logits(*first, {a[i]}), row_b = engine.logits(*second, {b[i]});
    got_a.insert(got_a.end(), row_a.begin(), row_a.end());
    got_b.insert(got_b.end(), row_b.begin(), row_b.end());
  }
  EXPECT_TRUE(same_bits(got_a, logits(whole, Tokens(a.begin(), a.begin() + 20), 1)));
  EXPECT_TRUE(same_bits(got_b, logits(whole, Tokens(b.begin(), b.begin() + 20), 1)));
}

INSTANTIATE_TEST_SUITE_P(Reference, Streaming, ::testing::ValuesIn(folders_with_experts()), test_name);

TEST(StreamingFaults, AFailedReadFailsItsPassAndTheNextIsRight) {
  const std::vector<std::byte> bytes = EditedModel(gguf::Container::open(micro_path())).file();
  const Tokens tokens{5, 77, 200, 31};
  TestEngine whole(micro_path());
  const auto fresh = whole.sequence();
  const std::vector<float> expected = whole.logits(*fresh, tokens);
  std::atomic<uint64_t> reads{0}, broken{UINT64_MAX};
  const ReadFault fault = [&](uint64_t, uint64_t, uint64_t length) {
    return reads++ == broken ? int64_t{-EIO} : static_cast<int64_t>(length);
  };
  uint64_t failures = 0;
  for (uint64_t at = 0; at < 40; ++at) {
    broken = UINT64_MAX;
    TestEngine engine(open_memory("micro.gguf", bytes, fault), {.bank_size = BankSize::per_layer(1)});
    broken = reads + at;
    const auto sequence = engine.sequence();
    try {
      EXPECT_TRUE(same_bits(engine.logits(*sequence, tokens), expected)) << "nothing failed";
    } catch (const Error& error) {
      ++failures;
      EXPECT_EQ(error.kind(), ErrorKind::kIo);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("micro.gguf"));
      EXPECT_EQ(sequence->length(), 0u) << "half a step is not kept";
      EXPECT_TRUE(same_bits(engine.logits(*sequence, tokens), expected)) << "after failed read " << at;
    }
  }
  EXPECT_GT(failures, 20u);
}

TEST(StreamingOptions, FewerExpertsATokenAreUsedWhereAskedFor) {
  const auto using_experts = [](uint32_t n) {
    return TestEngine(gguf::Container::open(micro_path()), LoadOptions{}, ops::cpu::CacheType::kF32, n);
  };
  TestEngine two = using_experts(0), one = using_experts(1);
  EXPECT_EQ(two.model.hp.n_experts_used, 2u);
  EXPECT_EQ(one.model.hp.n_experts_used, 1u);
  EXPECT_FALSE(same_bits(two.run({5, 77}).logits, one.run({5, 77}).logits));
  EXPECT_EQ(one.run({5, 77}).routes[0].size(), 2u);
  EXPECT_THROW(using_experts(3), Error);
}

}  // namespace
}  // namespace sluice::model
