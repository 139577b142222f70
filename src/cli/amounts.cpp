#include "cli/amounts.h"

#include <fmt/core.h>

#include <array>

namespace sluice::cli {
namespace {

using Units = std::array<const char*, 5>;

// `value` in the largest of the units, each `step` times the one before, that keeps it at least 1.
std::string scaled(uint64_t value, double step, const Units& units) {
  auto shown = static_cast<double>(value);
  size_t unit = 0;
  while (unit + 1 < units.size() && shown >= step - 0.5) {
    shown /= step;
    ++unit;
  }
  const int digits = unit == 0 || shown >= 99.95 ? 0 : shown >= 9.995 ? 1 : 2;
  const char* name = units[unit];
  return fmt::format("{:.{}f}{}{}", shown, digits, *name == '\0' ? "" : " ", name);
}

}  // namespace

std::string human_bytes(uint64_t bytes) {
  static constexpr Units kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  return scaled(bytes, 1024, kUnits);
}

std::string human_count(uint64_t count) {
  static constexpr Units kUnits = {"", "K", "M", "B", "T"};
  return scaled(count, 1000, kUnits);
}

}  // namespace sluice::cli
