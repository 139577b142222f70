// Every format against recorded vectors: dequantized bits, quantized bytes and integer products, on the selection in
// the tree and on the full reference set.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "quant/format.h"
#include "support/reference.h"
#include "support/safetensors.h"

namespace sluice::quant {
namespace {

using test::Tensor;

enum class Source { kTree, kFull };

struct Case {
  Source source;
  const Format* format;
};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.format->name) + (info.param.source == Source::kTree ? "_Tree" : "_Full");
}

using Formats = std::vector<Type>;

const Formats kPlainQuantizers = {Type::kF16,  Type::kBF16, Type::kQ4_0, Type::kQ4_1,
                                  Type::kQ5_0, Type::kQ5_1, Type::kQ8_0};
const Formats kIntegerDots = {Type::kQ4_0,    Type::kQ4_1,   Type::kQ5_0,  Type::kQ5_1,    Type::kQ8_0,   Type::kQ2_K,
                              Type::kQ3_K,    Type::kQ4_K,   Type::kQ5_K,  Type::kQ6_K,    Type::kIQ4_NL, Type::kIQ4_XS,
                              Type::kIQ2_XXS, Type::kIQ2_XS, Type::kIQ2_S, Type::kIQ3_XXS, Type::kIQ3_S,  Type::kMXFP4};

Formats all_but_f32() {  // F32 has nothing to record
  Formats types;
  for (const Format& row : formats()) {
    if (row.type != Type::kF32) types.push_back(row.type);
  }
  return types;
}

std::vector<Case> cases(const Formats& types) {
  std::vector<Case> out;
  for (const Source source : {Source::kTree, Source::kFull}) {
    for (const Type type : types) out.push_back({source, &format(type)});
  }
  return out;
}

class QuantGolden : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    std::string folder = test::test_data_dir();
    if (GetParam().source == Source::kFull) {
      const auto root = test::reference_root();
      if (!root) GTEST_SKIP() << test::kNoReference;
      folder = *root;
    }
    tensors_ = test::read_safetensors(folder + "/quants/" + format().name + ".safetensors");
  }

  const Format& format() const { return *GetParam().format; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const Tensor& tensor(const std::string& name) const { return tensors_.at(name); }

  std::vector<float> dequantized(const std::string& name) const {
    const Tensor& blocks = tensor(name);
    const size_t n_blocks = blocks.bytes.size() / format().block_bytes;
    std::vector<float> out(n_blocks * format().block_weights);
    format().dequantize(blocks.bytes.data(), n_blocks, out.data());
    return out;
  }

  std::vector<std::byte> quantized(const std::string& name) const {
    const auto in = tensor(name).as<float>();
    const size_t n_blocks = in.size() / format().block_weights;
    std::vector<std::byte> out(n_blocks * format().block_bytes);
    format().quantize(in.data(), n_blocks, out.data());
    return out;
  }

 private:
  std::map<std::string, Tensor> tensors_;
};

class QuantGoldenQuantizer : public QuantGolden {};
class QuantGolden16Bit : public QuantGolden {};
class QuantGoldenIntegers : public QuantGolden {};

INSTANTIATE_TEST_SUITE_P(Formats, QuantGolden, testing::ValuesIn(cases(all_but_f32())), case_name);
INSTANTIATE_TEST_SUITE_P(Formats, QuantGoldenQuantizer, testing::ValuesIn(cases(kPlainQuantizers)), case_name);
INSTANTIATE_TEST_SUITE_P(Formats, QuantGolden16Bit, testing::ValuesIn(cases({Type::kF16, Type::kBF16})), case_name);
INSTANTIATE_TEST_SUITE_P(Formats, QuantGoldenIntegers, testing::ValuesIn(cases(kIntegerDots)), case_name);

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << "weight " << i << ": got " << got[i] << ", want " << want[i];
  }
}

void expect_same_bytes(const std::vector<std::byte>& got, const std::vector<std::byte>& want, size_t block_bytes) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(static_cast<int>(got[i]), static_cast<int>(want[i]))
        << "block " << i / block_bytes << ", byte " << i % block_bytes;
  }
}

TEST_P(QuantGolden, DequantizesToTheSameBits) { expect_same_bits(dequantized("blocks"), tensor("values").as<float>()); }

