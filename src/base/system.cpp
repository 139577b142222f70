#include "base/system.h"

#include <fmt/ranges.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sluice {

namespace {

// A control group's file holds one number, or "max".
uint64_t read_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : 0;
}

// The value of a line "key value", or "key: value unit".
uint64_t read_field(const std::string& path, std::string_view wanted) {
  std::ifstream file(path);
  std::string key, rest;
  for (uint64_t value = 0; file >> key >> value; std::getline(file, rest))
    if (key == wanted) return value;
  return 0;
}

// What is left of a memory limit, and the limit; `left` is UINT64_MAX without one.
struct Room {
  uint64_t left = UINT64_MAX, limit = UINT64_MAX;
};

void take_limit(Room& room, uint64_t limit, uint64_t used, uint64_t cached) {
  constexpr uint64_t kNone = uint64_t{1} << 60;  // version 1 says so with a number of about 2^63
  if (limit == 0 || limit >= kNone) return;
  const uint64_t taken = used - std::min(used, cached);
  room.left = std::min(room.left, limit - std::min(limit, taken));
  room.limit = std::min(room.limit, limit);
}

// The limits of the control groups that this process is in, and of those that contain them.
Room control_group_room() {
  Room room;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    for (std::string path = line.substr(second + 1);; path = path.substr(0, path.rfind('/'))) {
      const std::string group =
          (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory") + (path == "/" ? "" : path) + "/";
      const std::string stat = group + "memory.stat";
      if (unified)
        for (const char* limit : {"memory.max", "memory.high"})
          take_limit(room, read_number(group + limit), read_number(group + "memory.current"),
                     read_field(stat, "inactive_file") + read_field(stat, "active_file"));
      else
        take_limit(room, read_number(group + "memory.limit_in_bytes"), read_number(group + "memory.usage_in_bytes"),
                   read_field(stat, "total_inactive_file") + read_field(stat, "total_active_file"));
      if (path.empty() || path == "/") break;
    }
  }
  return room;
}

// Percent of the last ten seconds in which all programs waited for memory.
double memory_pressure() {
  std::ifstream file("/proc/pressure/memory");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kBefore = "full avg10=";
    double percent = 0;
    if (!line.starts_with(kBefore)) continue;
    std::from_chars(line.data() + kBefore.size(), line.data() + line.size(), percent);
    return percent;
  }
  return 0;
}

uint64_t left_of(const Room& groups) {
  const uint64_t system = 1024 * read_field("/proc/meminfo", "MemAvailable:");
  if (groups.left == UINT64_MAX) return system;
  return std::max<uint64_t>(1, system == 0 ? groups.left : std::min(system, groups.left));  // 0 would mean: not known
}

}  // namespace

uint64_t available_memory() { return left_of(control_group_room()); }

uint64_t memory_shortage() {
  constexpr uint64_t kMostReserve = uint64_t{256} << 20;
  constexpr double kPressed = 10;  // percent: programs crawl
  const Room groups = control_group_room();
  const uint64_t total = std::min(1024 * read_field("/proc/meminfo", "MemTotal:"), groups.limit);
  const uint64_t reserve = std::min(total / 100, kMostReserve), left = left_of(groups);
  if (total == 0 || left == 0) return 0;
  if (left < reserve) return reserve - left;
  return memory_pressure() > kPressed ? reserve : 0;
}

uint64_t peak_resident_bytes() {
  // Of this program: what getrusage() says can be of the process that started it.
  if (const uint64_t kib = read_field("/proc/self/status", "VmHWM:"); kib > 0) return kib * 1024;
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
