// The option table: one declaration of an option is its parser, its line in --help, its paragraph in the man page, its
// shell completion and its environment variable. A command keeps its options in a plain struct and binds each to a
// field, so the values are typed, have their defaults where they are declared, and are read without lookups:
//
//   struct BenchOptions {
//     int prompt_tokens = 512;
//     bool json = false;
//     void declare(OptionTable& table) {
//       table.group("Measurement");
//       table.option("--pp", "N", "tokens of the prompt to measure", &prompt_tokens, {.min = 1});
//       table.flag("--json", "print one JSON object", &json);
//     }
//   };
//
// Spellings follow llama.cpp: several names per option, names of several letters after one dash (-ngl), `--name value`
// and `--name=value`, underscores for dashes in long names. The command line wins over the environment, that over a
// configuration file, that over the default. What the values mean is the command's business; how they are documented is
// documents.h's.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/values.h"

namespace sluice::cli {

// What not every option needs. All fields may be left out.
struct OptionDetails {
  std::string env = {};            // "THREADS": read from SLUICE_THREADS, else from LLAMA_ARG_THREADS
  std::optional<double> min = {};  // numbers outside [min, max] are refused
  std::optional<double> max = {};
  std::string default_text = {};          // for help, where the field's initial value does not say it ("all cores")
  std::vector<std::string> choices = {};  // the only texts allowed
  // Options that say the same in another way: one of them on the command line wins over this one's environment
  // variable.
  std::vector<std::string> instead_of = {};
  std::string notice = {};  // printed once on use: what the option does not do here, and why
  // The same for some of its values: what is used instead; empty for the others.
  std::function<std::string(std::string_view text)> notice_of = {};
  bool required = false;  // a usage error when neither the command line nor the environment gives it
};

// One declared option, as documents.h reads it.
struct Option {
  std::vector<std::string> names;      // "-t", "--threads"
  std::vector<std::string> negations;  // "--no-mmap": turn the flag off
  std::string placeholder;             // "N", "FILE", "DIR"; empty for a flag
  std::string help;
  std::string group;
  bool repeatable = false;
  OptionDetails details;
  // Stores a value; `first` is true for the first of this parse, which replaces a list's default.
  std::function<void(std::string_view text, bool first)> store;

  bool is_flag() const { return placeholder.empty(); }
  // The first long name, else the first: how messages and man page call the option.
  const std::string& canonical() const;
};

// An argument without a name.
struct Positional {
  std::string name;  // "MODEL"
  std::string help;
  bool required = true;
  bool repeatable = false;  // takes all that follow; only the last positional may
  std::vector<std::string> choices;
  std::function<void(std::string_view text, bool first)> store;
};

// What parsing found besides the values.
struct ParseResult {
  bool help = false;                 // -h or --help was given; nothing else was checked or stored
  std::vector<std::string> notices;  // to print, one line each
};

// A line of a configuration file: an option's long name without dashes, its value, and where that stands.
struct ConfigEntry {
  std::string name, value, origin;
};

// The value of an environment variable, nullopt when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
// The process's own environment.
std::optional<std::string> process_environment(const std::string& name);

namespace detail {
template <typename T>
struct Wrapped {
  using type = T;
  static constexpr bool kOptional = false, kList = false;
};
template <typename T>
struct Wrapped<std::optional<T>> {
  using type = T;
  static constexpr bool kOptional = true, kList = false;
};
template <typename T>
struct Wrapped<std::vector<T>> {
  using type = T;
  static constexpr bool kOptional = false, kList = true;
};
}  // namespace detail

// Targets must outlive the table and stay where they are. Names are given as in help: "-t, --threads".
// A target may be T (replaced), std::optional<T> (tells whether it was given) or std::vector<T> (repeatable).
class OptionTable {
 public:
  // Options declared from here on stand under this title in help; a title used before is continued.
  void group(std::string title) { group_ = std::move(title); }

