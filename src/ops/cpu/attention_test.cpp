// What the attention kernel computes, against the textbook softmax in double: around the borders of tiles (64) and
// segments (1024), for every type of cache, flat and peaked scores.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/cpu/kernels.h"
#include "ops/test_data.h"
#include "quant/half.h"

namespace sluice::ops::cpu {
namespace {

using test::kUnit;
using test::Random;
using test::random_floats;
using test::same_bits;

constexpr CacheType kTypes[] = {CacheType::kF32, CacheType::kF16, CacheType::kBf16};
const Kernels& scalar() { return find_kernels("scalar"); }

// One KV head's cache and the queries on it. Positions that hold nothing yet are NaN, so that reading one shows.
struct Cache {
  size_t n_heads, key_dim, value_dim, n_keys;
  CacheType type;
  std::vector<float> q;              // [n_heads, key_dim]
  std::vector<double> keys, values;  // [n_keys, dim], as the cache's type holds them
  std::vector<std::vector<std::byte>> storage;
  std::vector<const std::byte*> pages;

  static constexpr size_t kOffset = 128;  // of this layer's keys in a page

  Cache(size_t heads, size_t key_size, size_t value_size, size_t n, CacheType cache_type, uint64_t seed)
      : n_heads(heads), key_dim(key_size), value_dim(value_size), n_keys(n), type(cache_type) {
    Random random(seed);
    q = random_floats(random, n_heads * key_dim);
    keys.resize(n_keys * key_dim), values.resize(n_keys * value_dim);
    const size_t page_elements = kTile * (key_dim + value_dim);
    for (size_t first = 0; first < n_keys; first += kTile) {
      std::vector<std::byte>& page = storage.emplace_back(kOffset + page_elements * element_bytes(type));
      for (size_t i = 0; i < page_elements; ++i) put(page, i, std::numeric_limits<float>::quiet_NaN());
      for (size_t j = first; j < std::min(n_keys, first + kTile); ++j) {
        for (size_t d = 0; d < key_dim; ++d)
          keys[j * key_dim + d] = put(page, d * kTile + j - first, random.symmetric());
        for (size_t d = 0; d < value_dim; ++d)
          values[j * value_dim + d] = put(page, kTile * key_dim + (j - first) * value_dim + d, random.symmetric());
      }
    }
    for (const auto& page : storage) pages.push_back(page.data());
  }

  // Writes element i of a page in the cache's type and returns what that holds.
  double put(std::vector<std::byte>& page, size_t i, float value) const {
    std::byte* to = page.data() + kOffset;
    switch (type) {
      case CacheType::kF32:
        reinterpret_cast<float*>(to)[i] = value;
        return value;
      case CacheType::kF16:
        reinterpret_cast<uint16_t*>(to)[i] = quant::f32_to_f16(value);
        return quant::f16_to_f32(quant::f32_to_f16(value));
      case CacheType::kBf16:
        reinterpret_cast<uint16_t*>(to)[i] = quant::f32_to_bf16(value);
        return quant::bf16_to_f32(quant::f32_to_bf16(value));
    }
    return 0;
  }

  std::vector<float> attend(const Kernels& kernels, float scale) const {
    std::vector<float> out(n_heads * value_dim);
    test::attend(kernels,
                 {.q = q.data(),
                  .q_stride = key_dim,
                  .running = nullptr,
                  .n_heads = n_heads,
                  .head_dim = key_dim,
                  .value_dim = value_dim,
                  .first = 0,
                  .end = 0,
                  .pages = pages.data(),
                  .key_offset = kOffset,
                  .value_offset = kOffset + kTile * key_dim * element_bytes(type),
                  .type = type,
                  .scale = scale},
                 n_keys, out.data());
    return out;
  }

