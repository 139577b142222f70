#include "cli/machine.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/memory.h"
#include "base/system.h"
#include "base/thread_pool.h"

namespace sluice::cli {

double measure_read_gbps(int threads) {
  constexpr size_t kBytes = size_t{512} << 20;  // above the last-level cache of any desktop
  constexpr size_t kChunk = size_t{1} << 20;
  constexpr int kPasses = 5;
  Buffer buffer(kBytes, "memory benchmark");
  ThreadPool pool(threads);
  pool.run(kBytes / kChunk, 1,
           [&](size_t begin, size_t end) { std::memset(buffer.data() + begin * kChunk, 1, (end - begin) * kChunk); });
  const auto words = buffer.as<uint64_t>();
  double best = 0;
  std::atomic<uint64_t> checksum{0};  // makes the reads needed
  for (int pass = 0; pass < kPasses; ++pass) {
    const double start = now_seconds();
    pool.run(words.size(), kChunk / sizeof(uint64_t), [&](size_t begin, size_t end) {
      // Eight independent sums: the adds must not wait for each other.
      uint64_t sums[8] = {};
      for (size_t i = begin; i + 8 <= end; i += 8)
        for (size_t j = 0; j < 8; ++j) sums[j] ^= words[i + j];
      for (const uint64_t sum : sums) checksum ^= sum;
    });
    best = std::max(best, static_cast<double>(kBytes) / (now_seconds() - start) / 1e9);
  }
  return checksum == 1 ? 0.0 : best;
}

}  // namespace sluice::cli
