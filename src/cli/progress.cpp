#include "cli/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "cli/console.h"

namespace sluice::cli {
namespace {

constexpr auto kPatience = std::chrono::seconds(1);       // shorter work needs no line
constexpr auto kRedraw = std::chrono::milliseconds(100);  // faster than this no one reads
constexpr size_t kWidestBar = 30, kNarrowestBar = 8;

// Three significant digits and a decimal prefix: 950, 12.3 k, 1.90 G.
std::string scaled(double value) {
  constexpr std::array<const char*, 5> kPrefixes = {"", "k", "M", "G", "T"};
  size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  const int digits = prefix == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, digits, kPrefixes[prefix]);
}

std::string amount(uint64_t value, ProgressUnit unit) {
  return unit == ProgressUnit::kBytes ? scaled(static_cast<double>(value)) + "B" : std::to_string(value);
}

std::string rate(double per_second, ProgressUnit unit) {
  switch (unit) {
    case ProgressUnit::kBytes:
      return scaled(per_second) + "B/s";
    case ProgressUnit::kTokens:
      return fmt::format("{:.{}f} t/s", per_second, per_second < 99.95 ? 1 : 0);
    case ProgressUnit::kItems:
      return fmt::format("{:.{}f}/s", per_second, per_second < 99.95 ? 1 : 0);
  }
  return {};
}

std::string duration(double seconds) {
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

std::string progress_line(const std::string& what, uint64_t done, uint64_t total, ProgressUnit unit, double seconds,
                          int width) {
  done = total == 0 ? done : std::min(done, total);
  const double speed = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string counts = "  " + amount(done, unit);
  std::string pace = "  " + rate(speed, unit);
  std::string percent;
  if (total != 0) {
    counts += " of " + amount(total, unit);
    const double share = static_cast<double>(done) / static_cast<double>(total);
    percent = fmt::format(" {:.0f}%", 100 * share);
    if (speed > 0) pace += "  ETA " + duration(static_cast<double>(total - done) / speed);
  }
  const auto columns = static_cast<size_t>(width);
  if (what.size() + percent.size() + counts.size() + pace.size() > columns) counts.clear();
  const size_t used = what.size() + percent.size() + counts.size() + pace.size() + 3;  // " [" and "]"
  std::string bar;
  if (total != 0 && used + kNarrowestBar <= columns) {
    const size_t cells = std::min(kWidestBar, columns - used);
    const auto full =
        static_cast<size_t>(static_cast<double>(cells) * static_cast<double>(done) / static_cast<double>(total));
    bar = " [" + std::string(full, '=') + (full < cells ? ">" : "") +
          std::string(cells - std::min(cells, full + 1), ' ') + "]";
  }
  return (what + bar + percent + counts + pace).substr(0, columns);
}

Progress::Progress(std::string what, uint64_t total, ProgressUnit unit, std::FILE* stream)
    : what_(std::move(what)),
      total_(total),
      unit_(unit),
      stream_(is_terminal(stream) ? stream : nullptr),
      next_draw_(start_ + kPatience) {}

Progress::~Progress() {
  if (!drawn_) return;
  fmt::print(stream_, "\r\x1b[K");
  std::fflush(stream_);
}

void Progress::update(uint64_t done) {
  if (!stream_) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;  // another thread is drawing; the next report will do
  const auto now = Clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + kRedraw;
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  // The last column stays free: writing it would wrap the line on some terminals.
  fmt::print(stream_, "\r{}\x1b[K", progress_line(what_, done, total_, unit_, seconds, terminal_width(stream_) - 1));
  std::fflush(stream_);
}

}  // namespace sluice::cli