  std::vector<double> attend_slowly(double scale) const {
    std::vector<double> out(n_heads * value_dim, 0.0);
    for (size_t h = 0; h < n_heads; ++h) {
      std::vector<double> p(n_keys, 0.0);
      for (size_t j = 0; j < n_keys; ++j) {
        for (size_t d = 0; d < key_dim; ++d) p[j] += q[h * key_dim + d] * keys[j * key_dim + d];
        p[j] *= scale;
      }
      const double top = *std::max_element(p.begin(), p.end());
      double total = 0;
      for (double& x : p) total += x = std::exp(x - top);
      for (size_t j = 0; j < n_keys; ++j)
        for (size_t d = 0; d < value_dim; ++d) out[h * value_dim + d] += p[j] / total * values[j * value_dim + d];
    }
    return out;
  }
};

// Flat scores average thousands of values, peaked ones pick a few; with 20 the largest score moves often along the way.
TEST(AttentionKernel, MatchesTextbookSoftmax) {
  for (const CacheType type : kTypes)
    for (const size_t n_keys : {1, 2, 15, 63, 64, 65, 128, 1000, 1023, 1024, 1025, 1089, 2048, 3000})
      for (const float scale : {0.1f, 1.0f, 20.0f}) {
        const Cache cache(2, 32, 48, n_keys, type, n_keys);
        const std::vector<float> got = cache.attend(scalar(), scale);
        const std::vector<double> want = cache.attend_slowly(scale);
        // A score is 32 products below 1, rounded 32 times; its error enters the weights through exp.
        const double bound = (static_cast<double>(scale) * 32 + 32) * 2 * kUnit;
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], want[i], bound) << n_keys << " keys, scale " << scale << ", value " << i;
      }
}

// Every single position counts: moving the one that dominates shows wherever it lies.
TEST(AttentionKernel, FindsTheOneMatchingKeyAtAnyPosition) {
  constexpr size_t n_keys = 2100;
  Cache cache(1, 16, 16, n_keys, CacheType::kF32, 7);
  const std::vector<std::vector<std::byte>> original = cache.storage;
  for (const size_t at : {size_t{0}, size_t{63}, size_t{64}, size_t{1023}, size_t{1024}, size_t{2047}, n_keys - 1}) {
    for (size_t p = 0; p < original.size(); ++p)
      std::copy(original[p].begin(), original[p].end(), cache.storage[p].begin());
    for (size_t d = 0; d < 16; ++d) cache.put(cache.storage[at / kTile], d * kTile + at % kTile, 100 * cache.q[d]);
    const std::vector<float> got = cache.attend(scalar(), 1.0f);
    for (size_t d = 0; d < 16; ++d) EXPECT_EQ(got[d], static_cast<float>(cache.values[at * 16 + d])) << at;
  }
}

TEST(AttentionKernel, OneKeyGivesItsValueExactly) {
  for (const CacheType type : kTypes) {
    const Cache cache(3, 16, 32, 1, type, 11);
    const std::vector<float> got = cache.attend(scalar(), 0.3f);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], static_cast<float>(cache.values[i % 32]));
  }
}

TEST(AttentionKernel, HeadsAreIndependent) {
  const Cache cache(4, 16, 16, 1500, CacheType::kF16, 5);
  const std::vector<float> together = cache.attend(scalar(), 1.0f);
  for (size_t h = 0; h < 4; ++h) {
    Cache alone(4, 16, 16, 1500, CacheType::kF16, 5);
    alone.n_heads = 1;
    alone.q.assign(cache.q.begin() + static_cast<ptrdiff_t>(16 * h),
                   cache.q.begin() + static_cast<ptrdiff_t>(16 * h + 16));
    EXPECT_TRUE(same_bits(alone.attend(scalar(), 1.0f), {together.data() + 16 * h, 16})) << h;
  }
}

// Scores far apart: weights that underflow are 0, and nothing becomes NaN.
TEST(AttentionKernel, SurvivesScoresFarApart) {
  const Cache cache(1, 32, 16, 1100, CacheType::kF32, 3);
  const std::vector<float> got = cache.attend(scalar(), 1e6f);
  const std::vector<double> want = cache.attend_slowly(1e6);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6);
}

}  // namespace
}  // namespace sluice::ops::cpu
