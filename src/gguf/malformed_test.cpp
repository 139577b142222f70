// Every file of the malformed corpus is refused with its own message; no damage to a small file does worse than an
// Error; neither does a read that fails or ends early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "gguf/container.h"
#include "gguf/test_files.h"
#include "gguf/writer.h"
#include "support/reference.h"

namespace sluice::gguf {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string refused_by, file, fragment;
};

std::vector<Case> read_index(const std::string& folder) {
  std::istringstream lines(read_text_file(folder + "/index.tsv"));
  std::vector<Case> cases;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    Case& row = cases.emplace_back();
    std::getline(fields, row.refused_by, '\t');
    std::getline(fields, row.file, '\t');
    std::getline(fields, row.fragment);
  }
  return cases;
}

TEST(Malformed, EveryCaseOfTheCorpusIsRefusedWithItsOwnMessage) {
  const std::string folder = test::test_data_dir() + "/malformed";
  int refused = 0;
  for (const Case& row : read_index(folder)) {
    if (row.refused_by != "container") continue;
    const std::string path = folder + "/" + row.file;
    const std::string message = test::message_of([&] { Container::open(path); });
    EXPECT_THAT(message, HasSubstr(row.fragment)) << row.file;
    EXPECT_THAT(message, HasSubstr(folder)) << "the message names no file";
    ++refused;
  }
  EXPECT_GE(refused, 90);
}

// Two tensors, values of several types, no padding at the end.
std::string small_file() {
  Metadata metadata;
  metadata.add("general.architecture", std::string("llama"));
  metadata.add("general.alignment", uint32_t{32});
  metadata.add("flag", true);
  metadata.add("tokens", Array(std::vector<std::string>{"a", "bc", ""}));
  metadata.add("scores", Array(std::vector<float>{0.5F, -1.0F}));
  Writer writer(metadata, {kNewestVersion, false});
  writer.add_tensor(test::f32_tensor("token_embd.weight", {4, 3}), test::constant_source(1));
  writer.add_tensor(test::f32_tensor("output_norm.weight", {4}), test::constant_source(2));
  return test::write_memory(writer);
}

Container open_text(const std::string& content) {
  OpenOptions options;
  options.opener = [&](const std::string& path) { return memory_file(path, test::bytes_of(content)); };
  return Container::open("M.gguf", options);
}

void read_all(const Container& container) {
  for (const TensorInfo& tensor : container.tensors()) {
    std::vector<std::byte> data(tensor.bytes);
    container.read(tensor, 0, data);
  }
}

TEST(Malformed, EveryTruncationIsAnError) {
  const std::string whole = small_file();
  read_all(open_text(whole));
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(open_text(whole.substr(0, length)), Error) << length << " of " << whole.size();
  }
}

TEST(Malformed, NoChangeOfOneByteDoesMoreThanAnError) {
  const std::string whole = small_file();
  int refused = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = whole;
      changed[i] = static_cast<char>(value);
      try {
        read_all(open_text(changed));
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 10000);
}

TEST(Malformed, EveryReadThatFailsOrEndsEarlyIsAnError) {
  const std::string whole = small_file();
  // How many reads opening takes when `fault` decides about read `index`.
  const auto open_with = [&](const ReadFault& fault) {
    OpenOptions options;
    options.header_chunk = 16;
    options.opener = [&](const std::string& path) {
      return with_faults(memory_file(path, test::bytes_of(whole)), fault);
    };
    return Container::open("M.gguf", options);
  };
  uint64_t reads = 0;
  open_with([&](uint64_t, uint64_t, uint64_t length) {
    ++reads;
    return static_cast<int64_t>(length);
  });
  ASSERT_GT(reads, 10U);
  for (uint64_t bad = 0; bad < reads; ++bad) {
    const auto fault_at = [bad](int64_t result) {
      return [bad, result](uint64_t index, uint64_t, uint64_t length) {
        return index == bad ? std::min(result, static_cast<int64_t>(length)) : static_cast<int64_t>(length);
      };
    };
    EXPECT_THAT(test::message_of([&] { open_with(fault_at(-EIO)); }), HasSubstr("M.gguf: reading at offset"));
    EXPECT_THAT(test::message_of([&] { open_with(fault_at(1)); }), HasSubstr("M.gguf: the file ends at offset"));
  }
}

TEST(Malformed, FailedReadOfATensorNamesIt) {
  const std::string whole = small_file();
  bool broken = false;
  OpenOptions options;
  options.opener = [&](const std::string& path) {
    return with_faults(memory_file(path, test::bytes_of(whole)), [&](uint64_t, uint64_t, uint64_t length) {
      return broken ? int64_t{-EIO} : static_cast<int64_t>(length);
    });
  };
  const Container container = Container::open("M.gguf", options);
  const TensorInfo& tensor = container.get_tensor("output_norm.weight");
  std::vector<std::byte> row(16);
  container.read(tensor, 0, row);
  EXPECT_EQ(row, std::vector<std::byte>(16, std::byte{2}));
  EXPECT_THAT(test::message_of([&] { container.read(tensor, 1, row); }), HasSubstr("not inside its 16"));
  EXPECT_THAT(test::message_of([&] { container.read(tensor, ~uint64_t{0}, row); }), HasSubstr("not inside its 16"));
  broken = true;
  EXPECT_THAT(test::message_of([&] { container.read(tensor, 0, row); }),
              HasSubstr("tensor output_norm.weight: M.gguf: reading at offset"));
}

// A list of keys or names compared each with each would not end in the test's time.
TEST(Malformed, HundredsOfThousandsOfKeysAndTensorsOpen) {
  constexpr int kMany = 300000;
  Metadata metadata;
  for (int i = 0; i < kMany; ++i) metadata.add(fmt::format("key.{}", i), uint8_t{1});
  Writer writer(std::move(metadata), {kNewestVersion, true});
  for (int i = 0; i < kMany; ++i)
    writer.add_tensor(test::f32_tensor(fmt::format("t.{}", i), {1}), test::constant_source(0));
  const Container container = open_text(test::write_memory(writer));
  EXPECT_EQ(container.tensors().size(), size_t{kMany});
  EXPECT_EQ(container.get_tensor("t.299999").offset, container.tensors().back().offset);
  EXPECT_EQ(container.find_tensor("t.300000"), nullptr);
}

TEST(Malformed, FolderOrMissingFileIsNamed) {
  EXPECT_THAT(test::message_of([] { Container::open(::testing::TempDir()); }), HasSubstr("is a directory"));
  EXPECT_THAT(test::message_of([] { Container::open("/no/such.gguf"); }), HasSubstr("/no/such.gguf: can't open"));
}

}  // namespace
}  // namespace sluice::gguf
