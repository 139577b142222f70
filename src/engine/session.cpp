#include "engine/session.h"

#include <exception>

namespace sluice {

namespace {

// Puts together an answer from what the loop tells.
class Listener : public GenerationListener {
 public:
  explicit Listener(const std::function<bool(const std::string&)>& on_text) : on_text_(on_text) {}

  void token(const TokenEvent& event, const GenerationStats&) override {
    answer.tokens.push_back(event.token);
    show(event.text);
  }
  void done(StopReason reason, const std::string& text, const std::string&, const GenerationStats& stats) override {
    answer.reason = reason;
    show(text);
    answer.prompt_tokens = stats.prompt_tokens;
    answer.cached_tokens = stats.cached_tokens;
    answer.prompt_seconds = stats.prompt_seconds;
    answer.answer_seconds = stats.answer_seconds;
  }
  void failed(const Error& error, const GenerationStats&) override { failure = std::make_exception_ptr(error); }

  Answer answer;
  bool wanted = true;
  std::exception_ptr failure;

 private:
  void show(const std::string& text) {
    answer.text += text;
    if (text.empty() || !on_text_ || failure) return;
    try {
      wanted = on_text_(text) && wanted;
    } catch (...) {
      failure = std::current_exception();
    }
  }

  const std::function<bool(const std::string&)>& on_text_;
};

}  // namespace

Session::Session(Engine& engine) : loop_(engine, LoopOptions{}) {}

Answer Session::generate(std::span<const int32_t> prompt, std::span<const size_t> turn_starts,
                         const decode::Sampler& sampler, const GenerateOptions& options) {
  GenerationRequest request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.turn_starts.assign(turn_starts.begin(), turn_starts.end());
  request.sampling = sampler.parameters();
  request.sequence = options.sequence;
  request.max_tokens = options.max_tokens;
  request.stop_strings = options.stop_strings;
  loop_.check(request);
  const auto listener = std::make_shared<Listener>(options.on_text);
  loop_.submit(++answers_, std::move(request), listener);
  while (!loop_.idle()) {
    if (listener->failure || !listener->wanted || (options.interrupted && options.interrupted()))
      loop_.cancel(answers_);
    loop_.step();
  }
  if (listener->failure) std::rethrow_exception(listener->failure);
  return std::move(listener->answer);
}

}  // namespace sluice
