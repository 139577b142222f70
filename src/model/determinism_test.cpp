// What makes Sluice's answers reproducible: the logits of a token are a function of the model and of the tokens before
// it. Threads, instruction set, how a prompt is cut into batches, what else is in a batch, where a pass pauses, and
// whether state came out of a snapshot change no bit of them.
#include <gtest/gtest.h>

#include <cstring>

#include "model/test_reference_model.h"

namespace sluice::model {
namespace {

using Tokens = std::vector<int32_t>;

::testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0)
      return ::testing::AssertionFailure() << "value " << i << " of " << a.size() << ": " << a[i] << " and " << b[i];
  return ::testing::AssertionSuccess();
}

Tokens reversed(const Tokens& tokens) { return {tokens.rbegin(), tokens.rend()}; }

class Determinism : public ::testing::TestWithParam<std::string> {
 protected:
  // Logits of each of the tokens, given to a new sequence in batches of `split`.
  std::vector<float> logits(const Tokens& tokens, const ops::Context& context, size_t split = TestEngine::kMaxRows) {
    const auto sequence = engine.sequence();
    return engine.logits(context, *sequence, tokens, split);
  }
  std::vector<float> logits(const Tokens& tokens) { return logits(tokens, engine.context); }

  // The rows of token i on of `all` [n_tokens, n_vocab].
  std::span<const float> from(const std::vector<float>& all, size_t i) const {
    return std::span(all).subspan(i * engine.model.hp.n_vocab);
  }

  ReferenceModel reference{GetParam()};
  TestEngine engine{reference.model_path()};
  Tokens prompt = reference.prompt(65);  // one more than a page of keys and values
};

TEST_P(Determinism, CuttingThePromptChangesNoBit) {
  const Tokens tokens = reference.has("prompt.200.tokens") ? reference.prompt(200) : prompt;
  const std::vector<float> expected = logits(tokens);
  for (const size_t split : {1, 3, 64})
    EXPECT_TRUE(same_bits(expected, logits(tokens, engine.context, split))) << "batches of " << split;
}

// Every instruction set that this machine has, with every number of threads and size of batch. The scalar kernels,
// which are slow, take the beginning only.
TEST_P(Determinism, NoInstructionSetNorThreadsNorBatchesChangeABit) {
  const std::vector<float> expected = logits(prompt);
  for (const ops::cpu::Kernels* kernels : ops::cpu::usable_kernels()) {
    const size_t n = kernels->name == std::string_view("scalar") ? 8 : prompt.size();
    const Tokens tokens(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(n));
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      for (const size_t split : {1, 5, 64, 512}) {
        const std::vector<float> got = logits(tokens, {pool, *kernels}, split);
        EXPECT_TRUE(same_bits(std::span(expected).first(got.size()), got))
            << kernels->name << ", " << threads << " threads, batches of " << split;
      }
    }
  }
}

TEST_P(Determinism, OtherSequencesInTheBatchChangeNoBit) {
  struct Member {
    Tokens tokens;
    std::unique_ptr<state::Sequence> sequence;
    std::vector<float> logits = {};
    size_t done = 0;
  };
  Member members[3] = {{prompt, engine.sequence()},
                       {reversed(prompt), engine.sequence()},
                       {Tokens(prompt.begin() + 20, prompt.end()), engine.sequence()}};
  // Steps of (member, tokens): prompts among decoding rows, each of them first, in the middle and last.
  using Part = std::pair<uint32_t, size_t>;
  const std::vector<std::vector<Part>> steps = {{{1, 30}},         {{1, 1}, {0, 40}, {2, 5}}, {{0, 1}, {2, 20}, {1, 1}},
                                                {{2, 1}, {0, 23}}, {{1, 1}, {0, 1}, {2, 1}},  {{2, 18}, {1, 32}}};
  for (const std::vector<Part>& step : steps) {
    Batch batch;
    for (const Member& member : members) batch.sequences.push_back(member.sequence.get());
    for (const auto& [m, n] : step)
      for (size_t i = 0; i < n; ++i) batch.rows.push_back({m, members[m].tokens.at(members[m].done + i), true, false});
    Pass pass(engine.model, engine.context, engine.workspace, batch);
    pass.finish();
    size_t row = 0;
    for (const auto& [m, n] : step) {
      for (size_t i = 0; i < n; ++i, ++row)
        members[m].logits.insert(members[m].logits.end(), pass.logits(row).begin(), pass.logits(row).end());
      members[m].done += n;
    }
  }
  for (const Member& member : members) {
    ASSERT_EQ(member.done, member.tokens.size());
    EXPECT_TRUE(same_bits(logits(member.tokens), member.logits)) << "sequence of " << member.done << " tokens";
  }
}

