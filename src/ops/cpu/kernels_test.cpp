// Every instruction set's kernels against the scalar ones, bit for bit: plain, extreme and non-finite data, sizes with
// and without tails. What the scalar kernels compute is judged elsewhere (products_test.cpp, vectors_test.cpp, ...).
#include "ops/cpu/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "base/error.h"
#include "ops/test_data.h"

namespace sluice::ops::cpu {
namespace {

using test::Activated;
using test::Kind;
using test::Random;
using test::random_blocks;
using test::random_floats;
using test::same_bits;

constexpr size_t kSizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 100, 160, 192, 256, 1000};
constexpr Kind kKinds[] = {Kind::kPlain, Kind::kExtreme, Kind::kSpecial};

const Kernels& scalar() { return find_kernels("scalar"); }

TEST(KernelTable, EndsWithScalarAndFindsByName) {
  ASSERT_FALSE(usable_kernels().empty());
  EXPECT_EQ(usable_kernels().back(), &scalar());
  for (const Kernels* kernels : usable_kernels()) {
    EXPECT_EQ(&find_kernels(kernels->name), kernels);
    EXPECT_THAT(compiled_kernels(), testing::Contains(std::string_view(kernels->name)));
  }
}

TEST(KernelTable, UnknownNameIsAUsageErrorThatListsWhatThereIs) {
  try {
    find_kernels("mmx");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("mmx"), testing::HasSubstr("scalar")));
  }
}

std::vector<std::string> names_but_scalar() {
  std::vector<std::string> names;
  for (const std::string_view name : compiled_kernels())
    if (name != "scalar") names.emplace_back(name);
  return names;
}

// The instruction sets that were compiled in; those that this processor lacks are skipped by name.
class SameBits : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (const Kernels* kernels : usable_kernels())
      if (kernels->name == GetParam()) kernels_ = kernels;
    if (kernels_ == nullptr) GTEST_SKIP() << "this processor does not have " << GetParam();
  }

  // Runs `work(kernels, n, buffer)` on copies of the same random buffer of `floats(n)` values for every size and kind.
  void compare(std::initializer_list<Kind> kinds, const std::function<size_t(size_t)>& floats,
               const std::function<void(const Kernels&, size_t, float*)>& work) {
    for (const Kind kind : kinds) {
      for (const size_t n : kSizes) {
        // Magnitudes around 30 reach the tails of sigmoid and exp, 0.01 their middle.
        for (const float scale : {0.01f, 1.0f, 30.0f}) {
          Random random(n);
          std::vector<float> want = random_floats(random, floats(n), kind, scale), got = want;
          work(scalar(), n, want.data());
          work(*kernels_, n, got.data());
          ASSERT_TRUE(same_bits(got, want)) << "n " << n << ", kind " << static_cast<int>(kind) << ", scale " << scale;
        }
      }
    }
  }

  // Products of w's n_out rows with x, the rows of y `stride` apart.
  testing::AssertionResult same_products(const quant::Format& format, const std::vector<std::byte>& w, size_t n_out,
                                         const Rows& x, size_t stride) const {
    size_t y_rows = 0;
    for (size_t r = 0; r < x.n_rows; ++r) y_rows = std::max(y_rows, x.to(r) + 1);
    std::vector<float> want(y_rows * stride, -7.0f), got = want;
    scalar().matmul(format, w.data(), n_out, x, want.data(), stride, nullptr);
    kernels_->matmul(format, w.data(), n_out, x, got.data(), stride, nullptr);
    return same_bits(got, want);
  }

  const Kernels* kernels_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Kernels, SameBits, testing::ValuesIn(names_but_scalar()),
                         [](const auto& test_case) { return test_case.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SameBits);

constexpr std::initializer_list<Kind> kAll = {Kind::kPlain, Kind::kExtreme, Kind::kSpecial};