TEST_P(QuantGolden, DequantizesInfiniteAndNanScales) {
  expect_same_bits(dequantized("special_blocks"), tensor("special_values").as<float>());
}

TEST_P(QuantGoldenQuantizer, WritesTheSameBytes) {
  expect_same_bytes(quantized("quant_input"), tensor("quant_bytes").bytes, format().block_bytes);
}

TEST_P(QuantGolden16Bit, RoundsEdgesToTheSameBytes) {
  expect_same_bytes(quantized("edge_input"), tensor("edge_bytes").bytes, format().block_bytes);
}

TEST_P(QuantGolden, DotOfDequantizedRowsMatches) {
  const auto x = tensor("dot_x").as<float>();
  const auto weights = dequantized("dot_weights");
  const auto want = tensor("dot_y").as<double>(), magnitude = tensor("dot_abs").as<double>();
  for (size_t row = 0; row < want.size(); ++row) {
    double sum = 0.0;
    for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(weights[row * x.size() + i]) * x[i];
    EXPECT_NEAR(sum, want[row], 1e-13 * magnitude[row]) << "row " << row;
  }
}

// The integers of one block of weights times one block of activations.
struct IntegerDots {
  std::vector<int32_t> per_group;  // before the scales, one sum per 16 weights
  int32_t weighted = 0;            // with the scales
  int32_t minimums = 0;            // minimums times sums of activations
};

IntegerDots integer_dots(const Format& format, const UnpackedBlock& block, const int8_t* activations) {
  IntegerDots dots;
  for (size_t group = 0; group < format.block_weights / kScaleGroup; ++group) {
    int32_t products = 0, sum = 0;
    for (size_t i = group * kScaleGroup; i < (group + 1) * kScaleGroup; ++i) {
      products += block.weights[i] * activations[i];
      sum += activations[i];
    }
    dots.per_group.push_back(products);
    dots.weighted += block.scales[group] * products;
    if (format.has_minimum) dots.minimums += block.minimums[group] * sum;
  }
  return dots;
}

TEST_P(QuantGoldenIntegers, UnpackToTheSameProducts) {
  const auto activations = tensor("int_act_q").as<int8_t>();
  const auto activation_scales = tensor("int_act_d").as<float>();
  const auto dots = tensor("int_dots").as<int32_t>();
  const auto results = tensor("int_result").as<double>(), magnitude = tensor("dot_abs").as<double>();
  const auto sub_dots = has("int_sub_dots") ? tensor("int_sub_dots").as<int32_t>() : std::vector<int32_t>{};
  const auto min_dots = has("int_min_dots") ? tensor("int_min_dots").as<int32_t>() : std::vector<int32_t>{};
  ASSERT_EQ(min_dots.empty(), !format().has_minimum);
  const size_t row_blocks = activation_scales.size(), subs = sub_dots.size() / dots.size();
  ASSERT_EQ(activations.size(), row_blocks * format().block_weights);

  for (size_t row = 0; row < results.size(); ++row) {
    double result = 0.0;
    for (size_t b = 0; b < row_blocks; ++b) {
      const size_t k = row * row_blocks + b;
      UnpackedBlock block;
      format().unpack(tensor("dot_weights").bytes.data() + k * format().block_bytes, block);
      const IntegerDots got = integer_dots(format(), block, activations.data() + b * format().block_weights);
      ASSERT_EQ(got.weighted, dots[k]) << "row " << row << ", block " << b;
      for (size_t s = 0; s < subs; ++s) {
        const size_t groups = got.per_group.size() / subs;
        int32_t sub = 0;
        for (size_t g = s * groups; g < (s + 1) * groups; ++g) sub += got.per_group[g];
        ASSERT_EQ(sub, sub_dots[k * subs + s]) << "row " << row << ", block " << b << ", sub-block " << s;
      }
      double value = static_cast<double>(block.scale[0]) * got.weighted;
      if (format().has_minimum) {
        ASSERT_EQ(got.minimums, min_dots[k]) << "row " << row << ", block " << b;
        value += static_cast<double>(block.minimum) * got.minimums;
      }
      result += value * activation_scales[b];
    }
    EXPECT_NEAR(result, results[row], 1e-13 * magnitude[row]) << "row " << row;
  }
}

}  // namespace
}  // namespace sluice::quant
