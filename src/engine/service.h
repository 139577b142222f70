// The engine for many askers at once: a thread that runs a step loop (step_loop.h), and a mailbox in front of it. Every
// function may be called from any thread; none waits for a step of the model unless it says so.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/generation.h"

namespace sluice {

struct ServiceOptions {
  uint32_t slots = 4;                  // answers that are computed side by side
  uint32_t queue = 256;                // requests that may wait for one
  uint64_t cache_bytes = 0;            // prompt cache: states of earlier prompts and answers; 0: none
  uint32_t snapshots_per_prompt = 32;  // states kept of one prompt, at most
  double step_seconds = 0.05;          // how long running answers may be kept waiting by another one's prompt
  std::string slot_folder;             // where slots are saved; empty: they can't be
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
  uint64_t requests = 0, finished = 0, cancelled = 0, failed = 0, refused = 0;
  uint64_t prompt_tokens = 0;  // computed
  uint64_t cached_tokens = 0;  // not computed, thanks to the cache
  uint64_t answer_tokens = 0;
  double prompt_seconds = 0;  // in steps with tokens of prompts
  double answer_seconds = 0;  // in steps without
  uint64_t steps = 0;
  uint64_t rows = 0;       // of all steps
  uint64_t preempted = 0;  // answers that were put back into the queue when the KV cache was full
};

struct ServiceStatus {
  std::vector<SlotStatus> slots;
  size_t queued = 0;
  ServiceCounters counters;
  size_t kv_pages = 0, kv_pages_used = 0;
  uint64_t cache_bytes = 0, cache_bytes_used = 0;
  size_t cache_entries = 0;
  uint64_t cache_evicted = 0;
  double seconds_since_progress = 0;  // since a step ended, while there is work; else 0
};

struct SlotFileResult {
  uint32_t slot = 0;
  std::string file;
  size_t tokens = 0;
  uint64_t bytes = 0;
  double seconds = 0;
};

class Service {
 public:
  // Starts the thread. `engine` must outlive it, and nobody else may use it meanwhile.
  Service(Engine& engine, ServiceOptions options);
  ~Service();  // stop()
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  const ServiceOptions& options() const;

  // Queues a request; its number. Throws Error(kLimit) when the queue is full or the service is stopping, Error(kUsage)
  // for what can never be answered (an empty prompt, one longer than the context, a slot that there isn't, sampling
  // parameters out of range).
  uint64_t submit(GenerationRequest request, std::shared_ptr<GenerationListener> listener);
  // The answer ends with kInterrupted before the next step. Of a request that is over: nothing happens.
  void cancel(uint64_t request);

  ServiceStatus status() const;

  // Slot files (docs/slot-files.md). `done` is called on the loop's thread with a result or an error: kUsage for a slot
  // that there isn't, one that is busy, a name with folders in it; kFormat for a foreign or damaged file; kIo.
  using SlotDone = std::function<void(const SlotFileResult*, const Error*)>;
  void save_slot(uint32_t slot, const std::string& file, SlotDone done);
  void restore_slot(uint32_t slot, const std::string& file, SlotDone done);
  void erase_slot(uint32_t slot, SlotDone done);

  // Nothing new is taken; returns when all answers are over, or after `seconds`, those left ending with kShutdown.
  void drain(double seconds);
  // Ends all answers with kShutdown at the next step and joins the thread.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