TEST_P(SameBits, RmsNorm) {
  compare(
      kAll, [](size_t n) { return 3 * n; },
      [](const Kernels& k, size_t n, float* x) {
        k.rms_norm(x, x + n, n, 1e-6f, x + 2 * n);
        k.rms_norm(x, x + n, n, 1e-6f, x);  // in place
      });
}

TEST_P(SameBits, L2Norm) {
  compare(
      kAll, [](size_t n) { return n; }, [](const Kernels& k, size_t n, float* x) { k.l2_norm(x, n, 1e-6f, 0.088f); });
}

TEST_P(SameBits, SiluMul) {
  compare(
      kAll, [](size_t n) { return 3 * n; },
      [](const Kernels& k, size_t n, float* x) {
        k.silu_mul(x, x + n, n, x + 2 * n);
        k.silu_mul(x, x + n, n, x);
      });
}

TEST_P(SameBits, SigmoidMul) {
  compare(
      kAll, [](size_t n) { return 2 * n; }, [](const Kernels& k, size_t n, float* x) { k.sigmoid_mul(x, x + n, n); });
}

TEST_P(SameBits, Softmax) {
  compare(
      kAll, [](size_t n) { return n; }, [](const Kernels& k, size_t n, float* x) { k.softmax(x, n); });
}

TEST_P(SameBits, AddScaled) {
  compare(
      kAll, [](size_t n) { return 2 * n + 1; },
      [](const Kernels& k, size_t n, float* x) { k.add_scaled(x[2 * n], x, n, x + n); });
}

TEST_P(SameBits, Rope) {
  compare(
      kAll, [](size_t n) { return 4 * n; },
      [](const Kernels& k, size_t n, float* x) {
        k.rope(x, x + 2 * n, x + 3 * n, n, 1, n);
        k.rope(x, x + 2 * n, x + 3 * n, n, 2, 1);
      });
}

// exp where it matters, by way of sigmoid: every 997th float of either sign, so all exponents and all kinds of bits.
TEST_P(SameBits, SigmoidOverTheWholeRange) {
  constexpr size_t kChunk = 4096;
  std::vector<float> gate(kChunk), got(kChunk), want(kChunk);
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 997 * kChunk) {
    for (size_t i = 0; i < kChunk; ++i) {
      const auto word = static_cast<uint32_t>(bits + 997 * i);
      std::memcpy(&gate[i], &word, sizeof word);
    }
    std::fill(want.begin(), want.end(), 1.0f), got = want;
    scalar().sigmoid_mul(want.data(), gate.data(), kChunk);
    kernels_->sigmoid_mul(got.data(), gate.data(), kChunk);
    ASSERT_TRUE(same_bits(got, want)) << "from bits " << bits;
  }
}

TEST_P(SameBits, QuantizeRow) {
  for (const size_t block : {32, 256})
    for (const Kind kind : kKinds)
      for (const float scale : {1.0f, 1e30f, 1e-30f, 1e-38f, 1e-41f}) {
        constexpr size_t n = 1024;
        Random random(block);
        std::vector<float> x = random_floats(random, n, kind, scale);
        std::fill(x.begin() + 256, x.begin() + 512, -0.0f);
        std::vector<int8_t> q[2] = {std::vector<int8_t>(n), std::vector<int8_t>(n)};
        std::vector<float> d[2] = {std::vector<float>(n / block), std::vector<float>(n / block)};
        std::vector<int16_t> sums[2] = {std::vector<int16_t>(n / 16), std::vector<int16_t>(n / 16)};
        scalar().quantize_row(x.data(), n, block, q[0].data(), d[0].data(), sums[0].data());
        kernels_->quantize_row(x.data(), n, block, q[1].data(), d[1].data(), sums[1].data());
        EXPECT_EQ(q[1], q[0]);
        EXPECT_EQ(sums[1], sums[0]);
        EXPECT_TRUE(same_bits(d[1], d[0]));
      }
}

