#include "cli/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "cli/describe.h"
#include "cli/suggest.h"

namespace sluice::cli {
namespace {

std::vector<std::string> split_names(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t start = std::min(list.find_first_not_of(", "), list.size());
    const size_t end = std::min(list.find_first_of(", ", start), list.size());
    if (end > start) names.emplace_back(list.substr(start, end - start));
    list.remove_prefix(end);
  }
  return names;
}

// The spelling that the table knows: long names with dashes only, since llama.cpp takes --ctx_size as well.
std::string normalized(std::string_view name) {
  std::string out(name);
  if (out.starts_with("--")) std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

bool looks_like_option(std::string_view argument) { return argument.size() > 1 && argument[0] == '-'; }

}  // namespace

struct OptionTable::Given {
  Option* option = nullptr;
  std::string text;    // "on" or "off" for flags
  std::string origin;  // for messages: "option --temp" or "environment variable SLUICE_TEMP"
};

const std::string& Option::canonical() const {
  for (const std::string& name : names) {
    if (name.starts_with("--")) return name;
  }
  return names.front();
}

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

// Declaring.

Option& OptionTable::add(std::string_view names, std::string_view placeholder, std::string_view help,
                         OptionDetails details) {
  const size_t bar = std::min(names.find('|'), names.size());
  Option& option = options_.emplace_back();
  option.names = split_names(names.substr(0, bar));
  if (bar < names.size()) option.negations = split_names(names.substr(bar + 1));
  option.placeholder = placeholder;
  option.help = help;
  option.group = group_;
  option.details = std::move(details);
  if (option.names.empty()) fail(ErrorKind::kInternal, "an option without a name: '{}'", help);
  for (const auto* spellings : {&option.names, &option.negations}) {
    for (const std::string& name : *spellings) {
      if (!looks_like_option(name) || !by_name_.emplace(name, &option).second) {
        fail(ErrorKind::kInternal, "option name '{}' is declared twice or does not begin with a dash", name);
      }
    }
  }
  return option;
}

Option& OptionTable::add_flag(std::string_view names, std::string_view help, std::function<void(bool)> set,
                              OptionDetails details) {
  Option& option = add(names, "", help, std::move(details));
  option.store = [set = std::move(set)](std::string_view text, bool) { set(parse_switch(text)); };
  return option;
}

void OptionTable::flag(std::string_view names, std::string_view help, bool* target, OptionDetails details) {
  // Off is what everyone expects of a flag that is not given; only the other default is worth a word.
  if (*target && details.default_text.empty()) details.default_text = "on";
  add_flag(
      names, help, [target](bool on) { *target = on; }, std::move(details));
}

void OptionTable::flag(std::string_view names, std::string_view help, std::optional<bool>* target,
                       OptionDetails details) {
  add_flag(
      names, help, [target](bool on) { *target = on; }, std::move(details));
}

void OptionTable::custom(std::string_view names, std::string_view placeholder, std::string_view help,
                         std::function<void(std::string_view text)> read, OptionDetails details) {
  Option& option = add(names, placeholder, help, std::move(details));
  option.store = [read = std::move(read)](std::string_view text, bool) { read(text); };
}

void OptionTable::accept(std::string_view names, std::string_view placeholder, std::string_view notice,
                         OptionDetails details) {
  details.notice = notice;
  Option& option = add(names, placeholder, notice, std::move(details));
  option.store = [](std::string_view, bool) {};
}

// Parsing: first every text is matched with its option, then the environment fills what was not given, then all is
// stored. So a later spelling of an option replaces an earlier one and a list is never mixed from both sources.

ParseResult OptionTable::parse(std::span<const std::string> arguments, const Environment& environment,
                               std::span<const ConfigEntry> config) {
  std::vector<Given> given;
  std::vector<std::string> free;
  bool options_ended = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (options_ended || !looks_like_option(argument)) {
      free.push_back(argument);
    } else if (argument == "--") {
      options_ended = true;
    } else if ((argument == "-h" || argument == "--help") && !find(argument)) {
      return {.help = true, .notices = {}};
    } else {
      given.push_back(read_option(arguments, &i));
    }
  }
  std::vector<Given> fallback = read_environment(environment, given);
  given.insert(given.end(), fallback.begin(), fallback.end());
  fallback = read_config(config, given);
  given.insert(given.end(), fallback.begin(), fallback.end());

  ParseResult result;
  std::vector<const Option*> seen;
  for (const Given& entry : given) {
    const Option& option = *entry.option;
    const bool first = std::find(seen.begin(), seen.end(), &option) == seen.end();
    try {
      check_choice(option.details.choices, entry.text);
      option.store(entry.text, first);
    } catch (const Error& error) {
      fail(error.kind(), "{}: {}", entry.origin, error.what());
    }
    if (!first) continue;
    seen.push_back(&option);
    if (!option.details.notice.empty()) {
      // By the name that says what was asked for: --no-mmap is not --mmap.
      const bool negated = option.is_flag() && !option.negations.empty() && !parse_switch(entry.text);
      const std::string& name = negated ? option.negations.back() : option.canonical();
      result.notices.push_back(fmt::format("{}: {}", name, option.details.notice));
    }
    if (!option.details.notice_of) continue;
    if (const std::string notice = option.details.notice_of(entry.text); !notice.empty())
      result.notices.push_back(fmt::format("{} {}: {}", option.canonical(), entry.text, notice));
  }
  for (const Option& option : options_) {
    if (option.details.required && std::find(seen.begin(), seen.end(), &option) == seen.end()) {
      fail(ErrorKind::kUsage, "option {} {} is missing", join(option.names, ", "), option.placeholder);
    }
  }
  store_positionals(free);
  return result;
}

