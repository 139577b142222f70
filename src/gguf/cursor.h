// Reads a file's header front to back through one large buffer, every length checked against what is left. For
// reader.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace sluice::gguf {

class Cursor {
 public:
  // Reads `chunk_bytes` at a time, and nothing past `limit` bytes, of which the file may have fewer.
  Cursor(const File& file, size_t chunk_bytes, uint64_t limit);

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return end_ - position_; }

  // What is being read from here on, in words, for messages: "key general.name", "tensor 3 of 73".
  void enter(std::string place) { place_ = std::move(place); }
  // "M.gguf: key general.name"
  std::string where() const;
  template <typename... Args>
  [[noreturn]] void fail_here(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(kind, where() + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  // Throws Error(kFormat) unless `count` things of at least `each` bytes can still follow. Call it before making room
  // for them.
  void need(uint64_t count, uint64_t each, const char* what) const;

  void read(void* out, uint64_t bytes, const char* what);

  template <typename T>
  requires std::is_arithmetic_v<T> T take(const char* what) {
    T value;
    read(&value, sizeof(T), what);
    return value;
  }

  // A string as GGUF stores it: its length as a u64, then its bytes.
  std::string take_string(const char* what);

 private:
  const File& file_;
  std::string place_ = "header";
  std::vector<std::byte> buffer_;
  size_t next_ = 0, filled_ = 0;  // buffer_[next_, filled_) lies at position_ in the file
  uint64_t position_ = 0;
  uint64_t end_;
};

}  // namespace sluice::gguf
