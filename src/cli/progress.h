// A line on the terminal for work that takes longer than a second: how much is done, how fast, how long it will take.
// Nothing is printed when stderr is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

namespace sluice::cli {

enum class ProgressUnit { kBytes, kTokens, kItems };

// The line that a Progress shows, at most `width` columns: "loading [=====>    ] 52%  6.1 GB of 11.8 GB  1.9 GB/s
// ETA 3 s". `total` 0 means unknown. The bar takes what room is left; it and then the counts go first when the terminal
// is narrow.
std::string progress_line(const std::string& what, uint64_t done, uint64_t total, ProgressUnit unit, double seconds,
                          int width);

// Shows the progress of one piece of work from construction to destruction, which wipes the line. Any thread may
// report; reports are cheap (the line is redrawn at most ten times a second).
class Progress {
 public:
  Progress(std::string what, uint64_t total, ProgressUnit unit, std::FILE* stream = stderr);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of the total so far.
  void update(uint64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  const std::string what_;
  const uint64_t total_;
  const ProgressUnit unit_;
  std::FILE* const stream_;  // nullptr when nothing is to be shown
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  Clock::time_point next_draw_;
  bool drawn_ = false;
};

}  // namespace sluice::cli