// Sums are computed 16 outputs at a time, a few rows at a time, 512 rows a tile, 256 columns a span: sizes around all
// of these borders.
TEST_P(SameBits, MatmulOfEveryFormat) {
  struct Size {
    size_t n_rows, n_out;
  };
  std::vector<Size> sizes = {{515, 2}, {27, 17}, {3, 33}, {4, 16}, {5, 15}};
  for (size_t n_rows = 1; n_rows <= 9; ++n_rows) sizes.push_back({n_rows, n_rows % 2 == 0 ? size_t{1} : size_t{17}});
  for (const quant::Format& format : quant::formats()) {
    std::vector<size_t> lengths = {1, 15, 17, 160, 1000};
    if (format.block_weights != 1) {
      lengths.clear();
      for (const size_t n_blocks : {1, 3, 4, 7, 8, 9, 23}) lengths.push_back(n_blocks * format.block_weights);
    }
    for (const size_t n : lengths) {
      if (n > 1024 || (format.activation == quant::Activation::kInt8Per256 && n % 256 != 0)) continue;
      for (const auto& [n_rows, n_out] : sizes) {
        Random random(n + n_rows);
        const std::vector<std::byte> w = random_blocks(random, format, n_out * n / format.block_weights);
        const Activated x(scalar(), format, random_floats(random, n_rows * n), n);
        ASSERT_TRUE(same_products(format, w, n_out, x.rows(), n_out))
            << format.name << " [" << n_out << ", " << n << "] x " << n_rows << " rows";
      }
    }
  }
}

// Rows that are gathered by index and scattered by out, into a wide y, of which all else stays as it is.
TEST_P(SameBits, MatmulOfScatteredRows) {
  constexpr size_t n = 512, n_out = 19, stored_rows = 7, stride = 23;
  const uint32_t index[] = {6, 0, 3, 3, 5, 1, 6, 2, 4, 0, 0, 1, 5, 2, 6, 4, 3, 1, 2};
  const uint32_t out[] = {8, 2, 0, 5, 4, 9, 1, 3, 6, 19, 11, 12, 18, 14, 13, 16, 7, 17, 20};
  for (const quant::Format& format : quant::formats()) {
    Random random(static_cast<uint64_t>(format.type));
    const std::vector<std::byte> w = random_blocks(random, format, n_out * n / format.block_weights);
    const Activated x(scalar(), format, random_floats(random, stored_rows * n), n);
    for (const bool gathered : {false, true})
      for (const bool scattered : {false, true}) {
        Rows rows = x.rows();
        if (gathered) rows.index = index, rows.n_rows = std::size(index);
        if (scattered) rows.out = out;
        EXPECT_TRUE(same_products(format, w, n_out, rows, stride))
            << format.name << (gathered ? ", gathered" : "") << (scattered ? ", scattered" : "");
      }
  }
}

// Any bytes are blocks of some sort: scales that are infinite, NaN, denormal or huge, activations likewise.
TEST_P(SameBits, MatmulOfAnyBytes) {
  constexpr size_t n = 512, n_rows = 9, n_out = 21;
  for (const quant::Format& format : quant::formats())
    for (const Kind kind : kKinds) {
      Random random(static_cast<uint64_t>(format.type));
      std::vector<std::byte> w(n_out * n / format.block_weights * format.block_bytes);
      for (std::byte& byte : w) byte = static_cast<std::byte>(random.bits() & 255);
      const Activated x(scalar(), format, random_floats(random, n_rows * n, kind), n);
      EXPECT_TRUE(same_products(format, w, n_out, x.rows(), n_out))
          << format.name << ", kind " << static_cast<int>(kind);
    }
}

