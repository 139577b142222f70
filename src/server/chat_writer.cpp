// OpenAI's chat completions, with llama-server's reasoning_content.
#include <fmt/core.h>

#include "server/answer_writer.h"
#include "server/json.h"
#include "server/shapes.h"

namespace sluice::server {

namespace {

class ChatWriter : public AnswerWriter {
 public:
  ChatWriter(const ChatRequest& request, const ChatPromptMade& prompt, AnswerHead head, const ChatFormat& format,
             const chat::Tokenizer& tokenizer)
      : options_(request.options),
        one_call_(request.one_call),
        likely_(request.generation.n_likely.has_value()),
        head_(std::move(head)),
        tokenizer_(tokenizer),
        answers_(options_.choices),
        stats_(options_.choices) {
    for (Answer& answer : answers_) answer.reader = format.reader(request.question, prompt);
  }

  std::string progress(size_t answer, const GenerationStats& stats) override {
    if (!options_.stream || !options_.return_progress) return {};
    std::string out = role_event(answer);
    Json event = event_of(answer, Json::object());
    event["prompt_progress"] = prompt_progress(stats);
    return out + to_event(event);
  }

  std::string token(size_t answer, const TokenEvent& event, const GenerationStats& stats) override {
    Answer& a = answers_[answer];
    if (likely_) a.logprobs.push_back(logprob_entry(event, tokenizer_));
    const std::vector<AnswerDelta> parts = a.reader->token(event.token, event.text);
    if (!options_.stream) {
      for (const AnswerDelta& part : parts) collect(a, part);
      return {};
    }
    std::vector<Json> events = events_of(answer, parts);
    // What belongs to no part has an event of its own.
    if (events.empty() && (likely_ || options_.timings_per_token)) events.push_back(event_of(answer, Json::object()));
    if (!events.empty() && likely_) give_logprobs(a, events.back()["choices"][0]);
    if (!events.empty() && options_.timings_per_token) events.back()["timings"] = timings(stats, tokenizer_);
    return role_event(answer) + joined(events);
  }

  std::string done(size_t answer, StopReason reason, const std::string& text, const std::string&,
                   const GenerationStats& stats) override {
    Answer& a = answers_[answer];
    stats_[answer] = stats;
    a.reason = reason;
    const bool whole = reason == StopReason::kEndOfText || reason == StopReason::kLimit;
    const std::vector<AnswerDelta> parts = a.reader->finish(text, whole);
    if (!options_.stream) {
      for (const AnswerDelta& part : parts) collect(a, part);
      return {};
    }
    std::vector<Json> events = events_of(answer, parts);
    Json last = event_of(answer, Json::object());
    last["choices"][0]["finish_reason"] = finish(a);
    if (is_unusual(reason)) last["choices"][0]["stop_reason"] = name_of(reason);
    last["timings"] = timings(stats, tokenizer_);
    events.push_back(std::move(last));
    return role_event(answer) + joined(events);
  }

  std::string end() override {
    if (options_.stream) {
      if (!options_.include_usage) return "data: [DONE]\n\n";
      Json out = head("chat.completion.chunk");
      out["choices"] = Json::array();
      out["usage"] = usage(stats_, options_.choices);
      return to_event(out) + "data: [DONE]\n\n";
    }
    Json out = head("chat.completion");
    out["choices"] = Json::array();
    for (size_t i = 0; i < answers_.size(); ++i) out["choices"].push_back(whole(i));
    out["usage"] = usage(stats_, options_.choices);
    out["timings"] = timings(stats_.back(), tokenizer_);
    return to_text(out);
  }

  bool enough(size_t answer) const override { return answers_[answer].over; }

 private:
  struct Answer {
    std::unique_ptr<AnswerReader> reader;
    bool role_given = false;
    bool over = false;  // nothing more is taken: the one call that was wanted is there
    size_t calls = 0;
    std::string content, reasoning;   // of an answer in one piece
    Json tool_calls = Json::array();  // likewise
    Json logprobs = Json::array();    // not yet sent
    StopReason reason = StopReason::kLimit;
  };

  Json head(const char* object) const {
    return {{"id", "chatcmpl-" + head_.id},
            {"object", object},
            {"created", head_.created},
            {"model", head_.model},
            {"system_fingerprint", "sluice"}};
  }

  Json event_of(size_t answer, Json delta) const {
    Json out = head("chat.completion.chunk");
    out["choices"] = Json::array(
        {Json{{"index", answer}, {"delta", std::move(delta)}, {"logprobs", nullptr}, {"finish_reason", nullptr}}});
    return out;
  }