  // An option with a value: T is an integer, a floating-point number or std::string.
  template <typename Target>
  void option(std::string_view names, std::string_view placeholder, std::string_view help, Target* target,
              OptionDetails details = {}) {
    using T = typename detail::Wrapped<Target>::type;
    bind(
        names, placeholder, help, target, std::move(details), [](std::string_view text) { return read_text<T>(text); },
        [](const T& value) { return show_text(value); });
  }

  // An option whose value is a number of bytes, with an optional unit (values.h, parse_size). T is uint64_t.
  template <typename Target>
  void size(std::string_view names, std::string_view help, Target* target, OptionDetails details = {}) {
    bind(names, "SIZE", help, target, std::move(details), parse_size, format_size);
  }

  // An option whose value is one of a few words, each standing for a value of T.
  template <typename Target>
  void choice(std::string_view names, std::string_view placeholder, std::string_view help, Target* target,
              std::vector<std::pair<std::string, typename detail::Wrapped<Target>::type>> words,
              OptionDetails details = {}) {
    using T = typename detail::Wrapped<Target>::type;
    for (const auto& word : words) details.choices.push_back(word.first);
    auto read = [words](std::string_view text) { return value_of(words, text); };
    auto show = [words](const T& shown) {
      for (const auto& [word, value] : words) {
        if (value == shown) return word;
      }
      return std::string();
    };
    bind(names, placeholder, help, target, std::move(details), read, show);
  }

  // An option whose value the command reads itself: `read` throws Error(kUsage, what is wrong with the text).
  void custom(std::string_view names, std::string_view placeholder, std::string_view help,
              std::function<void(std::string_view text)> read, OptionDetails details = {});

  // A flag. Names after a bar turn it off: "--mmap | --no-mmap".
  void flag(std::string_view names, std::string_view help, bool* target, OptionDetails details = {});
  void flag(std::string_view names, std::string_view help, std::optional<bool>* target, OptionDetails details = {});

  // An option of related programs that changes nothing here; its use prints the notice. Flag without a placeholder.
  void accept(std::string_view names, std::string_view placeholder, std::string_view notice,
              OptionDetails details = {});

  // The next argument without a name; T is std::string, std::optional<std::string> (may be left out) or
  // std::vector<std::string> (one or more).
  template <typename Target>
  void positional(std::string_view name, std::string_view help, Target* target) {
    constexpr bool kOptional = detail::Wrapped<Target>::kOptional, kList = detail::Wrapped<Target>::kList;
    positionals_.push_back(
        {std::string(name), std::string(help), !kOptional, kList, {}, [target](std::string_view text, bool first) {
           assign(target, std::string(text), first);
         }});
  }

  // The same for one of a few words, each standing for a value of T.
  template <typename T>
  void positional(std::string_view name, std::string_view help, T* target,
                  std::vector<std::pair<std::string, std::type_identity_t<T>>> words) {
    Positional added{std::string(name), std::string(help), true, false, {}, nullptr};
    for (const auto& word : words) added.choices.push_back(word.first);
    added.store = [target, words](std::string_view text, bool) { *target = value_of(words, text); };
    positionals_.push_back(std::move(added));
  }

  // Reads the arguments after the command's name and stores what they say. Throws Error(kUsage) that names the option,
  // the text, and what would be right: unknown option (with the nearest known one), missing, superfluous or bad value,
  // missing option or positional, too many positionals. On an error some targets may have been stored.
  // `config`: entries that fill what neither the command line nor the environment gives.
  ParseResult parse(std::span<const std::string> arguments, const Environment& environment,
                    std::span<const ConfigEntry> config = {});

  bool knows(std::string_view name) const { return by_name_.contains(name); }
  const std::deque<Option>& options() const { return options_; }
  const std::vector<Positional>& positionals() const { return positionals_; }

 private:
  struct Given;  // an option with a text for it, before any is stored

