#include "cli/program.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "base/error.h"
#include "cli/config_file.h"
#include "cli/console.h"
#include "cli/documents.h"
#include "cli/suggest.h"

namespace sluice::cli {
namespace {

constexpr int kDone = 0, kFailed = 1, kUsage = 2;

const Command& find_command(std::span<const Command> commands, const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (command.text.name == name) return command;
    if (!command.text.hidden) names.push_back(command.text.name);
  }
  const std::string near = nearest_word(name, names);
  fail(ErrorKind::kUsage, "unknown command '{}'{}; `sluice --help` lists the commands", name,
       near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

void print_help(const Command& command) {
  fmt::print("{}", command_help(command.text, command.prepare()->table(), terminal_width(stdout)));
}

int run_command(const Command& command, std::span<const std::string> arguments, const Environment& environment) {
  const auto invocation = command.prepare();
  ParseResult parsed;
  try {
    OptionTable& table = invocation->table();
    parsed = table.parse(arguments, environment,
                         table.knows("--config") ? config_named_by(arguments) : std::vector<ConfigEntry>{});
  } catch (const Error& error) {
    fail(error.kind(), "{} (see `sluice {} --help`)", error.what(), command.text.name);
  }
  if (parsed.help) {
    print_help(command);
    return kDone;
  }
  const Style style = style_for(stderr);
  for (const std::string& notice : parsed.notices) {
    fmt::print(stderr, "{}note: {}{}\n", style.dim, notice, style.reset);
  }
  return invocation->run();
}

int dispatch(std::span<const Command> commands, std::span<const std::string> arguments,
             const Environment& environment) {
  if (arguments.empty()) {
    fmt::print(stderr, "{}", overview(commands, terminal_width(stderr)));
    return kUsage;
  }
  const std::string& first = arguments[0];
  const auto rest = arguments.subspan(1);
  if (first == "--help" || first == "-h" || first == "help") {
    if (rest.empty()) {
      fmt::print("{}", overview(commands, terminal_width(stdout)));
    } else {
      print_help(find_command(commands, rest[0]));
    }
    return kDone;
  }
  const Command& command = find_command(commands, first == "--version" ? "version" : first);
  return run_command(command, rest, environment);
}

// What is said of an error is one line, whatever a message quotes.
void print_error(std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  const Style style = style_for(stderr);
  fmt::print(stderr, "{}error:{} {}\n", style.red, style.reset, message);
}

}  // namespace

int run_program(std::span<const Command> commands, std::span<const std::string> arguments,
                const Environment& environment) {
  int code = kFailed;
  try {
    code = dispatch(commands, arguments, environment);
  } catch (const Error& error) {
    print_error(error.what());
    code = error.kind() == ErrorKind::kUsage ? kUsage : kFailed;
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
  } catch (const std::exception& error) {
    print_error(fmt::format("internal: {}; please report this", error.what()));
  }
  // A full disk shows only here, when the last of the output is written.
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    print_error(fmt::format("standard output could not be written: {}", std::strerror(errno)));
    code = kFailed;
  }
  return code;
}

}  // namespace sluice::cli
