#include "base/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace sluice {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

std::atomic<int64_t> g_failure_countdown{-1};
std::atomic<uint64_t> g_allocated{0};
std::atomic<uint64_t> g_peak{0};

bool injected_failure() {
  if (g_failure_countdown.load(std::memory_order_relaxed) < 0) return false;
  return g_failure_countdown.fetch_sub(1) == 0;
}

size_t mapped_size(size_t bytes) { return (bytes + 4095) & ~size_t{4095}; }

void count(uint64_t bytes) {
  const uint64_t now = g_allocated.fetch_add(bytes) + bytes;
  uint64_t peak = g_peak.load();
  while (peak < now && !g_peak.compare_exchange_weak(peak, now)) {
  }
}

// Maps `bytes` (whole pages) at a multiple of kHugePage: the kernel puts huge pages only where one fits as a whole.
void* map_at_huge_page(size_t bytes) {
  void* const address = ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return address;
  auto* const mapped = static_cast<std::byte*>(address);
  const size_t before = align_up(reinterpret_cast<uintptr_t>(mapped), kHugePage) - reinterpret_cast<uintptr_t>(mapped);
  if (before > 0) ::munmap(mapped, before);
  if (before < kHugePage) ::munmap(mapped + before + bytes, kHugePage - before);
#ifdef MADV_HUGEPAGE
  ::madvise(mapped + before, bytes, MADV_HUGEPAGE);  // advice only: failure costs speed
#endif
  return mapped + before;
}

void* map(size_t bytes) {
  if (bytes > SIZE_MAX / 2 || injected_failure()) return MAP_FAILED;
  if (bytes >= kHugePage) return map_at_huge_page(mapped_size(bytes));
  return ::mmap(nullptr, mapped_size(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

}  // namespace

Buffer::Buffer(size_t bytes, const char* what) {
  if (bytes == 0) return;
  void* const address = map(bytes);
  if (address == MAP_FAILED)
    fail(ErrorKind::kLimit, "{}: {} bytes of memory can't be had; free some, or ask for a shorter context", what,
         bytes);
  data_ = static_cast<std::byte*>(address);
  size_ = bytes;
  count(size_);
}

void Buffer::lock(const char* what) {
  if (size_ == 0 || ::mlock(data_, mapped_size(size_)) == 0) return;
  const int error = errno;
  const uint64_t limit = lock_limit();
  const std::string allowed = limit == UINT64_MAX ? "unlimited" : fmt::format("{} bytes", limit);
  fail(ErrorKind::kLimit,
       "{}: {} bytes can't be locked in memory: {}; the limit of this process is {}: raise it (`ulimit -l unlimited`, "
       "or LimitMEMLOCK=infinity for a systemd service, --ulimit memlock=-1 for a container), or leave --mlock out",
       what, size_, std::strerror(error), allowed);
}

uint64_t lock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  ::munmap(data_, mapped_size(size_));
  g_allocated.fetch_sub(size_);
}

void fail_allocation_after(int64_t n) { g_failure_countdown = n; }
uint64_t allocated_bytes() { return g_allocated; }
uint64_t peak_allocated_bytes() { return g_peak; }

}  // namespace sluice
