#include "base/hash.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace sluice {
namespace {

// By xxHash's own library, of bytes that exercise every branch: whole stripes or none, and tails of 8, 4 and 1.
TEST(Xxh64, GivesThePublishedValues) {
  const std::string_view abc = "abc";
  EXPECT_EQ(xxh64(std::as_bytes(std::span(abc))), 0x44bc2cf5ad770999u);
  constexpr std::pair<size_t, uint64_t> kExpected[] = {
      {0, 0xef46db3751d8e999},  {1, 0xe934a84adb052768},   {3, 0xbac8dcc55508a777},   {4, 0x28e35eab2f2ef5d3},
      {7, 0x1ec78d09611f9cfa},  {8, 0x0bf592071b5692a5},   {11, 0x173305fc317e5168},  {15, 0x9ebffabb3b480477},
      {31, 0xe8cbd7a335fa99ae}, {32, 0xdef5cfb69a982426},  {33, 0xe88af4b4d455f8b7},  {63, 0xea74b7f1e7e8bd0c},
      {64, 0xba4abf69e3bdaf4d}, {100, 0x6ee256a39d36e247}, {1000, 0x67b503d8eddc159d}};
  for (const auto& [n, hash] : kExpected) {
    std::vector<std::byte> bytes(n);
    for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * i + 3 * i);
    EXPECT_EQ(xxh64(bytes), hash) << n;
  }
}

}  // namespace
}  // namespace sluice
