#include "cli/values.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <system_error>

#include "base/error.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kUnitLetters = "KMGT";

std::string lowercase(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// `from_chars` of the whole text, where a leading plus is allowed as on every command line.
template <typename T>
std::errc read_all(std::string_view text, T* out) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  auto [stop, problem] = std::from_chars(text.data(), end, *out);
  if (problem == std::errc{} && stop != end) return std::errc::invalid_argument;
  return problem;
}

// The multiplier of a size's unit; nullopt when there is no such unit.
std::optional<uint64_t> unit_bytes(std::string_view unit) {
  if (unit.empty() || unit == "B" || unit == "b") return 1;
  const char letter = static_cast<char>(unit[0] >= 'a' && unit[0] <= 'z' ? unit[0] - 'a' + 'A' : unit[0]);
  const size_t power = kUnitLetters.find(letter);
  const std::string rest = lowercase(unit.substr(1));
  if (power == std::string_view::npos || (rest != "" && rest != "i" && rest != "b" && rest != "ib")) return {};
  return uint64_t{1} << (10 * (power + 1));
}

}  // namespace

int64_t parse_integer(std::string_view text, int64_t minimum, int64_t maximum) {
  int64_t value = 0;
  const std::errc problem = read_all(text, &value);
  if (problem == std::errc::invalid_argument) fail(ErrorKind::kUsage, "'{}' is not a whole number", text);
  if (problem != std::errc{} || value < minimum || value > maximum) {
    fail(ErrorKind::kUsage, "{} is out of range: it must lie from {} to {}", text, minimum, maximum);
  }
  return value;
}

uint64_t parse_unsigned(std::string_view text, uint64_t maximum) {
  uint64_t value = 0;
  const std::errc problem = read_all(text, &value);
  if (problem == std::errc::invalid_argument) {
    fail(ErrorKind::kUsage, "'{}' is not a whole number of zero or more", text);
  }
  if (problem != std::errc{} || value > maximum) {
    fail(ErrorKind::kUsage, "{} is out of range: it must lie from 0 to {}", text, maximum);
  }
  return value;
}

double parse_number(std::string_view text, double limit) {
  double value = 0;
  const std::errc problem = read_all(text, &value);
  if (problem != std::errc{} || !(std::fabs(value) <= limit))
    fail(ErrorKind::kUsage, "'{}' is not a number in range", text);
  return value;
}

bool parse_switch(std::string_view text) {
  const std::string word = lowercase(text);
  for (const char* yes : {"on", "true", "yes", "1", "enabled"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"off", "false", "no", "0", "disabled"}) {
    if (word == no) return false;
  }
  fail(ErrorKind::kUsage, "'{}' is neither on nor off", text);
}

uint64_t parse_size(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto unit = unit_bytes(text.substr(digits));
  double count = 0;
  if (!unit || read_all(text.substr(0, digits), &count) != std::errc{}) {
    fail(ErrorKind::kUsage, "'{}' is not a size; write bytes, or a number with a unit such as 512MiB or 6GiB", text);
  }
  // A whole number of bytes beyond 2^53 would lose digits as a double; read it as what it is.
  uint64_t whole = 0;
  if (read_all(text.substr(0, digits), &whole) == std::errc{} && whole <= UINT64_MAX / *unit) return whole * *unit;
  const double bytes = count * static_cast<double>(*unit);
  if (bytes >= 0x1p63) fail(ErrorKind::kUsage, "size {} is too large: the limit is 2^63 bytes", text);
  return static_cast<uint64_t>(bytes);
}

std::vector<int> parse_cpu_mask(std::string_view text) {
  constexpr size_t kMostDigits = 256;  // of the 1024 CPUs that Linux's plain calls know
  std::string_view digits = text;
  if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
  std::vector<int> cpus;
  for (size_t i = 0; i < digits.size(); ++i) {
    unsigned digit = 0;
    const char* const at = digits.data() + digits.size() - 1 - i;
    if (digits.size() > kMostDigits || std::from_chars(at, at + 1, digit, 16).ec != std::errc{})
      fail(ErrorKind::kUsage, "'{}' is no hexadecimal number of at most {} digits, such as 0xF for CPUs 0 to 3", text,
           kMostDigits);
    for (int bit = 0; bit < 4; ++bit)
      if (digit >> bit & 1) cpus.push_back(static_cast<int>(4 * i) + bit);
  }
  if (cpus.empty())
    fail(ErrorKind::kUsage, "'{}' names no CPU; bit i of the hexadecimal number stands for CPU i", text);
  return cpus;
}

std::string format_number(double value) { return fmt::format("{}", value); }
std::string format_number(float value) { return fmt::format("{}", value); }

std::string format_size(uint64_t bytes) {
  size_t power = 0;
  while (power < kUnitLetters.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++power;
  }
  if (power == 0) return fmt::format("{}B", bytes);
  return fmt::format("{}{}iB", bytes, kUnitLetters[power - 1]);
}

}  // namespace sluice::cli
