#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
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

TEST(ThreadPool, OnlyActiveThreadsWorkAndAllIndicesAreCovered) {
  ThreadPool pool(4);
  for (const int active : {4, 1, 3, 2, 4, 2}) {
    pool.set_active(active);
    EXPECT_EQ(pool.active(), active);
    for (int round = 0; round < 20; ++round) {
      std::mutex mutex;
      std::set<std::thread::id> workers;
      size_t covered = 0;
      pool.run(64, 1, [&](size_t begin, size_t end) {
        const std::lock_guard lock(mutex);
        workers.insert(std::this_thread::get_id());
        covered += end - begin;
      });
      EXPECT_EQ(covered, 64u);
      EXPECT_EQ(workers.size(), static_cast<size_t>(active));
    }
  }
  pool.set_active(100);
  EXPECT_EQ(pool.active(), 4);
  pool.set_active(0);
  EXPECT_EQ(pool.active(), 1);
}

// Sees the writes of every earlier run, from whichever thread: what an operation leaves behind, the next one reads.
// Pauses of all lengths fall between runs, so that workers are called while they spin, while they fall asleep and
// while they sleep.
TEST(ThreadPool, RunsSeeEachOthersWritesWhateverThePauses) {
  for (const int threads : {2, 3, 7}) {
    ThreadPool pool(threads);
    std::vector<int> values(97, 0);
    uint32_t random = 1;
    constexpr int kRounds = 1000;
    for (int round = 0; round < kRounds; ++round) {
      if (round % 100 == 0) pool.set_active(1 + round / 100 % threads);
      const size_t shift = static_cast<size_t>(round) % values.size();
      pool.run(values.size(), 1 + round % 5, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i)
          ++values[(i + shift) % values.size()];  // another thread's values each time
      });
      random = random * 1664525u + 1013904223u;
      const std::chrono::nanoseconds pause(random >> (16 + random % 8) << 2);
      for (const auto end = std::chrono::steady_clock::now() + pause; std::chrono::steady_clock::now() < end;) {
      }
    }
    for (const int value : values) EXPECT_EQ(value, kRounds);
  }
}

TEST(ThreadPool, FewPiecesCallFewThreads) {
  ThreadPool pool(5);
  std::atomic<int> calls{0};
  pool.run(20, 10, [&](size_t begin, size_t end) {
    EXPECT_EQ(end - begin, 10u);
    ++calls;
  });
  EXPECT_EQ(calls, 2);
}

// The states of this process's threads, one letter each: R runs, S sleeps.
std::string thread_states() {
  std::string states;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    states += stat.at(stat.rfind(')') + 2);
  }
  return states;
}

// A loaded process that waits for its user must not cost anything.
TEST(ThreadPool, ThreadsWithoutWorkSleep) {
  ThreadPool pool(4);
  for (int round = 0; round < 100; ++round) pool.run(64, 1, [](size_t, size_t) {});
  std::string states;
  for (int look = 0; look < 1000; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    states = thread_states();
    if (std::ranges::count(states, 'R') == 1) return;  // this one
  }
  FAIL() << "states of threads after a second: " << states;
}

TEST(ThreadPool, MoreThreadsThanProcessorsStillFinish) {
  ThreadPool pool(64);
  std::atomic<size_t> sum{0};
  for (int round = 0; round < 100; ++round) pool.run(640, 1, [&](size_t begin, size_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 64000u);
}

}  // namespace
}  // namespace sluice
