// Threads for one step's work: a static partition by absolute index, so that the number of threads never changes what
// is computed, only who computes it.
#pragma once

#include <cstddef>
#include <memory>

#include "base/function_ref.h"

namespace sluice {

class ThreadPool {
 public:
  // The work on a range of indices.
  using Work = FunctionRef<void(size_t begin, size_t end)>;

  // `threads` >= 1 counts the caller: a pool of one starts no thread. Throws Error(kLimit) when threads can't start.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The threads that there are, and those of them that work; at first all do.
  int size() const;
  int active() const;
  // From the next run() on, `threads` of them work (held to 1 .. size()); the others sleep and cost nothing.
  void set_active(int threads);

  // Calls work(begin, end) on disjoint ranges that cover [0, n), each a multiple of `grain` long save the last, and
  // returns when all are done. An exception thrown by `work` is thrown here (the one of the lowest range).
  // Not reentrant: `work` must not call run() of the same pool; nor may two threads call it at once.
  //
  // Handing work over costs an atomic exchange per thread and no system call as long as runs follow each other within
  // microseconds. A thread without work spins for a moment, then sleeps until it is called.
  void run(size_t n, size_t grain, Work work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Cores that this process may use, one a physical core where that can be told; at least 1.
int default_threads();

}  // namespace sluice
