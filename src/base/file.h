// Files behind one small interface, so that tests can make any read short, failing or late. Weights are always read
// explicitly and never mapped: a file that shrinks while open gives an Error, not SIGBUS.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/range_read.h"

namespace sluice {

// A file open for reading at any offset, from any thread.
class File {
 public:
  virtual ~File() = default;
  virtual const std::string& path() const = 0;
  // Size in bytes when it was opened.
  virtual uint64_t size() const = 0;
  // Fills `out` from `offset`. Throws Error(kIo) on a read error or when the file ends before `out` is full.
  virtual void read_at(uint64_t offset, std::span<std::byte> out) const = 0;
  // Fills the pieces one after another from one contiguous range of the file; errors as read_at.
  virtual void read_scattered(uint64_t offset, std::span<const iovec> pieces) const = 0;
  // Whether its size or time of modification is no longer what it was when it was opened. A file that another took the
  // name of has not changed: what is open is the old one.
  virtual bool changed() const { return false; }

  // For those who make the system's reads themselves (read_queue.h). Nullopt: there are no descriptors, use read_at.
  virtual std::optional<ReadableFile> descriptors() const { return std::nullopt; }
  // Asked before each such read: the bytes that the system would deliver (less than length: the read is cut short
  // there; 0: the file ends), or a negative errno. Only tests answer anything but `length`. From any thread.
  virtual int64_t delivered(uint64_t /*offset*/, uint64_t length) const { return static_cast<int64_t>(length); }
};

// Opens a regular file. Large ranges come past the page cache unless they are in it (range_read.h). Throws Error(kIo)
// naming the path and the reason: missing, not permitted, a directory, a pipe.
std::unique_ptr<File> open_file(const std::string& path);

// A file whose content is `content`, for tests and fuzzing; `name` is its path in messages.
std::unique_ptr<File> memory_file(std::string name, std::vector<std::byte> content);

// Called before each read with its running index (0, 1, ...), its offset and length; returns how many bytes the
// system would have delivered (less than length: the read is cut short there), or a negative errno.
using ReadFault = std::function<int64_t(uint64_t index, uint64_t offset, uint64_t length)>;

// `file` with faults injected, for tests. To File's own reads a short one is the file's end; a ReadQueue asks again.
std::unique_ptr<File> with_faults(std::unique_ptr<File> file, ReadFault fault);

// A whole file as text. Throws Error(kIo); Error(kLimit) above `max_bytes`.
std::string read_text_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 30);

// Writes beside `path` first and renames at the end, so a crash or a full disk leaves the old file as it was.
class AtomicFileWriter {
 public:
  // Throws Error(kIo) when the temporary file can't be made.
  explicit AtomicFileWriter(std::string path);
  ~AtomicFileWriter();  // removes the temporary file unless commit() succeeded
  AtomicFileWriter(const AtomicFileWriter&) = delete;
  AtomicFileWriter& operator=(const AtomicFileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  uint64_t offset() const { return offset_; }
  // Replaces bytes that have been written, from `offset` on: headers that are known at the end.
  void overwrite(uint64_t offset, std::span<const std::byte> bytes);
  // Flushes to disk and puts the file in place. Throws Error(kIo).
  void commit();

 private:
  [[noreturn]] void fail_write(uint64_t offset) const;

  std::string path_, temporary_;
  int fd_ = -1;
  uint64_t offset_ = 0;
};

// For tests: the disk that AtomicFileWriters write to has room for so many bytes more, and is full then (ENOSPC). A
// negative number turns that off.
void fill_disk_after(int64_t bytes);

}  // namespace sluice
