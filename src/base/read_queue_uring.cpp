// Reads by Linux's io_uring (io_uring(7); Axboe, "Efficient IO with io_uring", 2019): the owner puts reads into a ring
// that the kernel takes them from, and finds what has ended in another. No more are in flight than the ring has
// entries, so neither ring can overflow.
#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "base/error.h"
#include "base/read_queue_engine.h"

namespace sluice {

namespace {

bool is_passing(int error) { return error == EINTR || error == EAGAIN || error == EBUSY; }

// Both rings of the kernel's interface.
class Ring {
 public:
  // Throws Error(kUnsupported) that says why there is none.
  explicit Ring(unsigned entries) {
    if (const int result = ::io_uring_queue_init(entries, &ring_, 0); result < 0)
      fail(ErrorKind::kUnsupported,
           "io_uring: the kernel refuses a ring of {} entries: {} (too old, switched off by the sysctl "
           "kernel.io_uring_disabled, or forbidden in this container); use --io threads",
           entries, std::strerror(-result));
    if (can_read()) return;
    ::io_uring_queue_exit(&ring_);
    fail(ErrorKind::kUnsupported, "io_uring: this kernel's has no plain reads yet (Linux 5.6 has); use --io threads");
  }
  Ring(const Ring&) = delete;
  ~Ring() { ::io_uring_queue_exit(&ring_); }

  io_uring* get() { return &ring_; }

 private:
  bool can_read() {
    io_uring_probe* const probe = ::io_uring_get_probe_ring(&ring_);
    const bool can = probe != nullptr && ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
    if (probe != nullptr) ::io_uring_free_probe(probe);
    return can;
  }

  io_uring ring_{};
};

class UringQueue final : public ReadQueue {
 public:
  explicit UringQueue(unsigned depth) : ring_(depth), slots_(depth) {
    for (unsigned i = 0; i < depth; ++i) free_.push_back(depth - 1 - i);
  }

  ~UringQueue() override {
    waiting_.clear();
    try {
      while (free_.size() < slots_.size()) {
        enter(1);
        reap();
      }
    } catch (const Error&) {
      // The system gives nothing back any more; ending the ring is all that is left.
    }
  }

  const char* name() const override { return "io_uring"; }
  size_t pending() const override { return pending_; }

  void submit(std::span<const ReadJob> jobs) override {
    part_jobs(jobs, done_, waiting_);
    pending_ += jobs.size();
    begin_waiting();
  }

  void collect(std::vector<Done>& done, bool wait) override {
    reap();
    // What is pending and has not ended is in flight, or waits for something that is.
    while (wait && pending_ > 0 && done_.empty()) {
      enter(1);
      reap();
    }
    pending_ -= done_.size();
    done.insert(done.end(), done_.begin(), done_.end());
    done_.clear();
  }

 private:
  void begin_waiting() {
    while (!waiting_.empty() && !free_.empty()) {
      const unsigned slot = free_.back();
      free_.pop_back();
      slots_[slot].emplace(waiting_.front());
      waiting_.pop_front();
      go_on(slot);
    }
    if (::io_uring_sq_ready(ring_.get()) > 0) enter(0);
  }

  // Puts the next read of a slot's job into the ring, or ends the job.
  void go_on(unsigned slot) {
    if (const auto part = slots_[slot]->next()) {
      io_uring_sqe* const entry = ::io_uring_get_sqe(ring_.get());  // there is one for each slot
      ::io_uring_prep_read(entry, part->fd, part->to, static_cast<unsigned>(part->length), part->offset);
      ::io_uring_sqe_set_data64(entry, slot);
      return;
    }
    done_.push_back(slots_[slot]->done());
    slots_[slot].reset();
    free_.push_back(slot);
  }

  // Takes what has ended out of the ring and begins what waited for it.
  void reap() {
    io_uring_cqe* entry = nullptr;
    while (::io_uring_peek_cqe(ring_.get(), &entry) == 0) {
      const auto slot = static_cast<unsigned>(::io_uring_cqe_get_data64(entry));
      slots_[slot]->took(entry->res);
      ::io_uring_cqe_seen(ring_.get(), entry);
      go_on(slot);
    }
    begin_waiting();
  }

  // Hands the kernel what is new, and waits until `count` reads have ended. What it does not take now stays in the ring
  // for the next time.
  void enter(unsigned count) {
    const int result = count > 0 ? ::io_uring_submit_and_wait(ring_.get(), count) : ::io_uring_submit(ring_.get());
    if (result >= 0) return;
    if (!is_passing(-result))
      fail(ErrorKind::kIo, "io_uring: the kernel takes no more reads: {}; use --io threads", std::strerror(-result));
    if (count > 0 && result != -EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  Ring ring_;
  std::vector<std::optional<JobRead>> slots_;  // jobs whose read is in the ring
  std::vector<unsigned> free_;                 // slots without one
  std::deque<ReadJob> waiting_;
  std::vector<Done> done_;
  size_t pending_ = 0;
};

}  // namespace

std::unique_ptr<ReadQueue> make_uring_queue(unsigned depth) { return std::make_unique<UringQueue>(depth); }

}  // namespace sluice
