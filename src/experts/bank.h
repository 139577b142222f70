// The slot bank: memory for experts, the map that says which lies where, and the reading that fills it. Callers ask for
// the experts that a step of a layer needs and get them as they become ready; they never see how many slots there are.
//
// One thread uses a bank at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/read_queue.h"
#include "experts/look_ahead.h"
#include "experts/slot_map.h"
#include "experts/source.h"

namespace sluice::experts {

struct BankOptions {
  std::string policy = kDefaultPolicy;
  ReadEngine engine = ReadEngine::kAuto;  // kAuto: what a short measurement finds faster
  LookAhead::Mode look_ahead = LookAhead::Mode::kAuto;
  bool verify = false;  // hold experts against their checksums, where the source has them
};

// What went through a layer, or the whole bank, since it was made. An expert counts once a step, however many rows
// chose it.
struct Traffic {
  uint64_t hits = 0, misses = 0;
  uint64_t bytes_read = 0;
  double stall_seconds = 0;  // nothing to compute: waiting for reads

  double hit_rate() const {
    return hits + misses == 0 ? 1.0 : static_cast<double>(hits) / static_cast<double>(hits + misses);
  }
  Traffic& operator+=(const Traffic& other);
  Traffic operator-(const Traffic& before) const;
};

class Bank {
 public:
  using Progress = std::function<void(uint64_t bytes)>;  // called after each read with the bytes it brought

  // Reserves the slots. Throws Error(kLimit) when memory runs out, Error(kUsage) for an unknown policy,
  // Error(kUnsupported) when the reading engine can't be had.
  Bank(std::vector<LayerSource> layers, const SlotPlan& plan, const BankOptions& options);
  Bank(const Bank&) = delete;
  Bank& operator=(const Bank&) = delete;

  const LayerSource& source(uint32_t layer) const { return layers_[layer]; }
  uint32_t n_layers() const { return static_cast<uint32_t>(layers_.size()); }
  // Experts are read while the model computes: not all have a slot.
  bool streams() const { return !complete_; }
  std::string engine() const { return queue_->name(); }
  // Every expert is held against its checksum after it is read.
  bool verifies() const { return verify_; }

  // How fast the disk gives experts here and there, in 10^9 bytes per second: what there is to reach. Takes 64 MiB for
  // the while. Other experts for another `seed`. Throws Error(kIo).
  double measure_disk_gbps(uint32_t seed);

  // Keeps the slots in memory (Buffer::lock). Throws Error(kLimit).
  void lock();

  // An expert of a layer.
  struct Unit {
    uint32_t layer, expert;
    auto operator<=>(const Unit&) const = default;
  };
  // Gives empty slots to experts, in the order of the list as long as there are any, and returns the bytes that fill()
  // will read for them.
  uint64_t reserve(std::span<const Unit> units);
  // Reads them before anything is asked for, in large sequential reads, in the order of the files. Throws Error(kIo);
  // those read until then are resident.
  void fill(const Progress& progress);
  uint64_t bytes_of(std::span<const Unit> units) const;
  std::vector<Unit> every_unit() const;
  // Those whose bytes are in slots now, the most worthy first.
  std::vector<Unit> resident() const;

  // A step of so many rows begins.
  void begin_step(uint32_t rows) { map_.advance(rows); }
  // All that the step asked for has been read. Throws Error(kIo) when a file is not any more what was opened: the step
  // is not to be trusted then.
  void check_files() const;
  // A step has taken so long; told only of steps that were computed whole, without a pause.
  void step_took(uint32_t rows, double seconds) { look_ahead_.step_took(rows, seconds); }

  // One expert, ready to compute with.
  struct Ready {
    uint32_t index;                       // into the list that was asked for
    std::vector<const std::byte*> parts;  // of LayerSource::parts()
  };

  // The experts that a step of a layer needs, as they become ready.
  class Request {
   public:
    ~Request();
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

    // The next experts that can be computed with: first those that were resident, then each as it lands; all at once
    // when all are resident. Waits until there is one; empty when all have been given. What was given before may be
    // overwritten from now on. Throws Error(kIo) when an expert can't be read, Error(kFormat) when its checksum is
    // wrong; the request is of no more use then, the bank is as good as before.
    std::span<const Ready> next();

