// The chat on a terminal: lines in, answers out, and the few commands that begin with a slash.
#include <cstdio>
#include <iostream>
#include <optional>

#include "base/error.h"
#include "base/system.h"
#include "cli/console.h"
#include "cli/engine_options.h"
#include "cli/json.h"
#include "cli/run.h"

namespace sluice::cli {

namespace {

constexpr const char* kHelp =
    "/reset         forget the conversation\n"
    "/system TEXT   set the system message and start anew (without TEXT: remove it)\n"
    "/stats         what the last answer took\n"
    "/quit          leave (so does Ctrl-D)\n"
    "A line that ends in \\ goes on in the next; \"\"\" alone begins and ends a text of many lines.\n"
    "Ctrl-C stops an answer.\n";

class ChatLoop {
 public:
  ChatLoop(Engine& engine, Conversation& conversation, const RunOptions& options, InterruptFlag& interrupt)
      : engine_(engine),
        conversation_(conversation),
        options_(options),
        sampler_(engine.sampler(sampling_parameters(options.sampling, engine))),
        style_(style_for(stdout)),
        system_(options.system),
        interrupt_(interrupt) {
    reset();
  }

  int run() {
    const std::string& name = engine_.model().hp.name;
    fmt::print("{}{}{}, {} threads, {}; /help for help\n", style_.bold, name.empty() ? options_.model.path : name,
               style_.reset, engine_.context().pool.size(), engine_.context().kernels.name);
    while (const auto input = read_input()) {
      if (input->empty()) continue;
      if (input->front() == '/') {
        if (!obey(*input)) return 0;
        continue;
      }
      answer(*input);
    }
    fmt::print("\n");
    return 0;
  }

 private:
  void reset() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
    conversation_.session().clear();
  }

  // One message, of one line or more; nullopt at the end of input.
  std::optional<std::string> read_input() {
    std::string text, line;
    bool quoted = false;
    while (true) {
      interrupt_.clear();
      fmt::print("{}{}{}", style_.green, text.empty() && !quoted ? "> " : ". ", style_.reset);
      std::fflush(stdout);
      if (!std::getline(std::cin, line)) {
        if (!interrupt_.raised() || std::cin.bad()) return std::nullopt;
        std::cin.clear();  // Ctrl-C at the prompt: begin the line anew
        std::clearerr(stdin);
        fmt::print("\n");
        text.clear(), quoted = false;
        continue;
      }
      if (line == "\"\"\"") {
        if (quoted) return text;
        quoted = true;
        continue;
      }
      text += line;
      if (!quoted && !line.ends_with('\\')) return text;
      if (!quoted) text.pop_back();
      text += '\n';
    }
  }

  // A line that begins with a slash; false to leave.
  bool obey(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string command = line.substr(0, space);
    if (command == "/quit" || command == "/exit") return false;
    if (command == "/reset") {
      reset();
      fmt::print("{}the conversation is forgotten{}\n", style_.dim, style_.reset);
    } else if (command == "/system") {
      system_ = space == std::string::npos ? "" : line.substr(space + 1);
      reset();
      fmt::print("{}system message {}; the conversation begins anew{}\n", style_.dim,
                 system_.empty() ? "removed" : "set", style_.reset);
    } else if (command == "/stats") {
      print_stats();
    } else {
      fmt::print("{}", kHelp);
    }
    return true;
  }

  void answer(const std::string& text) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    ChatOptions chat;
    chat.enable_thinking = options_.think;
    chat.generate = generate_options(options_);
    AnswerPrinter printer;
    chat.on_delta = [&](const OutputDelta& delta) {
      printer.print(delta);
      return true;
    };
    try {
      interrupt_.clear();
      const ExpertReport experts(engine_);
      const ChatAnswer got = conversation_.answer(to_value(messages_), sampler_, chat);
      last_ = got.answer;
      experts_ = engine_.plan().streams() ? experts.text() : "";
      Json message = {{"role", "assistant"}, {"content", got.content}};
      if (!got.reasoning.empty()) message["reasoning_content"] = got.reasoning;
      messages_.push_back(message);
      const char* note = got.answer.reason == StopReason::kInterrupted ? " [stopped]"
                         : got.answer.reason == StopReason::kLimit     ? " [length]"
                                                                       : "";
      fmt::print("{}{}{}\n", style_.dim, note, style_.reset);
    } catch (const Error& error) {
      messages_.erase(messages_.size() - 1);  // as if the message had not been sent
      fmt::print(stderr, "{}error: {}{}\n", style_.red, error.what(), style_.reset);
    }
  }

  static jinja::Value to_value(const Json& json) { return jinja::from_json(to_text(json)); }

  void print_stats() const {
    if (!last_) {
      fmt::print("{}nothing was answered yet{}\n", style_.dim, style_.reset);
      return;
    }
    const Answer& a = *last_;
    const size_t computed = a.prompt_tokens - a.cached_tokens;
    const auto rate = [](size_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0.0; };
    fmt::print("prompt   {} tokens, {} of them remembered, {:.2f} s, {:.1f} tokens/s\n", a.prompt_tokens,
               a.cached_tokens, a.prompt_seconds, rate(computed, a.prompt_seconds));
    fmt::print("answer   {} tokens, {:.2f} s, {:.1f} tokens/s, ended by {}\n", a.tokens.size(), a.answer_seconds,
               rate(a.tokens.size(), a.answer_seconds), name_of(a.reason));
    fmt::print("context  {} of {} tokens; peak memory {:.0f} MiB\n", conversation_.session().length(),
               engine_.context_size(), static_cast<double>(peak_resident_bytes()) / (1 << 20));
    if (!experts_.empty()) fmt::print("{}\n", experts_);
  }

  Engine& engine_;
  Conversation& conversation_;
  const RunOptions& options_;
  decode::Sampler sampler_;
  Style style_;
  std::string system_;
  Json messages_;
  std::optional<Answer> last_;
  std::string experts_;  // what the last answer made of the experts' memory; empty where all are in it
  InterruptFlag& interrupt_;
};

}  // namespace

int chat_loop(Engine& engine, Conversation& conversation, const RunOptions& options, InterruptFlag& interrupt) {
  return ChatLoop(engine, conversation, options, interrupt).run();
}

}  // namespace sluice::cli
