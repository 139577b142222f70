// How many of the next layer's experts to guess: guesses overlap reading with computing, but a wrong one takes the disk
// from what is needed, and making them takes time. So it is measured: steps without, with half of a token's experts and
// with all take turns for a while, the fastest way is kept for longer, and then it is asked again. Pure: the caller
// brings the times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::experts {

class LookAhead {
 public:
  enum class Mode { kOff, kOn, kAuto };
  static constexpr size_t kMostRows = 16;  // larger batches use so many experts that nothing has to be guessed

  explicit LookAhead(Mode mode) : mode_(mode) {}

  // How many experts to guess for each of a step's `rows`, of `used` that a token uses: the likeliest ones.
  size_t wanted(size_t rows, size_t used) const;
  // A step has taken so long. Steps of other sizes than those of a trial say nothing.
  void step_took(size_t rows, double seconds);

  // What the last trial found: the median seconds of a step with no guesses, with half of the experts, with all.
  static constexpr size_t kWays = 3;
  struct Verdict {
    std::array<double, kWays> seconds;
    size_t best() const;
  };
  // Not set before the first trial has ended.
  const std::optional<Verdict>& verdict() const { return verdict_; }

 private:
  static constexpr uint32_t kTurn = 8;                   // steps one way before the next one's turn
  static constexpr uint32_t kTrial = 3 * kWays * kTurn;  // steps of a trial
  static constexpr uint32_t kHold = 1024;                // steps between trials
  size_t trial_way() const { return steps_ / kTurn % kWays; }

  Mode mode_;
  uint32_t steps_ = 0;  // of the trial, or since it
  bool trying_ = true;
  size_t rows_ = 0;  // of a step of the trial
  std::array<std::vector<double>, kWays> seconds_;
  std::optional<Verdict> verdict_;
};

}  // namespace sluice::experts
