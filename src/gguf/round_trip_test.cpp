// What is read and written again keeps every byte; a split model holds what the whole one holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "gguf/container.h"
#include "gguf/reader.h"
#include "gguf/test_files.h"
#include "gguf/writer.h"
#include "support/reference.h"

namespace sluice::gguf {
namespace {

using test::read_memory;
using test::write_memory;

namespace fs = std::filesystem;

const std::string& micro_model() {
  static const std::string path = test::test_data_dir() + "/models/qwen35moe-micro/model.gguf";
  return path;
}

// Streams a tensor's data from an open file in pieces of an odd size.
TensorSource copy_from(const File& file, uint64_t offset) {
  return [&file, offset](const TensorInfo& tensor, const Sink& sink) {
    std::vector<std::byte> piece(77777);
    for (uint64_t done = 0; done < tensor.bytes; done += piece.size()) {
      piece.resize(std::min<uint64_t>(piece.size(), tensor.bytes - done));
      file.read_at(offset + done, piece);
      sink(piece);
    }
  };
}

std::string rewrite(const Part& part) {
  Writer writer(part.metadata, {part.shard.version, part.shard.padded_to_end});
  for (const TensorInfo& tensor : part.tensors) writer.add_tensor(tensor, copy_from(*part.shard.file, tensor.offset));
  const auto layout = writer.layout();
  for (size_t i = 0; i < layout.size(); ++i) EXPECT_EQ(layout[i].offset, part.tensors[i].offset);
  return write_memory(writer);
}

void expect_same_bytes_after_rewrite(const std::string& path) {
  const std::string before = read_text_file(path);
  const std::string after = rewrite(read_part(open_file(path)));
  EXPECT_TRUE(before == after) << path << ": " << before.size() << " bytes became " << after.size();
}

Metadata every_type() {
  Metadata metadata;
  metadata.add("u8", uint8_t{200});
  metadata.add("i8", int8_t{-100});
  metadata.add("u16", uint16_t{60000});
  metadata.add("i16", int16_t{-30000});
  metadata.add("u32", uint32_t{4000000000});
  metadata.add("i32", int32_t{-2000000000});
  metadata.add("f32", 1e-6F);
  metadata.add("bool", true);
  metadata.add("string", std::string("a\0b", 3));
  metadata.add("u64", uint64_t{1} << 63);
  metadata.add("i64", -(int64_t{1} << 62));
  metadata.add("f64", 1e-300);
  metadata.add("array.u8", Array(std::vector<uint8_t>{1, 2}));
  metadata.add("array.i8", Array(std::vector<int8_t>{-1}));
  metadata.add("array.u16", Array(std::vector<uint16_t>{1, 65535}));
  metadata.add("array.i16", Array(std::vector<int16_t>{-1, 2}));
  metadata.add("array.u32", Array(std::vector<uint32_t>{7}));
  metadata.add("array.i32", Array(std::vector<int32_t>{11, 11, 10, 0}));
  metadata.add("array.f32", Array(std::vector<float>{0.5F}));
  metadata.add("array.bool", Array(std::vector<bool>{true, false, true}));
  metadata.add("array.string", Array(std::vector<std::string>{"", "token", "\xFF"}));
  metadata.add("array.u64", Array(std::vector<uint64_t>{~uint64_t{0}}));
  metadata.add("array.i64", Array(std::vector<int64_t>{-1}));
  metadata.add("array.f64", Array(std::vector<double>{2.5, -0.0}));
  metadata.add("array.empty", Array(std::vector<std::string>{}));
  return metadata;
}

TEST(RoundTrip, EveryValueTypeSurvives) {
  const Metadata metadata = every_type();
  const Part part = read_memory(write_memory(Writer(metadata)));
  ASSERT_EQ(part.metadata.entries().size(), metadata.entries().size());
  for (size_t i = 0; i < metadata.entries().size(); ++i) {
    EXPECT_EQ(part.metadata.entries()[i].key, metadata.entries()[i].key);
    EXPECT_EQ(part.metadata.entries()[i].value, metadata.entries()[i].value) << metadata.entries()[i].key;
  }
}

TEST(RoundTrip, VersionAlignmentAndPaddingSurvive) {
  for (const uint32_t version : {2U, 3U}) {
    for (const uint32_t alignment : {1U, 8U, 32U, 4096U}) {
      for (const bool pad : {false, true}) {
        Metadata metadata = every_type();
        metadata.add("general.alignment", alignment);
        Writer writer(metadata, {version, pad});
        writer.add_tensor(test::f32_tensor("odd", {3}), test::constant_source(1));
        writer.add_tensor(test::f32_tensor("matrix", {5, 3}), test::constant_source(2));
        writer.add_tensor(test::f32_tensor("four", {1, 2, 3, 1}), test::constant_source(3));
        const std::string file = write_memory(writer);
        const Part part = read_memory(file);
        EXPECT_EQ(part.shard.version, version);
        EXPECT_EQ(part.shard.alignment, alignment);
        EXPECT_EQ(part.shard.data_offset % alignment, 0U);
        EXPECT_TRUE(rewrite(part) == file) << version << " " << alignment << " " << pad;
      }
    }
  }
}

TEST(RoundTrip, ModelInTheTreeKeepsEveryByte) { expect_same_bytes_after_rewrite(micro_model()); }

TEST(RoundTrip, EveryReferenceFileKeepsEveryByte) {
  const auto root = test::reference_root();
  if (!root) GTEST_SKIP() << test::kNoReference;
  int files = 0;
  for (const char* folder : {"/models", "/tokenizers"}) {
    for (const auto& entry : fs::recursive_directory_iterator(*root + folder)) {
      if (entry.path().extension() != ".gguf") continue;
      expect_same_bytes_after_rewrite(entry.path().string());
      ++files;
    }
  }
  EXPECT_GT(files, 30);
}

TEST(RoundTrip, EveryReferenceModelOpens) {
  const auto root = test::reference_root();
  if (!root) GTEST_SKIP() << test::kNoReference;
  for (const auto& entry : fs::recursive_directory_iterator(*root + "/models")) {
    const std::string path = entry.path().string();
    if (!path.ends_with("model.gguf") && !path.ends_with("-00001-of-00003.gguf")) continue;
    const Container model = Container::open(path);
    EXPECT_FALSE(model.tensors().empty()) << path;
    EXPECT_FALSE(model.metadata().get<std::string>("general.architecture").empty()) << path;
  }
}

// Writes the tensors [first, last) of `model` as part `number` of `count`; the first part has the metadata.
void write_shard(const Container& model, const std::string& path, uint16_t number, uint16_t count, size_t first,
                 size_t last) {
  Metadata metadata = number == 0 ? model.metadata() : Metadata(path);
  metadata.add("split.no", number);
  metadata.add("split.count", count);
  metadata.add("split.tensors.count", static_cast<int32_t>(model.tensors().size()));
  Writer writer(std::move(metadata));
  for (const TensorInfo& tensor : model.tensors().subspan(first, last - first)) {
    writer.add_tensor(tensor, copy_from(*model.shards()[tensor.shard].file, tensor.offset));
  }
  writer.write(path);
}

class SplitModel : public ::testing::TestWithParam<size_t> {};

TEST_P(SplitModel, HoldsWhatTheWholeModelHolds) {
  const Container whole = Container::open(micro_model());
  const size_t n = whole.tensors().size();
  const size_t cuts[] = {0, GetParam(), n / 2, n};
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("sluice_split_{}", GetParam());
  fs::create_directories(folder);
  const auto shard_path = [&](int i) { return (folder / fmt::format("m-{:05}-of-00003.gguf", i + 1)).string(); };
  for (int i = 0; i < 3; ++i) {
    write_shard(whole, shard_path(i), static_cast<uint16_t>(i), 3, cuts[i], cuts[i + 1]);
  }

  const Container split = Container::open(shard_path(0));
  ASSERT_EQ(split.shards().size(), 3U);
  ASSERT_EQ(split.tensors().size(), n);
  EXPECT_EQ(split.metadata().get<std::string>("general.architecture"), "qwen35moe");
  for (const TensorInfo& tensor : whole.tensors()) {
    const TensorInfo& twin = split.get_tensor(tensor.name);
    ASSERT_EQ(twin.bytes, tensor.bytes);
    EXPECT_EQ(twin.extents, tensor.extents);
    EXPECT_EQ(twin.format, tensor.format);
    std::vector<std::byte> a(tensor.bytes), b(tensor.bytes);
    whole.read(tensor, 0, a);
    split.read(twin, 0, b);
    EXPECT_TRUE(a == b) << tensor.name;
  }

  EXPECT_THAT(test::message_of([&] { Container::open(shard_path(1)); }),
              ::testing::HasSubstr("part 2 of 3 of a split model; open the first part: " + shard_path(0)));
  fs::remove(shard_path(2));
  EXPECT_THAT(test::message_of([&] { Container::open(shard_path(0)); }),
              ::testing::AllOf(::testing::HasSubstr("part 3 of 3"), ::testing::HasSubstr("No such file")));
  fs::remove_all(folder);
}

// 0: the first part has metadata alone.
INSTANTIATE_TEST_SUITE_P(FirstPartSizes, SplitModel, ::testing::Values(0, 18));

}  // namespace
}  // namespace sluice::gguf
