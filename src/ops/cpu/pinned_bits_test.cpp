// The scalar kernels' bits on fixed inputs, as a hash each. The other tests leave room for another last bit; these do
// not: whoever changes one changes the tokens of every model, and docs/arithmetic.md with it.
#include <gtest/gtest.h>

#include <bit>
#include <span>

#include "ops/cpu/kernels.h"
#include "ops/test_data.h"

namespace sluice::ops::cpu {
namespace {

using test::Random;
using test::random_floats;

const Kernels& scalar() { return find_kernels("scalar"); }

// FNV-1a over the bits.
uint32_t hash(std::span<const float> values) {
  uint32_t h = 2166136261u;
  for (const float value : values)
    for (int byte = 0; byte < 4; ++byte) h = (h ^ (std::bit_cast<uint32_t>(value) >> (8 * byte) & 255)) * 16777619u;
  return h;
}

TEST(PinnedBits, ElementwiseAndReductions) {
  constexpr size_t n = 1000;
  Random random(1);
  const std::vector<float> a = random_floats(random, n, test::Kind::kPlain, 20.0f), b = random_floats(random, n);
  std::vector<float> y(n);
  scalar().silu_mul(a.data(), b.data(), n, y.data());
  EXPECT_EQ(hash(y), 3818958075u);
  y = b;
  scalar().sigmoid_mul(y.data(), a.data(), n);
  EXPECT_EQ(hash(y), 3020909925u);
  y = a;
  scalar().softmax(y.data(), n);
  EXPECT_EQ(hash(y), 3594531982u);
  scalar().rms_norm(a.data(), b.data(), n, 1e-6f, y.data());
  EXPECT_EQ(hash(y), 3531676612u);
  y = a;
  scalar().l2_norm(y.data(), n, 1e-6f, 0.7f);
  EXPECT_EQ(hash(y), 3151328232u);
  y = a;
  scalar().rope(y.data(), b.data(), b.data() + 500, 500, 1, 500);
  EXPECT_EQ(hash(y), 1415183610u);
}

TEST(PinnedBits, AttentionAndDeltaNet) {
  Random random(2);
  constexpr size_t n_keys = 2500, dim = 16;
  const std::vector<float> page = random_floats(random, 2 * kTile * dim), q = random_floats(random, dim);
  const std::vector<const std::byte*> pages((n_keys + kTile - 1) / kTile,
                                            reinterpret_cast<const std::byte*>(page.data()));
  std::vector<float> out(dim);
  test::attend(scalar(),
               {.q = q.data(),
                .q_stride = dim,
                .running = nullptr,
                .n_heads = 1,
                .head_dim = dim,
                .value_dim = dim,
                .first = 0,
                .end = 0,
                .pages = pages.data(),
                .key_offset = 0,
                .value_offset = kTile * dim * sizeof(float),
                .type = CacheType::kF32,
                .scale = 1.5f},
               n_keys, out.data());
  EXPECT_EQ(hash(out), 3357380624u);

  const std::vector<float> x = random_floats(random, 5 * dim, test::Kind::kPlain, 0.5f);
  std::vector<float> state = random_floats(random, dim * kColumns), answers(5 * kColumns);
  scalar().delta_net({.state = state.data(),
                      .n_tokens = 5,
                      .key_dim = dim,
                      .q = x.data(),
                      .k = page.data(),
                      .qk_stride = dim,
                      .v = page.data() + 500,
                      .v_stride = kColumns,
                      .decay = page.data() + 700,
                      .beta = page.data() + 800,
                      .head_stride = 1,
                      .out = answers.data(),
                      .out_stride = kColumns});
  EXPECT_EQ(hash(answers), 4238470444u);
  EXPECT_EQ(hash(state), 3086135250u);
}

TEST(PinnedBits, Products) {
  constexpr size_t n = 1024, n_out = 3;
  uint32_t all = 0;
  for (const quant::Type type : {quant::Type::kF32, quant::Type::kF16, quant::Type::kQ8_0, quant::Type::kQ4_K,
                                 quant::Type::kQ6_K, quant::Type::kIQ2_S, quant::Type::kNVFP4}) {
    const quant::Format& format = quant::format(type);
    Random random(3);
    const std::vector<std::byte> w = test::random_blocks(random, format, n_out * n / format.block_weights);
    const test::Activated x(scalar(), format, random_floats(random, n), n);
    std::vector<float> y(n_out);
    scalar().matmul(format, w.data(), n_out, x.rows(), y.data(), n_out, nullptr);
    all = all * 31 + hash(y);
  }
  EXPECT_EQ(all, 4245207291u);
}

}  // namespace
}  // namespace sluice::ops::cpu