Option* OptionTable::find(std::string_view name) {
  const auto found = by_name_.find(normalized(name));
  return found == by_name_.end() ? nullptr : found->second;
}

OptionTable::Given OptionTable::read_option(std::span<const std::string> arguments, size_t* index) {
  const std::string_view argument = arguments[*index];
  const size_t equals = std::min(argument.find('='), argument.size());
  const std::string name(argument.substr(0, equals));
  Option* option = find(name);
  if (!option) {
    std::vector<std::string> known;
    for (const auto& entry : by_name_) known.push_back(entry.first);
    const std::string near = nearest_word(normalized(name), known);
    fail(ErrorKind::kUsage, "unknown option {}{}", name, near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }
  Given given{option, "", fmt::format("option {}", name)};
  const bool has_value = equals < argument.size();
  if (option->is_flag()) {
    if (has_value) fail(ErrorKind::kUsage, "option {} takes no value; leave '{}' out", name, argument.substr(equals));
    const auto& off = option->negations;
    given.text = std::find(off.begin(), off.end(), normalized(name)) == off.end() ? "on" : "off";
    return given;
  }
  if (has_value) {
    given.text = argument.substr(equals + 1);
    return given;
  }
  if (*index + 1 == arguments.size()) {
    fail(ErrorKind::kUsage, "option {} needs a value: {} {}", name, name, option->placeholder);
  }
  const std::string& next = arguments[++*index];
  // A value may begin with a dash (-1, "- item"), but a known option in its place means that the value was forgotten.
  if (next == "--" || next == "--help" || find(next)) {
    fail(ErrorKind::kUsage, "option {} needs a value, but {} follows; write {}={} if that is the value", name, next,
         name, next);
  }
  given.text = next;
  return given;
}

bool OptionTable::is_given(const Option& option, const std::vector<Given>& given) {
  return std::ranges::any_of(given, [&](const Given& entry) {
    const std::vector<std::string>& others = option.details.instead_of;
    return entry.option == &option || std::ranges::find(others, entry.option->canonical()) != others.end();
  });
}

std::vector<OptionTable::Given> OptionTable::read_environment(const Environment& environment,
                                                              const std::vector<Given>& given) {
  std::vector<Given> found;
  for (Option& option : options_) {
    if (option.details.env.empty() || is_given(option, given)) continue;
    for (const char* prefix : {"SLUICE_", "LLAMA_ARG_"}) {
      const std::string name = prefix + option.details.env;
      if (auto value = environment(name)) {
        found.push_back({&option, *value, "environment variable " + name});
        break;
      }
    }
  }
  return found;
}

std::vector<OptionTable::Given> OptionTable::read_config(std::span<const ConfigEntry> config,
                                                         const std::vector<Given>& given) {
  std::vector<Given> found;
  for (const ConfigEntry& entry : config) {
    Option* option = find("--" + entry.name);
    if (option == nullptr) {
      std::vector<std::string> known;
      for (const auto& name : by_name_)
        if (name.first.starts_with("--")) known.push_back(name.first.substr(2));
      const std::string near = nearest_word(normalized("--" + entry.name).substr(2), known);
      fail(ErrorKind::kUsage, "{}: unknown option {}{}", entry.origin, entry.name,
           near.empty() ? "" : fmt::format("; did you mean {}?", near));
    }
    if (is_given(*option, given)) continue;
    Given as_given{option, entry.value, fmt::format("{}: option {}", entry.origin, entry.name)};
    const auto& off = option->negations;
    if (option->is_flag() && std::ranges::find(off, normalized("--" + entry.name)) != off.end())
      as_given.text = parse_switch(entry.value.empty() ? "on" : entry.value) ? "off" : "on";
    else if (option->is_flag() && entry.value.empty())
      as_given.text = "on";
    found.push_back(std::move(as_given));
  }
  return found;
}

void OptionTable::store_positionals(std::span<const std::string> values) {
  size_t next = 0;
  for (const Positional& positional : positionals_) {
    if (positional.required && next == values.size()) {
      fail(ErrorKind::kUsage, "argument {} is missing: {}", positional.name, positional.help);
    }
    const size_t end = positional.repeatable ? values.size() : std::min(next + 1, values.size());
    for (bool first = true; next < end; first = false, ++next) {
      try {
        check_choice(positional.choices, values[next]);
        positional.store(values[next], first);
      } catch (const Error& error) {
        fail(error.kind(), "argument {}: {}", positional.name, error.what());
      }
    }
  }
  if (next < values.size()) fail(ErrorKind::kUsage, "unexpected argument '{}'", values[next]);
}

void OptionTable::check_number(const OptionDetails& details, std::string_view text, double value) {
  const auto limit = [](double number) { return format_number(number); };
  if (details.min && value < *details.min) {
    fail(ErrorKind::kUsage, "{} is too small; the least is {}", text, limit(*details.min));
  }
  if (details.max && value > *details.max) {
    fail(ErrorKind::kUsage, "{} is too large; the most is {}", text, limit(*details.max));
  }
}

void OptionTable::check_choice(const std::vector<std::string>& choices, std::string_view text) {
  if (choices.empty() || std::find(choices.begin(), choices.end(), text) != choices.end()) return;
  fail(ErrorKind::kUsage, "'{}' is not a known value; it must be one of {}", text, join(choices, ", "));
}

}  // namespace sluice::cli
