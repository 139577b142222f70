// Reads by threads that wait for the disk in turn: for systems without io_uring. A thread sleeps while nothing is to be
// read, and reads one job at a time.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/read_queue_engine.h"

namespace sluice {

namespace {

constexpr unsigned kMaxReaders = 8;

ReadQueue::Done read(const ReadJob& job) {
  JobRead reading(job);
  while (const auto part = reading.next()) {
    const ssize_t n = ::pread(part->fd, part->to, part->length, static_cast<off_t>(part->offset));
    reading.took(n < 0 ? -errno : n);
  }
  return reading.done();
}

class ThreadsQueue final : public ReadQueue {
 public:
  explicit ThreadsQueue(unsigned depth) {
    readers_.reserve(kMaxReaders);
    try {
      while (readers_.size() < std::min(depth, kMaxReaders)) readers_.emplace_back([this] { take_jobs(); });
    } catch (const std::system_error& error) {
      // Fewer threads read the same bytes.
      if (readers_.empty())
        fail(ErrorKind::kLimit, "no thread for reading can be started: {}; end some processes or raise `ulimit -u`",
             error.what());
    }
  }

  ~ThreadsQueue() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    submitted_.notify_all();
    readers_.clear();  // waits for them
  }

  const char* name() const override { return "threads"; }
  size_t pending() const override { return pending_; }

  void submit(std::span<const ReadJob> jobs) override {
    {
      const std::lock_guard lock(mutex_);
      part_jobs(jobs, done_, waiting_);
    }
    pending_ += jobs.size();
    submitted_.notify_all();
  }

  void collect(std::vector<Done>& done, bool wait) override {
    std::unique_lock lock(mutex_);
    if (wait && pending_ > 0) job_ended_.wait(lock, [this] { return !done_.empty(); });
    pending_ -= done_.size();
    done.insert(done.end(), done_.begin(), done_.end());
    done_.clear();
  }

 private:
  void take_jobs() {
    std::unique_lock lock(mutex_);
    while (true) {
      submitted_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
      if (ended_) return;
      const ReadJob job = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const Done done = read(job);
      lock.lock();
      done_.push_back(done);
      job_ended_.notify_one();
    }
  }

  size_t pending_ = 0;  // the owner's own

  std::mutex mutex_;  // guards what follows
  std::deque<ReadJob> waiting_;
  std::vector<Done> done_;
  bool ended_ = false;
  std::condition_variable submitted_, job_ended_;

  std::vector<std::jthread> readers_;  // last: they use all of the above
};

}  // namespace

std::unique_ptr<ReadQueue> make_threads_queue(unsigned depth) { return std::make_unique<ThreadsQueue>(depth); }

}  // namespace sluice
