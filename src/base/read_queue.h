// Reads of many ranges of files at once, straight from the disk to where the bytes are used, while the owner computes:
// what streaming experts stands on. Direct reads (O_DIRECT) of aligned windows around the wanted bytes: no staging, no
// copy, nothing left in the page cache. For one large range that is waited for, see File::read_at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/memory.h"
#include "base/range_read.h"

namespace sluice {

// Bytes of memory that a job of `length` bytes needs wherever it begins: the blocks that it can touch.
constexpr size_t window_bytes(uint64_t length) {
  return length == 0 ? 0 : align_up(length + kDirectBlock - 1, kDirectBlock);
}

// One range of a file and where it goes: after the job, byte i of the range is window[offset % kDirectBlock + i].
// `window` lies at a multiple of kDirectBlock and has window_bytes(length) bytes; those around the wanted ones may be
// overwritten with anything.
struct ReadJob {
  const File* file;
  uint64_t offset, length;
  std::byte* window;
  uint64_t tag;  // comes back with Done; means something to the caller only
};

// Jobs in flight. One thread uses it at a time. Files and windows must outlive
// the queue or be out of it: a window is the queue's from submit() until its Done is collected.
class ReadQueue {
 public:
  // The end of one job. `error` is null, or an Error(kIo) that names the file and the offset: a read that failed, a
  // file that ends too early. Interrupted and short reads have been continued.
  struct Done {
    uint64_t tag;
    std::exception_ptr error;
  };

  ReadQueue() = default;
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;
  // Waits for the reads that have begun; jobs that have not begun are dropped.
  virtual ~ReadQueue() = default;

  virtual const char* name() const = 0;  // "io_uring", "threads"
  // Begins the jobs in their order, without waiting for the disk. Those past the queue's depth wait inside, first in
  // first out, and begin as others end: in collect(), or on the queue's own threads. Errors of reading come with Done;
  // submit and collect throw Error(kIo) only if the system refuses to go on with the queue as a whole.
  virtual void submit(std::span<const ReadJob> jobs) = 0;
  // Jobs submitted and not yet collected.
  virtual size_t pending() const = 0;
  // Appends the jobs that have ended, in the order of their ends. With `wait` and something pending, waits until there
  // is at least one.
  virtual void collect(std::vector<Done>& done, bool wait) = 0;
};

enum class ReadEngine {
  kAuto,     // kUring where it can be had, else kThreads
  kUring,    // Linux's io_uring: no threads of our own, one system call for many reads
  kThreads,  // a fixed number of threads that read and wait
};

// A queue with at most `depth` reads in flight (at least 1; kThreads has 8 at most, one per thread). Throws
// Error(kUnsupported) that says why io_uring can't be had, Error(kLimit) if no thread can be started.
std::unique_ptr<ReadQueue> make_read_queue(ReadEngine engine, unsigned depth);

// Runs the jobs through an idle queue and returns 10^9 bytes per second, for choosing an engine. Throws a job's error.
double measure_read_gbps(ReadQueue& queue, std::span<const ReadJob> jobs);

}  // namespace sluice