   private:
    friend class Bank;
    Request(Bank& bank, uint32_t layer, std::span<const uint32_t> experts);
    Request(Bank& bank, uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses);
    enum class Stage : uint8_t { kWaiting, kHeld, kGiven, kDone };
    struct Item {
      uint32_t expert;
      Stage stage = Stage::kWaiting;
      uint32_t slot = 0;
    };
    void acquire_waiting(std::span<const uint32_t> uses);
    void release_given();
    void give_ready();
    bool finished() const;

    Bank& bank_;
    uint32_t layer_;
    std::vector<Item> items_;
    std::vector<Ready> ready_;
  };

  // Asks for distinct experts of a layer, of which expert i is used by uses[i] rows. Reading begins at once. Several
  // requests may be open; one whose slots are all held by others that don't go on fails with Error(kInternal).
  Request request(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) {
    return Request(*this, layer, experts, uses);
  }

  // Says which experts a layer will need next: surely, or only probably. They are read when the disk has nothing more
  // urgent to do, and kept until that layer's request; one call takes the place of the one before.
  void expect(uint32_t layer, std::span<const uint32_t> experts, bool surely);

  // Whether guesses are wanted.
  const LookAhead& look_ahead() const { return look_ahead_; }

  // Gives memory back to the system for good, at least `bytes` where that many are not being used; the least worthy
  // experts go. Returns the bytes given.
  uint64_t shrink(uint64_t bytes);

  // Since the bank was made. Of all layers, and of each.
  Traffic traffic() const;
  const std::vector<Traffic>& traffic_by_layer() const { return traffic_; }
  // Experts that were expected, not resident, and so read ahead; of those, how many were then asked for.
  struct Foresight {
    uint64_t read = 0, used = 0;
  };
  const Foresight& foresight() const { return foresight_; }
  double read_seconds() const { return read_seconds_; }  // with reads under way
  // What computing checksums took.
  struct Verified {
    uint64_t bytes = 0;
    double seconds = 0;
  };
  const Verified& verified() const { return verified_; }

 private:
  struct Load {
    uint32_t unit = 0;
    uint32_t left = 0;       // extents that are not read yet
    uint32_t submitted = 0;  // extents handed to the queue
    uint32_t waiters = 0;    // requests that wait for it
    bool guessed = false;    // it began because it was expected
    std::exception_ptr error;
  };
  struct Waiting {
    uint32_t slot;
    uint32_t extent;
  };
  struct Expected {
    uint32_t layer = 0;
    bool surely = false;
    std::vector<uint32_t> held;    // slots
    std::vector<uint32_t> loaded;  // experts that are read because of it
  };

  std::byte* slot(uint32_t index);
  uint32_t layer_of(uint32_t unit) const { return unit / map_.n_experts(); }
  uint32_t expert_of(uint32_t unit) const { return unit % map_.n_experts(); }
  void choose_engine(ReadEngine wanted);
  std::vector<ReadJob> sample_reads(Buffer& memory, uint32_t seed);
  void fill_run(uint32_t layer, uint32_t first, uint32_t n, const std::vector<uint32_t>& slots,
                const Progress& progress);
  void begin_load(uint32_t layer, uint32_t expert, uint32_t slot, std::deque<Waiting>& backlog);
  void pump();
  // Takes in what has been read; with `wait`, waits for something.
  void collect(bool wait);
  void finish_load(uint32_t slot);
  // Throws Error(kFormat) unless the slot holds what the expert's checksum says.
  void verify(uint32_t layer, uint32_t expert, uint32_t slot);
  // Lets go of what is expected but for experts that a request now holds.
  void forget_expected();

  std::vector<LayerSource> layers_;
  bool complete_, verify_;
  SlotMap map_;
  std::vector<size_t> slot_bytes_;  // by class
  std::vector<uint32_t> class_of_;  // by slot
  std::vector<Buffer> memory_;      // by class
  std::vector<const File*> files_;  // distinct
  std::unique_ptr<ReadQueue> queue_;
  struct Reserved {
    Unit unit;
    uint32_t slot;
    auto operator<=>(const Reserved&) const = default;
  };
  std::vector<Reserved> reserved_;
  std::vector<Load> loads_;  // by slot
  std::deque<Waiting> demand_, ahead_;
  uint64_t in_flight_ = 0;  // bytes
  uint32_t awaited_ = 0;    // loads with waiters that have not ended
  Expected expected_;
  LookAhead look_ahead_;
  std::vector<Traffic> traffic_;  // by layer
  Foresight foresight_;
  double read_seconds_ = 0, reading_since_ = 0;
  Verified verified_;
  std::vector<ReadQueue::Done> done_;
};

}  // namespace sluice::experts
