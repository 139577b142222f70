#include "base/system.h"

#include <fmt/ranges.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>

#include "base/error.h"

namespace sluice {

namespace {

// A control group's file holds one number, or "max".
uint64_t read_number(const char* path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : 0;
}

}  // namespace

uint64_t available_memory() {
  uint64_t available = 0;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key, unit; meminfo >> key;) {
    uint64_t kib = 0;
    meminfo >> kib;
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") available = kib * 1024;
  }
  const uint64_t limit = read_number("/sys/fs/cgroup/memory.max");
  const uint64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit > used && (available == 0 || limit - used < available)) available = limit - used;
  return available;
}

uint64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

void restrict_to_cpus(std::span<const int> cpus) {
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus)
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &wanted);
  if (::sched_setaffinity(0, sizeof wanted, &wanted) != 0)
    fail(ErrorKind::kUsage,
         "this process may not run on the CPUs asked for ({}): {}; `taskset -cp $$` lists those it may",
         fmt::join(cpus, ", "), std::strerror(errno));
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace sluice
