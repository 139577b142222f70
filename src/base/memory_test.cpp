#include "base/memory.h"

#include <gtest/gtest.h>

#include <algorithm>

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
