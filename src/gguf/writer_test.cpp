#include "gguf/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "gguf/test_files.h"

namespace sluice::gguf {
namespace {

using test::constant_source;
using test::f32_tensor;
using test::message_of;
using ::testing::HasSubstr;

TEST(Writer, SourceMustGiveExactlyItsBytes) {
  const auto write = [](size_t given) {
    Writer writer{Metadata()};
    writer.add_tensor(f32_tensor("t", {4}), [given](const TensorInfo&, const Sink& sink) {
      for (size_t i = 0; i < given; ++i) sink(std::vector<std::byte>(1));
    });
    return message_of([&] { test::write_memory(writer); });
  };
  EXPECT_EQ(write(16), "no error");
  EXPECT_THAT(write(15), HasSubstr("tensor t: its source gives 15 of its 16 bytes"));
  EXPECT_THAT(write(17), HasSubstr("tensor t: its source gives more than its 16 bytes"));
}

TEST(Writer, WhatTheReaderWouldRefuseIsNotWritten) {
  Writer writer(Metadata("out.gguf"));
  const auto refusal = [&](TensorInfo tensor) {
    return message_of([&] { writer.add_tensor(std::move(tensor), constant_source(0)); });
  };
  EXPECT_EQ(refusal(f32_tensor("t", {4})), "no error");
  EXPECT_THAT(refusal(f32_tensor("t", {4})), HasSubstr("out.gguf: tensor t: occurs twice"));
  EXPECT_THAT(refusal(f32_tensor("", {4})), HasSubstr("the tensor name is empty"));
  EXPECT_THAT(refusal(f32_tensor(std::string(64, 'n'), {4})), HasSubstr("limit of 63"));
  EXPECT_THAT(refusal(f32_tensor("u", {})), HasSubstr("has 0 dimensions"));
  EXPECT_THAT(refusal(f32_tensor("u", {1, 1, 1, 1, 1})), HasSubstr("has 5 dimensions"));
  EXPECT_THAT(refusal(f32_tensor("u", {4, 0})), HasSubstr("dimension 1 is 0"));
  TensorInfo odd = f32_tensor("u", {40});
  odd.format = &quant::format(quant::Type::kQ8_0);
  EXPECT_THAT(refusal(odd), HasSubstr("rows of 40 weights are no whole number of Q8_0 blocks"));

  const auto refused_metadata = [](std::string key, Value value) {
    Metadata metadata;
    metadata.add(std::move(key), std::move(value));
    return message_of([&] { Writer{std::move(metadata)}; });
  };
  EXPECT_THAT(refused_metadata("", true), HasSubstr("the key is empty"));
  EXPECT_THAT(refused_metadata("k\xFF", true), HasSubstr("is not UTF-8"));
  EXPECT_THAT(refused_metadata("k", Array(std::monostate())), HasSubstr("an array of arrays"));
  EXPECT_THAT(refused_metadata("general.alignment", uint32_t{3}), HasSubstr("general.alignment is 3"));
  EXPECT_THAT(message_of([] { Writer(Metadata(), {1, true}); }), HasSubstr("version 1 is not written"));
}

TEST(Writer, FailingSourceLeavesTheOldFile) {
  const std::string path = ::testing::TempDir() + "sluice_writer_test.gguf";
  Writer good{Metadata()};
  good.add_tensor(f32_tensor("t", {4}), constant_source(7));
  good.write(path);
  const std::string before = read_text_file(path);
  Writer bad{Metadata()};
  bad.add_tensor(f32_tensor("t", {4}), [](const TensorInfo&, const Sink&) { fail(ErrorKind::kIo, "disk gone"); });
  EXPECT_EQ(message_of([&] { bad.write(path); }), "disk gone");
  EXPECT_EQ(read_text_file(path), before);
  std::filesystem::remove(path);
}

TEST(Writer, LayoutIsWhereTheBytesAre) {
  Metadata metadata;
  metadata.add("general.alignment", uint32_t{64});
  Writer writer(metadata);
  writer.add_tensor(f32_tensor("a", {3}), constant_source('a'));
  writer.add_tensor(f32_tensor("b", {2, 2}), constant_source('b'));
  const std::string file = test::write_memory(writer);
  const auto layout = writer.layout();
  ASSERT_EQ(layout.size(), 2U);
  EXPECT_EQ(layout[0].offset % 64, 0U);
  EXPECT_EQ(layout[1].offset, layout[0].offset + 64);
  EXPECT_EQ(file.substr(layout[0].offset, 13), std::string(12, 'a') + '\0');
  EXPECT_EQ(file.substr(layout[1].offset, 17), std::string(16, 'b') + '\0');
  EXPECT_EQ(file.size(), layout[1].offset + 64);
}

}  // namespace
}  // namespace sluice::gguf
