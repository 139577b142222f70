#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"

namespace sluice {

namespace {

// A step's operations follow each other within microseconds: a short spin catches the next without a system call, and
// anything longer sleeps, so that an idle pool costs nothing and a busy machine gets its cores back.
constexpr int kSpins = 2000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors;

  std::mutex mutex;
  std::condition_variable wake, finished;
  std::atomic<uint64_t> generation{0};
  std::atomic<int> pending{0};
  std::atomic<bool> stop{false};

  // The job of the current generation; written before `generation` moves on.
  const std::function<void(size_t, size_t)>* work = nullptr;
  size_t n = 0, grain = 1;

  int size() const { return static_cast<int>(threads.size()) + 1; }

  void run_share(int index) noexcept {
    const size_t pieces = (n + grain - 1) / grain;
    const auto count = static_cast<size_t>(size());
    const auto i = static_cast<size_t>(index);
    const size_t begin = std::min(n, pieces * i / count * grain);
    const size_t end = std::min(n, pieces * (i + 1) / count * grain);
    if (begin >= end) return;
    try {
      (*work)(begin, end);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  }

  void serve(int index) {
    for (uint64_t seen = 0;;) {
      for (int spin = 0; spin < kSpins && generation.load(std::memory_order_acquire) == seen && !stop; ++spin) relax();
      if (generation.load(std::memory_order_acquire) == seen && !stop) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load() != seen || stop; });
      }
      if (stop) return;
      seen = generation.load(std::memory_order_acquire);
      run_share(index);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::lock_guard lock(mutex);
        finished.notify_one();
      }
    }
  }

  void shut_down() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  state_->errors.resize(static_cast<size_t>(threads));
  state_->threads.reserve(static_cast<size_t>(threads));
  try {
    for (int i = 1; i < threads; ++i) state_->threads.emplace_back([this, i] { state_->serve(i); });
  } catch (const std::system_error& error) {
    state_->shut_down();
    fail(ErrorKind::kLimit, "can't start {} threads: {}; ask for fewer with --threads", threads, error.what());
  }
}

ThreadPool::~ThreadPool() { state_->shut_down(); }

int ThreadPool::size() const { return state_->size(); }

void ThreadPool::run(size_t n, size_t grain, const std::function<void(size_t, size_t)>& work) {
  State& s = *state_;
  if (n == 0) return;
  if (s.threads.empty() || n <= grain) return work(0, n);
  s.work = &work, s.n = n, s.grain = grain;
  s.pending = static_cast<int>(s.threads.size());
  {
    std::lock_guard lock(s.mutex);
    s.generation.fetch_add(1, std::memory_order_release);
  }
  s.wake.notify_all();
  s.run_share(0);
  for (int spin = 0; spin < kSpins && s.pending.load(std::memory_order_acquire) != 0; ++spin) relax();
  if (s.pending.load(std::memory_order_acquire) != 0) {
    std::unique_lock lock(s.mutex);
    s.finished.wait(lock, [&] { return s.pending.load() == 0; });
  }
  for (std::exception_ptr& error : s.errors)
    if (error) {
      const std::exception_ptr first = error;
      std::fill(s.errors.begin(), s.errors.end(), nullptr);
      std::rethrow_exception(first);
    }
}

int default_threads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  // Hyper-threads of one core share its multipliers and only get in each other's way.
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
