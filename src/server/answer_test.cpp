// The three formats of answers, whole and as streams, from requests as clients send them.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <span>

#include "server/json.h"
#include "server/test_server.h"

namespace sluice::server {
namespace {

using test::AppTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Answers : public AppTest {
 protected:
  Answers() { start(); }
  static Json json_of(const test::FakeExchange& exchange) { return Json::parse(exchange.head.body); }
  static std::vector<Json> events_of(const test::FakeExchange& exchange) {
    std::vector<Json> out;
    for (const std::string& event : exchange.events())
      if (event != "[DONE]") out.push_back(Json::parse(event));
    return out;
  }
  const GenerationRequest& asked(size_t index = 0) const { return generator_->asked[index].request; }
};

constexpr const char* kChat = R"("messages":[{"role":"user","content":"hi"}])";
constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"look","parameters":{"properties":{"n":{"type":"integer"}}}}}])";

TEST_F(Answers, ACompletionTellsTextReasonNumbersAndSettings) {
  const auto got = post("/completion", R"({"prompt":"a b","n_predict":5,"seed":7,"stop":["x"],"temperature":0})");
  EXPECT_FALSE(got->over());
  generator_->play(0, {"one", " two"}, StopReason::kStopString, "!", "x");
  const Json out = json_of(*got);
  EXPECT_EQ(out["content"], "one two!");
  EXPECT_EQ(out["stop"], true);
  EXPECT_EQ(out["stop_type"], "word");
  EXPECT_EQ(out["stopping_word"], "x");
  EXPECT_EQ(out["tokens_predicted"], 2);
  EXPECT_EQ(out["tokens_cached"], 1);
  EXPECT_EQ(out["prompt"], "a b");
  EXPECT_EQ(out["generation_settings"]["seed"], 7);
  EXPECT_EQ(out["generation_settings"]["n_predict"], 5);
  EXPECT_EQ(out["timings"]["prompt_ms"], 500.0);
  EXPECT_EQ(out["timings"]["predicted_per_second"], 1.0);
  EXPECT_EQ(out["timings"]["cache_reason"], "extended");
  EXPECT_EQ(asked().max_tokens, 5u);
  EXPECT_EQ(asked().sampling.temperature, 0.0f);
  EXPECT_THAT(asked().stop_strings, ElementsAre("x"));
}

