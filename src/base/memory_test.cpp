#include "base/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

TEST(Buffer, IsAlignedZeroedAndCounted) {
  const uint64_t before = allocated_bytes();
  {
    Buffer buffer(5 << 20, "test");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kAlignment, 0u);
    EXPECT_TRUE(std::ranges::all_of(buffer.bytes(), [](std::byte b) { return b == std::byte{0}; }));
    EXPECT_EQ(allocated_bytes() - before, buffer.size());
    Buffer moved = std::move(buffer);
    EXPECT_EQ(moved.as<float>().size(), (5u << 20) / 4);
    EXPECT_GE(peak_allocated_bytes(), moved.size());
  }
  EXPECT_EQ(allocated_bytes(), before);
}

TEST(Buffer, LargeOnesBeginAtHugePages) {
  constexpr size_t kHugePage = 2 << 20;
  for (const size_t bytes : {kHugePage, kHugePage + 1, 3 * kHugePage - 4096}) {
    std::vector<Buffer> several;
    for (int i = 0; i < 4; ++i) {
      several.emplace_back(bytes, "test");
      EXPECT_EQ(reinterpret_cast<uintptr_t>(several.back().data()) % kHugePage, 0u);
      std::ranges::fill(several.back().bytes(), static_cast<std::byte>(i + 1));  // all of it is mapped
    }
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(std::ranges::count(several[static_cast<size_t>(i)].bytes(), static_cast<std::byte>(i + 1)),
                static_cast<ptrdiff_t>(bytes));
  }
}

// Kilobytes of this process that are locked, as the kernel counts them.
uint64_t locked_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    uint64_t kib = 0;
    if (key == "VmLck:") return status >> kib ? kib : 0;
    std::getline(status, key);
  }
  return 0;
}

// Sanitizers replace mlock() by a function that does nothing and succeeds.
bool locking_is_real() {
  std::vector<std::byte> memory(64 << 10);
  const uint64_t before = locked_kib();
  const bool locked = ::mlock(memory.data(), memory.size()) != 0 || locked_kib() > before;
  ::munlock(memory.data(), memory.size());
  return locked;
}

TEST(Buffer, LockedUntilItGoes) {
  if (!locking_is_real()) GTEST_SKIP() << "a sanitizer replaces mlock()";
  const uint64_t before = locked_kib();
  {
    Buffer buffer(64 << 10, "test");
    if (lock_limit() < buffer.size()) GTEST_SKIP() << "this process may lock " << lock_limit() << " bytes";
    buffer.lock("test");
    EXPECT_EQ(locked_kib() - before, 64u);
  }
  EXPECT_EQ(locked_kib(), before);
}

// In a process of its own: tries to lock what it may not, says what came of it, and ends.
void lock_beyond_the_limit() {
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_MEMLOCK, &none) != 0) return;
  if (::geteuid() == 0 && ::setuid(65534) != 0) return;  // root may lock whatever the limit
  Buffer buffer(64 << 10, "test");
  try {
    buffer.lock("dense weights");
  } catch (const Error& error) {
    std::cerr << error.what();
    std::exit(error.kind() == ErrorKind::kLimit ? 0 : 1);
  }
}

TEST(Buffer, ARefusedLockSaysWhichLimitAndWhatToDo) {
  if (!locking_is_real()) GTEST_SKIP() << "a sanitizer replaces mlock()";
  EXPECT_EXIT(lock_beyond_the_limit(), testing::ExitedWithCode(0),
              "dense weights: 65536 bytes can't be locked.*limit of this process is 0 bytes: raise it");
}

TEST(Buffer, FailedAllocationsAreErrors) {
  EXPECT_THROW(Buffer(SIZE_MAX - 10, "huge"), Error);
  fail_allocation_after(1);
  Buffer first(16, "first");
  EXPECT_THROW(Buffer(16, "second"), Error);
  Buffer third(16, "third");
  fail_allocation_after(-1);
}

}  // namespace
}  // namespace sluice
