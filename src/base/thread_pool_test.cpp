#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace sluice {
namespace {

TEST(ThreadPool, CoversEveryIndexOnceWhateverTheThreads) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (size_t n : {0u, 1u, 2u, 7u, 64u, 1001u})
      for (size_t grain : {1u, 4u, 64u}) {
        std::vector<std::atomic<int>> hits(n);
        pool.run(n, grain, [&](size_t begin, size_t end) {
          EXPECT_EQ(begin % grain, 0u);
          for (size_t i = begin; i < end; ++i) ++hits[i];
        });
        for (const auto& hit : hits) EXPECT_EQ(hit, 1);
      }
  }
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.run(9, 1,
                          [](size_t begin, size_t) {
                            if (begin >= 3) throw std::runtime_error("x");
                          }),
                 std::runtime_error);
    std::atomic<int> sum{0};
    pool.run(9, 1, [&](size_t begin, size_t end) { sum += static_cast<int>(end - begin); });
    EXPECT_EQ(sum, 9);
  }
}

}  // namespace
}  // namespace sluice
