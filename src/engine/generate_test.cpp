// Answers: a function of model, prompt, parameters and seed alone; where they end and what they show on the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "base/utf8.h"
#include "engine/session.h"
#include "engine/test_models.h"

namespace sluice {
namespace {

using test::some_tokens;
using test::operator+;
using Tokens = std::vector<int32_t>;

decode::SamplingParameters greedy() {
  decode::SamplingParameters p;
  p.temperature = 0.0f;
  return p;
}

// Any token may come, also one that ends the answer.
decode::SamplingParameters wild(uint64_t seed) {
  decode::SamplingParameters p;
  p.temperature = 50.0f, p.top_k = 0, p.top_p = 1.0f, p.min_p = 0.0f, p.seed = seed;
  return p;
}

// No token may come that ends an answer.
decode::SamplingParameters endless(const Engine& engine) {
  decode::SamplingParameters p;
  for (const int32_t end : engine.tokenizer().ends_of_generation()) p.logit_bias.push_back({end, -1e9f});
  return p;
}

GenerateOptions at_most(uint32_t tokens) {
  GenerateOptions options;
  options.max_tokens = tokens;
  return options;
}

Answer answer(Engine& engine, const Tokens& prompt, const decode::SamplingParameters& p, const GenerateOptions& o) {
  Session session(engine);
  return session.generate(prompt, {}, engine.sampler(p), o);
}

class Generate : public ::testing::Test {
 protected:
  Engine engine{test::micro_options()};
  Tokens prompt = some_tokens(20);
};

TEST_F(Generate, TheSameSeedGivesTheSameTextWhateverComputesIt) {
  decode::SamplingParameters p = endless(engine);
  p.temperature = 1.5f, p.seed = 7;
  const Answer expected = answer(engine, prompt, p, at_most(12));
  ASSERT_EQ(expected.tokens.size(), 12u);
  const auto same = [&](const EngineOptions& options) {
    Engine other(options);
    const Answer got = answer(other, prompt, p, at_most(12));
    return got.tokens == expected.tokens && got.text == expected.text;
  };
  for (const int threads : {2, 3}) {
    EngineOptions options = test::micro_options();
    options.threads = threads;
    EXPECT_TRUE(same(options)) << threads << " threads";
  }
  for (const uint32_t micro_batch : {1u, 7u, 19u, 512u}) {
    EngineOptions options = test::micro_options();
    options.micro_batch = micro_batch;
    EXPECT_TRUE(same(options)) << "batches of " << micro_batch;
  }
  for (const ops::cpu::Kernels* kernels : ops::cpu::usable_kernels()) {
    EngineOptions options = test::micro_options();
    options.isa = kernels->name;
    EXPECT_TRUE(same(options)) << kernels->name;
  }
}

TEST_F(Generate, SeedsAndNumbersOfAnswersGiveOtherTexts) {
  decode::SamplingParameters p = endless(engine);
  p.temperature = 1.5f, p.seed = 7;
  GenerateOptions options = at_most(12);
  const Tokens base = answer(engine, prompt, p, options).tokens;
  EXPECT_EQ(answer(engine, prompt, p, options).tokens, base);
  options.sequence = 1;
  EXPECT_NE(answer(engine, prompt, p, options).tokens, base);
  options.sequence = 0;
  p.seed = 8;
  EXPECT_NE(answer(engine, prompt, p, options).tokens, base);
}

TEST_F(Generate, LimitsOfTokens) {
  const Answer five = answer(engine, prompt, greedy(), at_most(5));
  for (const uint32_t n : {0u, 1u, 5u}) {
    const Answer got = answer(engine, prompt, greedy(), at_most(n));
    EXPECT_EQ(got.tokens, test::first(five.tokens, n));
    EXPECT_EQ(got.reason, StopReason::kLimit);
    EXPECT_EQ(got.prompt_tokens, 20u);
  }
  EXPECT_EQ(answer(engine, prompt, greedy(), at_most(0)).text, "");
}

TEST_F(Generate, AFullContextIsALimit) {
  EngineOptions options = test::micro_options();
  options.context = 24;
  Engine small(options);
  const Answer got = answer(small, prompt, greedy(), {});
  EXPECT_EQ(got.reason, StopReason::kLimit);
  EXPECT_EQ(got.tokens.size(), 5u) << "four that fit, and the one that follows them";
  EXPECT_EQ(got.tokens, answer(engine, prompt, greedy(), at_most(5)).tokens);
}

TEST_F(Generate, EveryEndOfGenerationTokenEndsTheAnswerAndIsNoPartOfIt) {
  ASSERT_GE(engine.tokenizer().ends_of_generation().size(), 2u);
  for (const int32_t end : engine.tokenizer().ends_of_generation()) {
    decode::SamplingParameters p = greedy();
    p.logit_bias = {{end, 1000.0f}};
    const Answer got = answer(engine, prompt, p, at_most(5));
    EXPECT_EQ(got.reason, StopReason::kEndOfText) << end;
    EXPECT_TRUE(got.tokens.empty());
    EXPECT_EQ(got.text, "");
  }
}

TEST_F(Generate, ABiasDecidesWhatComes) {
  decode::SamplingParameters p = greedy();
  const int32_t favourite = engine.tokenizer().encode("a", false)[0];
  p.logit_bias = {{favourite, 1000.0f}};
  EXPECT_EQ(answer(engine, prompt, p, at_most(3)).text, "aaa");
  p.logit_bias = {{favourite, -1000.0f}};
  EXPECT_THAT(answer(engine, prompt, p, at_most(40)).tokens, ::testing::Not(::testing::Contains(favourite)));
}

TEST_F(Generate, PaddingNeverComes) {
  const chat::Tokenizer& tokenizer = engine.tokenizer();
  const uint32_t n_vocab = engine.model().hp.n_vocab;
  std::vector<int32_t> padding;
  for (int32_t id = 0; id < static_cast<int32_t>(n_vocab); ++id)
    if (!tokenizer.contains(id) || tokenizer.is_unused(id)) padding.push_back(id);
  ASSERT_EQ(padding.size(), 69u);
  decode::SamplingParameters p = endless(engine);
  p.top_k = 0, p.top_p = 1.0f, p.min_p = 0.0f;
  for (const int32_t id : padding) p.logit_bias.push_back({id, 1000.0f});
  for (const float temperature : {0.0f, 50.0f}) {
    p.temperature = temperature;
    const Answer got = answer(engine, prompt, p, at_most(100));
    EXPECT_EQ(got.tokens.size(), 100u);
    for (const int32_t id : got.tokens) EXPECT_THAT(padding, ::testing::Not(::testing::Contains(id)));
  }
}

TEST_F(Generate, AStopStringIsFoundAcrossTokensAndNotShown) {
  // Three tokens in turn: each comes once, then the next most favoured.
  const chat::Tokenizer& tokenizer = engine.tokenizer();
  const auto token = [&](const char* text) { return tokenizer.encode(text, false).at(0); };
  decode::SamplingParameters p = greedy();
  p.presence_penalty = 500.0f;
  p.logit_bias = {{token("a"), 4000.0f}, {token("b"), 3900.0f}, {token("c"), 3800.0f}, {token("d"), 3700.0f}};
  EXPECT_EQ(answer(engine, prompt, p, at_most(4)).text, "abcd");

  GenerateOptions options = at_most(4);
  std::string shown;
  options.on_text = [&](const std::string& text) {
    shown += text;
    return true;
  };
  options.stop_strings = {"nothing", "bc"};
  const Answer got = answer(engine, prompt, p, options);
  EXPECT_EQ(got.reason, StopReason::kStopString);
  EXPECT_EQ(got.text, "a");
  EXPECT_EQ(shown, "a");
  EXPECT_EQ(got.tokens.size(), 3u);

  // What only begins like a stop string is shown in the end.
  options.stop_strings = {"cdx"};
  shown.clear();
  EXPECT_EQ(answer(engine, prompt, p, options).text, "abcd");
  EXPECT_EQ(shown, "abcd");
}

TEST_F(Generate, PiecesAreWholeCharactersAndJoinToTheText) {
  bool cut_character = false;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    std::string shown;
    GenerateOptions options = at_most(60);
    options.on_text = [&](const std::string& text) {
      EXPECT_FALSE(text.empty());
      EXPECT_TRUE(utf8::is_valid(text)) << text;
      shown += text;
      return true;
    };
    const Answer got = answer(engine, prompt, wild(seed), options);
    EXPECT_EQ(shown, got.text);
    cut_character |= got.text.find("\xEF\xBF\xBD") != std::string::npos;
  }
  EXPECT_TRUE(cut_character) << "no answer had a byte that is no character: the test shows nothing";
}

TEST_F(Generate, AnInterruptKeepsWhatWasSaidAndTheSessionGoesOn) {
  const Answer whole = answer(engine, prompt, greedy(), at_most(8));
  for (const bool by_text : {false, true}) {
    Session session(engine);
    GenerateOptions options = at_most(8);
    int asked = 0;
    if (by_text) {
      options.on_text = [&](const std::string&) { return ++asked < 3; };
    } else {
      options.interrupted = [&] { return ++asked > 3; };  // asked once before the prompt
    }
    const Answer got = session.generate(prompt, {}, engine.sampler(greedy()), options);
    EXPECT_EQ(got.reason, StopReason::kInterrupted);
    ASSERT_LT(got.tokens.size(), 8u);
    EXPECT_EQ(got.tokens, test::first(whole.tokens, got.tokens.size()));
    // All but the last token of the answer has been computed.
    const Answer rest = session.generate(prompt + got.tokens, {}, engine.sampler(greedy()),
                                         at_most(static_cast<uint32_t>(8 - got.tokens.size())));
    EXPECT_EQ(rest.cached_tokens, prompt.size() + got.tokens.size() - 1);
    EXPECT_EQ(got.tokens + rest.tokens, whole.tokens);
  }
}

TEST_F(Generate, AnInterruptDuringThePromptGivesAnEmptyAnswer) {
  Session session(engine);
  GenerateOptions options = at_most(8);
  options.interrupted = [] { return true; };
  const Answer got = session.generate(prompt, {}, engine.sampler(greedy()), options);
  EXPECT_EQ(got.reason, StopReason::kInterrupted);
  EXPECT_TRUE(got.tokens.empty());
  EXPECT_EQ(session.generate(prompt, {}, engine.sampler(greedy()), at_most(8)).tokens,
            answer(engine, prompt, greedy(), at_most(8)).tokens);
}

TEST_F(Generate, AnExceptionFromTheReceiverOfTextLeavesTheSessionUsable) {
  Session session(engine);
  GenerateOptions options = at_most(8);
  options.on_text = [](const std::string&) -> bool { throw std::runtime_error("the other side has gone"); };
  EXPECT_THROW(session.generate(prompt, {}, engine.sampler(greedy()), options), std::runtime_error);
  EXPECT_EQ(session.generate(prompt, {}, engine.sampler(greedy()), at_most(8)).tokens,
            answer(engine, prompt, greedy(), at_most(8)).tokens);
}

TEST_F(Generate, TheNextPromptReusesTheAnswer) {
  Session session(engine);
  const Answer got = session.generate(prompt, {}, engine.sampler(greedy()), at_most(6));
  const Tokens next = prompt + got.tokens + some_tokens(4, 5);
  const Answer second = session.generate(next, {}, engine.sampler(greedy()), at_most(6));
  EXPECT_EQ(second.cached_tokens, prompt.size() + 5);
  EXPECT_EQ(second.tokens, answer(engine, next, greedy(), at_most(6)).tokens);
}

}  // namespace
}  // namespace sluice
