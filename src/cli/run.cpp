// `sluice run`: answers a prompt once, or chats on a terminal.
#include "cli/run.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/engine_options.h"
#include "cli/json.h"

namespace sluice::cli {

namespace {

volatile std::sig_atomic_t g_interrupted = 0;
struct sigaction g_old_action;

void on_interrupt(int) { g_interrupted = 1; }

}  // namespace

InterruptFlag::InterruptFlag() {
  clear();
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a read from the terminal returns
  ::sigaction(SIGINT, &action, &g_old_action);
}

InterruptFlag::~InterruptFlag() { ::sigaction(SIGINT, &g_old_action, nullptr); }
bool InterruptFlag::raised() const { return g_interrupted != 0; }
void InterruptFlag::clear() { g_interrupted = 0; }

void RunOptions::declare(OptionTable& table) {
  model.declare(table);
  table.group("Prompt");
  table.option("-p, --prompt", "TEXT", "answer this once; with neither -p, -f nor --messages: chat on a terminal",
               &prompt);
  table.option("-f, --file", "FILE", "answer the text of this file once; -: standard input", &file);
  table.positional("-", "the text is read from standard input", &standard_input);
  table.option("-sys, --system, --system-prompt", "TEXT", "the system message", &system);
  table.option("--messages", "FILE", "answer this conversation: a JSON list of messages, as in the OpenAI API",
               &messages_file);
  table.option("--tools", "FILE", "tools that the model may call: a JSON list, as in the OpenAI API", &tools_file);
  table.option("--chat-template-file", "FILE", "use this chat template instead of the model file's", &template_file);
  table.flag("--think | --no-think", "let the model reason before it answers, or not", &think,
             {.default_text = "as the template says"});
  table.flag("-cnv, --chat, --conversation | -no-cnv, --no-chat, --no-conversation",
             "use the chat template; without, the text is continued as it is", &chat);
  table.group("Answer");
  table.option("-n, --predict, --n-predict", "N", "at most N tokens; -1: until the model ends or the context is full",
               &max_tokens, {.env = "N_PREDICT", .min = -1, .default_text = "-1"});
  table.option("-r, --reverse-prompt, --stop", "TEXT", "end the answer before this text", &stop_strings);
  table.flag("--json", "print one JSON object with text, tokens and timings", &json);
  sampling.declare(table);
  compute.declare(table);
  declare_accepted_options(table);
}

void AnswerPrinter::print(const OutputDelta& delta) {
  if (is_terminal(stdout) && !delta.reasoning.empty()) {
    const Style style = style_for(stdout);
    fmt::print("{}{}{}", style.dim, delta.reasoning, style.reset);
    after_reasoning_ = true;
  }
  if (!delta.content.empty()) {
    fmt::print("{}{}", after_reasoning_ ? "\n\n" : "", delta.content);
    after_reasoning_ = false;
  }
  std::fflush(stdout);
}

GenerateOptions generate_options(const RunOptions& options) {
  GenerateOptions generate;
  if (options.max_tokens && *options.max_tokens >= 0)
    generate.max_tokens = static_cast<uint32_t>(std::min<int64_t>(*options.max_tokens, UINT32_MAX));
  generate.stop_strings = options.stop_strings;
  generate.interrupted = [] { return g_interrupted != 0; };
  return generate;
}

namespace {

double per_second(size_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0.0; }

Json timings(const Answer& answer, const Engine& engine) {
  const size_t computed = answer.prompt_tokens - answer.cached_tokens;
  return {{"prompt_n", computed},
          {"prompt_ms", answer.prompt_seconds * 1e3},
          {"prompt_per_second", per_second(computed, answer.prompt_seconds)},
          {"predicted_n", answer.tokens.size()},
          {"predicted_ms", answer.answer_seconds * 1e3},
          {"predicted_per_second", per_second(answer.tokens.size(), answer.answer_seconds)},
          {"load_ms", engine.load_seconds() * 1e3}};
}

void print_answer_json(const ChatAnswer& chat, const Engine& engine, const ExpertReport& experts) {
  Json out = {{"text", chat.content},
              {"reasoning", chat.reasoning},
              {"tokens", chat.answer.tokens},
              {"prompt_tokens", chat.answer.prompt_tokens},
              {"cached_tokens", chat.answer.cached_tokens},
              {"stop", name_of(chat.answer.reason)},
              {"timings", timings(chat.answer, engine)}};
  if (engine.bank() != nullptr) out["experts"] = experts.json();
  print_json(out);
}

jinja::Value read_json_file(const std::string& path) { return jinja::from_json(read_text_file(path)); }

jinja::Value first_messages(const RunOptions& options) {
  if (!options.messages_file.empty()) return read_json_file(options.messages_file);
  Json messages = Json::array();
  if (!options.system.empty()) messages.push_back({{"role", "system"}, {"content", options.system}});
  messages.push_back({{"role", "user"}, {"content", prompt_text(options.prompt, options.file)}});
  return jinja::from_json(to_text(messages));
}

ChatAnswer answer_chat(Engine& engine, Conversation& conversation, const RunOptions& options) {
  ChatOptions chat;
  chat.enable_thinking = options.think;
  if (!options.tools_file.empty()) chat.tools = read_json_file(options.tools_file);
  chat.generate = generate_options(options);
  AnswerPrinter printer;
  chat.on_delta = [&](const OutputDelta& delta) {
    if (!options.json) printer.print(delta);
    return true;
  };
  const decode::Sampler sampler = engine.sampler(sampling_parameters(options.sampling, engine));
  return conversation.answer(first_messages(options), sampler, chat);
}

ChatAnswer complete(Engine& engine, const RunOptions& options) {
  Session session(engine);
  GenerateOptions generate = generate_options(options);
  AnswerPrinter printer;
  generate.on_text = [&](const std::string& text) {
    if (!options.json) printer.print({"", text});
    return true;
  };
  const decode::Sampler sampler = engine.sampler(sampling_parameters(options.sampling, engine));
  ChatAnswer out;
  const std::string text = prompt_text(options.prompt, options.file);
  out.answer = session.generate(completion_tokens(engine, text), {}, sampler, generate);
  out.content = out.answer.text;
  return out;
}

// What would go unheard is an error.
void check(const RunOptions& options, bool talk) {
  const bool messages = !options.messages_file.empty(), tools = !options.tools_file.empty();
  if (messages && !(options.prompt.empty() && options.file.empty() && options.system.empty()))
    fail(ErrorKind::kUsage, "--messages is a whole conversation: -p, -f and --system can't be given with it");
  if (options.chat) {
    if (talk && (tools || options.json))
      fail(ErrorKind::kUsage, "--tools and --json need a prompt: -p TEXT, -f FILE or --messages FILE");
    return;
  }
  if (messages || tools || options.think || !options.system.empty() || !options.template_file.empty())
    fail(ErrorKind::kUsage,
         "--no-chat continues a text as it is: --messages, --tools, --system, --think and --chat-template-file "
         "can't be given with it");
  if (talk) fail(ErrorKind::kUsage, "--no-chat needs a text to continue: -p TEXT or -f FILE");
}

int run(const RunOptions& options) {
  if (options.standard_input && *options.standard_input != "-")
    fail(ErrorKind::kUsage, "{}: give the text with -p TEXT, or - for standard input", *options.standard_input);
  const bool once = !options.prompt.empty() || !options.file.empty() || !options.messages_file.empty();
  RunOptions wanted = options;
  if (options.standard_input || (!once && !is_terminal(stdin))) wanted.file = "-";  // a pipe is a prompt
  const bool talk = !once && wanted.file.empty();
  check(options, talk);
  const auto engine = load_engine(engine_options(options.model, options.compute));
  const ExpertReport experts(*engine);
  InterruptFlag interrupt;
  if (!options.chat) {
    const ChatAnswer answer = complete(*engine, wanted);
    options.json ? print_answer_json(answer, *engine, experts) : fmt::print("\n");
    return 0;
  }
  const std::string source = options.template_file.empty() ? "" : read_text_file(options.template_file);
  Conversation conversation(*engine, options.template_file.empty() ? nullptr : &source);
  if (talk) return chat_loop(*engine, conversation, options, interrupt);
  const ChatAnswer answer = answer_chat(*engine, conversation, wanted);
  options.json ? print_answer_json(answer, *engine, experts) : fmt::print("\n");
  return 0;
}

}  // namespace

Command run_command() {
  return make_command<RunOptions>(
      {.name = "run",
       .summary = "answer a prompt, or chat on a terminal",
       .usage = {"-m MODEL", "-m MODEL -p TEXT [--json]", "-m MODEL --no-chat -f FILE -n N"},
       .examples = {{"sluice run -m model.gguf", "chat; /help lists what can be typed"},
                    {"sluice run -m model.gguf -p 'What is 1+1?'", "answer once"},
                    {"sluice run -m model.gguf --no-chat -p '1+1=' -n 4 --temp 0", "continue a text"}}},
      run);
}

}  // namespace sluice::cli