TEST_F(Answers, AStreamedCompletionEndsWithItsNumbersAndNoMark) {
  const auto got =
      post("/completion", R"({"prompt":"a","stream":true,"n_probs":2,"return_tokens":true,"return_progress":true})");
  generator_->play(0, {"one", ""}, StopReason::kLimit, "held");
  EXPECT_EQ(got->head.content_type, "text/event-stream; charset=utf-8");
  const std::vector<Json> events = events_of(*got);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0]["prompt_progress"]["total"], 1);
  EXPECT_EQ(events[1]["content"], "one");
  EXPECT_EQ(events[1]["tokens"], Json::array({65}));
  EXPECT_EQ(events[1]["completion_probabilities"][0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(events[3]["content"], "held");
  EXPECT_EQ(events[4]["stop"], true);
  EXPECT_EQ(events[4]["content"], "");
  EXPECT_EQ(events[4]["stop_type"], "limit");
  EXPECT_THAT(got->head.body, ::testing::Not(HasSubstr("[DONE]")));
}

TEST_F(Answers, SeveralPromptsAreAnsweredInTheirOrderWhateverEndsFirst) {
  const auto got =
      post("/completion", R"({"prompt":["a",[66,67],["c",68]],"response_fields":["content","timings/prompt_n","no"]})");
  ASSERT_EQ(generator_->asked.size(), 3u);
  EXPECT_THAT(asked(1).prompt, ElementsAre(66, 67));
  generator_->play(2, {"third"});
  generator_->play(0, {"first"});
  generator_->play(1, {"second"});
  const Json out = json_of(*got);
  EXPECT_EQ(out[0], (Json{{"content", "first"}, {"timings/prompt_n", 0}}));
  EXPECT_EQ(out[1]["content"], "second");
  EXPECT_EQ(out[2]["content"], "third");
}

TEST_F(Answers, OpenAiCompletionsCountEachPromptOnce) {
  const auto got = post("/v1/completions", R"({"prompt":["ab","c"],"n":2,"echo":true,"max_tokens":9})");
  ASSERT_EQ(generator_->asked.size(), 4u);
  EXPECT_EQ(asked(1).sequence, 1u);
  const size_t prompts = asked(0).prompt.size() + asked(2).prompt.size();
  for (size_t i = 0; i < 4; ++i) generator_->play(i, {"x", "y"}, StopReason::kLimit);
  const Json out = json_of(*got);
  EXPECT_EQ(out["object"], "text_completion");
  EXPECT_EQ(out["choices"][3]["text"], "cxy");
  EXPECT_EQ(out["choices"][3]["index"], 3);
  EXPECT_EQ(out["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(out["usage"]["completion_tokens"], 8);
  EXPECT_EQ(out["usage"]["prompt_tokens"], prompts);
  EXPECT_EQ(out["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

TEST_F(Answers, AStreamedOpenAiCompletionHasUsageLastAndTheMark) {
  const auto got =
      post("/v1/completions", R"({"prompt":"a","stream":true,"stream_options":{"include_usage":true},"logprobs":1})");
  generator_->play(0, {"x", "y"});
  EXPECT_EQ(got->events().back(), "[DONE]");
  const std::vector<Json> events = events_of(*got);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["choices"][0]["text"], "x");
  EXPECT_EQ(events[0]["choices"][0]["logprobs"]["token_logprobs"], Json::array({-0.5}));
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["text_offset"], Json::array({1}));
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "stop");
  EXPECT_FALSE(events[2].contains("usage"));
  EXPECT_TRUE(events[3]["choices"].empty());
  EXPECT_EQ(events[3]["usage"]["completion_tokens"], 2);
}

TEST_F(Answers, AChatPartsReasoningContentAndCalls) {
  const auto got = post("/v1/chat/completions", std::string("{") + kChat + "," + kTools + "}");
  generator_->play(0, {"<think>\nhm\n</thi", "nk>\n\nlet me see\n<tool_call>\n<function=look>\n",
                       "<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>"});
  const Json out = json_of(*got);
  const Json& choice = out["choices"][0];
  EXPECT_EQ(choice["message"]["reasoning_content"], "hm");
  EXPECT_EQ(choice["message"]["content"], "let me see");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "look");
  EXPECT_EQ(Json::parse(choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>()),
            (Json{{"n", 3}}));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(out["usage"]["completion_tokens"], 3);
}

TEST_F(Answers, AStreamedChatBeginsWithTheRoleAndNamesCallsOnce) {
  const auto got = post("/v1/chat/completions", std::string(R"({"stream":true,)") + kChat + "," + kTools + "}");
  generator_->play(0, {"<think>", "hm", "</think>", "yes",
                       "<tool_call>\n<function=look>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>"});
  EXPECT_EQ(got->events().back(), "[DONE]");
  std::string reasoning, content, arguments, ids;
  const std::vector<Json> events = events_of(*got);
  EXPECT_EQ(events[0]["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", nullptr}}));
  for (size_t i = 1; i < events.size(); ++i) {
    const Json& delta = events[i]["choices"][0]["delta"];
    EXPECT_FALSE(delta.contains("role"));
    reasoning += delta.value("reasoning_content", "");
    content += delta.value("content", "");
    if (!delta.contains("tool_calls")) continue;
    ids += delta["tool_calls"][0].value("id", "");
    arguments += delta["tool_calls"][0]["function"]["arguments"].get<std::string>();
  }
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(content, "yes");
  EXPECT_EQ(Json::parse(arguments), (Json{{"n", 3}}));
  EXPECT_TRUE(ids.starts_with("call_"));
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_GT(events.back()["timings"]["predicted_n"], 0);
}

TEST_F(Answers, ARequiredCallIsBegunForTheModel) {
  const auto got =
      post("/v1/chat/completions", std::string("{") + kChat + "," + kTools +
                                       R"(,"tool_choice":{"type":"function","function":{"name":"look"}}})");
  const std::string prompt = engine_.tokenizer().decode(asked().prompt, false);
  EXPECT_THAT(prompt, HasSubstr("look"));
  generator_->play(0, {R"({"n": 3}})", "\n</tool_call>"});
  const Json message = json_of(*got)["choices"][0]["message"];
  ASSERT_TRUE(message.contains("tool_calls")) << got->head.body;
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "look");
}

TEST_F(Answers, AnAnswerThatComesBackStandsInThePromptAsItWasGenerated) {
  post("/v1/chat/completions", std::string("{") + kChat + "}");
  generator_->play(0, {"A", "A"});  // as tokens that the text "AA" would not become
  post("/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"AA"},
                       {"role":"user","content":"more"}]})");
  std::vector<int32_t> before = asked(0).prompt;
  before.insert(before.end(), {65, 65});
  ASSERT_GT(asked(1).prompt.size(), before.size());
  EXPECT_TRUE(std::ranges::equal(before, std::span(asked(1).prompt).first(before.size())));
  EXPECT_FALSE(asked(1).turn_starts.empty());
}

