#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace sluice {

namespace {

constexpr size_t kMaxPieces = 1024;           // IOV_MAX of Linux and macOS
constexpr size_t kMaxRead = size_t{1} << 30;  // Linux cuts a single read at 2 GiB - 4 KiB

[[noreturn]] void fail_read(const std::string& path, uint64_t offset, int error) {
  fail(ErrorKind::kIo, "{}: reading at offset {} failed: {}", path, offset, std::strerror(error));
}

[[noreturn]] void fail_short(const std::string& path, uint64_t offset, uint64_t missing) {
  fail(ErrorKind::kIo,
       "{}: the file ends at offset {}, {} bytes before the end of what was to be read; it was truncated or replaced "
       "while open, get it again",
       path, offset, missing);
}

class PosixFile final : public File {
 public:
  PosixFile(std::string path, int fd, uint64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  ~PosixFile() override { ::close(fd_); }

  const std::string& path() const override { return path_; }
  uint64_t size() const override { return size_; }

  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t n = ::pread(fd_, out.data(), std::min(out.size(), kMaxRead), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_read(path_, offset, errno);
      if (n == 0) fail_short(path_, offset, out.size());
      out = out.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
  }

  void read_scattered(uint64_t offset, std::span<const iovec> pieces) const override {
    std::vector<iovec> rest(pieces.begin(), pieces.end());
    size_t first = 0;
    while (true) {
      while (first < rest.size() && rest[first].iov_len == 0) ++first;
      if (first == rest.size()) return;
      const size_t count = std::min(rest.size() - first, kMaxPieces);
      const ssize_t n = ::preadv(fd_, rest.data() + first, static_cast<int>(count), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_read(path_, offset, errno);
      if (n == 0) fail_short(path_, offset, rest[first].iov_len);
      offset += static_cast<uint64_t>(n);
      for (auto left = static_cast<size_t>(n); left > 0;) {
        iovec& piece = rest[first];
        const size_t taken = std::min(left, piece.iov_len);
        piece.iov_base = static_cast<std::byte*>(piece.iov_base) + taken;
        piece.iov_len -= taken;
        left -= taken;
        if (piece.iov_len == 0) ++first;
      }
    }
  }

 private:
  std::string path_;
  int fd_;
  uint64_t size_;
};

class MemoryFile final : public File {
 public:
  MemoryFile(std::string name, std::vector<std::byte> content) : name_(std::move(name)), content_(std::move(content)) {}

  const std::string& path() const override { return name_; }
  uint64_t size() const override { return content_.size(); }

  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    const uint64_t left = content_.size() - std::min<uint64_t>(offset, content_.size());
    if (out.size() > left) fail_short(name_, offset + left, out.size() - left);
    if (!out.empty()) std::memcpy(out.data(), content_.data() + offset, out.size());
  }

  void read_scattered(uint64_t offset, std::span<const iovec> pieces) const override {
    for (const iovec& piece : pieces) {
      read_at(offset, {static_cast<std::byte*>(piece.iov_base), piece.iov_len});
      offset += piece.iov_len;
    }
  }

 private:
  std::string name_;
  std::vector<std::byte> content_;
};

class FaultyFile final : public File {
 public:
  FaultyFile(std::unique_ptr<File> file, ReadFault fault) : file_(std::move(file)), fault_(std::move(fault)) {}
  const std::string& path() const override { return file_->path(); }
  uint64_t size() const override { return file_->size(); }

  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    check(offset, out.size());
    file_->read_at(offset, out);
  }

  void read_scattered(uint64_t offset, std::span<const iovec> pieces) const override {
    uint64_t total = 0;
    for (const iovec& piece : pieces) total += piece.iov_len;
    check(offset, total);
    file_->read_scattered(offset, pieces);
  }

 private:
  void check(uint64_t offset, uint64_t length) const {
    const int64_t delivered = fault_(index_++, offset, length);
    if (delivered < 0) fail_read(path(), offset, static_cast<int>(-delivered));
    const auto got = static_cast<uint64_t>(delivered);
    if (got < length) fail_short(path(), offset + got, length - got);
  }

  std::unique_ptr<File> file_;
  ReadFault fault_;
  mutable std::atomic<uint64_t> index_{0};
};

}  // namespace

std::unique_ptr<File> open_file(const std::string& path) {
  // O_NONBLOCK: opening a pipe without a writer must not hang; it has no effect on regular files.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(ErrorKind::kIo, "{}: can't open: {}", path, std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    fail(ErrorKind::kIo, "{}: can't stat: {}", path, std::strerror(error));
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    const char* what = S_ISDIR(info.st_mode) ? "a directory" : S_ISFIFO(info.st_mode) ? "a pipe" : "not a regular file";
    fail(ErrorKind::kIo, "{}: is {}; name a regular file", path, what);
  }
  return std::make_unique<PosixFile>(path, fd, static_cast<uint64_t>(info.st_size));
}

std::unique_ptr<File> memory_file(std::string name, std::vector<std::byte> content) {
  return std::make_unique<MemoryFile>(std::move(name), std::move(content));
}

std::unique_ptr<File> with_faults(std::unique_ptr<File> file, ReadFault fault) {
  return std::make_unique<FaultyFile>(std::move(file), std::move(fault));
}

std::string read_text_file(const std::string& path, uint64_t max_bytes) {
  const auto file = open_file(path);
  if (file->size() > max_bytes)
    fail(ErrorKind::kLimit, "{}: {} bytes are more than the limit of {}", path, file->size(), max_bytes);
  std::string text(file->size(), '\0');
  file->read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

AtomicFileWriter::AtomicFileWriter(std::string path) : path_(std::move(path)) {
  temporary_ = fmt::format("{}.{}.tmp", path_, ::getpid());
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail(ErrorKind::kIo, "{}: can't create: {}", temporary_, std::strerror(errno));
}

AtomicFileWriter::~AtomicFileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), kMaxRead));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorKind::kIo, "{}: writing at offset {} failed: {}", temporary_, offset_, std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset_ += static_cast<uint64_t>(n);
  }
}

void AtomicFileWriter::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFileWriter::commit() {
  if (::fsync(fd_) != 0) fail(ErrorKind::kIo, "{}: flushing to disk failed: {}", temporary_, std::strerror(errno));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail(ErrorKind::kIo, "{}: can't rename to {}: {}", temporary_, path_, std::strerror(errno));
  ::close(fd_);
  fd_ = -1;
}

}  // namespace sluice
