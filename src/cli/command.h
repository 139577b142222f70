// What a file of src/cli/ must provide to become a command of the program: one function that returns its Command, which
// is listed in commands.cpp. A command is some texts, a struct of options and a function that runs with them:
//
//   struct BenchOptions {  ...fields with defaults...;  void declare(OptionTable& table); };
//   int bench(const BenchOptions& options);     // 0 or 1; or throws Error
//   Command bench_command() {
//     return make_command<BenchOptions>({.name = "bench", .summary = "measure the speed of a model", ...}, bench);
//   }
//
// Results go to stdout, everything else to stderr. The command does not catch errors: main.cpp prints one line
// `error: ...` and exits with 2 for ErrorKind::kUsage, else with 1.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/options.h"

namespace sluice::cli {

struct Example {
  std::string command;  // "sluice run -m model.gguf -p 'Hello'"
  std::string meaning;  // "answer once"
};

struct CommandText {
  std::string name;
  std::string summary;                  // one line, no capital, no full stop: "measure the speed of a model"
  std::string description = {};         // paragraphs, separated by empty lines
  std::vector<std::string> usage = {};  // what follows the name: "-m MODEL [--pp N] [--tg N]"
  std::vector<Example> examples = {};
  bool hidden = false;  // left out of help, man page and completions
};

// One use of a command: its options, to be parsed or described, and what it then does.
class Invocation {
 public:
  virtual ~Invocation() = default;
  OptionTable& table() { return table_; }
  // The exit code, 0 or 1; throws Error.
  virtual int run() = 0;

 protected:
  OptionTable table_;
};

struct Command {
  CommandText text;
  std::function<std::unique_ptr<Invocation>()> prepare;
};

// Options is default-constructible and has `void declare(OptionTable&)`, which binds its fields.
template <typename Options>
Command make_command(CommandText text, int (*function)(const Options&)) {
  class Bound final : public Invocation {
   public:
    explicit Bound(int (*f)(const Options&)) : function_(f) { options_.declare(table_); }
    int run() override { return function_(options_); }

   private:
    Options options_;
    int (*function_)(const Options&);
  };
  return {std::move(text), [function] { return std::make_unique<Bound>(function); }};
}

}  // namespace sluice::cli