// A block with the same f32 scales, whose weights are as large (or small: `weights` -1) as its bits can make them, and
// then its integer scales and minimums.
std::vector<std::byte> extreme_block(const quant::Format& format, std::vector<std::byte> block, int weights,
                                     int scales) {
  const auto unpack = [&] {
    quant::UnpackedBlock unpacked;
    format.unpack(block.data(), unpacked);
    return unpacked;
  };
  const auto rank = [&](const quant::UnpackedBlock& b) {
    int64_t w = 0, s = 0;
    for (size_t i = 0; i < format.block_weights; ++i) w += b.weights[i];
    for (size_t g = 0; g < format.block_weights / 16; ++g) s += b.scales[g] + (format.has_minimum ? b.minimums[g] : 0);
    return 1000000 * weights * w + scales * s;
  };
  const quant::UnpackedBlock start = unpack();
  int64_t best = rank(start);
  for (int round = 0; round < 2; ++round)
    for (size_t bit = 0; bit < 8 * block.size(); ++bit) {
      const auto flip = [&] { block[bit / 8] ^= static_cast<std::byte>(1 << bit % 8); };
      flip();
      const quant::UnpackedBlock now = unpack();
      const bool same_floats = std::equal(now.scale, now.scale + format.segments, start.scale) &&
                               (!format.has_minimum || now.minimum == start.minimum);
      if (same_floats && rank(now) > best)
        best = rank(now);
      else
        flip();
    }
  return block;
}

// The largest integer sums there are: a unit that adds up in 16 bits, or splits weights, must not saturate or wrap.
TEST_P(SameBits, MatmulOfExtremeIntegers) {
  constexpr size_t n = 256, n_rows = 10, n_out = 2;
  for (const quant::Format& format : quant::formats()) {
    if (format.unpack == nullptr) continue;
    for (const int weights : {-1, 1})
      for (const int scales : {-1, 1}) {
        Random random(static_cast<uint64_t>(format.type));
        const std::vector<std::byte> block = extreme_block(format, random_blocks(random, format, 1), weights, scales);
        std::vector<std::byte> w;
        for (size_t i = 0; i < n_out * n / format.block_weights; ++i) w.insert(w.end(), block.begin(), block.end());
        quant::UnpackedBlock unpacked;
        format.unpack(block.data(), unpacked);
        std::vector<float> values(n_rows * n);  // each is 127 or -127 as an integer
        for (size_t i = 0; i < n; ++i) {
          const size_t at = i % format.block_weights;
          const float sign = unpacked.weights[at] * unpacked.scales[at / 16] < 0 ? -1.0f : 1.0f;
          const float kinds[] = {1.0f, -1.0f, sign, -sign, i % 2 == 0 ? 1.0f : -1.0f};
          for (size_t r = 0; r < n_rows; ++r) values[r * n + i] = kinds[r % std::size(kinds)];
        }
        const Activated x(scalar(), format, values, n);
        EXPECT_TRUE(same_products(format, w, n_out, x.rows(), n_out))
            << format.name << ", weights " << weights << ", scales " << scales;
      }
  }
}

// Random elements of a cache type. Extreme values become infinite in f16, which is welcome.
std::vector<std::byte> random_page(Random& random, CacheType type, size_t n, Kind kind) {
  const std::vector<float> values = random_floats(random, n, kind);
  const quant::Type types[] = {quant::Type::kF32, quant::Type::kF16, quant::Type::kBF16};
  std::vector<std::byte> page(n * element_bytes(type));
  quant::format(types[static_cast<size_t>(type)]).quantize(values.data(), n, page.data());
  return page;
}

