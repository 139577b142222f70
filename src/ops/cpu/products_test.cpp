// What products and the rounding of activations compute: against slow sums in double, against recorded integer
// products, and the promise that a result depends on its weight row and its activation row alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/kernels.h"
#include "ops/test_data.h"
#include "support/reference.h"
#include "support/safetensors.h"

namespace sluice::ops::cpu {
namespace {

using test::Activated;
using test::Kind;
using test::kUnit;
using test::Random;
using test::random_blocks;
using test::random_floats;
using test::same_bits;

const Kernels& scalar() { return find_kernels("scalar"); }

class Products : public testing::TestWithParam<quant::Type> {
 protected:
  const quant::Format& format() const { return quant::format(GetParam()); }
  bool is_float() const { return format().activation == quant::Activation::kFloat; }
  // Row lengths that the format can have.
  std::vector<size_t> lengths() const {
    if (is_float()) return {1, 15, 16, 17, 160, 1000};
    if (format().block_weights == 256) return {256, 768};
    return {format().block_weights, 5 * format().block_weights, 1024};
  }
};

std::vector<quant::Type> all_types() {
  std::vector<quant::Type> types;
  for (const quant::Format& format : quant::formats()) types.push_back(format.type);
  return types;
}

INSTANTIATE_TEST_SUITE_P(Formats, Products, testing::ValuesIn(all_types()),
                         [](const auto& test_case) { return std::string(quant::format(test_case.param).name); });

struct Dot {
  double value = 0, magnitude = 0;  // the sum of products, and of the magnitudes of all that is added up
};

// The dequantized row times the activations as the product sees them, in double.
Dot slow_dot(const quant::Format& format, const std::byte* row, const Activated& x, size_t r) {
  const size_t n = x.rows().n;
  std::vector<float> weights(n);
  format.dequantize(row, n / format.block_weights, weights.data());
  Dot dot;
  quant::UnpackedBlock block;
  for (size_t i = 0; i < n; ++i) {
    const double value = x.value(r, i);
    dot.value += weights[i] * value;
    double magnitude = std::fabs(weights[i]);
    if (format.has_minimum) {  // the weight is a difference: its parts are summed apart
      const size_t at = i % format.block_weights;
      if (at == 0) format.unpack(row + i / format.block_weights * format.block_bytes, block);
      magnitude += 2 * std::fabs(double{block.minimum} * block.minimums[at / quant::kScaleGroup]);
    }
    dot.magnitude += magnitude * std::fabs(value);
  }
  return dot;
}

// Roundings that one result has gone through: lanes and tree for floats; per term two products, one conversion and one
// sum for blocks, three for the dequantized weight that it is compared with.
double roundings(const quant::Format& format, size_t n) {
  if (format.activation == quant::Activation::kFloat) return static_cast<double>(n) / 16 + 5;
  const size_t terms = n / format.block_weights * (format.segments + format.has_minimum);
  return static_cast<double>(terms) + 6;
}

TEST_P(Products, AreDequantizedDotsWithinTheirRoundings) {
  for (const size_t n : lengths()) {
    constexpr size_t n_out = 9, n_rows = 3;
    Random random(n);
    const std::vector<std::byte> w = random_blocks(random, format(), n_out * n / format().block_weights);
    const Activated x(scalar(), format(), random_floats(random, n_rows * n), n);
    std::vector<float> y(n_rows * n_out);
    scalar().matmul(format(), w.data(), n_out, x.rows(), y.data(), n_out, nullptr);
    for (size_t r = 0; r < n_rows; ++r)
      for (size_t o = 0; o < n_out; ++o) {
        const Dot want = slow_dot(format(), w.data() + o * quant::row_bytes(format(), n), x, r);
        EXPECT_NEAR(y[r * n_out + o], want.value, roundings(format(), n) * kUnit * want.magnitude)
            << "[" << o << "] of row " << r << ", n " << n;
      }
  }
}

// Five gathered rows, seven outputs, a wide stride: each result equals the product of its two rows computed alone.
TEST_P(Products, DependOnTheirTwoRowsAlone) {
  for (const size_t n : lengths()) {
    constexpr size_t n_out = 7, stored_rows = 6, stride = 11;
    constexpr float kUntouched = 12345.0f;
    const uint32_t index[] = {4, 0, 5, 5, 2};
    Random random(n);
    const std::vector<std::byte> w = random_blocks(random, format(), n_out * n / format().block_weights);
    const Activated x(scalar(), format(), random_floats(random, stored_rows * n), n);
    Rows gathered = x.rows();
    gathered.index = index, gathered.n_rows = std::size(index);
    for (const Kernels* kernels : usable_kernels()) {
      std::vector<float> y(std::size(index) * stride, kUntouched);
      kernels->matmul(format(), w.data(), n_out, gathered, y.data(), stride, nullptr);
      for (size_t r = 0; r < std::size(index); ++r) {
        std::vector<float> alone(stride, kUntouched);
        for (size_t o = 0; o < n_out; ++o) {
          Rows one = x.rows();
          one.index = &index[r], one.n_rows = 1;
          kernels->matmul(format(), w.data() + o * quant::row_bytes(format(), n), 1, one, alone.data() + o, 1, nullptr);
        }
        EXPECT_TRUE(same_bits({y.data() + r * stride, stride}, alone)) << kernels->name << ", row " << r << ", n " << n;
      }
    }
  }
}

enum class Source { kTree, kFull };

// The recorded rows of a format times the recorded int8 activations.
void expect_recorded_results(const quant::Format& format, Source source) {
  std::string folder = test::test_data_dir();
  if (source == Source::kFull) {
    const auto root = test::reference_root();
    if (!root) GTEST_SKIP() << test::kNoReference;
    folder = *root;
  }
  if (format.type == quant::Type::kF32) GTEST_SKIP() << "F32 has no recorded vectors";
  const auto tensors = test::read_safetensors(folder + "/quants/" + format.name + ".safetensors");
  if (!tensors.contains("int_result")) GTEST_SKIP() << "no integer products were recorded";
  const auto want = tensors.at("int_result").as<double>(), magnitude = tensors.at("dot_abs").as<double>();
  const Activated x(tensors.at("int_act_q").as<int8_t>(), tensors.at("int_act_d").as<float>());
  std::vector<float> y(want.size());
  scalar().matmul(format, tensors.at("dot_weights").bytes.data(), y.size(), x.rows(), y.data(), y.size(), nullptr);
  for (size_t o = 0; o < y.size(); ++o) EXPECT_NEAR(y[o], want[o], 1e-6 * magnitude[o]) << "row " << o;
}

TEST_P(Products, MatchRecordedResultsInTheTree) { expect_recorded_results(format(), Source::kTree); }

TEST_P(Products, MatchAllRecordedResults) { expect_recorded_results(format(), Source::kFull); }

// ---- the rounding of activations -----------------------------------------------------------------------------------

struct Quantized {
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int16_t> sums;
};

Quantized quantize(const std::vector<float>& x, size_t block) {
  Quantized out{std::vector<int8_t>(x.size()), std::vector<float>(x.size() / block),
                std::vector<int16_t>(x.size() / 16)};
  scalar().quantize_row(x.data(), x.size(), block, out.q.data(), out.scale.data(), out.sums.data());
  return out;
}

TEST(QuantizeRow, IsWithinHalfAStepAndUsesTheWholeRange) {
  for (const size_t block : {32, 256})
    for (const float magnitude : {1.0f, 1e30f, 1e-30f, 3e38f, 0x1p-118f}) {
      Random random(block);
      const std::vector<float> x = random_floats(random, 4 * block, Kind::kPlain, magnitude);
      const Quantized got = quantize(x, block);
      for (size_t b = 0; b < 4; ++b) {
        int largest = 0;
        for (size_t i = b * block; i < (b + 1) * block; ++i) {
          const double step = got.scale[b];
          EXPECT_LE(std::fabs(x[i] - step * got.q[i]), 0.5 * step * (1 + 256 * kUnit)) << x[i];
          largest = std::max(largest, std::abs(int{got.q[i]}));
        }
        EXPECT_EQ(largest, 127);
      }
    }
}

TEST(QuantizeRow, ScaleIsLargestMagnitudeOver127) {
  Random random(1);
  std::vector<float> x = random_floats(random, 64);
  x[9] = -3.7f, x[40] = 0.0123f;
  for (size_t i = 32; i < 64; ++i) x[i] = std::min(x[i], 0.0123f) * 0.5f;
  x[40] = 5.25f;
  const Quantized got = quantize(x, 32);
  EXPECT_EQ(got.scale[0], 3.7f / 127.0f);
  EXPECT_EQ(got.q[9], -127);
  EXPECT_EQ(got.scale[1], 5.25f / 127.0f);
  EXPECT_EQ(got.q[40], 127);
}

TEST(QuantizeRow, TiesGoToEven) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;  // a step of exactly 1
  const float values[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 125.5f, 126.5f, 0.49999997f, 0.50000006f};
  const int want[] = {0, 2, 2, 0, -2, -2, 126, 126, 0, 1};
  std::copy(std::begin(values), std::end(values), x.begin() + 1);
  const Quantized got = quantize(x, 32);
  for (size_t i = 0; i < std::size(want); ++i) EXPECT_EQ(got.q[i + 1], want[i]) << values[i];
}

TEST(QuantizeRow, SumsAreOfSixteenConsecutiveValues) {
  Random random(3);
  const Quantized got = quantize(random_floats(random, 512), 256);
  for (size_t g = 0; g < got.sums.size(); ++g) {
    int sum = 0;
    for (size_t i = 0; i < 16; ++i) sum += got.q[16 * g + i];
    EXPECT_EQ(got.sums[g], sum) << "group " << g;
  }
  const Quantized all = quantize(std::vector<float>(32, -5.0f), 32);
  EXPECT_EQ(all.sums[0], -127 * 16);
}

TEST(QuantizeRow, ZerosAndTinyBlocksAreZero) {
  for (const float tiny : {0.0f, -0.0f, 1e-45f, 0x1.fffffep-120f}) {
    const Quantized got = quantize(std::vector<float>(32, tiny), 32);
    EXPECT_TRUE(same_bits(got.scale, std::vector<float>{0.0f})) << tiny;
    for (const int8_t q : got.q) EXPECT_EQ(q, 0);
    EXPECT_EQ(got.sums[0], 0);
  }
  EXPECT_GT(quantize(std::vector<float>(32, 0x1p-119f), 32).scale[0], 0.0f);
}

TEST(QuantizeRow, NonFiniteValuesStayVisibleInTheirBlockOnly) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(96, 1.0f);
    x[45] = bad;
    const Quantized got = quantize(x, 32);
    EXPECT_EQ(got.scale[0], 1.0f / 127.0f);
    EXPECT_TRUE(std::isnan(got.scale[1])) << bad;
    EXPECT_EQ(got.scale[2], 1.0f / 127.0f);
  }
}

// A NaN among the activations makes every product with that row NaN, in all formats, and none of another row.
TEST_P(Products, KeepNonFiniteActivationsVisible) {
  const size_t n = 512;
  Random random(5);
  const std::vector<std::byte> w = random_blocks(random, format(), 3 * n / format().block_weights);
  std::vector<float> values = random_floats(random, 2 * n);
  values[n + 300] = std::numeric_limits<float>::quiet_NaN();
  const Activated x(scalar(), format(), values, n);
  std::vector<float> y(6);
  scalar().matmul(format(), w.data(), 3, x.rows(), y.data(), 3, nullptr);
  for (size_t o = 0; o < 3; ++o) {
    EXPECT_TRUE(std::isfinite(y[o])) << o;
    EXPECT_TRUE(std::isnan(y[3 + o])) << o;
  }
}

}  // namespace
}  // namespace sluice::ops::cpu
