// Reading a large range of a file into memory as fast as it comes: past the page cache what is not in it (O_DIRECT, so
// that the cache does not fill with a second copy), out of the page cache what is. Several threads take pieces in turn,
// so that one waits for the disk while another copies.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>

namespace sluice {

// One file, open once as usual and, where its file system can, once with O_DIRECT.
struct ReadableFile {
  const std::string& path;  // for messages
  int fd;
  int direct_fd;  // -1: can't be read directly
};

// Direct reads begin, end and lie at multiples of this (open(2), O_DIRECT; 512 would do for most disks, 4096 for all).
constexpr size_t kDirectBlock = 4096;

// Ranges from here on are worth pieces and threads.
constexpr uint64_t kLargeRead = uint64_t{2} << 20;

// Fill the pieces one after another from the range that begins at `offset`; read_large() is for kLargeRead bytes and
// more. Throw Error(kIo) on a read error or when the file ends before the pieces are full.
void read_small(const ReadableFile& file, uint64_t offset, std::span<const iovec> pieces);
void read_large(const ReadableFile& file, uint64_t offset, std::span<const iovec> pieces);

// Errors of reading, which every kind of file words alike.
[[noreturn]] void fail_read(const std::string& path, uint64_t offset, int error);
[[noreturn]] void fail_short(const std::string& path, uint64_t offset, uint64_t missing);

}  // namespace sluice
