#include "engine/session.h"

#include <algorithm>

#include "base/error.h"
#include "base/system.h"
#include "chat/detokenizer.h"
#include "decode/stop_strings.h"

namespace sluice {

namespace {

// Turns of a chat that can be gone back to. Each keeps a copy of the recurrent state (63 MiB for Qwen3.6-35B-A3B).
constexpr size_t kMaxKept = 4;

size_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

const char* name_of(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfText:
      return "eos";
    case StopReason::kLimit:
      return "limit";
    case StopReason::kStopString:
      return "stop-string";
    case StopReason::kInterrupted:
      return "interrupt";
  }
  return "";
}

Session::Session(Engine& engine)
    : engine_(engine), sequence_(engine.pages(), engine.model().layout.recurrent_floats()) {}

void Session::forget() {
  sequence_.clear();
  tokens_.clear();
  logits_.clear();
}

void Session::clear() {
  forget();
  kept_.clear();
}

size_t Session::rewind_to_prefix(std::span<const int32_t> tokens) {
  // A state serves if nothing of it has to go. Where it has no logits, as no snapshot has, at least one token must be
  // left to compute.
  const auto serves = [&](const std::vector<int32_t>& held, bool with_logits) {
    return common_prefix(held, tokens) == held.size() && (with_logits || held.size() < tokens.size());
  };
  const bool as_it_is = serves(tokens_, !logits_.empty());
  const Kept* best = nullptr;
  size_t length = as_it_is ? tokens_.size() : 0;
  for (const Kept& kept : kept_) {
    if (kept.tokens.size() <= length || !serves(kept.tokens, false)) continue;
    best = &kept;
    length = kept.tokens.size();
  }
  if (best != nullptr) {
    sequence_.restore(best->snapshot);
    tokens_ = best->tokens;
    logits_.clear();
  } else if (!as_it_is) {
    forget();
  }
  return length;
}

void Session::compute(std::span<const int32_t> tokens, std::span<const size_t> snapshot_after) {
  // Old turns hold pages that are in no live conversation any more: they go before the cache is full.
  const size_t pages_needed = tokens.size() / ops::cpu::kTile + 2;
  while (!kept_.empty() && engine_.pages().free_pages() < pages_needed) kept_.pop_front();
  model::Batch batch{{&sequence_}, {}, {}, false};
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool snapshot = std::ranges::find(snapshot_after, tokens_.size() + i + 1) != snapshot_after.end();
    batch.rows.push_back({0, tokens[i], i + 1 == tokens.size(), snapshot});
  }
  const std::vector<model::Row> rows = batch.rows;
  model::Pass pass = engine_.begin_pass(std::move(batch));
  try {
    pass.finish();
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens_.push_back(tokens[i]);
      if (!rows[i].snapshot) continue;
      std::erase_if(kept_, [&](const Kept& kept) { return kept.tokens == tokens_; });
      kept_.push_back({tokens_, pass.take_snapshot(i)});
      if (kept_.size() > kMaxKept) kept_.pop_front();
    }
    logits_.assign(pass.logits(0).begin(), pass.logits(0).end());
  } catch (...) {
    forget();  // what was computed of the step can't be told from what was not
    throw;
  }
}

size_t Session::synchronize(std::span<const int32_t> tokens, std::span<const size_t> snapshot_after,
                            const std::function<bool()>& interrupted, bool* complete) {
  if (tokens.empty()) fail(ErrorKind::kUsage, "the prompt is empty: there is nothing to continue");
  if (tokens.size() > engine_.context_size())
    fail(ErrorKind::kLimit, "{} tokens don't fit into the context of {}; start with a larger --ctx-size", tokens.size(),
         engine_.context_size());
  const size_t cached = rewind_to_prefix(tokens);
  while (tokens_.size() < tokens.size()) {
    if (interrupted && interrupted()) {
      if (complete != nullptr) *complete = false;
      return cached;
    }
    const size_t n = std::min<size_t>(engine_.micro_batch(), tokens.size() - tokens_.size());
    compute(tokens.subspan(tokens_.size(), n), snapshot_after);
  }
  if (complete != nullptr) *complete = true;
  return cached;
}

Answer Session::generate(std::span<const int32_t> prompt, std::span<const size_t> snapshot_after,
                         const decode::Sampler& sampler, const GenerateOptions& options) {
  Answer answer;
  answer.prompt_tokens = prompt.size();
  const double start = now_seconds();
  bool complete = false;
  answer.cached_tokens = synchronize(prompt, snapshot_after, options.interrupted, &complete);
  const double prompt_end = now_seconds();
  answer.prompt_seconds = prompt_end - start;
  if (!complete) {
    answer.reason = StopReason::kInterrupted;
    return answer;
  }

  chat::Detokenizer detokenizer(engine_.tokenizer());
  decode::StopStrings stops(options.stop_strings);
  bool wanted = true;
  const auto show = [&](const std::string& text) {
    answer.text += text;
    if (!text.empty() && options.on_text) wanted = options.on_text(text) && wanted;
  };
  answer.reason = StopReason::kLimit;
  while (answer.tokens.size() < options.max_tokens) {
    const int32_t token = sampler.sample(logits_, tokens_, static_cast<uint32_t>(tokens_.size()), options.sequence);
    if (engine_.tokenizer().is_end_of_generation(token)) {
      answer.reason = StopReason::kEndOfText;
      break;
    }
    answer.tokens.push_back(token);
    show(stops.push(detokenizer.push(token)));
    if (stops.stopped()) {
      answer.reason = StopReason::kStopString;
      break;
    }
    if (!wanted || (options.interrupted && options.interrupted())) {
      answer.reason = StopReason::kInterrupted;
      break;
    }
    if (tokens_.size() == engine_.context_size()) break;
    if (answer.tokens.size() < options.max_tokens) compute({&token, 1}, {});
  }
  if (!stops.stopped()) show(stops.push(detokenizer.finish()) + stops.finish());
  answer.answer_seconds = now_seconds() - prompt_end;
  return answer;
}

}  // namespace sluice