  // The value of a word that check_choice() has seen to be one of them.
  template <typename T>
  static T value_of(const std::vector<std::pair<std::string, T>>& words, std::string_view text) {
    return std::find_if(words.begin(), words.end(), [text](const auto& word) { return word.first == text; })->second;
  }

  template <typename T>
  static T read_text(std::string_view text) {
    if constexpr (std::same_as<T, std::string>) {
      return std::string(text);
    } else if constexpr (std::floating_point<T>) {
      return static_cast<T>(parse_number(text, std::numeric_limits<T>::max()));
    } else if constexpr (std::unsigned_integral<T>) {
      return static_cast<T>(parse_unsigned(text, std::numeric_limits<T>::max()));
    } else {
      static_assert(std::signed_integral<T>, "use choice(), size() or custom() for other types");
      return static_cast<T>(parse_integer(text, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
    }
  }

  template <typename T>
  static std::string show_text(const T& value) {
    if constexpr (std::same_as<T, std::string>) {
      return value;
    } else if constexpr (std::floating_point<T>) {
      return format_number(value);
    } else {
      return std::to_string(value);
    }
  }

  template <typename Target, typename T>
  static void assign(Target* target, T value, bool first) {
    if constexpr (detail::Wrapped<Target>::kList) {
      if (first) target->clear();
      target->push_back(std::move(value));
    } else {
      *target = std::move(value);
    }
  }

  template <typename Target, typename Show>
  static std::string show_default(const Target& target, const Show& show) {
    if constexpr (detail::Wrapped<Target>::kOptional) {
      return target ? show(*target) : std::string();
    } else if constexpr (detail::Wrapped<Target>::kList) {
      std::string out;
      for (const auto& item : target) out += (out.empty() ? "" : ", ") + show(item);
      return out;
    } else {
      return show(target);
    }
  }

  template <typename Target, typename Read, typename Show>
  void bind(std::string_view names, std::string_view placeholder, std::string_view help, Target* target,
            OptionDetails details, Read read, Show show) {
    if (details.default_text.empty() && !details.required) details.default_text = show_default(*target, show);
    Option& added = add(names, placeholder, help, std::move(details));
    added.repeatable = detail::Wrapped<Target>::kList;
    added.store = [target, read, &added](std::string_view text, bool first) {
      auto value = read(text);
      check_range(added.details, text, value);
      assign(target, std::move(value), first);
    };
  }

  // Throws when a number is outside of what the details allow; values of other types have no range.
  template <typename T>
  static void check_range(const OptionDetails& details, std::string_view text, const T& value) {
    if constexpr (std::is_arithmetic_v<T>) check_number(details, text, static_cast<double>(value));
  }
  static void check_number(const OptionDetails& details, std::string_view text, double value);
  static void check_choice(const std::vector<std::string>& choices, std::string_view text);
  Option& add(std::string_view names, std::string_view placeholder, std::string_view help, OptionDetails details);
  Option& add_flag(std::string_view names, std::string_view help, std::function<void(bool)> set, OptionDetails details);
  // The option of this spelling; nullptr when there is none.
  Option* find(std::string_view name);
  // The option that argument `index` starts, with its value taken from it or from the next; advances `index` to the
  // last argument used.
  Given read_option(std::span<const std::string> arguments, size_t* index);
  // The option, or one that says the same in another way, is among them.
  static bool is_given(const Option& option, const std::vector<Given>& given);
  std::vector<Given> read_environment(const Environment& environment, const std::vector<Given>& given);
  std::vector<Given> read_config(std::span<const ConfigEntry> config, const std::vector<Given>& given);
  void store_positionals(std::span<const std::string> values);

  std::deque<Option> options_;  // addresses stay valid
  std::map<std::string, Option*, std::less<>> by_name_;
  std::vector<Positional> positionals_;
  std::string group_ = "Options";
};

}  // namespace sluice::cli
