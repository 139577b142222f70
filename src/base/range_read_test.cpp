// Large reads of files: the same bytes whether they come from the disk or from the page cache, and cold files stay out
// of the page cache.
#include "base/range_read.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace sluice {
namespace {

// A file whose 32-bit words count up, so that no two of its blocks are alike.
class RangeRead : public testing::Test {
 protected:
  static constexpr size_t kBytes = (size_t{9} << 20) + 1234;

  RangeRead() : path_(testing::TempDir() + "sluice_range_read_test_" + std::to_string(::getpid())), content_(kBytes) {
    for (uint32_t i = 0; i < kBytes / 4; ++i) std::memcpy(content_.data() + 4 * i, &i, 4);
    std::ofstream(path_, std::ios::binary).write(reinterpret_cast<const char*>(content_.data()), kBytes);
  }
  ~RangeRead() override { std::filesystem::remove(path_); }

  // Puts the whole file out of the page cache.
  void cool() const {
    const int fd = ::open(path_.c_str(), O_RDONLY);
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
  void warm() const {
    std::ifstream file(path_, std::ios::binary);
    std::vector<char> all(kBytes);
    file.read(all.data(), kBytes);
  }
  size_t pages_in_cache() const {
    const int fd = ::open(path_.c_str(), O_RDONLY);
    void* const mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
    std::vector<unsigned char> resident(kBytes / 4096 + 1);
    ::mincore(mapped, kBytes, resident.data());
    ::munmap(mapped, kBytes);
    ::close(fd);
    return static_cast<size_t>(std::ranges::count_if(resident, [](unsigned char page) { return page & 1; }));
  }
  // Whether the file system lets files leave the page cache (one that lives in memory does not).
  bool can_cool() const {
    cool();
    return pages_in_cache() == 0;
  }

  // Reads [offset, offset + n) in pieces of `piece` bytes and compares.
  void expect_content(const File& file, size_t offset, size_t n, size_t piece) const {
    std::vector<std::byte> out(n + 1, std::byte{0xEE});
    std::vector<iovec> pieces;
    for (size_t at = 0; at < n; at += piece) pieces.push_back({out.data() + at, std::min(piece, n - at)});
    file.read_scattered(offset, pieces);
    EXPECT_EQ(std::memcmp(out.data(), content_.data() + offset, n), 0)
        << n << " bytes at " << offset << " in pieces of " << piece;
    EXPECT_EQ(out[n], std::byte{0xEE}) << "nothing beyond the pieces is written";
  }

  std::string path_;
  std::vector<std::byte> content_;
};

TEST_F(RangeRead, GivesTheSameBytesFromDiskAndFromCache) {
  const auto file = open_file(path_);
  size_t turn = 0;
  for (const size_t offset : {size_t{0}, size_t{4095}, size_t{4096}, (size_t{2} << 20) - 1, size_t{123457}})
    for (const size_t n : {size_t{kLargeRead}, size_t{5000001}, kBytes - offset}) {
      const size_t piece = std::array<size_t, 4>{999, kBytes, 590001, 4096}[turn++ % 4];
      cool();
      expect_content(*file, offset, n, piece);
      warm();
      expect_content(*file, offset, n, piece);
    }
}

TEST_F(RangeRead, WhatIsColdStaysOutOfThePageCache) {
  if (!can_cool()) GTEST_SKIP() << "the file system of " << path_ << " keeps files in memory";
  const auto file = open_file(path_);
  expect_content(*file, 77, kBytes - 77, 600000);
  EXPECT_EQ(pages_in_cache(), 0u);
  std::byte few[100];
  file->read_at(1 << 20, few);
  EXPECT_LE(pages_in_cache(), 1u) << "small reads bring in no more than they ask for";
  warm();
  const size_t all = pages_in_cache();
  expect_content(*file, 77, kBytes - 77, 600000);
  EXPECT_EQ(pages_in_cache(), all);
}

TEST_F(RangeRead, AFileThatLostItsEndSaysWhereItEnds) {
  const auto file = open_file(path_);
  std::filesystem::resize_file(path_, 3000000);
  std::vector<std::byte> out(kBytes - 500);
  try {
    file->read_at(500, out);
    FAIL() << "read what is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(),
                testing::HasSubstr(
                    fmt::format("the file ends at offset 3000000, {} bytes before the end of what", kBytes - 3000000)));
  }
}

TEST_F(RangeRead, AnErrorInOnePieceIsTheErrorOfTheWhole) {
  const int unreadable = ::open(path_.c_str(), O_WRONLY);
  ASSERT_GE(unreadable, 0);
  std::vector<std::byte> out(kBytes);
  const iovec piece{out.data(), out.size()};
  EXPECT_THROW(read_large({path_, unreadable, -1}, 0, {&piece, 1}), Error);
  ::close(unreadable);
}

}  // namespace
}  // namespace sluice
