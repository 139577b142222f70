#include "cli/config_file.h"

#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace sluice::cli {

namespace {

constexpr std::string_view kSpace = " \t\r";

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kSpace) - first + 1));
}

}  // namespace

std::vector<ConfigEntry> read_config_file(const std::string& path) {
  const std::string text = read_text_file(path);
  std::vector<ConfigEntry> entries;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = trimmed(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const size_t equals = std::min(line.find('='), line.size());
    ConfigEntry entry{trimmed(std::string_view(line).substr(0, equals)),
                      equals < line.size() ? trimmed(std::string_view(line).substr(equals + 1)) : "",
                      fmt::format("{}:{}", path, number)};
    if (entry.name.empty() || entry.name[0] == '-' || entry.name.find(' ') != std::string::npos)
      fail(ErrorKind::kUsage, "{}: '{}' is no option; write `name = value`, with the option's long name without dashes",
           entry.origin, line);
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<ConfigEntry> config_named_by(std::span<const std::string> arguments) {
  constexpr std::string_view kOption = "--config";
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == kOption && i + 1 < arguments.size()) return read_config_file(arguments[i + 1]);
    if (argument.starts_with(std::string(kOption) + "=")) return read_config_file(argument.substr(kOption.size() + 1));
  }
  return {};
}

}  // namespace sluice::cli
