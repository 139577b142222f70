// What the engines of read_queue.h share: a job as a sequence of system reads, and how each of them ends. An engine
// only decides who makes the reads and who waits.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>

#include "base/read_queue.h"

namespace sluice {

// A job whose bytes are on their way. Whoever drives it makes the reads that next() asks for, one at a time, and tells
// took() what came of each.
class JobRead {
 public:
  struct Part {
    int fd;
    std::byte* to;
    uint64_t offset;
    size_t length;  // at most 2^30
  };

  // Of a job that end_at_once() has left.
  explicit JobRead(const ReadJob& job);

  // Null: the job has ended.
  std::optional<Part> next();
  // `result`: the bytes that were read, or a negative errno.
  void took(int64_t result);
  ReadQueue::Done done();

 private:
  uint64_t wanted() const { return std::max(at_, job_.offset); }
  void leave_direct();

  const ReadJob job_;
  const ReadableFile file_;
  const uint64_t window_begin_, window_end_, end_;  // offsets of the file
  bool direct_;
  bool cached_ = false;  // something came through the page cache
  uint64_t at_;          // what lies before it has been read
  unsigned retries_ = 0;
  std::exception_ptr error_;
};

// Ends a job that needs no system read: of no bytes, of a file without descriptors (which is copied now), or with a
// window that can't be used (Error(kInternal)). Null: the job is to be driven.
std::optional<ReadQueue::Done> end_at_once(const ReadJob& job);

// Parts jobs into those that end at once and those that wait to be driven.
inline void part_jobs(std::span<const ReadJob> jobs, std::vector<ReadQueue::Done>& ended,
                      std::deque<ReadJob>& waiting) {
  for (const ReadJob& job : jobs) {
    if (const auto done = end_at_once(job))
      ended.push_back(*done);
    else
      waiting.push_back(job);
  }
}

std::unique_ptr<ReadQueue> make_threads_queue(unsigned depth);
#ifdef SLUICE_IO_URING
std::unique_ptr<ReadQueue> make_uring_queue(unsigned depth);
#endif

}  // namespace sluice
