#include "engine/step_loop.h"

#include <algorithm>

#include "base/system.h"

namespace sluice {

namespace {

constexpr size_t kTile = ops::cpu::kTile;

// Rows of a prompt that a step of answers takes along at least, where a few more rows cost little: without experts the
// same weights are read for all rows. With experts each row brings its own, and fewer rows than kWorthwhileRows are
// cheaper in a large pass that is paused for the answers.
constexpr size_t kLeastRows = 8, kWorthwhileRows = 16;

size_t pages_for(size_t positions) { return (positions + kTile - 1) / kTile; }

}  // namespace

StepLoop::StepLoop(Engine& engine, LoopOptions options)
    : engine_(engine),
      options_(options),
      recurrent_(engine.model().layout.recurrent_floats() > 0),
      cache_(engine.pages(), engine.plan().cache_bytes, engine.pages_of_sequences(), recurrent_) {
  for (uint32_t i = 0; i < engine.sequences(); ++i)
    slots_.push_back(std::make_unique<Slot>(engine.pages(), engine.model().layout.recurrent_floats()));
}

StepLoop::~StepLoop() {
  end_all(StopReason::kShutdown);
  walk_.reset();
}

// ---- coming and going ----------------------------------------------------------------------------------------------

void StepLoop::check(const GenerationRequest& request) const {
  const size_t n = request.prompt.size();
  if (n == 0) fail(ErrorKind::kUsage, "the prompt is empty: there is nothing to continue");
  if (n > engine_.context_size())
    fail(ErrorKind::kLimit, "{} tokens don't fit into the context of {}; start with a larger --ctx-size", n,
         engine_.context_size());
  for (const int32_t token : request.prompt)
    if (token < 0 || static_cast<uint32_t>(token) >= engine_.model().hp.n_vocab)
      fail(ErrorKind::kUsage, "token {} is none of the vocabulary's 0..{}", token, engine_.model().hp.n_vocab - 1);
  if (request.slot && *request.slot >= slots_.size())
    fail(ErrorKind::kUsage, "slot {}: there are slots 0 to {}", *request.slot, slots_.size() - 1);
  engine_.sampler(request.sampling);
}

void StepLoop::submit(uint64_t id, GenerationRequest request, std::shared_ptr<GenerationListener> listener) {
  decode::SamplingParameters parameters = request.sampling;
  if (request.ignore_end)
    for (const int32_t end : engine_.tokenizer().ends_of_generation())
      parameters.logit_bias.emplace_back(end, -std::numeric_limits<float>::infinity());
  ++counters_.requests;
  queue_.push_back(std::make_unique<Task>(id, std::move(request), std::move(listener), engine_.tokenizer(),
                                          engine_.sampler(std::move(parameters))));
}

void StepLoop::end(uint64_t id, StopReason reason) {
  for (auto& slot : slots_)
    if (slot->task && slot->task->id() == id) return finish(*slot, reason);
  const auto waiting = std::ranges::find_if(queue_, [&](const auto& task) { return task->id() == id; });
  if (waiting == queue_.end()) return;
  const std::unique_ptr<Task> task = std::move(*waiting);
  queue_.erase(waiting);
  ++counters_.cancelled;
  task->finish(reason);
}

void StepLoop::end_all(StopReason reason) {
  for (auto& slot : slots_)
    if (slot->task) finish(*slot, reason);
  while (!queue_.empty()) end(queue_.front()->id(), reason);
}

void StepLoop::finish(Slot& slot, StopReason reason) {
  const std::unique_ptr<Task> task = std::move(slot.task);
  const bool whole =
      reason == StopReason::kEndOfText || reason == StopReason::kLimit || reason == StopReason::kStopString;
  ++(whole ? counters_.finished : counters_.cancelled);
  if (task->request().use_cache && !in_walk(slot_number(slot))) keep_state(slot);
  slot.stats = task->stats();
  task->finish(reason);
}

// The end of a turn: the next one goes on from here, in whatever slot.
void StepLoop::keep_state(const Slot& slot) {
  if (slot.tokens.empty() || !cache_.make_bytes(recurrent_bytes())) return;
  try {
    cache_.keep(slot.tokens, slot.sequence.snapshot());
  } catch (const Error&) {
    // There is no memory for it. The slot still has the state; only another one would have to compute it anew.
  }
}

void StepLoop::fail_task(Slot& slot, const Error& error) {
  const std::unique_ptr<Task> task = std::move(slot.task);
  ++counters_.failed;
  slot.stats = task->stats();
  task->fail(error);
}

void StepLoop::check_deadlines() {
  const double now = now_seconds();
  for (auto& slot : slots_)
    if (slot->task)
      if (const auto reason = slot->task->over_time(now)) finish(*slot, *reason);
  std::vector<uint64_t> late;
  for (const auto& task : queue_)
    if (task->over_time(now)) late.push_back(task->id());
  for (const uint64_t id : late) end(id, StopReason::kDeadline);
}

bool StepLoop::idle() const {
  return queue_.empty() && !walk_ &&
         std::ranges::none_of(slots_, [](const auto& slot) { return slot->task != nullptr; });
}

// ---- from the queue into a slot
// --------------------------------------------------------------------------------------

void StepLoop::admit() {
  while (!queue_.empty()) {
    // In the order of arrival; who waits for a certain slot or for a prompt's state does not hold up the others.
    const auto next = std::ranges::find_if(queue_, [&](const auto& task) {
      const auto& wanted = task->request().slot;
      return !(wanted && busy(*wanted)) && !is_being_computed(*task);
    });
    if (next == queue_.end() || !has_room_for(**next)) return;
    const PromptCache::Match match =
        (*next)->request().use_cache ? cache_.find((*next)->tokens()) : PromptCache::Match{};
    Slot* slot = slot_for(**next, match);
    if (slot == nullptr) return;
    std::unique_ptr<Task> task = std::move(*next);
    queue_.erase(next);
    start(*slot, std::move(task), match);
  }
}

// The same prompt, in another slot: when that is done, its state serves this one too.
bool StepLoop::is_being_computed(const Task& task) const {
  if (!task.request().use_cache || !cache_.enabled() || task.answering()) return false;
  return std::ranges::any_of(slots_, [&](const auto& slot) {
    return slot->task && !slot->places.empty() && !slot->task->answering() && slot->task->request().use_cache &&
           slot->task->tokens() == task.tokens();
  });
}

bool StepLoop::busy(uint32_t slot) const { return slots_[slot]->task != nullptr || in_walk(slot); }

// Room for all that it has to compute, beside what the running ones have; one alone always has room.
bool StepLoop::has_room_for(const Task& task) const {
  size_t taken = 0;
  bool alone = true;
  for (const auto& slot : slots_) {
    if (!slot->task) continue;
    taken += pages_for(slot->task->tokens().size()) + 1;
    alone = false;
  }
  return alone || taken + pages_for(task.tokens().size()) + 1 <= engine_.pages().size();
}

// What a slot's own state saves of a prompt, of which at least one token must be left.
size_t StepLoop::usable(const Slot& slot, std::span<const int32_t> tokens) const {
  const size_t common = std::min(common_prefix(slot.tokens, tokens), tokens.size() - 1);
  return recurrent_ && common < slot.tokens.size() ? 0 : common;
}

// The idle slot whose state saves most, if that is as much as the cache's; else the one that was idle longest.
StepLoop::Slot* StepLoop::slot_for(const Task& task, const PromptCache::Match& match) {
  if (task.request().slot) return slots_[*task.request().slot].get();
  Slot *best = nullptr, *oldest = nullptr;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    Slot* slot = slots_[i].get();
    if (busy(i)) continue;
    if (oldest == nullptr || slot->used < oldest->used) oldest = slot;
    const size_t saves = task.request().use_cache ? usable(*slot, task.tokens()) : 0;
    if (saves > 0 && saves >= match.usable && (best == nullptr || saves > usable(*best, task.tokens()))) best = slot;
  }
  return best != nullptr ? best : oldest;
}

