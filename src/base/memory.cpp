#include "base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>

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

}  // namespace

Buffer::Buffer(size_t bytes, const char* what) {
  if (bytes == 0) return;
  void* address = MAP_FAILED;
  if (bytes <= SIZE_MAX / 2 && !injected_failure())
    address = ::mmap(nullptr, mapped_size(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    fail(ErrorKind::kLimit, "{}: {} bytes of memory can't be had; free some, or ask for a shorter context", what,
         bytes);
#ifdef MADV_HUGEPAGE
  if (bytes >= kHugePage) ::madvise(address, mapped_size(bytes), MADV_HUGEPAGE);  // advice only: failure costs speed
#endif
  data_ = static_cast<std::byte*>(address);
  size_ = bytes;
  count(size_);
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
