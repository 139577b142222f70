// Memory for weights, caches and scratch: aligned, on huge pages where large, and counted by the planner's categories.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace sluice {

// Kernels load 32 bytes at a time and never cross into another cache line's owner: 64 serves both.
constexpr size_t kAlignment = 64;

// Owns zeroed bytes at an address that is a multiple of kAlignment.
//
// Buffers of a huge page (2 MiB) and more begin at one's border and ask for huge pages: 4 KiB pages cost about 16 % of
// the read bandwidth.
class Buffer {
 public:
  Buffer() = default;
  // `what` names the buffer in the Error(kLimit) that an allocation failure throws.
  Buffer(size_t bytes, const char* what);
  ~Buffer();
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  // Fetches all pages and keeps them in memory until the buffer goes. Throws Error(kLimit) that says which limit
  // refused it and how it is raised; `what` names the buffer there.
  void lock(const char* what);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // The bytes as an array of T.
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), size_ / sizeof(T)};
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The largest amount of memory that this process may lock, in bytes; UINT64_MAX: no limit.
uint64_t lock_limit();

// Lets a test make the n-th allocation from now (0 = the next) fail; a negative n turns that off.
void fail_allocation_after(int64_t n);

// Bytes held by live Buffers, and the most that were held at once: what the planner's figures are checked against.
uint64_t allocated_bytes();
uint64_t peak_allocated_bytes();

constexpr size_t align_up(size_t n, size_t alignment = kAlignment) { return (n + alignment - 1) & ~(alignment - 1); }

}  // namespace sluice
