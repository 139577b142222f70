// The routes: who is let in, what is answered when there is no answer, and what the server tells of itself.
#include "server/app.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "chat/jinja/jinja.h"
#include "server/json.h"
#include "server/test_server.h"

namespace sluice::server {
namespace {

using test::AppTest;
using ::testing::HasSubstr;

Json parsed(const std::string& text) { return Json::parse(text); }

TEST_F(AppTest, UnknownPathIs404AndWrongMethodIs405WithAllow) {
  start();
  EXPECT_EQ(ask("GET", "/nowhere")->head.status, 404);
  EXPECT_EQ(ask("GET", "/slots/1/2")->head.status, 404);
  const auto wrong = ask("GET", "/completion");
  EXPECT_EQ(wrong->head.status, 405);
  EXPECT_EQ(wrong->header("Allow"), "POST, OPTIONS");
  EXPECT_EQ(parsed(wrong->head.body)["error"]["code"], 405);
}

TEST_F(AppTest, KeysAreTakenAsBearerAndAsHeaderAndNothingElseOpens) {
  AppOptions options;
  options.keys = {"sesame", "other"};
  start(options);
  EXPECT_EQ(ask("GET", "/props")->head.status, 401);
  EXPECT_EQ(ask("GET", "/props", "", {{"authorization", "Bearer sesam"}})->head.status, 401);
  EXPECT_EQ(ask("GET", "/props", "", {{"authorization", "Bearer sesamesesame"}})->head.status, 401);
  EXPECT_EQ(ask("GET", "/props", "", {{"authorization", "Basic sesame"}})->head.status, 401);
  EXPECT_EQ(ask("GET", "/props", "", {{"authorization", "Bearer sesame"}})->head.status, 200);
  EXPECT_EQ(ask("GET", "/props", "", {{"authorization", "bearer other"}})->head.status, 200);
  EXPECT_EQ(ask("GET", "/props", "", {{"x-api-key", "other"}})->head.status, 200);
  EXPECT_EQ(ask("GET", "/health")->head.status, 200);
}

TEST_F(AppTest, UntilTheModelIsThereEverythingIs503ThatSaysHowFar) {
  AppOptions options;
  options.workers = 0;
  app_ = std::make_unique<App>(options);
  app_->loading(0.42);
  const auto health = ask("GET", "/health");
  EXPECT_EQ(health->head.status, 503);
  EXPECT_EQ(health->header("Retry-After"), "5");
  const Json error = parsed(health->head.body)["error"];
  EXPECT_EQ(error["message"], "Loading model");
  EXPECT_EQ(error["type"], "unavailable_error");
  EXPECT_EQ(error["progress_percent"], 42);
  EXPECT_EQ(post("/completion", "{}")->head.status, 503);
  EXPECT_EQ(ask("GET", "/v1/models")->head.status, 200);
}

TEST_F(AppTest, HealthIsOnlyOkWhileWorkMoves) {
  start();
  EXPECT_EQ(ask("GET", "/health")->head.body, R"({"status":"ok"})");
  generator_->state.seconds_since_progress = 61;
  EXPECT_EQ(ask("GET", "/v1/health")->head.status, 503);
  generator_->state.seconds_since_progress = 0;
  app_->close();
  EXPECT_EQ(ask("GET", "/health")->head.status, 503);
  EXPECT_EQ(post("/tokenize", R"({"content":"a"})")->head.status, 503);
}

TEST_F(AppTest, OtherSitesMayAskOnlyIfTheyWereLetIn) {
  start();
  EXPECT_EQ(ask("OPTIONS", "/v1/chat/completions")->header("Access-Control-Allow-Origin"), "");
  AppOptions options;
  options.cors_origin = "https://a.example";
  start(options);
  const auto preflight = ask("OPTIONS", "/v1/chat/completions");
  EXPECT_EQ(preflight->head.status, 204);
  EXPECT_EQ(preflight->header("Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(preflight->header("Access-Control-Allow-Methods"), "POST, OPTIONS");
  EXPECT_EQ(ask("GET", "/health")->header("Access-Control-Allow-Origin"), "https://a.example");
}

TEST_F(AppTest, EveryAnswerHasAnIdTheClientsOwnIfItIsSane) {
  start();
  EXPECT_EQ(ask("GET", "/health", "", {{"x-request-id", "mine-1"}})->header("X-Request-Id"), "mine-1");
  const std::string made = ask("GET", "/health", "", {{"x-request-id", "a b\r\n"}})->header("X-Request-Id");
  EXPECT_EQ(made.size(), 16u);
  EXPECT_NE(ask("GET", "/nowhere")->header("X-Request-Id"), made);
}

TEST_F(AppTest, TokensAndTextGoBothWays) {
  start();
  const Json tokens = parsed(post("/tokenize", R"({"content":"a b\u00e9"})")->head.body)["tokens"];
  ASSERT_GT(tokens.size(), 1u);
  const Json again = parsed(post("/detokenize", to_text({{"tokens", tokens}}))->head.body);
  EXPECT_EQ(again["content"], "a b\xc3\xa9");
  const Json pieces = parsed(post("/tokenize", R"({"content":["a", 65], "with_pieces":true})")->head.body)["tokens"];
  EXPECT_EQ(pieces.back()["id"], 65);
  EXPECT_EQ(post("/detokenize", R"({"tokens":[1,99999]})")->head.status, 400);
}

TEST_F(AppTest, TemplatesAreAppliedAndTheirComplaintsAre400) {
  start();
  EXPECT_EQ(parsed(post("/apply-template", R"({"messages":[{"role":"user","content":"hi"}]})")->head.body)["prompt"],
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  AppOptions options;
  options.chat_template = "{{ raise_exception('no such thing') }}";
  start(options);
  const auto refused = post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(refused->head.status, 400);
  EXPECT_THAT(refused->head.body, HasSubstr("no such thing"));
  options.chat_template = "{{";
  EXPECT_THROW(start(options), jinja::TemplateError);
}

TEST_F(AppTest, SlotsAreSavedRestoredAndErased) {
  start();
  const Json saved = parsed(post("/slots/1?action=save", R"({"filename":"a.bin"})")->head.body);
  EXPECT_EQ(saved["id_slot"], 1);
  EXPECT_EQ(saved["n_saved"], 12);
  EXPECT_EQ(saved["n_written"], 3456);
  EXPECT_EQ(saved["timings"]["save_ms"], 500.0);
  EXPECT_EQ(parsed(post("/slots/0?action=erase", "")->head.body)["n_erased"], 7);
  EXPECT_EQ(post("/slots/0?action=restore", R"({"filename":"b"})")->head.status, 400);
  EXPECT_EQ(post("/slots/0?action=save", "")->head.status, 400);
  EXPECT_EQ(post("/slots/0?action=melt", "")->head.status, 400);
  EXPECT_EQ(post("/slots/2?action=erase", "")->head.status, 400);
  EXPECT_EQ(post("/slots/x?action=erase", "")->head.status, 400);
}

TEST_F(AppTest, ThePlanAndTheUseOfMemoryAreTold) {
  start();
  const Json props = parsed(ask("GET", "/props")->head.body);
  EXPECT_EQ(props["total_slots"], 2);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 256);
  EXPECT_GT(props["memory"]["plan"]["dense weights"], 0);
  generator_->state.counters.prompt_tokens = 17;
  const std::string metrics = ask("GET", "/metrics")->head.body;
  EXPECT_THAT(metrics, HasSubstr("\nllamacpp:prompt_tokens_total 17\n"));
  EXPECT_THAT(metrics, HasSubstr("sluice_memory_planned_bytes{category=\"dense weights\"} "));
  EXPECT_EQ(parsed(ask("GET", "/slots")->head.body).size(), 2u);
  EXPECT_EQ(parsed(ask("GET", "/v1/models")->head.body)["data"][0]["id"], "small");
}

TEST_F(AppTest, TheLogHoldsNoPrompts) {
  start();
  post("/completion", R"({"prompt":"secret words","user":"u","nonsense":1})");
  generator_->play(0, {"x"});
  post("/completion", R"({"prompt":"secret words)");
  ASSERT_EQ(log_.size(), 2u);
  EXPECT_EQ(log_[0].ignored, (std::vector<std::string>{"user", "nonsense"}));
  EXPECT_EQ(log_[0].answer.stats[0].answer_tokens, 1u);
  EXPECT_EQ(log_[0].prompt, "");
  EXPECT_EQ(log_[1].status, 400);
  EXPECT_EQ(log_[1].error, "invalid_request_error");
}

TEST(Routes, TheDocumentIsWhatTheTablesSay) {
  const std::string path = std::string(SLUICE_SOURCE_DIR) + "/docs/api.md";
  if (std::getenv("SLUICE_WRITE_DOCS") != nullptr) std::ofstream(path) << api_document();
  const std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), api_document()) << "docs/api.md is out of date: run this test with SLUICE_WRITE_DOCS=1";
}

TEST(Routes, TheOpenApiFileHoldsEveryPath) {
  const Json file = parsed(openapi_document());
  EXPECT_EQ(file["openapi"], "3.1.0");
  for (const Route& route : routes())
    for (const std::string_view path : route.paths) EXPECT_TRUE(file["paths"].contains(std::string(path))) << path;
  const Json& body = file["paths"]["/completion"]["post"]["requestBody"]["content"]["application/json"]["schema"];
  EXPECT_EQ(body["required"], Json::array({"prompt"}));
  EXPECT_EQ(body["properties"]["top_p"]["maximum"], 1.0);
  EXPECT_FALSE(body["properties"].contains("grammar"));
}

}  // namespace
}  // namespace sluice::server
