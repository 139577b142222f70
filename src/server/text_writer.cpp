// OpenAI's completions.
#include "server/answer_writer.h"
#include "server/json.h"
#include "server/shapes.h"

namespace sluice::server {

namespace {

class TextWriter : public AnswerWriter {
 public:
  TextWriter(CompletionRequest request, AnswerHead head, const chat::Tokenizer& tokenizer)
      : request_(std::move(request)),
        head_(std::move(head)),
        tokenizer_(tokenizer),
        answers_(request_.prompts.size() * request_.options.choices),
        stats_(answers_.size()) {
    if (options().echo)
      for (size_t i = 0; i < answers_.size(); ++i) answers_[i].text = request_.prompts[i / options().choices].text;
  }

  std::string progress(size_t answer, const GenerationStats& stats) override {
    if (!options().stream || !options().return_progress) return {};
    Json event = event_of(choice(answer, {}, nullptr));
    event["prompt_progress"] = prompt_progress(stats);
    return to_event(event);
  }

  std::string token(size_t answer, const TokenEvent& event, const GenerationStats& stats) override {
    Answer& a = answers_[answer];
    const bool likely = request_.generation.n_likely.has_value();
    if (likely) a.logprobs.push_back(logprob_entry(event, tokenizer_));
    a.text += event.text;
    if (!options().stream || (a.text.empty() && !likely && !options().timings_per_token)) return {};
    Json out = event_of(take(answer, nullptr));
    if (options().timings_per_token) out["timings"] = timings(stats, tokenizer_);
    return to_event(out);
  }

  std::string done(size_t answer, StopReason reason, const std::string& text, const std::string&,
                   const GenerationStats& stats) override {
    Answer& a = answers_[answer];
    stats_[answer] = stats;
    a.text += text;
    a.reason = reason;
    if (!options().stream) return {};
    const std::string held = a.text.empty() ? std::string() : to_event(event_of(take(answer, nullptr)));
    Json out = event_of(take(answer, finish_reason(reason)));
    if (answers_.size() == 1 && !options().include_usage) out["usage"] = usage(stats_, options().choices);
    out["timings"] = timings(stats, tokenizer_);
    return held + to_event(out);
  }

  std::string end() override {
    if (options().stream) {
      if (!options().include_usage) return "data: [DONE]\n\n";
      Json out = head();
      out["choices"] = Json::array();
      out["usage"] = usage(stats_, options().choices);
      return to_event(out) + "data: [DONE]\n\n";
    }
    Json out = head();
    out["choices"] = Json::array();
    for (size_t i = 0; i < answers_.size(); ++i) out["choices"].push_back(take(i, finish_reason(answers_[i].reason)));
    out["usage"] = usage(stats_, options().choices);
    out["timings"] = timings(stats_.back(), tokenizer_);
    return to_text(out);
  }

 private:
  struct Answer {
    std::string text;  // not yet sent
    Json logprobs = Json::array();
    size_t offset = 0;  // characters sent
    StopReason reason = StopReason::kLimit;
  };

  const AnswerOptions& options() const { return request_.options; }

  Json head() const {
    return {{"id", "cmpl-" + head_.id},
            {"object", "text_completion"},
            {"created", head_.created},
            {"model", head_.model},
            {"system_fingerprint", "sluice"}};
  }

  Json event_of(Json one) const {
    Json out = head();
    out["choices"] = Json::array({std::move(one)});
    return out;
  }

  static Json choice(size_t answer, const std::string& text, const char* finish) {
    return {{"text", text},
            {"index", answer},
            {"logprobs", nullptr},
            {"finish_reason", finish == nullptr ? Json(nullptr) : Json(finish)}};
  }

  // What has not been sent yet.
  Json take(size_t answer, const char* finish) {
    Answer& a = answers_[answer];
    Json out = choice(answer, a.text, finish);
    if (finish != nullptr && is_unusual(a.reason)) out["stop_reason"] = name_of(a.reason);
    if (!a.logprobs.empty()) {
      out["logprobs"] = legacy_logprobs(a.logprobs, a.offset);
      for (const Json& entry : a.logprobs) {
        const auto& text = entry["token"].get_ref<const std::string&>();
        for (const char c : text) a.offset += (c & 0xC0) != 0x80;
      }
    }
    a.text.clear();
    a.logprobs = Json::array();
    return out;
  }

  CompletionRequest request_;
  AnswerHead head_;
  const chat::Tokenizer& tokenizer_;
  std::vector<Answer> answers_;
  std::vector<GenerationStats> stats_;
};

}  // namespace

std::unique_ptr<AnswerWriter> text_writer(CompletionRequest request, AnswerHead head,
                                          const chat::Tokenizer& tokenizer) {
  return std::make_unique<TextWriter>(std::move(request), std::move(head), tokenizer);
}

}  // namespace sluice::server