void StepLoop::start(Slot& slot, std::unique_ptr<Task> task, const PromptCache::Match& match) {
  const std::vector<int32_t>& tokens = task->tokens();
  const bool again = task->stats().computed_tokens > 0;  // it was put back into the queue
  GenerationStats& stats = task->stats();
  size_t cached = 0, common = match.common;
  std::vector<int32_t> instead = match.instead;
  if (task->request().use_cache) {
    cached = usable(slot, tokens);
    if (const size_t own = common_prefix(slot.tokens, tokens); own > common) {
      common = own;
      instead = a_few_from(slot.tokens, own);
    }
  }
  if (cached >= match.usable && cached > 0) {
    if (cached < slot.tokens.size()) slot.sequence.restore(slot.sequence.snapshot(), cached);
  } else if (match.usable > 0) {
    cached = match.usable;
    slot.sequence.restore(*match.snapshot, cached);
    cache_.touch(match.snapshot);
  } else {
    slot.sequence.clear();
  }
  slot.tokens.assign(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(cached));
  slot.used = ++uses_;
  slot.request = task->id();
  task->started(now_seconds());
  if (!again) {
    stats.cached_tokens = cached;
    stats.diverged_at = common;
    stats.instead = std::move(instead);
    stats.cache_reason = reason_of(*task, cached, match.evicted);
    stats.slot = slot_number(slot);
    counters_.cached_tokens += cached;
  }
  slot.places =
      task->request().use_cache && cache_.enabled()
          ? snapshot_places(tokens.size(), cached, recurrent_ ? task->request().turn_starts : std::vector<size_t>{},
                            recurrent_ ? options_.snapshots : SnapshotPlaces{1, 0, SIZE_MAX})
          : std::vector<size_t>{};
  slot.task = std::move(task);
}