TEST_P(Determinism, PausingBetweenLayersChangesNoBit) {
  const Tokens other = reversed(prompt);
  const std::vector<float> expected = logits(prompt), expected_other = logits(other);
  Workspace second(engine.model.hp, other.size(), other.size());
  const auto sequence = engine.sequence(), other_sequence = engine.sequence();
  Batch batch{{sequence.get()}, {}, {}, false}, other_batch{{other_sequence.get()}, {}, {}, false};
  for (const int32_t token : prompt) batch.rows.push_back({0, token, true, false});
  for (const int32_t token : other) other_batch.rows.push_back({0, token, true, false});
  // Two passes over the same layers, by turns.
  Pass pass(engine.model, engine.context, engine.workspace, batch);
  Pass other_pass(engine.model, engine.context, second, other_batch);
  for (uint32_t layer = 1; layer < engine.model.hp.n_layers; ++layer) {
    pass.run_layers(layer);
    EXPECT_EQ(pass.layer(), layer);
    if (layer % 2 == 0) other_pass.run_layers(layer);
  }
  pass.finish();
  other_pass.finish();
  std::vector<float> got, got_other;
  TestEngine::append_logits(pass, prompt.size(), got);
  TestEngine::append_logits(other_pass, other.size(), got_other);
  EXPECT_TRUE(same_bits(expected, got));
  EXPECT_TRUE(same_bits(expected_other, got_other));
}

TEST_P(Determinism, ResumingFromASnapshotChangesNoBit) {
  const std::vector<float> expected = logits(prompt);
  const std::vector<size_t> rows = {0, 1, 37, 62, 63, 64};  // 63 is the last of its page
  const auto sequence = engine.sequence();
  Batch batch{{sequence.get()}, {}, {}, false};
  for (size_t i = 0; i < prompt.size(); ++i)
    batch.rows.push_back({0, prompt[i], true, std::ranges::find(rows, i) != rows.end()});
  std::vector<state::Snapshot> snapshots;
  {
    Pass pass(engine.model, engine.context, engine.workspace, batch);
    pass.finish();
    std::vector<float> got;
    TestEngine::append_logits(pass, prompt.size(), got);
    EXPECT_TRUE(same_bits(expected, got)) << "capturing";
    for (const size_t row : rows) snapshots.push_back(pass.take_snapshot(row));
  }
  const Tokens more = {prompt.begin(), prompt.begin() + 5};
  const auto go_on = [&](const state::Snapshot& snapshot, state::Sequence& in) {
    in.restore(snapshot);
    ASSERT_EQ(in.length(), snapshot.length());
    const Tokens rest(prompt.begin() + static_cast<long>(snapshot.length()), prompt.end());
    EXPECT_TRUE(same_bits(from(expected, snapshot.length()), engine.logits(in, rest, 7)))
        << "after " << snapshot.length() << " tokens";
  };
  // Into one new sequence after another while the original has moved on, then into the original itself.
  engine.logits(*sequence, more);
  const auto other = engine.sequence();
  engine.logits(*other, reversed(prompt));
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(snapshots[i].length(), rows[i] + 1);
    go_on(snapshots[i], *other);
    go_on(snapshots[i], *engine.sequence());
  }
  for (size_t i = rows.size(); i-- > 0;) go_on(snapshots[i], *sequence);
  // And the state after all that is the one that straight work leaves.
  const auto straight = engine.sequence();
  engine.logits(*straight, prompt);
  EXPECT_TRUE(same_bits(engine.logits(*straight, more), engine.logits(*sequence, more)));
}

TEST_P(Determinism, EveryCacheTypeIsAsReproducible) {
  for (const auto type : {ops::cpu::CacheType::kF16, ops::cpu::CacheType::kBf16}) {
    TestEngine rounded(reference.model_path(), false, type);
    const std::vector<float> expected = rounded.logits(*rounded.sequence(), prompt);
    EXPECT_FALSE(same_bits(logits(prompt), expected)) << "the cache's type has no effect";
    for (const size_t split : {1, 3, 64})
      EXPECT_TRUE(same_bits(expected, rounded.logits(*rounded.sequence(), prompt, split))) << "batches of " << split;
    for (const ops::cpu::Kernels* kernels : ops::cpu::usable_kernels())
      EXPECT_TRUE(same_bits(expected, rounded.logits({rounded.pool, *kernels}, *rounded.sequence(), prompt)))
          << kernels->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, Determinism, ::testing::ValuesIn(reference_folders()), test_name);

}  // namespace
}  // namespace sluice::model
