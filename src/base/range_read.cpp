#include "base/range_read.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/memory.h"

namespace sluice {

namespace {

constexpr size_t kMaxPieces = 1024;  // IOV_MAX of Linux and macOS
constexpr uint64_t kPiece =
    uint64_t{2} << 20;          // disks give their full rate from 64 KiB on; this stays in a core's caches
constexpr size_t kReaders = 4;  // two would do for a disk; copying out of the page cache takes more

// A range of a file on its way into memory.
class RangeRead {
 public:
  RangeRead(const ReadableFile& file, uint64_t offset, std::span<const iovec> pieces)
      : file_(file), begin_(offset), pieces_(pieces) {
    starts_.reserve(pieces.size() + 1);
    starts_.push_back(offset);
    for (const iovec& piece : pieces) starts_.push_back(starts_.back() + piece.iov_len);
    end_ = starts_.back();
    first_ = begin_ / kPiece;
    count_ = (end_ + kPiece - 1) / kPiece - first_;
  }

  void run() {
    check_length();
    find_cached();
    std::vector<std::jthread> helpers;
    try {
      while (helpers.size() + 1 < std::min<uint64_t>(kReaders, count_)) helpers.emplace_back([this] { take_pieces(); });
    } catch (const std::system_error&) {
      // Fewer threads read the same bytes.
    }
    take_pieces();
    helpers.clear();  // waits for them
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // A file that lost its end is told of as a whole, not by the piece that found out.
  void check_length() const {
    struct stat info {};
    if (::fstat(file_.fd, &info) != 0) fail_read(file_.path, begin_, errno);
    const auto size = static_cast<uint64_t>(info.st_size);
    if (size < end_) fail_short(file_.path, std::max(size, begin_), end_ - std::max(size, begin_));
  }

  // Asks which pages of the range are in the page cache. The mapping is never touched.
  void find_cached() {
    if (file_.direct_fd < 0) return;
    const uint64_t from = begin_ / kDirectBlock * kDirectBlock;
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t aligned = from / page * page, length = end_ - aligned;
    void* const mapped = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file_.fd, static_cast<off_t>(aligned));
    if (mapped == MAP_FAILED) return;
    std::vector<unsigned char> resident((length + page - 1) / page);
    if (::mincore(mapped, length, resident.data()) == 0) {
      cached_.resize(count_);
      for (uint64_t i = 0; i < count_; ++i) {
        const uint64_t first = (std::max(begin_, (first_ + i) * kPiece) - aligned) / page;
        const uint64_t last = (std::min(end_, (first_ + i + 1) * kPiece) - aligned + page - 1) / page;
        uint64_t there = 0;
        for (uint64_t p = first; p < last; ++p) there += resident[p] & 1;
        cached_[i] = 2 * there >= last - first;
      }
    }
    ::munmap(mapped, length);
  }

  void take_pieces() noexcept {
    try {
      Buffer staging;
      for (uint64_t i = next_++; i < count_ && !failed_; i = next_++) {
        const uint64_t begin = std::max(begin_, (first_ + i) * kPiece), end = std::min(end_, (first_ + i + 1) * kPiece);
        const bool direct = direct_works_ && !cached_.empty() && !cached_[i];
        if (direct && staging.size() == 0) staging = Buffer(kPiece + kDirectBlock, "staging of direct reads");
        if (!direct || !read_direct(begin, end, staging)) read_small(file_, begin, part(begin, end));
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }

  // Returns false where the file system refuses after all.
  bool read_direct(uint64_t begin, uint64_t end, Buffer& staging) {
    const uint64_t from = begin / kDirectBlock * kDirectBlock,
                   to = (end + kDirectBlock - 1) / kDirectBlock * kDirectBlock;
    uint64_t at = from;
    while (at < end) {
      const ssize_t n = ::pread(file_.direct_fd, staging.data() + (at - from), to - at, static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EINVAL) {
        direct_works_ = false;
        return false;
      }
      if (n < 0) fail_read(file_.path, at, errno);
      if (n == 0) fail_short(file_.path, at, end - at);
      at += static_cast<uint64_t>(n);
      // What a file's end cuts short is not at a block's border; nothing follows it.
      if (at < end && at % kDirectBlock != 0) fail_short(file_.path, at, end - at);
    }
    const std::byte* out = staging.data() + (begin - from);
    for (const iovec& piece : part(begin, end)) {
      std::memcpy(piece.iov_base, out, piece.iov_len);
      out += piece.iov_len;
    }
    return true;
  }

  // Where the bytes [begin, end) of the file belong.
  std::vector<iovec> part(uint64_t begin, uint64_t end) const {
    std::vector<iovec> found;
    auto at = static_cast<size_t>(std::ranges::upper_bound(starts_, begin) - starts_.begin()) - 1;
    for (; begin < end; ++at) {
      const uint64_t stop = std::min(end, starts_[at + 1]);
      if (stop == begin) continue;
      found.push_back({static_cast<std::byte*>(pieces_[at].iov_base) + (begin - starts_[at]), stop - begin});
      begin = stop;
    }
    return found;
  }

  const ReadableFile& file_;
  const uint64_t begin_;
  const std::span<const iovec> pieces_;
  std::vector<uint64_t> starts_;  // of each piece of memory, as an offset of the file; last, the range's end
  uint64_t end_ = 0;
  uint64_t first_ = 0, count_ = 0;  // pieces of the file, at multiples of kPiece
  std::vector<bool> cached_;        // by piece of the file; empty: not known
  std::atomic<uint64_t> next_{0};
  std::atomic<bool> direct_works_{true}, failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

void read_small(const ReadableFile& file, uint64_t offset, std::span<const iovec> pieces) {
  std::vector<iovec> rest(pieces.begin(), pieces.end());
  size_t first = 0;
  while (true) {
    while (first < rest.size() && rest[first].iov_len == 0) ++first;
    if (first == rest.size()) return;
    const size_t count = std::min(rest.size() - first, kMaxPieces);
    const ssize_t n = ::preadv(file.fd, rest.data() + first, static_cast<int>(count), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_read(file.path, offset, errno);
    if (n == 0) fail_short(file.path, offset, rest[first].iov_len);
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

void read_large(const ReadableFile& file, uint64_t offset, std::span<const iovec> pieces) {
  RangeRead(file, offset, pieces).run();
}

void fail_read(const std::string& path, uint64_t offset, int error) {
  fail(ErrorKind::kIo, "{}: reading at offset {} failed: {}", path, offset, std::strerror(error));
}

void fail_short(const std::string& path, uint64_t offset, uint64_t missing) {
  fail(ErrorKind::kIo,
       "{}: the file ends at offset {}, {} bytes before the end of what was to be read; it was truncated or replaced "
       "while open, get it again",
       path, offset, missing);
}

}  // namespace sluice
