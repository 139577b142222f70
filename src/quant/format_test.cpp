// The table of formats, and what must hold for any block of any format, checked on random bytes.
#include "quant/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"

namespace sluice::quant {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::vector<std::byte> random_blocks(const Format& format, size_t n_blocks, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(n_blocks * format.block_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::vector<float> dequantized(const Format& format, const std::vector<std::byte>& blocks) {
  const size_t n_blocks = blocks.size() / format.block_bytes;
  std::vector<float> out(n_blocks * format.block_weights);
  format.dequantize(blocks.data(), n_blocks, out.data());
  return out;
}

TEST(FormatTable, FindsEveryFormatByIdAndByName) {
  for (const Format& row : formats()) {
    EXPECT_EQ(find_format(static_cast<uint32_t>(row.type)), &row);
    EXPECT_EQ(find_format(std::string_view(row.name)), &row);
    EXPECT_EQ(&format(row.type), &row);
  }
  EXPECT_EQ(find_format("q4_k"), &format(Type::kQ4_K));
  EXPECT_EQ(find_format("Iq2_xXs"), &format(Type::kIQ2_XXS));
}

TEST(FormatTable, KnowsNothingElse) {
  for (const uint32_t id : {4u, 5u, 9u, 15u, 24u, 27u, 28u, 31u, 41u, 1000u, ~0u}) EXPECT_EQ(find_format(id), nullptr);
  for (const char* name : {"", "Q4", "Q4_K ", "Q4_K_M", "I32", "F64"}) EXPECT_EQ(find_format(name), nullptr) << name;
  EXPECT_THAT(message_of([] { format(static_cast<Type>(9)); }), HasSubstr("type 9"));
}

TEST(FormatTable, RowsAreSoundAndInOrder) {
  const Format* previous = nullptr;
  for (const Format& row : formats()) {
    if (previous != nullptr) {
      EXPECT_LT(previous->type, row.type);
    }
    previous = &row;
    EXPECT_NE(row.dequantize, nullptr) << row.name;
    EXPECT_EQ(row.unpack == nullptr, row.activation == Activation::kFloat) << row.name;
    EXPECT_EQ(row.block_weights == 1, row.activation == Activation::kFloat) << row.name;
    EXPECT_EQ(row.block_weights == 256, row.activation == Activation::kInt8Per256) << row.name;
    EXPECT_LE(row.block_weights, kMaxBlockWeights) << row.name;
  }
}

TEST(FormatTable, RowBytesRefusesPartBlocksAndOverflow) {
  EXPECT_EQ(row_bytes(format(Type::kQ4_K), 4096), 16u * 144u);
  EXPECT_EQ(row_bytes(format(Type::kF16), 7), 14u);
  EXPECT_EQ(row_bytes(format(Type::kQ8_0), 0), 0u);
  EXPECT_THAT(message_of([] { row_bytes(format(Type::kQ4_K), 300); }),
              AllOf(HasSubstr("300"), HasSubstr("Q4_K"), HasSubstr("256")));
  EXPECT_THAT(message_of([] { row_bytes(format(Type::kF32), uint64_t{1} << 63); }), HasSubstr("does not fit"));
}

class EveryFormat : public testing::TestWithParam<const Format*> {
 protected:
  const Format& format() const { return *GetParam(); }
};

class EveryBlockFormat : public EveryFormat {};

std::vector<const Format*> formats_that(bool (*wanted)(const Format&)) {
  std::vector<const Format*> out;
  for (const Format& row : formats()) {
    if (wanted(row)) out.push_back(&row);
  }
  return out;
}

bool is_any(const Format&) { return true; }
bool is_block_format(const Format& row) { return row.block_weights > 1; }
std::string name_of(const testing::TestParamInfo<const Format*>& row) { return row.param->name; }

INSTANTIATE_TEST_SUITE_P(Formats, EveryFormat, testing::ValuesIn(formats_that(is_any)), name_of);
INSTANTIATE_TEST_SUITE_P(Formats, EveryBlockFormat, testing::ValuesIn(formats_that(is_block_format)), name_of);

// The formula of UnpackedBlock, in f64, against dequantize.
TEST_P(EveryBlockFormat, UnpackedIntegersAgreeWithFloats) {
  constexpr size_t kBlocks = 400;
  const auto blocks = random_blocks(format(), kBlocks, 11);
  const auto floats = dequantized(format(), blocks);
  for (size_t b = 0; b < kBlocks; ++b) {
    UnpackedBlock block;
    format().unpack(blocks.data() + b * format().block_bytes, block);
    for (size_t i = 0; i < format().block_weights; ++i) {
      const double product = static_cast<double>(block.scale[i * format().segments / format().block_weights]) *
                             block.scales[i / kScaleGroup] * block.weights[i];
      const double minimum =
          format().has_minimum ? static_cast<double>(block.minimum) * block.minimums[i / kScaleGroup] : 0.0;
      const float got = floats[b * format().block_weights + i];
      const double want = product + minimum;
      if (std::isnan(want) || std::isinf(static_cast<float>(want))) {
        ASSERT_FALSE(std::isfinite(got)) << "block " << b << ", weight " << i;
      } else {
        ASSERT_NEAR(got, want, 0x1p-22 * (std::fabs(product) + std::fabs(minimum)))
            << "block " << b << ", weight " << i;
      }
    }
  }
}

// What kernels may rely on: ranges, and sums of products with any int8 activations that fit in 32 bits.
TEST_P(EveryBlockFormat, UnpackedIntegersStayInTheirRanges) {
  constexpr size_t kBlocks = 400;
  const auto blocks = random_blocks(format(), kBlocks, 12);
  for (size_t b = 0; b < kBlocks; ++b) {
    UnpackedBlock block;
    format().unpack(blocks.data() + b * format().block_bytes, block);
    int64_t largest_dot = 0, largest_minimum_dot = 0;
    for (size_t i = 0; i < format().block_weights; ++i) {
      const int scale = block.scales[i / kScaleGroup];
      ASSERT_GE(scale, -128);
      ASSERT_LE(scale, 127);
      largest_dot += std::abs(scale * block.weights[i]) * 128;
      if (!format().has_minimum) continue;
      const int minimum = block.minimums[i / kScaleGroup];
      ASSERT_GE(minimum, 0);
      ASSERT_LE(minimum, 63);
      largest_minimum_dot += minimum * 128;
    }
    ASSERT_LE(largest_dot, std::numeric_limits<int32_t>::max());
    ASSERT_LE(largest_minimum_dot, std::numeric_limits<int32_t>::max());
  }
}

TEST_P(EveryFormat, BlocksMayStandAtAnyAddress) {
  constexpr size_t kBlocks = 3;
  const auto blocks = random_blocks(format(), kBlocks, 13);
  const auto want = dequantized(format(), blocks);
  std::vector<std::byte> shifted(blocks.size() + 1);
  std::memcpy(shifted.data() + 1, blocks.data(), blocks.size());
  std::vector<float> got(want.size());
  format().dequantize(shifted.data() + 1, kBlocks, got.data());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0);
}

TEST_P(EveryFormat, NoBlocksAreNoWork) {
  format().dequantize(nullptr, 0, nullptr);
  if (format().quantize != nullptr) format().quantize(nullptr, 0, nullptr);
}

// The largest error that a plain quantizer may make, as a share of the largest magnitude in the block: half a level for
// weights inside the levels and one level for those beyond the side that has one level less, the rounding of f16
// included.
double plain_error_bound(Type type) {
  switch (type) {
    case Type::kF32:
      return 0.0;
    case Type::kF16:
      return 0x1p-11;
    case Type::kBF16:
      return 0x1p-8;
    case Type::kQ4_0:
      return 1.01 / 8;
    case Type::kQ4_1:
      return 2 * 0.51 / 15;  // values of both signs: the levels span twice the largest magnitude
    case Type::kQ5_0:
      return 1.01 / 16;
    case Type::kQ5_1:
      return 2 * 0.52 / 31;
    case Type::kQ8_0:
      return 0.57 / 127;
    default:
      return 0.0;
  }
}

TEST(PlainQuantizers, RoundTripsStayWithinALevel) {
  std::mt19937 random(14);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (const Type type :
       {Type::kF32, Type::kF16, Type::kBF16, Type::kQ4_0, Type::kQ4_1, Type::kQ5_0, Type::kQ5_1, Type::kQ8_0}) {
    const Format& row = format(type);
    std::vector<float> weights(size_t{2000} * row.block_weights);
    for (float& weight : weights) weight = uniform(random);
    std::vector<std::byte> blocks(row_bytes(row, weights.size()));
    row.quantize(weights.data(), weights.size() / row.block_weights, blocks.data());
    const auto got = dequantized(row, blocks);
    for (size_t i = 0; i < weights.size(); ++i) {
      const float* block = weights.data() + i / row.block_weights * row.block_weights;
      float largest = 0.0f;
      for (size_t k = 0; k < row.block_weights; ++k) largest = std::max(largest, std::fabs(block[k]));
      ASSERT_LE(std::fabs(got[i] - weights[i]), plain_error_bound(type) * largest + 0x1p-25) << row.name << ", " << i;
    }
  }
}

TEST(PlainQuantizers, WeightsThatNoBlockHoldsAreRefused) {
  for (const Type type : {Type::kQ4_0, Type::kQ4_1, Type::kQ5_0, Type::kQ5_1, Type::kQ8_0}) {
    const Format& row = format(type);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 1e30f}) {
      std::vector<float> weights(64, 0.5f);
      weights[40] = bad;
      std::vector<std::byte> blocks(row_bytes(row, weights.size()));
      EXPECT_THAT(message_of([&] { row.quantize(weights.data(), 2, blocks.data()); }),
                  AllOf(HasSubstr(row.name), HasSubstr("block 1")));
    }
  }
}

TEST(PlainQuantizers, SixteenBitFloatsTakeInfinityAndNan) {
  const float special[] = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
  for (const Type type : {Type::kF32, Type::kF16, Type::kBF16}) {
    const Format& row = format(type);
    std::vector<std::byte> blocks(row_bytes(row, 2));
    row.quantize(special, 2, blocks.data());
    const auto got = dequantized(row, blocks);
    EXPECT_TRUE(std::isinf(got[0]) && std::isnan(got[1])) << row.name;
  }
}

}  // namespace
}  // namespace sluice::quant
