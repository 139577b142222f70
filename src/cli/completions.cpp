// Shell completions, generated whole: the scripts look nothing up at run time, so completing never starts the program.
#include <fmt/core.h>

#include <algorithm>

#include "cli/describe.h"
#include "cli/documents.h"

namespace sluice::cli {
namespace {

// Calls f(text, table) for every command that users see.
template <typename F>
void for_each_command(std::span<const Command> commands, const F& f) {
  for (const Command& command : commands) {
    if (command.text.hidden) continue;
    const auto invocation = command.prepare();
    f(command.text, invocation->table());
  }
}

// Inside single quotes of bash and zsh, with a backslash before each of `special`.
std::string quoted(std::string_view text, std::string_view special = "") {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out;
}

std::string bash_script(std::span<const Command> commands) {
  std::string names, cases;
  for_each_command(commands, [&](const CommandText& text, const OptionTable& table) {
    names += text.name + ' ';
    std::string words = "--help";
    std::string values;
    for (const Option& option : table.options()) {
      words += ' ' + join(all_names(option), " ");
      if (option.is_flag()) continue;
      const std::string action = takes_path(option)
                                     ? "_sluice_files"
                                     : fmt::format("_sluice_words '{}'", quoted(join(option.details.choices, " ")));
      values += fmt::format("        {}) {}; return ;;\n", join(option.names, "|"), action);
    }
    cases += fmt::format("    {})\n", text.name);
    if (!values.empty()) cases += fmt::format("      case $previous in\n{}      esac\n", values);
    cases +=
        fmt::format("      if [[ $word == -* ]]; then _sluice_words '{}'; else _sluice_files; fi ;;\n", quoted(words));
  });
  return fmt::format(
      "# bash completion for sluice\n"
      "_sluice_words() {{ COMPREPLY=($(compgen -W \"$1\" -- \"$word\")); }}\n"
      "_sluice_files() {{ compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); }}\n"
      "_sluice() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  if ((COMP_CWORD == 1)); then _sluice_words '{}--help'; return; fi\n"
      "  case ${{COMP_WORDS[1]}} in\n{}  esac\n"
      "}}\n"
      "complete -F _sluice sluice\n",
      names, cases);
}

std::string zsh_script(std::span<const Command> commands) {
  std::string names, cases;
  for_each_command(commands, [&](const CommandText& text, const OptionTable& table) {
    names += fmt::format("    '{}:{}'\n", text.name, quoted(text.summary, ":"));
    std::string specs;
    for (const Option& option : table.options()) {
      const std::string help = quoted(option.help, "[]:\\");
      std::string value;
      if (takes_path(option)) {
        value = fmt::format(":{}:_files", option.placeholder);
      } else if (!option.is_flag()) {
        value = fmt::format(":{}:({})", quoted(option.placeholder, ":\\"), quoted(join(option.details.choices, " ")));
      }
      for (const std::string& name : all_names(option)) {
        const bool takes_equals = name.starts_with("--") && !option.is_flag();
        specs += fmt::format("        '*{}{}[{}]{}' \\\n", name, takes_equals ? "=" : "", help, value);
      }
    }
    cases += fmt::format("    {})\n      _arguments \\\n{}        '*:file:_files' ;;\n", text.name, specs);
  });
  return fmt::format(
      "#compdef sluice\n"
      "local -a commands\n"
      "commands=(\n{})\n"
      "if ((CURRENT == 2)); then\n  _describe command commands\nelse\n"
      "  local command=$words[2]\n  shift words; ((CURRENT--))\n"
      "  case $command in\n{}  esac\nfi\n",
      names, cases);
}

std::string fish_script(std::span<const Command> commands) {
  const auto fish_quoted = [](std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return out;
  };
  std::string out = "# fish completion for sluice\ncomplete -c sluice -n __fish_use_subcommand -f\n";
  for_each_command(commands, [&](const CommandText& text, const OptionTable& table) {
    out += fmt::format("complete -c sluice -n __fish_use_subcommand -a {} -d '{}'\n", text.name,
                       fish_quoted(text.summary));
    for (const Option& option : table.options()) {
      std::string line = fmt::format("complete -c sluice -n '__fish_seen_subcommand_from {}'", text.name);
      for (const std::string& name : all_names(option)) {
        if (name.starts_with("--")) {
          line += " -l " + name.substr(2);
        } else {
          line += (name.size() == 2 ? " -s " : " -o ") + name.substr(1);
        }
      }
      if (takes_path(option)) {
        line += " -r -F";
      } else if (!option.is_flag()) {
        line += fmt::format(" -x -a '{}'", fish_quoted(join(option.details.choices, " ")));
      }
      out += fmt::format("{} -d '{}'\n", line, fish_quoted(option.help));
    }
  });
  return out;
}

}  // namespace

std::string completion_script(Shell shell, std::span<const Command> commands) {
  switch (shell) {
    case Shell::kBash:
      return bash_script(commands);
    case Shell::kZsh:
      return zsh_script(commands);
    case Shell::kFish:
      return fish_script(commands);
  }
  return {};
}

}  // namespace sluice::cli
