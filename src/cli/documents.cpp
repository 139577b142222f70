#include "cli/documents.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/describe.h"

namespace sluice::cli {
namespace {

constexpr size_t kIndent = 2;
constexpr size_t kHelpColumn = 30;  // where explanations begin; longer signatures get a line of their own

constexpr std::string_view kTagline = "Sluice runs Mixture-of-Experts language models that are larger than memory.";

// `text` broken at spaces into lines that end before column `width`, each from column `indent` on; the first line's
// indentation is the caller's. Existing line ends stay.
std::string wrapped(std::string_view text, size_t indent, size_t width) {
  std::string out;
  size_t column = indent;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    if (column > indent && column + 1 + word.size() > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    }
    if (column > indent && !word.empty()) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    if (end < text.size() && text[end] == '\n') {
      out += '\n' + std::string(text.size() > end + 1 && text[end + 1] != '\n' ? indent : 0, ' ');
      column = indent;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// One entry of a two-column list.
std::string entry(std::string_view left, std::string_view right, size_t width) {
  std::string out = std::string(kIndent, ' ') + std::string(left);
  if (out.size() + 2 > kHelpColumn) {
    out += '\n' + std::string(kHelpColumn, ' ');
  } else {
    out.append(kHelpColumn - out.size(), ' ');
  }
  return out + wrapped(right, kHelpColumn, width) + '\n';
}

// A summary as a sentence of its own.
std::string sentence(std::string summary) {
  if (summary[0] >= 'a' && summary[0] <= 'z') summary[0] = static_cast<char>(summary[0] - 'a' + 'A');
  return summary + '.';
}

// Group titles in the order of their first option.
std::vector<std::string> group_titles(const OptionTable& table) {
  std::vector<std::string> titles;
  for (const Option& option : table.options()) {
    if (std::find(titles.begin(), titles.end(), option.group) == titles.end()) titles.push_back(option.group);
  }
  return titles;
}

// Roff: a hyphen that is to be copied is \-, a line must not begin with a control character.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

// Paragraphs are separated by empty lines in our texts, by .PP in roff.
std::string roff_paragraphs(std::string_view text) {
  std::string out = roff(text);
  for (size_t at = 0; (at = out.find("\n\n", at)) != std::string::npos;) out.replace(at, 2, "\n.PP\n");
  return out + '\n';
}

std::string man_command(const CommandText& text, const OptionTable& table) {
  std::string out = fmt::format(".SS sluice {}\n{}\n", roff(text.name), roff(sentence(text.summary)));
  for (const std::string& usage : text.usage)
    out += fmt::format(".PP\n.B sluice {} {}\n", roff(text.name), roff(usage));
  if (!text.description.empty()) out += ".PP\n" + roff_paragraphs(text.description);
  for (const Positional& positional : table.positionals()) {
    out += fmt::format(".TP\n.I {}\n{}\n", roff(positional.name), roff(explanation(positional)));
  }
  for (const std::string& title : group_titles(table)) {
    out += fmt::format(".PP\n.I {}\n", roff(title));
    for (const Option& option : table.options()) {
      if (option.group != title) continue;
      out += fmt::format(".TP\n.B {}\n{}\n", roff(signature(option)), roff(explanation(option)));
    }
  }
  for (const Example& example : text.examples) {
    out += fmt::format(".PP\n{}:\n.PP\n.nf\n.RS\n{}\n.RE\n.fi\n", roff(example.meaning), roff(example.command));
  }
  return out;
}

}  // namespace

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : std::string(separator)) + word;
  return out;
}

std::vector<std::string> all_names(const Option& option) {
  std::vector<std::string> names = option.names;
  names.insert(names.end(), option.negations.begin(), option.negations.end());
  return names;
}

std::string signature(const Option& option) {
  const std::string names = join(all_names(option), ", ");
  return option.is_flag() ? names : names + ' ' + option.placeholder;
}

std::string explanation(const Option& option) {
  std::vector<std::string> facts;
  const OptionDetails& details = option.details;
  if (!details.choices.empty()) facts.push_back("one of " + join(details.choices, ", "));
  if (option.repeatable) facts.emplace_back("may be repeated");
  if (details.required) facts.emplace_back("required");
  if (!details.default_text.empty()) facts.push_back("default: " + details.default_text);
  if (!details.env.empty()) facts.push_back("env: SLUICE_" + details.env);
  return facts.empty() ? option.help : fmt::format("{} ({})", option.help, join(facts, "; "));
}

std::string explanation(const Positional& positional) {
  if (positional.choices.empty()) return positional.help;
  return fmt::format("{} (one of {})", positional.help, join(positional.choices, ", "));
}

bool takes_path(const Option& option) { return option.placeholder == "FILE" || option.placeholder == "DIR"; }

std::string command_help(const CommandText& text, const OptionTable& table, int width) {
  const auto columns = static_cast<size_t>(width);
  std::string out;
  for (const std::string& usage : text.usage) {
    const std::string start = (out.empty() ? "Usage: sluice " : "       sluice ") + text.name + ' ';
    out += start + wrapped(usage, start.size(), columns) + '\n';
  }
  if (out.empty()) out = fmt::format("Usage: sluice {}\n", text.name);
  out += '\n' + wrapped(text.description.empty() ? sentence(text.summary) : text.description, 0, columns) + '\n';
  if (!table.positionals().empty()) out += "\nArguments\n";
  for (const Positional& positional : table.positionals())
    out += entry(positional.name, explanation(positional), columns);
  bool has_env = false;
  for (const std::string& title : group_titles(table)) {
    out += '\n' + title + '\n';
    for (const Option& option : table.options()) {
      if (option.group != title) continue;
      out += entry(signature(option), explanation(option), columns);
      has_env = has_env || !option.details.env.empty();
    }
  }
  if (!text.examples.empty()) out += "\nExamples\n";
  for (const Example& example : text.examples) {
    out += fmt::format("  {}\n      {}\n", example.command, example.meaning);
  }
  if (has_env) {
    out += '\n' +
           wrapped(
               "An option with an environment variable SLUICE_X also reads LLAMA_ARG_X. The command line wins "
               "over both.",
               0, columns) +
           '\n';
  }
  return out;
}

std::string overview(std::span<const Command> commands, int width) {
  const auto columns = static_cast<size_t>(width);
  std::string out = "Usage: sluice COMMAND [options]\n\n" + wrapped(kTagline, 0, columns) + "\n\nCommands\n";
  for (const Command& command : commands) {
    if (!command.text.hidden) out += entry(command.text.name, command.text.summary, columns);
  }
  return out + "\n`sluice COMMAND --help` explains a command and its options.\n";
}

std::string man_page(std::span<const Command> commands) {
  std::string out = fmt::format(
      ".TH SLUICE 1 \"\" \"sluice {}\" \"User Commands\"\n"
      ".SH NAME\nsluice \\- run Mixture\\-of\\-Experts language models that are larger than memory\n"
      ".SH SYNOPSIS\n.B sluice\n.I COMMAND\n.RI [ options ]\n"
      ".SH DESCRIPTION\n{}\nOptions may be written as\n.B \\-\\-name value\nor\n.BR \\-\\-name=value .\n"
      "Results go to standard output, progress and messages to standard error.\n"
      ".SH COMMANDS\n",
      SLUICE_VERSION, roff(kTagline));
  for (const Command& command : commands) {
    if (!command.text.hidden) out += man_command(command.text, command.prepare()->table());
  }
  return out +
         ".SH ENVIRONMENT\nWhere an option names an environment variable\n.BR SLUICE_X ,\n"
         "it is used when the option is not given;\n.B LLAMA_ARG_X\nis read when\n.B SLUICE_X\nis not set.\n"
         ".TP\n.B NO_COLOR\nwhen set to anything, output has no colors\n"
         ".SH EXIT STATUS\n.TP\n.B 0\ndone\n.TP\n.B 1\n"
         "failed; one line on standard error says what, where and the remedy\n"
         ".TP\n.B 2\nthe command line is wrong\n";
}

}  // namespace sluice::cli