CacheReason StepLoop::reason_of(const Task& task, size_t cached, bool evicted) const {
  const GenerationStats& stats = task.stats();
  if (!task.request().use_cache) return CacheReason::kNotWanted;
  if (cached + 1 >= stats.prompt_tokens) return CacheReason::kWhole;
  if (evicted) return CacheReason::kEvicted;
  if (stats.diverged_at == 0) return CacheReason::kNothingToReuse;
  if (cached < stats.diverged_at) return CacheReason::kNoSnapshot;
  return stats.instead.empty() ? CacheReason::kExtended : CacheReason::kDiverged;
}

// ---- steps
// -----------------------------------------------------------------------------------------------------------

bool StepLoop::in_walk(uint32_t slot) const {
  return walk_ && std::ranges::find(walk_->shares, slot, &SlotShare::slot) != walk_->shares.end();
}

std::vector<SlotWant> StepLoop::wants() const {
  std::vector<SlotWant> out;
  for (size_t i = 0; i < slots_.size(); ++i) {
    // Another slot is the first each time, so that where rows are too few all get some.
    const auto slot = static_cast<uint32_t>((i + counters_.steps) % slots_.size());
    const Slot& s = *slots_[slot];
    if (!s.task || in_walk(slot)) continue;
    const size_t rows = s.task->tokens().size() - s.tokens.size();
    out.push_back({slot, rows, s.task->answering() && rows == 1});
  }
  return out;
}

void StepLoop::step() {
  check_deadlines();
  admit();
  drop_idle_walk();
  if (walk_) advance_walk();
  const std::vector<SlotWant> all = wants();
  if (all.empty()) return;
  const auto answers = static_cast<size_t>(std::ranges::count_if(all, &SlotWant::answering));
  const size_t within = cost_.prompt_rows_within(options_.step_seconds);
  if (walk_) {
    const size_t rows = engine_.small_workspace().max_rows();
    return run(share_rows(all, rows, answers > 0 ? within : rows), engine_.small_workspace());
  }
  const size_t rows = engine_.micro_batch();
  size_t prompt_rows = 0;
  for (const SlotWant& want : all) prompt_rows += want.answering ? 0 : want.rows;
  const bool dense = engine_.bank() == nullptr;
  const bool together = answers > 0 && (prompt_rows <= within || dense || within >= kWorthwhileRows);
  if (prompt_rows == 0 || together)
    return run(share_rows(all, rows, dense ? std::max(within, kLeastRows) : within), engine_.workspace());
  // The prompts' rows go in a pass that is paused for the answers' steps.
  std::vector<SlotWant> prompts;
  std::ranges::copy_if(all, std::back_inserter(prompts), [](const SlotWant& want) { return !want.answering; });
  walk_ = begin(share_rows(prompts, rows, rows), engine_.workspace());
  if (walk_) advance_walk();
}

// A pass whose answers have all been cancelled is not worth its end.
void StepLoop::drop_idle_walk() {
  if (!walk_ || std::ranges::any_of(walk_->shares, [&](const SlotShare& s) { return slots_[s.slot]->task != nullptr; }))
    return;
  const std::vector<SlotShare> shares = walk_->shares;
  walk_.reset();
  for (const SlotShare& share : shares) slots_[share.slot]->tokens.clear();
}

void StepLoop::advance_walk() {
  const double start = now_seconds(), until = start + options_.step_seconds;
  const uint32_t n_layers = engine_.model().hp.n_layers;
  try {
    engine_.resume(walk_->rows);
    model::Pass& pass = *walk_->pass;
    do {
      pass.run_layers(pass.layer() + 1);
    } while (pass.layer() < n_layers && now_seconds() < until);
    if (pass.layer() == n_layers) pass.finish();
    walk_->seconds += now_seconds() - start;
    if (pass.layer() < n_layers) return;
  } catch (const Error& error) {
    return fail_work(take_walk(), error);
  }
  complete(take_walk());
}

