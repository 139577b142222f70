// What bodies and fields are let through, and what a wrong one is told.
#include <gmock/gmock.h>

#include <cmath>

#include "server/api_error.h"
#include "server/body.h"
#include "server/json.h"
#include "server/test_server.h"

namespace sluice::server {
namespace {

using test::AppTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string complaint(const std::string& body) {
  try {
    parse_body(body);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.what();
  }
  return {};
}

TEST(Body, WhatIsNoObjectOfJsonIsRefusedWithThePlace) {
  EXPECT_EQ(complaint(R"({"a":[1,2.5,null,true,"\u00e9"]})"), "");
  EXPECT_EQ(complaint(""), "");
  for (const char* bad : {"[1]", "1", "{", R"({"a":1,})", R"({"a":NaN})", R"({"a":1e999})", R"({"a":"\ud800"})",
                          "{\"a\":\"\xff\"}", R"({"a":99999999999999999999})", "{} x", R"({"a" 1})"})
    EXPECT_THAT(complaint(bad), HasSubstr("the request's body: ")) << bad;
}

TEST(Body, OfAKeyThatOccursTwiceTheLastCounts) {
  EXPECT_EQ(parse_body(R"({"a":1,"a":2})").as_dict().find(std::string_view("a"))->as_int(), 2);
}

TEST(Body, DepthAndElementsHaveLimitsThatTextDoesNotCountFor) {
  const auto nested = [](size_t n) { return R"({"a":)" + std::string(n, '[') + std::string(n, ']') + "}"; };
  EXPECT_EQ(complaint(nested(63)), "");
  EXPECT_THAT(complaint(nested(64)), HasSubstr("64"));
  EXPECT_THAT(complaint(nested(1000000)), HasSubstr("64"));
  EXPECT_EQ(complaint(R"({"a":"\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["})"), "");
  EXPECT_THROW(parse_body("{\"a\":[1,2,3]}", {.depth = 64, .elements = 3}), ApiError);
}

class RequestFields : public AppTest {
 protected:
  RequestFields() { start(); }
  // The field that a request is refused for; empty if it isn't.
  std::string refused(const std::string& path, const std::string& body) {
    const auto got = post(path, body);
    if (!got->over()) return {};
    EXPECT_EQ(got->head.status, 400) << body;
    return Json::parse(got->head.body)["error"].value("param", "?");
  }
  std::string completion(const std::string& members) {
    return refused("/completion", R"({"prompt":"a",)" + members + "}");
  }
  std::string chat(const std::string& members) {
    return refused("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],)" + members + "}");
  }
  const decode::SamplingParameters& sampling() const { return generator_->asked.back().request.sampling; }
};

TEST_F(RequestFields, WhatWouldChangeTheAnswerIsRefusedByName) {
  for (const char* field : {"grammar", "mirostat", "typical_p", "dry_multiplier", "xtc_probability", "dynatemp_range",
                            "top_n_sigma", "json_schema", "post_sampling_probs", "lora"}) {
    const bool is_text = std::string(field) == "grammar", is_object = std::string(field) == "json_schema";
    const std::string value = is_text                                       ? "\"root ::= x\""
                              : is_object                                   ? "{\"type\":\"object\"}"
                              : std::string(field) == "lora"                ? "[{\"id\":0}]"
                              : std::string(field) == "post_sampling_probs" ? "true"
                                                                            : "2";
    EXPECT_EQ(completion("\"" + std::string(field) + "\":" + value), field);
  }
  EXPECT_EQ(chat(R"("response_format":{"type":"json_object"})"), "response_format");
  EXPECT_EQ(refused("/v1/completions", R"({"prompt":"a","best_of":2})"), "best_of");
  EXPECT_EQ(refused("/v1/completions", R"({"prompt":"a","suffix":"b"})"), "suffix");
}

TEST_F(RequestFields, ValuesThatMeanNothingAreLetThrough) {
  EXPECT_EQ(completion(R"("mirostat":0,"typical_p":1.0,"dry_multiplier":0,"xtc_probability":0,"grammar":"",
                          "dynatemp_range":0,"top_n_sigma":-1,"mirostat_tau":5,"json_schema":null,"temperature":null)"),
            "");
  EXPECT_EQ(chat(R"("response_format":{"type":"text"},"modalities":["text"],"tools":[],"functions":[])"), "");
}

TEST_F(RequestFields, WrongTypesAndRangesAreNamed) {
  EXPECT_EQ(completion(R"("temperature":"hot")"), "temperature");
  EXPECT_EQ(completion(R"("temperature":-1)"), "temperature");
  EXPECT_EQ(completion(R"("temperature":1e300)"), "temperature");
  EXPECT_EQ(completion(R"("top_p":1.5)"), "top_p");
  EXPECT_EQ(completion(R"("top_k":1.5)"), "top_k");
  EXPECT_EQ(completion(R"("top_k":4e9)"), "top_k");
  EXPECT_EQ(completion(R"("n_predict":-2)"), "n_predict");
  EXPECT_EQ(completion(R"("n":0)"), "n");
  EXPECT_EQ(completion(R"("stream":1)"), "stream");
  EXPECT_EQ(completion(R"("id_slot":2)"), "id_slot");
  EXPECT_EQ(completion(R"("stop":[1])"), "stop");
  EXPECT_EQ(completion("\"stop\":\"" + std::string(1025, 'x') + "\""), "stop");
  EXPECT_EQ(completion("\"stop\":" + to_text(std::vector<std::string>(129, "x"))), "stop");
  EXPECT_EQ(refused("/completion", "{}"), "prompt");
  EXPECT_EQ(refused("/completion", R"({"prompt":[]})"), "prompt");
  EXPECT_EQ(refused("/completion", R"({"prompt":[1,-1]})"), "prompt");
  EXPECT_EQ(refused("/completion", R"({"prompt":[[[1]]]})"), "prompt");
  EXPECT_EQ(completion(R"("top_k":5.0,"n_predict":-1,"id_slot":-1,"stop":"")"), "");
}

TEST_F(RequestFields, ChatsAreChecked) {
  for (const char* messages : {"[]", "[1]", R"([{"content":"a"}])", R"([{"role":"user","content":3}])",
                               R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
                               R"([{"role":"user","content":[{"type":"text"}]}])"})
    EXPECT_EQ(refused("/v1/chat/completions", std::string(R"({"messages":)") + messages + "}"), "messages") << messages;
  EXPECT_EQ(chat(R"("tools":[{"type":"function"}])"), "tools");
  EXPECT_EQ(chat(R"("tool_choice":"required")"), "tool_choice");
  EXPECT_EQ(chat(R"("tool_choice":{"type":"function","function":{"name":"x"}})"), "tool_choice");
  EXPECT_EQ(chat(R"("top_logprobs":2)"), "top_logprobs");
  EXPECT_EQ(chat(R"("reasoning_format":"other")"), "reasoning_format");
  EXPECT_EQ(chat(R"("chat_template_kwargs":{"enable_thinking":"no"})"), "chat_template_kwargs");
  EXPECT_EQ(refused("/v1/chat/completions", R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]})"),
            "");
}

TEST_F(RequestFields, BiasesComeInAllForms) {
  EXPECT_EQ(completion(R"("logit_bias":[[5,1.5],["a",false]])"), "");
  ASSERT_EQ(sampling().logit_bias.size(), 2u);
  EXPECT_EQ(sampling().logit_bias[0], (std::pair<int32_t, float>(5, 1.5f)));
  EXPECT_EQ(sampling().logit_bias[1].first, engine_.tokenizer().encode("a", false)[0]);
  EXPECT_TRUE(std::isinf(sampling().logit_bias[1].second));
  EXPECT_EQ(completion(R"("logit_bias":{"7":-100,"a":2})"), "");
  EXPECT_EQ(sampling().logit_bias[0], (std::pair<int32_t, float>(7, -100.f)));
  EXPECT_EQ(completion(R"("logit_bias":{"70000":1})"), "logit_bias");
  EXPECT_EQ(completion(R"("logit_bias":[[5]])"), "logit_bias");
  EXPECT_EQ(completion(R"("logit_bias":[[5,true]])"), "logit_bias");
}

TEST_F(RequestFields, StepsOfSamplingThatAreNotNamedAreOff) {
  EXPECT_EQ(
      completion(R"("samplers":["penalties","dry","top_n_sigma","top_k","typ_p","top_p","min_p","xtc","temperature"])"),
      "");
  EXPECT_EQ(sampling().top_k, 40u);
  EXPECT_EQ(completion(R"("samplers":"kt","repeat_penalty":2)"), "");
  EXPECT_EQ(sampling().top_k, 40u);
  EXPECT_EQ(sampling().top_p, 1.0f);
  EXPECT_EQ(sampling().repeat_penalty, 1.0f);
  EXPECT_EQ(completion(R"("samplers":["temperature","top_k"])"), "samplers");
  EXPECT_EQ(completion(R"("samplers":["infill"])"), "samplers");
}

TEST_F(RequestFields, SeedsAreKeptAndMinusOneDrawsOne) {
  EXPECT_EQ(completion(R"("seed":123456789012)"), "");
  EXPECT_EQ(sampling().seed, 123456789012u);
  EXPECT_EQ(completion(R"("seed":-1)"), "");
  const uint64_t one = sampling().seed;
  EXPECT_EQ(completion(R"("seed":4294967295)"), "");
  EXPECT_NE(sampling().seed, one);
}

}  // namespace
}  // namespace sluice::server