TEST_P(SameBits, Attention) {
  struct Shape {
    size_t heads, key_dim, value_dim;
  };
  for (const CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kBf16})
    for (const Kind kind : kKinds)
      for (const auto& [heads, key_dim, value_dim] : {Shape{1, 16, 16}, Shape{3, 40, 48}, Shape{8, 256, 256}})
        for (const size_t n_keys : {1, 63, 64, 65, 130, 1024, 1025, 2200}) {
          Random random(n_keys);
          std::vector<std::vector<std::byte>> storage;
          std::vector<const std::byte*> pages;
          for (size_t p = 0; p * kTile < n_keys && p < 3; ++p)
            storage.push_back(random_page(random, type, kTile * (key_dim + value_dim), kind));
          for (size_t p = 0; p * kTile < n_keys; ++p) pages.push_back(storage[p % storage.size()].data());
          const std::vector<float> q = random_floats(random, heads * key_dim, kind, 3.0f);
          std::vector<float> got(heads * value_dim), want(heads * value_dim);
          const AttentionJob job{.q = q.data(),
                                 .q_stride = key_dim,
                                 .running = nullptr,
                                 .n_heads = heads,
                                 .head_dim = key_dim,
                                 .value_dim = value_dim,
                                 .first = 0,
                                 .end = 0,
                                 .pages = pages.data(),
                                 .key_offset = 0,
                                 .value_offset = kTile * key_dim * element_bytes(type),
                                 .type = type,
                                 .scale = 0.25f};
          test::attend(scalar(), job, n_keys, want.data());
          test::attend(*kernels_, job, n_keys, got.data());
          ASSERT_TRUE(same_bits(got, want)) << "type " << static_cast<int>(type) << ", " << n_keys << " keys of "
                                            << key_dim << ", kind " << static_cast<int>(kind);
        }
}

TEST_P(SameBits, DeltaNet) {
  for (const Kind kind : kKinds)
    for (const size_t key_dim : {4, 20, 128})
      for (const size_t n_tokens : {1, 2, 9}) {
        Random random(key_dim);
        const std::vector<float> qk = random_floats(random, n_tokens * 2 * key_dim, kind);
        const std::vector<float> v = random_floats(random, n_tokens * kColumns, kind);
        const std::vector<float> gates = random_floats(random, n_tokens * 2, kind);
        std::vector<float> state[2] = {random_floats(random, key_dim * kColumns, kind), {}};
        state[1] = state[0];
        std::vector<float> out[2] = {std::vector<float>(n_tokens * kColumns), std::vector<float>(n_tokens * kColumns)};
        for (const size_t i : {0, 1})
          (i == 0 ? scalar() : *kernels_)
              .delta_net({.state = state[i].data(),
                          .n_tokens = n_tokens,
                          .key_dim = key_dim,
                          .q = qk.data(),
                          .k = qk.data() + key_dim,
                          .qk_stride = 2 * key_dim,
                          .v = v.data(),
                          .v_stride = kColumns,
                          .decay = gates.data(),
                          .beta = gates.data() + 1,
                          .head_stride = 2,
                          .out = out[i].data(),
                          .out_stride = kColumns});
        EXPECT_TRUE(same_bits(out[1], out[0])) << key_dim << " x " << n_tokens;
        EXPECT_TRUE(same_bits(state[1], state[0])) << key_dim << " x " << n_tokens;
      }
}

TEST_P(SameBits, ConvSilu) {
  for (const Kind kind : kKinds)
    for (const size_t taps : {1, 4})
      for (const size_t n_tokens : {1, 3, 7}) {
        constexpr size_t channels = 77;
        Random random(n_tokens);
        const std::vector<float> history = random_floats(random, taps * channels, kind);
        const std::vector<float> x = random_floats(random, n_tokens * channels, kind, 10.0f);
        const std::vector<float> weight = random_floats(random, taps * channels, kind);
        std::vector<float> out[2] = {std::vector<float>(x.size()), std::vector<float>(x.size())};
        for (const size_t i : {0, 1})
          (i == 0 ? scalar() : *kernels_)
              .conv_silu({.history = history.data(),
                          .x = x.data(),
                          .weight = weight.data(),
                          .out = out[i].data(),
                          .n_tokens = n_tokens,
                          .n_channels = channels,
                          .taps = taps,
                          .stride = channels,
                          .begin = 3,
                          .end = 70});
        EXPECT_TRUE(same_bits(out[1], out[0])) << taps << " taps, " << n_tokens << " tokens";
      }
}

}  // namespace
}  // namespace sluice::ops::cpu
