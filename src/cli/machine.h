// The limits of this machine, measured: what a share of bandwidth or of arithmetic is a share of. The loops themselves
// are in machine/units.h.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "cli/machine/units.h"

namespace sluice::cli {

double median(std::vector<double> values);

// Reading memory with all active threads of a pool, each its own part.
class MemoryProbe {
 public:
  // Takes `bytes`, far more than any cache holds, on huge pages. Throws Error(kLimit).
  explicit MemoryProbe(ThreadPool& pool, size_t bytes = size_t{512} << 20);
  // One pass over it, in GB/s.
  double measure_gbps();

 private:
  ThreadPool& pool_;
  Buffer buffer_;
};

// A loop over registers on all active threads for some milliseconds, in 10^9 operations a second.
double measure_gops(ThreadPool& pool, const machine::RegisterLoop& loop);

// The fastest loops of this machine for bytes and for floats; 0 where it has none.
double measure_int8_gops(ThreadPool& pool);
double measure_f32_gops(ThreadPool& pool);

// How fast up to a gigabyte from the start of a file comes from its disk, past the page cache, and how fast from the
// page cache. Not set when the file system can't read directly. Throws Error(kIo).
struct DiskRates {
  std::optional<double> direct_gbps;
  double cached_gbps = 0;
};
DiskRates measure_disk(const std::string& path);

}  // namespace sluice::cli