StepLoop::Work StepLoop::take_walk() {
  Work work = std::move(*walk_);
  walk_.reset();
  return work;
}

void StepLoop::run(const std::vector<SlotShare>& shares, model::Workspace& workspace) {
  std::optional<Work> work = begin(shares, workspace);
  if (!work) return;
  const double start = now_seconds();
  try {
    work->pass->finish();
  } catch (const Error& error) {
    return fail_work(std::move(*work), error);
  }
  work->seconds = now_seconds() - start;
  complete(std::move(*work));
}

std::optional<StepLoop::Work> StepLoop::begin(const std::vector<SlotShare>& shares, model::Workspace& workspace) {
  if (shares.empty() || !make_room(shares)) return std::nullopt;
  Work work;
  work.shares = shares;
  model::Batch batch;
  for (const SlotShare& share : shares) {
    Slot& slot = *slots_[share.slot];
    const std::vector<int32_t>& tokens = slot.task->tokens();
    const size_t first = slot.tokens.size();
    for (size_t i = first; i < first + share.rows; ++i) {
      const bool keep = std::ranges::binary_search(slot.places, i + 1) &&
                        cache_.make_bytes((work.snapshots.size() + 1) * recurrent_bytes());
      if (keep) work.snapshots.emplace_back(batch.rows.size(), share.slot);
      batch.rows.push_back({static_cast<uint32_t>(batch.sequences.size()), tokens[i], i + 1 == tokens.size(), keep});
    }
    batch.sequences.push_back(&slot.sequence);
    if (first + share.rows == tokens.size()) work.ready.push_back(share.slot);
    if (!(slot.task->answering() && share.rows == 1)) work.prompt_rows += share.rows;
  }
  work.rows = batch.rows.size();
  try {
    work.pass.reset(new model::Pass(engine_.begin_pass(std::move(batch), workspace)));
  } catch (const Error& error) {
    if (work.snapshots.empty()) {
      fail_work(std::move(work), error);
      return std::nullopt;
    }
    // Memory may be too short for what is only kept: the step itself may go well.
    for (const SlotShare& share : shares) slots_[share.slot]->places.clear();
    return begin(shares, workspace);
  }
  return work;
}

size_t StepLoop::pages_needed(const std::vector<SlotShare>& shares) const {
  size_t pages = 0;
  for (const SlotShare& share : shares) {
    const Slot& slot = *slots_[share.slot];
    pages += pages_for(slot.tokens.size() + share.rows) - pages_for(slot.tokens.size()) + 1;
  }
  return pages;
}

// Pages for a step: first what is only kept goes, then what idle slots hold, then the youngest answer goes back to the
// queue. False when the step has to be planned anew.
bool StepLoop::make_room(const std::vector<SlotShare>& shares) {
  const size_t needed = pages_needed(shares);
  if (cache_.make_room(needed)) return true;
  for (uint32_t i = 0; i < slots_.size() && engine_.pages().free_pages() < needed; ++i) {
    if (busy(i)) continue;
    slots_[i]->sequence.clear();
    slots_[i]->tokens.clear();
  }
  if (engine_.pages().free_pages() >= needed) return true;
  Slot* youngest = nullptr;
  size_t running = 0;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = *slots_[i];
    if (!slot.task) continue;
    ++running;
    if (!in_walk(i) && (youngest == nullptr || slot.task->id() > youngest->task->id())) youngest = &slot;
  }
  if (running <= 1) {
    finish(*youngest, StopReason::kLimit);
  } else {
    put_back(*youngest);
  }
  return false;
}

void StepLoop::put_back(Slot& slot) {
  ++counters_.preempted;
  queue_.push_front(std::move(slot.task));
  slot.sequence.clear();
  slot.tokens.clear();
}

// ---- results
// ---------------------------------------------------------------------------------------------------------

