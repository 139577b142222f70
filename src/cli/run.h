// What `sluice run` was asked for; run.cpp answers once, chat_loop.cpp talks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/common_options.h"
#include "engine/conversation.h"

namespace sluice::cli {

struct RunOptions {
  ModelOptions model;
  ComputeOptions compute;
  SamplingOptions sampling;
  std::string prompt, file, system, messages_file, tools_file, template_file;
  std::optional<std::string> standard_input;  // "-"
  std::optional<bool> think;
  std::optional<int64_t> max_tokens;  // not given or negative: until the model ends or the context is full
  std::vector<std::string> stop_strings;
  bool chat = true, json = false;

  void declare(OptionTable& table);
};

// Prints an answer as it comes. Reasoning is for people: dimmed on a terminal and set apart from the answer by an empty
// line, left out of pipes.
class AnswerPrinter {
 public:
  void print(const OutputDelta& delta);

 private:
  bool after_reasoning_ = false;
};

// Options of the answer that don't depend on its prompt.
GenerateOptions generate_options(const RunOptions& options);

// Set by Ctrl-C while an answer is being written; the program goes on.
class InterruptFlag {
 public:
  InterruptFlag();  // takes over SIGINT
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;
  bool raised() const;
  void clear();
};

// Reads from the terminal and answers until /quit or the end of input. Returns the exit code.
int chat_loop(Engine& engine, Conversation& conversation, const RunOptions& options, InterruptFlag& interrupt);

}  // namespace sluice::cli
