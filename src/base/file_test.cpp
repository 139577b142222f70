#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string temp_path(const std::string& name) { return ::testing::TempDir() + "sluice_file_test_" + name; }

std::string write_temp(const std::string& name, const std::string& text) {
  std::ofstream(temp_path(name), std::ios::binary) << text;
  return temp_path(name);
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(File, ReadsAnyRange) {
  const auto file = open_file(write_temp("range", "0123456789"));
  std::string out(4, ' ');
  file->read_at(3, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "3456");
  EXPECT_EQ(file->size(), 10u);
}

TEST(File, ScattersOneRangeOverPiecesOfAnySize) {
  const auto file = open_file(write_temp("scatter", "abcdefghij"));
  std::string a(3, ' '), b(0, ' '), c(5, ' ');
  const iovec pieces[] = {{a.data(), a.size()}, {b.data(), 0}, {c.data(), c.size()}};
  file->read_scattered(1, pieces);
  EXPECT_EQ(a + c, "bcdefghi");
}

TEST(File, ShrinkingAfterOpenIsAnErrorNotASignal) {
  const std::string path = write_temp("shrink", std::string(100, 'x'));
  const auto file = open_file(path);
  std::filesystem::resize_file(path, 10);
  std::string out(50, ' ');
  EXPECT_THAT(message_of([&] { file->read_at(0, std::as_writable_bytes(std::span(out))); }), HasSubstr("truncated"));
  const iovec piece{out.data(), out.size()};
  EXPECT_THAT(message_of([&] { file->read_scattered(0, {&piece, 1}); }), HasSubstr("truncated"));
}

TEST(File, TellsWhetherItWasChangedWhileOpen) {
  const std::string path = write_temp("changed", std::string(100, 'x'));
  const auto file = open_file(path);
  EXPECT_FALSE(file->changed());
  EXPECT_FALSE(with_faults(open_file(path), nullptr)->changed());

  const auto opened = std::filesystem::last_write_time(path);
  std::filesystem::last_write_time(path, opened + std::chrono::nanoseconds(1));
  EXPECT_TRUE(file->changed()) << "rewritten in the same size";
  std::filesystem::last_write_time(path, opened);
  EXPECT_FALSE(file->changed());

  const auto wrapped = with_faults(open_file(path), nullptr);
  std::filesystem::resize_file(path, 99);
  std::filesystem::last_write_time(path, opened);
  EXPECT_TRUE(file->changed()) << "another size";
  EXPECT_TRUE(wrapped->changed());
  EXPECT_FALSE(memory_file("M.bin", {})->changed());
}

TEST(File, DescriptorWaitsForTheDisk) {
  const auto file = open_file(write_temp("waits", "x"));
  EXPECT_EQ(::fcntl(file->descriptors()->fd, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_FALSE(memory_file("M.bin", {})->descriptors());
}

TEST(File, WhatIsNotARegularFileIsNamed) {
  EXPECT_THAT(message_of([] { open_file("/nowhere/at/all"); }), HasSubstr("No such file"));
  EXPECT_THAT(message_of([] { open_file("/tmp"); }), HasSubstr("a directory"));
  const std::string pipe = temp_path("pipe");
  std::filesystem::remove(pipe);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { open_file(pipe); }), HasSubstr("a pipe"));
}

TEST(File, InjectedFaultsLookLikeRealOnes) {
  const std::string path = write_temp("faulty", std::string(64, 'y'));
  std::string out(16, ' ');
  const auto bytes = std::as_writable_bytes(std::span(out));
  const auto failing = with_faults(open_file(path), [](uint64_t index, uint64_t, uint64_t length) {
    return index == 1 ? int64_t{-EIO} : static_cast<int64_t>(length);
  });
  failing->read_at(0, bytes);
  EXPECT_THAT(message_of([&] { failing->read_at(16, bytes); }), HasSubstr("Input/output error"));
  const auto cut = with_faults(open_file(path), [](uint64_t, uint64_t, uint64_t) { return int64_t{4}; });
  EXPECT_THAT(message_of([&] { cut->read_at(0, bytes); }), HasSubstr("ends at offset 4"));
}

TEST(File, InMemoryOneEndsLikeOneOnDisk) {
  const auto file = memory_file("M.bin", std::vector<std::byte>(10, std::byte{'z'}));
  std::string a(2, ' '), b(3, ' ');
  const iovec pieces[] = {{a.data(), a.size()}, {b.data(), b.size()}};
  file->read_scattered(5, pieces);
  EXPECT_EQ(a + b, "zzzzz");
  EXPECT_THAT(message_of([&] { file->read_scattered(6, pieces); }), HasSubstr("M.bin: the file ends at offset 10"));
  EXPECT_THAT(message_of([&] { file->read_at(100, std::as_writable_bytes(std::span(a))); }), HasSubstr("ends at"));
}

TEST(AtomicFileWriter, LeavesTheOldFileUntilCommit) {
  const std::string path = write_temp("atomic", "old");
  {
    AtomicFileWriter writer(path);
    writer.write("half of the new");
  }
  EXPECT_EQ(read_text_file(path), "old");
  AtomicFileWriter writer(path);
  writer.write("new");
  EXPECT_EQ(writer.offset(), 3u);
  writer.commit();
  EXPECT_EQ(read_text_file(path), "new");
}

TEST(AtomicFileWriter, AFullDiskIsAnErrorThatLeavesTheOldFileAndNothingElse) {
  const std::string folder = temp_path("full_disk");
  std::filesystem::create_directories(folder);
  const std::string path = write_temp("full_disk/file", "old");
  for (int64_t room = 0; room < 10; ++room) {
    fill_disk_after(room);
    const std::string message = message_of([&] {
      AtomicFileWriter writer(path);
      writer.write("0123");
      writer.write("456789");
      writer.commit();
    });
    fill_disk_after(-1);
    EXPECT_THAT(message, ::testing::AllOf(HasSubstr(fmt::format("offset {}", room)), HasSubstr("No space left")));
    EXPECT_EQ(read_text_file(path), "old");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice
