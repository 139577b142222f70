// Who gets how many rows of the next step: continuous batching as pure arithmetic. Knows numbers, nothing of models,
// threads or time but what it is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// How long steps take, learned from those that were: what a step of answers alone takes, and what each row of a prompt
// adds to it.
class StepCost {
 public:
  void observe(size_t answers, size_t prompt_rows, double seconds);
  // Rows of prompts that a step with answers may have, to end within `seconds`; 0 if there is time for none.
  size_t prompt_rows_within(double seconds) const;

 private:
  double answers_ = 0;         // seconds; 0: not known
  double per_prompt_row_ = 0;  // seconds; 0: not known
};

// What a slot wants: rows until its next token can be sampled. One row and `answering`: the next token of an answer.
struct SlotWant {
  uint32_t slot;
  size_t rows;
  bool answering;
};

struct SlotShare {
  uint32_t slot;
  size_t rows;  // of those wanted, from the front
  bool operator==(const SlotShare&) const = default;
};

// Shares out a step of at most `max_rows` rows, of which prompts may have `max_prompt_rows`: every answer gets its row,
// prompts get equal shares of what is left (short ones are done first, none waits for a long one); what one does not
// need goes to the others. In the order of `wants`; slots that get nothing are left out. If `max_rows` is less than
// there are answers, the first ones get theirs: the caller turns the order.
std::vector<SlotShare> share_rows(std::span<const SlotWant> wants, size_t max_rows, size_t max_prompt_rows);

}  // namespace sluice
