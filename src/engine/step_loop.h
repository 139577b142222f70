// Continuous batching: answers join and leave at any step, and each is what it would be alone. A step is one pass of
// the model over rows of several sequences; a pass that takes long is paused between layers so that running answers go
// on. One thread uses a loop; service.h puts a mailbox in front of it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/generation.h"
#include "engine/prompt_cache.h"
#include "engine/scheduler.h"
#include "engine/task.h"
#include "state/sequence.h"

namespace sluice {

struct LoopOptions {
  SnapshotPlaces snapshots = {};  // of long prompts; a limit of 0 keeps none
  double step_seconds = 0.05;     // how long running answers may be kept waiting by another one's prompt
};

struct SlotStatus {
  uint32_t id = 0;
  bool busy = false;
  uint64_t request = 0;    // that it is busy with, or was
  size_t tokens = 0;       // that its state holds
  bool in_prompt = false;  // still computing the prompt
  GenerationStats stats;
};

// Sums since the start.
struct ServiceCounters {
  uint64_t requests = 0, finished = 0, cancelled = 0, failed = 0;
  uint64_t prompt_tokens = 0;  // computed
  uint64_t cached_tokens = 0;  // not computed, thanks to the cache
  uint64_t answer_tokens = 0;
  double prompt_seconds = 0;  // in steps with tokens of prompts
  double answer_seconds = 0;  // in steps without
  uint64_t steps = 0, rows = 0;
  uint64_t preempted = 0;  // answers that went back into the queue when the KV cache was full
};

// A state of a slot, to be saved or restored: what it holds, and what was kept on the way there.
struct SavedSlot {
  std::vector<int32_t> tokens;
  state::Snapshot state;
  std::vector<std::pair<std::vector<int32_t>, const state::Snapshot*>> kept;
};

class StepLoop {
 public:
  // As many slots and as large a cache as the engine was planned for. `engine` must outlive the loop; nobody else may
  // drive passes of it meanwhile. Throws Error(kLimit) when memory runs out.
  StepLoop(Engine& engine, LoopOptions options);
  ~StepLoop();
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  // What can never be answered: throws Error(kUsage) for an empty prompt, a token that is none, a slot that there isn't
  // or parameters out of range, Error(kLimit) for a prompt that doesn't fit into the context. Any thread may ask.
  void check(const GenerationRequest& request) const;

  // Queues a request that check() lets pass. `id` names it to cancel().
  void submit(uint64_t id, GenerationRequest request, std::shared_ptr<GenerationListener> listener);
  // It ends before the next step.
  void cancel(uint64_t id) { end(id, StopReason::kInterrupted); }
  void end_all(StopReason reason);

  bool idle() const;
  size_t waiting() const { return queue_.size(); }
  // One step, or a piece of a long one. Whatever goes wrong in it is told to those whose step it was.
  void step();

  std::vector<SlotStatus> slots() const;
  const ServiceCounters& counters() const { return counters_; }
  const PromptCache& cache() const { return cache_; }

  // What an idle slot holds. All throw Error(kUsage) for a slot that there isn't or that is busy.
  void check_idle(uint32_t slot) { idle_slot(slot); }
  SavedSlot saved(uint32_t slot);
  void restore(uint32_t slot, std::vector<int32_t> tokens, const state::Snapshot& state);
  void keep(std::vector<int32_t> tokens, state::Snapshot snapshot) {
    cache_.keep(std::move(tokens), std::move(snapshot));
  }
  // Lets go what is only kept, the least valuable first, until so many pages are free or nothing is left.
  void make_room(size_t pages) { cache_.make_room(pages); }
  // Forgets them; their number.
  size_t erase(uint32_t slot);
  // Every slot and the cache.
  void clear();

 private:
  struct Slot {
    Slot(state::PagePool& pool, size_t recurrent_floats) : sequence(pool, recurrent_floats) {}
    state::Sequence sequence;
    std::vector<int32_t> tokens;  // that `sequence` holds
    std::unique_ptr<Task> task;   // null: idle
    std::vector<size_t> places;   // numbers of tokens after which its state is kept
    uint64_t request = 0;         // the last one
    uint64_t used = 0;
    GenerationStats stats;  // of the last task
  };
  // A pass, and whose rows are in it.
  struct Work {
    std::vector<SlotShare> shares;
    std::vector<uint32_t> ready;  // slots whose next token can be chosen then, in the order of the pass's logits
    std::vector<std::pair<size_t, uint32_t>> snapshots;  // row, slot
    size_t rows = 0, prompt_rows = 0;
    double seconds = 0;  // so far
    std::unique_ptr<model::Pass> pass;
  };

  void end(uint64_t id, StopReason reason);
  void finish(Slot& slot, StopReason reason);
  void keep_state(const Slot& slot);
  void fail_task(Slot& slot, const Error& error);
  void check_deadlines();

  void admit();
  bool is_being_computed(const Task& task) const;
  bool busy(uint32_t slot) const;
  bool has_room_for(const Task& task) const;
  size_t usable(const Slot& slot, std::span<const int32_t> tokens) const;
  Slot* slot_for(const Task& task, const PromptCache::Match& match);
  void start(Slot& slot, std::unique_ptr<Task> task, const PromptCache::Match& match);
  CacheReason reason_of(const Task& task, size_t cached, bool evicted) const;

  bool in_walk(uint32_t slot) const;
  std::vector<SlotWant> wants() const;
  void drop_idle_walk();
  void advance_walk();
  Work take_walk();
  void run(const std::vector<SlotShare>& shares, model::Workspace& workspace);
  std::optional<Work> begin(const std::vector<SlotShare>& shares, model::Workspace& workspace);
  size_t pages_needed(const std::vector<SlotShare>& shares) const;
  bool make_room(const std::vector<SlotShare>& shares);
  void put_back(Slot& slot);

  void complete(Work work);
  void choose(const std::vector<uint32_t>& ready, const model::Pass& pass);
  void fail_work(Work work, const Error& error);

  uint32_t slot_number(const Slot& slot) const;
  Slot& idle_slot(uint32_t slot);
  uint64_t recurrent_bytes() const;

  Engine& engine_;
  LoopOptions options_;
  bool recurrent_;
  PromptCache cache_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::deque<std::unique_ptr<Task>> queue_;
  std::optional<Work> walk_;  // the pass that is paused
  StepCost cost_;
  ServiceCounters counters_;
  uint64_t uses_ = 0;
};

}  // namespace sluice
