#include "base/read_queue.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/error.h"
#include "base/read_queue_engine.h"

namespace sluice {

namespace {

// Linux reads 2 GiB - 4 KiB at most at once, and an entry of io_uring has 32 bits for a length.
constexpr uint64_t kMaxPart = uint64_t{1} << 30;
// Refusals in a row ("try again") after which a job ends with an error instead of keeping a core busy for ever.
constexpr unsigned kMaxRetries = 1000;

template <typename Action>
std::exception_ptr error_of(Action action) {
  try {
    action();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

#ifndef SLUICE_IO_URING
std::unique_ptr<ReadQueue> make_uring_queue(unsigned) {
  fail(ErrorKind::kUnsupported,
       "io_uring: this program was built without it (it needs Linux and liburing); use --io threads");
}
#endif

}  // namespace

JobRead::JobRead(const ReadJob& job)
    : job_(job),
      file_(*job.file->descriptors()),
      window_begin_(job.offset / kDirectBlock * kDirectBlock),
      window_end_(align_up(job.offset + job.length, kDirectBlock)),
      end_(job.offset + job.length),
      direct_(file_.direct_fd >= 0),
      at_(direct_ ? window_begin_ : job.offset) {}

std::optional<JobRead::Part> JobRead::next() {
  while (!error_ && at_ < end_) {
    const uint64_t length = std::min((direct_ ? window_end_ : end_) - at_, kMaxPart);
    std::byte* const to = job_.window + (at_ - window_begin_);
    const int64_t delivered = job_.file->delivered(at_, length);
    if (delivered >= static_cast<int64_t>(length)) return Part{direct_ ? file_.direct_fd : file_.fd, to, at_, length};
    // A read cut short by a test. It may end anywhere, which a direct one can't.
    if (delivered > 0) return Part{file_.fd, to, at_, static_cast<size_t>(delivered)};
    took(delivered);
  }
  return std::nullopt;
}

void JobRead::took(int64_t result) {
  if (result > 0) {
    cached_ = cached_ || !direct_;
    at_ += static_cast<uint64_t>(result);
    retries_ = 0;
    if (at_ % kDirectBlock != 0) leave_direct();
  } else if (result == 0) {
    error_ = error_of([&] { fail_short(file_.path, wanted(), end_ - wanted()); });
  } else if (result == -EINVAL && direct_) {
    leave_direct();  // the file system refuses after all
  } else if ((result != -EINTR && result != -EAGAIN) || ++retries_ == kMaxRetries) {
    error_ = error_of([&] { fail_read(file_.path, wanted(), static_cast<int>(-result)); });
  }
}

// From here on the rest is read as usual, and only what is wanted.
void JobRead::leave_direct() {
  direct_ = false;
  at_ = wanted();
}

ReadQueue::Done JobRead::done() {
  // What was read as usual must not fill the page cache with a second copy.
  if (cached_ && job_.file->size() >= kLargeRead)
    ::posix_fadvise(file_.fd, static_cast<off_t>(window_begin_), static_cast<off_t>(window_end_ - window_begin_),
                    POSIX_FADV_DONTNEED);
  return {job_.tag, error_};
}

std::optional<ReadQueue::Done> end_at_once(const ReadJob& job) {
  if (job.length == 0) return ReadQueue::Done{job.tag, nullptr};
  const auto address = reinterpret_cast<uintptr_t>(job.window);
  // The system would refuse it as it refuses files that can't be read directly, and all would be read twice as slowly.
  if (job.window == nullptr || address % kDirectBlock != 0)
    return ReadQueue::Done{job.tag, error_of([&] {
                             fail(ErrorKind::kInternal, "{}: window {:#x} of a read is not at a multiple of {}",
                                  job.file->path(), address, kDirectBlock);
                           })};
  if (job.file->descriptors()) return std::nullopt;
  return ReadQueue::Done{job.tag, error_of([&] {
                           job.file->read_at(job.offset, {job.window + job.offset % kDirectBlock, job.length});
                         })};
}

std::unique_ptr<ReadQueue> make_read_queue(ReadEngine engine, unsigned depth) {
  depth = std::max(depth, 1U);
  if (engine == ReadEngine::kThreads) return make_threads_queue(depth);
  if (engine == ReadEngine::kUring) return make_uring_queue(depth);
  try {
    return make_uring_queue(depth);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    return make_threads_queue(depth);
  }
}

double measure_read_gbps(ReadQueue& queue, std::span<const ReadJob> jobs) {
  uint64_t bytes = 0;
  for (const ReadJob& job : jobs) bytes += job.length;
  std::vector<ReadQueue::Done> done;
  const auto begin = std::chrono::steady_clock::now();
  queue.submit(jobs);
  while (queue.pending() > 0) queue.collect(done, true);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  for (const ReadQueue::Done& job : done)
    if (job.error) std::rethrow_exception(job.error);
  return static_cast<double>(bytes) / 1e9 / std::max(seconds.count(), 1e-9);
}

}  // namespace sluice