void StepLoop::complete(Work work) {
  ++counters_.steps;
  counters_.rows += work.rows;
  (work.prompt_rows > 0 ? counters_.prompt_seconds : counters_.answer_seconds) += work.seconds;
  counters_.prompt_tokens += work.prompt_rows;
  cost_.observe(work.rows - work.prompt_rows, work.prompt_rows, work.seconds);

  for (const SlotShare& share : work.shares) {
    Slot& slot = *slots_[share.slot];
    const size_t first = slot.tokens.size();
    // An answer that has been cancelled meanwhile has left its tokens nowhere: its state is of no use.
    if (!slot.task) {
      slot.sequence.clear();
      slot.tokens.clear();
      continue;
    }
    const std::vector<int32_t>& tokens = slot.task->tokens();
    slot.tokens.insert(slot.tokens.end(), tokens.begin() + static_cast<ptrdiff_t>(first),
                       tokens.begin() + static_cast<ptrdiff_t>(first + share.rows));
    if (slot.task->answering() && share.rows == 1) continue;
    slot.task->computed(share.rows);
    slot.task->tell_progress();
  }
  for (const auto& [row, slot] : work.snapshots) {
    state::Snapshot snapshot = work.pass->take_snapshot(row);
    if (!slots_[slot]->task) continue;
    const std::vector<int32_t>& tokens = slots_[slot]->tokens;
    const auto length = static_cast<ptrdiff_t>(snapshot.length());
    cache_.keep({tokens.begin(), tokens.begin() + length}, std::move(snapshot));
  }
  choose(work.ready, *work.pass);
}

// The next token of each: chosen side by side, told in order.
void StepLoop::choose(const std::vector<uint32_t>& ready, const model::Pass& pass) {
  std::vector<Task::Choice> choices(ready.size());
  std::vector<std::optional<Error>> errors(ready.size());
  engine_.context().pool.run(ready.size(), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const Slot& slot = *slots_[ready[i]];
      if (!slot.task) continue;
      try {
        choices[i] = slot.task->choose(pass.logits(i));
      } catch (const Error& error) {
        errors[i] = error;
      }
    }
  });
  for (size_t i = 0; i < ready.size(); ++i) {
    Slot& slot = *slots_[ready[i]];
    if (!slot.task) continue;
    if (errors[i]) {
      fail_task(slot, *errors[i]);
      continue;
    }
    ++counters_.answer_tokens;
    if (const auto reason = slot.task->take(std::move(choices[i]), engine_.context_size())) finish(slot, *reason);
  }
}

// The model's state after a step that failed is unknown: its sequences are empty now.
void StepLoop::fail_work(Work work, const Error& error) {
  work.pass.reset();
  for (const SlotShare& share : work.shares) {
    Slot& slot = *slots_[share.slot];
    if (slot.sequence.length() != slot.tokens.size()) slot.tokens.clear();
    if (slot.task) fail_task(slot, error);
  }
}

// ---- slots as others see them
// ----------------------------------------------------------------------------------------

uint32_t StepLoop::slot_number(const Slot& slot) const {
  return static_cast<uint32_t>(std::ranges::find_if(slots_, [&](const auto& s) { return s.get() == &slot; }) -
                               slots_.begin());
}

uint64_t StepLoop::recurrent_bytes() const { return engine_.model().layout.recurrent_floats() * sizeof(float); }

std::vector<SlotStatus> StepLoop::slots() const {
  std::vector<SlotStatus> out;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = *slots_[i];
    const Task* task = slot.task.get();
    out.push_back({.id = i,
                   .busy = task != nullptr,
                   .request = slot.request,
                   .tokens = slot.tokens.size(),
                   .in_prompt = task != nullptr && !task->answering(),
                   .stats = task != nullptr ? task->stats() : slot.stats});
  }
  return out;
}

StepLoop::Slot& StepLoop::idle_slot(uint32_t slot) {
  if (slot >= slots_.size()) fail(ErrorKind::kUsage, "slot {}: there are slots 0 to {}", slot, slots_.size() - 1);
  if (busy(slot)) fail(ErrorKind::kUsage, "slot {} is answering; try again when it is idle", slot);
  return *slots_[slot];
}

SavedSlot StepLoop::saved(uint32_t number) {
  const Slot& slot = idle_slot(number);
  SavedSlot out{slot.tokens, slot.sequence.snapshot(), {}};
  for (const PromptCache::Kept& kept : cache_.kept())
    if (common_prefix(kept.tokens, slot.tokens) == kept.tokens.size())
      out.kept.emplace_back(kept.tokens, &kept.snapshot);
  return out;
}

void StepLoop::restore(uint32_t number, std::vector<int32_t> tokens, const state::Snapshot& state) {
  Slot& slot = idle_slot(number);
  slot.sequence.restore(state);
  slot.tokens = std::move(tokens);
  slot.used = ++uses_;
}

size_t StepLoop::erase(uint32_t number) {
  Slot& slot = idle_slot(number);
  const size_t erased = slot.tokens.size();
  slot.sequence.clear();
  slot.tokens.clear();
  return erased;
}

void StepLoop::clear() {
  for (uint32_t i = 0; i < slots_.size(); ++i)
    if (!busy(i)) erase(i);
  cache_.clear();
}

}  // namespace sluice
