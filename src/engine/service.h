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
#include "engine/step_loop.h"

namespace sluice {

struct ServiceOptions {
  LoopOptions loop;
  size_t queue = 256;       // requests that may wait
  std::string slot_folder;  // where slots are saved; empty: they can't be
};

struct ServiceStatus {
  std::vector<SlotStatus> slots;
  size_t queued = 0;
  ServiceCounters counters;
  uint64_t refused = 0;  // requests that found the queue full
  size_t kv_pages = 0, kv_pages_used = 0;
  uint64_t cache_bytes = 0, cache_bytes_used = 0;
  size_t cache_entries = 0;
  uint64_t cache_evicted = 0;
  double seconds_since_progress = 0;  // since a step ended, while there is work; else 0
  experts::Traffic experts;           // zeros for models without
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
