#include "experts/look_ahead.h"

#include <algorithm>

namespace sluice::experts {

namespace {

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

}  // namespace

// Less than one percent is noise, and not worth the reads.
size_t LookAhead::Verdict::best() const {
  size_t way = 0;
  for (size_t i = 1; i < kWays; ++i)
    if (seconds[i] < 0.99 * seconds[way]) way = i;
  return way;
}

size_t LookAhead::wanted(size_t rows, size_t used) const {
  if (rows > kMostRows || mode_ == Mode::kOff) return 0;
  if (mode_ == Mode::kOn) return used;
  return (trying_ ? trial_way() : verdict_->best()) * used / (kWays - 1);
}

void LookAhead::step_took(size_t rows, double seconds) {
  if (mode_ != Mode::kAuto || rows > kMostRows) return;
  if (!trying_) {
    if (++steps_ < kHold) return;
    trying_ = true;
    steps_ = 0;
    return;
  }
  if (rows != rows_) {  // begins anew
    rows_ = rows;
    steps_ = 0;
    for (auto& list : seconds_) list.clear();
  }
  // The first step of a turn still has what the way before left behind.
  if (steps_ % kTurn != 0) seconds_[trial_way()].push_back(seconds);
  if (++steps_ < kTrial) return;
  verdict_.emplace();
  for (size_t way = 0; way < kWays; ++way) {
    verdict_->seconds[way] = median(seconds_[way]);
    seconds_[way].clear();
  }
  trying_ = false;
  steps_ = 0;
}

}  // namespace sluice::experts
