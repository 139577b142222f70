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
#include "base/range_read.h"

namespace sluice {

namespace {

constexpr size_t kMaxWrite = size_t{1} << 30;  // Linux cuts a single write at 2 GiB - 4 KiB

std::atomic<int64_t> g_disk_room{-1};  // see fill_disk_after()

// As ::write, which may take fewer bytes than it was given.
ssize_t write_some(int fd, std::span<const std::byte> bytes) {
  size_t n = std::min(bytes.size(), kMaxWrite);
  const int64_t room = g_disk_room;
  if (room == 0) {
    errno = ENOSPC;
    return -1;
  }
  if (room > 0) n = std::min(n, static_cast<size_t>(room));
  const ssize_t written = ::write(fd, bytes.data(), n);
  if (room > 0 && written > 0) g_disk_room = room - written;
  return written;
}

uint64_t length_of(std::span<const iovec> pieces) {
  uint64_t total = 0;
  for (const iovec& piece : pieces) total += piece.iov_len;
  return total;
}

class PosixFile final : public File {
 public:
  PosixFile(std::string path, int fd, const struct stat& info) : path_(std::move(path)), fd_(fd), opened_(info) {
    if (size() < kLargeRead) return;
    direct_fd_ = open_direct();
    // What is read directly must not be brought into the page cache as well, by small reads beside it.
    if (direct_fd_ >= 0) ::posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM);
  }
  ~PosixFile() override {
    ::close(fd_);
    if (direct_fd_ >= 0) ::close(direct_fd_);
  }

  const std::string& path() const override { return path_; }
  uint64_t size() const override { return static_cast<uint64_t>(opened_.st_size); }

  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    const iovec piece{out.data(), out.size()};
    read_scattered(offset, {&piece, 1});
  }

  void read_scattered(uint64_t offset, std::span<const iovec> pieces) const override {
    const ReadableFile file = *descriptors();
    if (length_of(pieces) < kLargeRead)
      read_small(file, offset, pieces);
    else
      read_large(file, offset, pieces);
  }

  bool changed() const override {
    struct stat now {};
    return ::fstat(fd_, &now) != 0 || now.st_size != opened_.st_size || now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec;
  }

  std::optional<ReadableFile> descriptors() const override { return ReadableFile{path_, fd_, direct_fd_}; }

 private:
  int open_direct() const {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0) return -1;
    struct stat info {};
    if (::fstat(fd, &info) == 0 && info.st_dev == opened_.st_dev && info.st_ino == opened_.st_ino) return fd;
    ::close(fd);  // the name has gone to another file meanwhile; one object must not read two files
    return -1;
  }

  std::string path_;
  int fd_;
  int direct_fd_ = -1;
  struct stat opened_;
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
    check(offset, length_of(pieces));
    file_->read_scattered(offset, pieces);
  }

  bool changed() const override { return file_->changed(); }
  std::optional<ReadableFile> descriptors() const override { return file_->descriptors(); }
  int64_t delivered(uint64_t offset, uint64_t length) const override { return fault_(index_++, offset, length); }

 private:
  void check(uint64_t offset, uint64_t length) const {
    const int64_t result = delivered(offset, length);
    if (result < 0) fail_read(path(), offset, static_cast<int>(-result));
    const auto got = static_cast<uint64_t>(result);
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
  // Where a file system can't read without waiting, io_uring would give up on a descriptor that keeps the flag.
  ::fcntl(fd, F_SETFL, 0);
  return std::make_unique<PosixFile>(path, fd, info);
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
    const ssize_t n = write_some(fd_, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_write(offset_);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset_ += static_cast<uint64_t>(n);
  }
}

void AtomicFileWriter::overwrite(uint64_t offset, std::span<const std::byte> bytes) {
  if (offset > offset_ || bytes.size() > offset_ - offset)
    fail(ErrorKind::kInternal, "{}: {} bytes from {} on are not in the {} written", temporary_, bytes.size(), offset,
         offset_);
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), std::min(bytes.size(), kMaxWrite), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_write(offset);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

void AtomicFileWriter::fail_write(uint64_t offset) const {
  fail(ErrorKind::kIo, "{}: writing at offset {} failed: {}", temporary_, offset, std::strerror(errno));
}

void AtomicFileWriter::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFileWriter::commit() {
  if (::fsync(fd_) != 0) fail(ErrorKind::kIo, "{}: flushing to disk failed: {}", temporary_, std::strerror(errno));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail(ErrorKind::kIo, "{}: can't rename to {}: {}", temporary_, path_, std::strerror(errno));
  ::close(fd_);
  fd_ = -1;
}

void fill_disk_after(int64_t bytes) { g_disk_room = bytes; }

}  // namespace sluice
