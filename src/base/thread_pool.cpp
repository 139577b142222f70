#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "base/error.h"

namespace sluice {

namespace {

using std::chrono::steady_clock;

// A step's operations follow each other within microseconds, while waking a sleeper takes 5 to 50: so a waiting thread
// spins for about as long as waking it would take, which at worst doubles the wait. If what it waits for does not come
// (the step is over, or another process has the other thread's core), it sleeps, and spins for less next time.
constexpr std::chrono::microseconds kLongestSpin{40}, kShortestSpin{2};
constexpr int kPausesPerLook = 8;  // between two looks at the clock, which costs as much as some pauses

// Processors fetch cache lines of 64 bytes in pairs, so what different threads write stands this far apart.
constexpr size_t kApart = 128;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A number below 2^30 that one thread waits for and others change; a change makes a system call only when the one that
// waits is asleep. (An int, because the standard library waits for ints by futex and for most other types through a
// table that the whole process shares.)
class Signal {
 public:
  void set(int value) {
    if (word_.exchange(value) & kAsleep) word_.notify_one();
  }
  // Takes 1 off and, at 0, wakes the one that waits.
  void count_down() {
    if (word_.fetch_sub(1) == (kAsleep | 1)) word_.notify_one();
  }

  // Returns the value as soon as done(value) holds.
  template <typename Done>
  int wait(bool may_spin, Done done) {
    int value = word_.load(std::memory_order_acquire);
    if (done(value) || (may_spin && spin(done, &value))) return value;
    while (!done(value = word_.fetch_or(kAsleep) & ~kAsleep)) word_.wait(value | kAsleep);
    word_.fetch_and(~kAsleep);
    return value;
  }

 private:
  static constexpr int kAsleep = 1 << 30;

  template <typename Done>
  bool spin(Done done, int* value) {
    const auto end = steady_clock::now() + patience_;
    do {
      for (int i = 0; i < kPausesPerLook; ++i) {
        relax();
        *value = word_.load(std::memory_order_acquire);
        if (!done(*value)) continue;
        patience_ = std::min<std::chrono::nanoseconds>(2 * patience_, kLongestSpin);
        return true;
      }
    } while (steady_clock::now() < end);
    patience_ = std::max<std::chrono::nanoseconds>(patience_ / 2, kShortestSpin);
    return false;
  }

  std::atomic<int> word_{0};
  std::chrono::nanoseconds patience_ = kLongestSpin;  // read and written by the one that waits
};

cpu_set_t allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0)  // more CPUs than the set has room for
    for (unsigned cpu = 0; cpu < std::min<unsigned>(std::thread::hardware_concurrency(), CPU_SETSIZE); ++cpu)
      CPU_SET(cpu, &allowed);
  return allowed;
}

}  // namespace

struct ThreadPool::State {
  enum Call { kNone, kWork, kStop };

  struct alignas(kApart) Worker {
    Signal call;
    std::exception_ptr error;
    std::thread thread;
  };

  std::deque<Worker> workers;  // the threads but for the caller; worker i takes share i + 1
  int active = 1;
  int cpus = 1;

  // The run under way: written before the workers are called, read by those called until they have counted down.
  const Work* work = nullptr;
  size_t n = 0, grain = 1, pieces = 0, shares = 0;
  alignas(kApart) Signal pending;

  // More threads than processors: who spins keeps the one that it waits for from running.
  bool may_spin() const { return active <= cpus; }

  void run_share(size_t share, std::exception_ptr& error) noexcept {
    const size_t begin = pieces * share / shares * grain;
    const size_t end = std::min(n, pieces * (share + 1) / shares * grain);
    try {
      (*work)(begin, end);
    } catch (...) {
      error = std::current_exception();
    }
  }

  void serve(size_t index) {
    Worker& self = workers[index];
    bool may_spin_next = true;
    for (;;) {
      const int call = self.call.wait(may_spin_next, [](int value) { return value != kNone; });
      if (call == kStop) return;
      self.call.set(kNone);
      may_spin_next = may_spin();
      run_share(index + 1, self.error);
      pending.count_down();
    }
  }

  void shut_down() {
    for (Worker& worker : workers) worker.call.set(kStop);
    for (Worker& worker : workers)
      if (worker.thread.joinable()) worker.thread.join();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  State& s = *state_;
  const cpu_set_t allowed = allowed_cpus();
  s.active = threads;
  s.cpus = CPU_COUNT(&allowed);
  for (int i = 1; i < threads; ++i) s.workers.emplace_back();
  try {
    for (size_t i = 0; i < s.workers.size(); ++i) s.workers[i].thread = std::thread([&s, i] { s.serve(i); });
  } catch (const std::system_error& error) {
    s.shut_down();
    fail(ErrorKind::kLimit, "can't start {} threads: {}; ask for fewer with --threads", threads, error.what());
  }
}

ThreadPool::~ThreadPool() { state_->shut_down(); }

int ThreadPool::size() const { return static_cast<int>(state_->workers.size()) + 1; }
int ThreadPool::active() const { return state_->active; }
void ThreadPool::set_active(int threads) { state_->active = std::clamp(threads, 1, size()); }

void ThreadPool::run(size_t n, size_t grain, Work work) {
  State& s = *state_;
  if (n == 0) return;
  const size_t pieces = (n + grain - 1) / grain;
  const size_t shares = std::min(pieces, static_cast<size_t>(s.active));
  if (shares == 1) return work(0, n);
  s.work = &work, s.n = n, s.grain = grain, s.pieces = pieces, s.shares = shares;
  s.pending.set(static_cast<int>(shares - 1));
  for (size_t i = 0; i + 1 < shares; ++i) s.workers[i].call.set(State::kWork);
  std::exception_ptr first;
  s.run_share(0, first);
  s.pending.wait(s.may_spin(), [](int value) { return value == 0; });
  for (size_t i = 0; i + 1 < shares; ++i)
    if (const std::exception_ptr error = std::exchange(s.workers[i].error, nullptr); error && !first) first = error;
  if (first) std::rethrow_exception(first);
}

int default_threads() {
  // Hyper-threads of one core share its multipliers and only get in each other's way.
  const cpu_set_t allowed = allowed_cpus();
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string line;
    if (!std::getline(siblings, line)) line = std::to_string(cpu);
    cores.insert(line);
  }
  return std::max<int>(1, static_cast<int>(cores.size()));
}

}  // namespace sluice
