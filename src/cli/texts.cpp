// The hidden commands that print the program's own texts, which `cmake --install` puts in their places.
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/documents.h"

namespace sluice::cli {
namespace {

struct ManOptions {
  void declare(OptionTable&) {}
};

int print_man(const ManOptions&) {
  fmt::print("{}", man_page(all_commands()));
  return 0;
}

struct CompletionOptions {
  Shell shell = Shell::kBash;
  void declare(OptionTable& table) {
    table.positional("SHELL", "bash, zsh or fish", &shell,
                     {{"bash", Shell::kBash}, {"zsh", Shell::kZsh}, {"fish", Shell::kFish}});
  }
};

int print_completion(const CompletionOptions& options) {
  fmt::print("{}", completion_script(options.shell, all_commands()));
  return 0;
}

}  // namespace

Command man_command() {
  return make_command<ManOptions>({.name = "man", .summary = "print the man page", .usage = {""}, .hidden = true},
                                  print_man);
}

Command completion_command() {
  return make_command<CompletionOptions>(
      {.name = "completion", .summary = "print a shell's completion script", .usage = {"SHELL"}, .hidden = true},
      print_completion);
}

}  // namespace sluice::cli
