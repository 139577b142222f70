#include "chat/reasoning.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";
constexpr std::string_view kSpace = " \t\r\n\f\v";

// Length of the longest end of `text` that is a proper beginning of `mark`.
size_t partial_mark(std::string_view text, std::string_view mark) {
  for (size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size) {
    if (text.ends_with(mark.substr(0, size))) return size;
  }
  return 0;
}

}  // namespace

bool prompt_opens_reasoning(std::string_view prompt) {
  const size_t last = prompt.find_last_not_of(kSpace);
  return last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(kOpen);
}

OutputDelta ReasoningSplitter::feed(std::string_view piece) {
  OutputDelta out;
  held_ += piece;
  step(out, false);
  return out;
}

OutputDelta ReasoningSplitter::finish() {
  OutputDelta out;
  step(out, true);
  return out;
}

void ReasoningSplitter::step(OutputDelta& out, bool at_end) {
  if (state_ == State::kStart && !start(out, at_end)) return;
  if (state_ == State::kReasoning && !reasoning(out, at_end)) return;
  if (state_ == State::kAfterReasoning) {
    held_.erase(0, std::min(held_.find_first_not_of("\r\n"), held_.size()));
    if (held_.empty()) return;
    state_ = State::kContent;
  }
  if (state_ == State::kContent) out.content += std::exchange(held_, {});
}

// Decides whether the output opens a think block itself; false while it can't be known yet.
bool ReasoningSplitter::start(OutputDelta& out, bool at_end) {
  const size_t first = std::min(held_.find_first_not_of(kSpace), held_.size());
  const std::string_view rest = std::string_view(held_).substr(first);
  if (rest.starts_with(kOpen)) {
    held_.erase(0, first + kOpen.size());
    state_ = State::kReasoning;
    return true;
  }
  if (!at_end && kOpen.starts_with(rest)) return false;
  out.content += std::exchange(held_, {});
  state_ = State::kContent;
  return true;
}

// Gives away the reasoning that is certain; true when the block has ended.
bool ReasoningSplitter::reasoning(OutputDelta& out, bool at_end) {
  const size_t close = held_.find(kClose);
  if (close != std::string::npos) {
    emit_reasoning(out, std::string_view(held_).substr(0, close));
    held_.erase(0, close + kClose.size());
    held_space_.clear();
    state_ = State::kAfterReasoning;
    return true;
  }
  const size_t kept = at_end ? 0 : partial_mark(held_, kClose);
  emit_reasoning(out, std::string_view(held_).substr(0, held_.size() - kept));
  held_.erase(0, held_.size() - kept);
  return false;
}

// White space is held back until something follows it.
void ReasoningSplitter::emit_reasoning(OutputDelta& out, std::string_view text) {
  if (!reasoning_begun_) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  if (text.empty()) return;
  reasoning_begun_ = true;
  const size_t last = text.find_last_not_of(kSpace);
  const size_t end = last == std::string_view::npos ? 0 : last + 1;
  if (end > 0) {
    out.reasoning += std::exchange(held_space_, {});
    out.reasoning += text.substr(0, end);
  }
  held_space_ += text.substr(end);
}

}  // namespace sluice
