#include "engine/scheduler.h"

#include <algorithm>

namespace sluice {

void StepCost::observe(size_t answers, size_t prompt_rows, double seconds) {
  constexpr double kNew = 0.25;  // a few steps decide: machines are busy now and then, and texts grow
  const auto learn = [](double& known, double value) { known = known == 0 ? value : known + kNew * (value - known); };
  if (prompt_rows == 0) return learn(answers_, seconds);
  const double for_prompts = seconds - (answers > 0 ? answers_ : 0);
  // What is left may be nothing when the answers' share is overestimated: never less than a tenth.
  learn(per_prompt_row_, std::max(for_prompts, 0.1 * seconds) / static_cast<double>(prompt_rows));
}

size_t StepCost::prompt_rows_within(double seconds) const {
  constexpr size_t kFirst = 64;  // to begin with
  if (per_prompt_row_ == 0) return kFirst;
  const double rows = (seconds - answers_) / per_prompt_row_;
  return rows < 1 ? 0 : static_cast<size_t>(std::min(rows, 1e9));
}

std::vector<SlotShare> share_rows(std::span<const SlotWant> wants, size_t max_rows, size_t max_prompt_rows) {
  std::vector<size_t> given(wants.size(), 0);
  size_t left = max_rows;
  for (size_t i = 0; i < wants.size() && left > 0; ++i)
    if (wants[i].answering) given[i] = 1, --left;
  left = std::min(left, max_prompt_rows);
  std::vector<size_t> prompts;
  for (size_t i = 0; i < wants.size(); ++i)
    if (!wants[i].answering && wants[i].rows > 0) prompts.push_back(i);
  // The smallest wants first: what they leave of an equal share is the others'.
  std::ranges::stable_sort(prompts, {}, [&](size_t i) { return wants[i].rows; });
  for (size_t done = 0; done < prompts.size(); ++done) {
    const size_t i = prompts[done], others = prompts.size() - done;
    given[i] = std::min(wants[i].rows, (left + others - 1) / others);
    left -= given[i];
  }
  std::vector<SlotShare> shares;
  for (size_t i = 0; i < wants.size(); ++i)
    if (given[i] > 0) shares.push_back({wants[i].slot, given[i]});
  return shares;
}

}  // namespace sluice