  // Comes first, once.
  std::string role_event(size_t answer) {
    if (answers_[answer].role_given) return {};
    answers_[answer].role_given = true;
    return to_event(event_of(answer, {{"role", "assistant"}, {"content", nullptr}}));
  }

  static std::string joined(const std::vector<Json>& events) {
    std::string out;
    for (const Json& event : events) out += to_event(event);
    return out;
  }

  // Calls behind the only one that was wanted are left out.
  bool taken(Answer& a, const AnswerDelta& part) const {
    if (part.kind == AnswerDelta::Kind::kCall) {
      a.over = a.over || (one_call_ && part.call > 0);
      if (!a.over) a.calls = part.call + 1;
    }
    return !a.over;
  }

  std::string call_id(size_t answer, size_t call) const { return fmt::format("call_{}_{}_{}", head_.id, answer, call); }

  std::vector<Json> events_of(size_t answer, const std::vector<AnswerDelta>& parts) {
    std::vector<Json> events;
    for (const AnswerDelta& part : parts) {
      if (!taken(answers_[answer], part)) continue;
      switch (part.kind) {
        case AnswerDelta::Kind::kReasoning:
          events.push_back(event_of(answer, {{"reasoning_content", part.text}}));
          break;
        case AnswerDelta::Kind::kContent:
          events.push_back(event_of(answer, {{"content", part.text}}));
          break;
        case AnswerDelta::Kind::kCall:
          events.push_back(event_of(answer, call_delta({{"index", part.call},
                                                        {"id", call_id(answer, part.call)},
                                                        {"type", "function"},
                                                        {"function", {{"name", part.text}, {"arguments", ""}}}})));
          break;
        case AnswerDelta::Kind::kArguments:
          events.push_back(
              event_of(answer, call_delta({{"index", part.call}, {"function", {{"arguments", part.text}}}})));
          break;
      }
    }
    return events;
  }

  static Json call_delta(Json call) {
    Json delta = Json::object();
    delta["tool_calls"] = Json::array({std::move(call)});
    return delta;
  }

  void collect(Answer& a, const AnswerDelta& part) const {
    if (!taken(a, part)) return;
    switch (part.kind) {
      case AnswerDelta::Kind::kReasoning:
        a.reasoning += part.text;
        break;
      case AnswerDelta::Kind::kContent:
        a.content += part.text;
        break;
      case AnswerDelta::Kind::kCall:
        a.tool_calls.push_back({{"id", call_id(static_cast<size_t>(&a - answers_.data()), part.call)},
                                {"type", "function"},
                                {"function", {{"name", part.text}, {"arguments", ""}}}});
        break;
      case AnswerDelta::Kind::kArguments:
        a.tool_calls[part.call]["function"]["arguments"].get_ref<std::string&>() += part.text;
        break;
    }
  }

  static void give_logprobs(Answer& a, Json& choice) {
    choice["logprobs"] = {{"content", std::move(a.logprobs)}, {"refusal", nullptr}};
    a.logprobs = Json::array();
  }

  const char* finish(const Answer& a) const {
    const bool ended = a.over || std::string_view(finish_reason(a.reason)) == "stop";
    if (!ended) return "length";
    return a.calls > 0 ? "tool_calls" : "stop";
  }

  Json whole(size_t answer) {
    Answer& a = answers_[answer];
    Json message = {{"role", "assistant"}};
    message["content"] = a.content.empty() && a.calls > 0 ? Json(nullptr) : Json(a.content);
    if (!a.reasoning.empty()) message["reasoning_content"] = std::move(a.reasoning);
    if (a.calls > 0) message["tool_calls"] = std::move(a.tool_calls);
    Json out = {
        {"index", answer}, {"message", std::move(message)}, {"logprobs", nullptr}, {"finish_reason", finish(a)}};
    if (is_unusual(a.reason)) out["stop_reason"] = name_of(a.reason);
    if (likely_) give_logprobs(a, out);
    return out;
  }

  AnswerOptions options_;
  bool one_call_, likely_;
  AnswerHead head_;
  const chat::Tokenizer& tokenizer_;
  std::vector<Answer> answers_;
  std::vector<GenerationStats> stats_;
};

}  // namespace

std::unique_ptr<AnswerWriter> chat_writer(const ChatRequest& request, const ChatPromptMade& prompt, AnswerHead head,
                                          const ChatFormat& format, const chat::Tokenizer& tokenizer) {
  return std::make_unique<ChatWriter>(request, prompt, std::move(head), format, tokenizer);
}

}  // namespace sluice::server
