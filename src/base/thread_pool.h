// Threads for one step's work: a static partition by absolute index, so that the number of threads never changes what
// is computed, only who computes it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace sluice {

class ThreadPool {
 public:
  // `threads` >= 1 counts the caller: a pool of one starts no thread. Throws Error(kLimit) when threads can't start.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls work(begin, end) on disjoint ranges that cover [0, n), each a multiple of `grain` long save the last, and
  // returns when all are done. An exception thrown by `work` is thrown here (the one of the lowest range).
  // Not reentrant: `work` must not call run() of the same pool.
  void run(size_t n, size_t grain, const std::function<void(size_t begin, size_t end)>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Cores that this process may use, one a physical core where that can be told; at least 1.
int default_threads();

}  // namespace sluice
