// llama-server's own format.
#include "server/answer_writer.h"
#include "server/json.h"
#include "server/shapes.h"

namespace sluice::server {

namespace {

class CompletionWriter : public AnswerWriter {
 public:
  CompletionWriter(CompletionRequest request, AnswerHead head, const chat::Tokenizer& tokenizer)
      : request_(std::move(request)),
        head_(std::move(head)),
        tokenizer_(tokenizer),
        answers_(request_.prompts.size() * request_.options.choices) {}

  std::string progress(size_t answer, const GenerationStats& stats) override {
    if (!options().stream || !options().return_progress) return {};
    Json event = partial(answer, {}, stats);
    event["prompt_progress"] = prompt_progress(stats);
    return to_event(event);
  }

  std::string token(size_t answer, const TokenEvent& event, const GenerationStats& stats) override {
    Answer& a = answers_[answer];
    a.has_newline = a.has_newline || event.text.find('\n') != std::string::npos;
    const bool likely = request_.generation.n_likely.has_value();
    if (!options().stream) {
      a.text += event.text;
      if (options().return_tokens) a.tokens.push_back(event.token);
      if (likely) a.logprobs.push_back(logprob_entry(event, tokenizer_));
      return {};
    }
    if (event.text.empty() && !likely && !options().return_tokens && !options().timings_per_token) return {};
    Json out = partial(answer, event.text, stats);
    if (options().return_tokens) out["tokens"].push_back(event.token);
    if (options().timings_per_token) out["timings"] = timings(stats, tokenizer_);
    if (likely) out["completion_probabilities"] = Json::array({logprob_entry(event, tokenizer_)});
    return to_event(out);
  }

  std::string done(size_t answer, StopReason reason, const std::string& text, const std::string& stop,
                   const GenerationStats& stats) override {
    Answer& a = answers_[answer];
    a.has_newline = a.has_newline || text.find('\n') != std::string::npos;
    if (!options().stream) a.text += text;
    a.result = selected(final(answer, reason, stop, stats));
    if (!options().stream) return {};
    const std::string held = text.empty() ? std::string() : to_event(partial(answer, text, stats));
    return held + to_event(a.result);
  }

  std::string end() override {
    if (options().stream) return {};
    if (answers_.size() == 1) return to_text(answers_[0].result);
    Json all = Json::array();
    for (Answer& answer : answers_) all.push_back(std::move(answer.result));
    return to_text(all);
  }

 private:
  struct Answer {
    std::string text;
    Json tokens = Json::array(), logprobs = Json::array();
    bool has_newline = false;
    Json result;
  };

  const AnswerOptions& options() const { return request_.options; }

  Json partial(size_t answer, const std::string& text, const GenerationStats& stats) const {
    return {{"index", answer},
            {"content", text},
            {"tokens", Json::array()},
            {"stop", false},
            {"id_slot", stats.slot},
            {"tokens_predicted", stats.answer_tokens},
            {"tokens_evaluated", stats.prompt_tokens}};
  }

  Json final(size_t answer, StopReason reason, const std::string& stop, const GenerationStats& stats) {
    Answer& a = answers_[answer];
    Json out = {{"index", answer},
                {"content", std::move(a.text)},
                {"tokens", std::move(a.tokens)},
                {"id_slot", stats.slot},
                {"stop", true},
                {"model", head_.model},
                {"tokens_predicted", stats.answer_tokens},
                {"tokens_evaluated", stats.prompt_tokens},
                {"generation_settings", generation_settings(request_.generation, options())},
                {"prompt", request_.prompts[answer / options().choices].text},
                {"has_new_line", a.has_newline},
                {"truncated", false},
                {"stop_type", stop_type(reason)},
                {"stopping_word", stop},
                {"tokens_cached", stats.cached_tokens},
                {"timings", timings(stats, tokenizer_)}};
    if (is_unusual(reason)) out["stop_reason"] = name_of(reason);
    if (!a.logprobs.empty()) out["completion_probabilities"] = std::move(a.logprobs);
    return out;
  }

  // Only the members that were asked for; those of inner objects under their path.
  Json selected(Json whole) const {
    if (options().response_fields.empty()) return whole;
    Json out = Json::object();
    for (const std::string& path : options().response_fields) {
      const Json* at = &whole;
      for (size_t from = 0; at != nullptr && from <= path.size();) {
        const size_t slash = std::min(path.find('/', from), path.size());
        const std::string name = path.substr(from, slash - from);
        at = at->is_object() && at->contains(name) ? &(*at)[name] : nullptr;
        from = slash + 1;
      }
      if (at != nullptr) out[path] = *at;
    }
    return out;
  }

  CompletionRequest request_;
  AnswerHead head_;
  const chat::Tokenizer& tokenizer_;
  std::vector<Answer> answers_;
};

}  // namespace

std::unique_ptr<AnswerWriter> completion_writer(CompletionRequest request, AnswerHead head,
                                                const chat::Tokenizer& tokenizer) {
  return std::make_unique<CompletionWriter>(std::move(request), std::move(head), tokenizer);
}

}  // namespace sluice::server