TEST_F(Answers, WithoutParallelCallsTheAnswerEndsBehindTheFirst) {
  const auto got =
      post("/v1/chat/completions", std::string(R"({"parallel_tool_calls":false,)") + kChat + "," + kTools + "}");
  const std::string call = "<tool_call>\n<function=look>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>\n";
  generator_->play(0, {call, call, "more"}, StopReason::kInterrupted);
  EXPECT_THAT(generator_->cancelled, ElementsAre(1));
  const Json choice = json_of(*got)["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST_F(Answers, ReasoningStaysInTheContentIfThatIsWanted) {
  const auto got =
      post("/v1/chat/completions", std::string(R"({"reasoning_format":"none","logprobs":true,)") + kChat + "}");
  generator_->play(0, {"<think>a</think>b"});
  const Json choice = json_of(*got)["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "<think>a</think>b");
  EXPECT_EQ(choice["logprobs"]["content"][0]["bytes"].size(), 1u);
}

TEST_F(Answers, AClientThatLeavesEndsAllItsAnswersAndNobodyElses) {
  const auto leaving = post("/completion", R"({"prompt":["a","b"],"stream":true})");
  const auto staying = post("/completion", R"({"prompt":"c"})");
  leaving->gone();
  EXPECT_THAT(generator_->cancelled, ElementsAre(1, 2));
  generator_->play(0, {"x"}, StopReason::kInterrupted);
  generator_->play(1, {}, StopReason::kInterrupted);
  generator_->play(2, {"fine"});
  EXPECT_EQ(json_of(*staying)["content"], "fine");
  EXPECT_EQ(log_[0].status, 499);
}

TEST_F(Answers, AFullQueueIs503AndTakesBackWhatWasAsked) {
  generator_->room = 1;
  const auto got = post("/completion", R"({"prompt":["a","b"]})");
  EXPECT_EQ(got->head.status, 503);
  EXPECT_EQ(got->header("Retry-After"), "1");
  EXPECT_THAT(generator_->cancelled, ElementsAre(1));
}

TEST_F(Answers, WhatFailsInAStreamIsAnEventOfIt) {
  const auto got = post("/v1/completions", R"({"prompt":"a","stream":true})");
  generator_->asked[0].listener->failed(Error(ErrorKind::kInternal, "it broke"), {});
  EXPECT_EQ(got->head.status, 200);
  EXPECT_TRUE(got->over());
  EXPECT_EQ(events_of(*got)[0]["error"]["type"], "server_error");
  const auto whole = post("/v1/completions", R"({"prompt":"a"})");
  generator_->asked[1].listener->failed(Error(ErrorKind::kInternal, "it broke"), {});
  EXPECT_EQ(whole->head.status, 500);
}

TEST_F(Answers, OnAServiceTheyAreWhatASessionSays) {
  Service service(engine_, {});
  AppOptions options;
  options.workers = 0;  // so that both are asked before the service drains
  App app(options);
  app.ready(engine_, generator_of(service), engine_.sampling_defaults());
  const auto whole = std::make_shared<test::FakeExchange>(
      "POST", "/completion", R"({"prompt":"the","n_predict":12,"temperature":0,"return_tokens":true})");
  const auto stream = std::make_shared<test::FakeExchange>(
      "POST", "/completion",
      R"({"prompt":"the","n_predict":12,"temperature":0,"return_tokens":true,"stream":true,"n_probs":2})");
  for (const auto& exchange : {whole, stream}) app.handle(exchange);
  service.drain(60);
  service.stop();
  const Json out = json_of(*whole);
  EXPECT_EQ(out["tokens"].size(), 12u) << whole->head.body << stream->head.body;
  std::string text;
  Json tokens = Json::array();
  for (const Json& event : events_of(*stream)) {
    text += event["content"].get<std::string>();
    for (const Json& token : event["tokens"]) tokens.push_back(token);
  }
  EXPECT_EQ(text, out["content"]);
  EXPECT_EQ(tokens, out["tokens"]);
}

TEST_F(Answers, AShutdownIsToldByName) {
  const auto got = post("/v1/chat/completions", std::string("{") + kChat + "}");
  generator_->play(0, {"par"}, StopReason::kShutdown);
  const Json choice = json_of(*got)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["stop_reason"], "shutdown");
}

TEST_F(Answers, APromptTooLongSaysByHowMuch) {
  const auto got = post("/completion", to_text({{"prompt", std::vector<int>(256, 65)}}));
  EXPECT_EQ(got->head.status, 400);
  const Json error = json_of(*got)["error"];
  EXPECT_EQ(error["type"], "exceed_context_size_error");
  EXPECT_EQ(error["n_prompt_tokens"], 256);
  EXPECT_EQ(error["n_ctx"], 256);
}

}  // namespace
}  // namespace sluice::server
