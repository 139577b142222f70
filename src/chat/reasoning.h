// Parts what a thinking model writes into its reasoning and its answer, while it is being written. Not here: tool calls
// inside the answer.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Whether a rendered prompt leaves the model inside a think block, as templates of thinking models do when thinking is
// on: the prompt ends with "<think>" and maybe white space.
bool prompt_opens_reasoning(std::string_view prompt);

// What one piece of output adds.
struct OutputDelta {
  std::string reasoning;
  std::string content;
};

// Takes a model's output piece by piece, cut anywhere, and gives deltas whose sums don't depend on the cuts:
//   reasoning  what lies before the first "</think>", without white space around it;
//   content    what follows, without the newlines in front; everything, if there was no reasoning.
// Output that starts with "<think>" (after white space) has a think block too, even if the prompt didn't open it.
// Without "</think>" all is reasoning. Nothing but those marks and that white space is lost. Holds back only what may
// still turn out to be part of a mark or trailing white space. (The rules are those of the Qwen3.5/3.6 chat templates,
// which write a finished block as "<think>\n" reasoning "\n</think>\n\n" content.)
class ReasoningSplitter {
 public:
  // `inside`: the prompt opened the block (prompt_opens_reasoning).
  explicit ReasoningSplitter(bool inside) : state_(inside ? State::kReasoning : State::kStart) {}

  OutputDelta feed(std::string_view piece);
  // The end of the output: what was held back. The splitter must not be fed afterwards.
  OutputDelta finish();
  bool in_reasoning() const { return state_ == State::kReasoning; }

 private:
  enum class State { kStart, kReasoning, kAfterReasoning, kContent };

  void step(OutputDelta& out, bool at_end);
  bool start(OutputDelta& out, bool at_end);
  bool reasoning(OutputDelta& out, bool at_end);
  void emit_reasoning(OutputDelta& out, std::string_view text);

  State state_;
  std::string held_;              // not yet decided
  std::string held_space_;        // white space behind reasoning: kept only if more reasoning follows
  bool reasoning_begun_ = false;  // white space in front is over
};

}  // namespace sluice
