// Micro-benchmarks of every kernel of cpu::Kernels, for every instruction set that this machine runs. One thread; names
// are KERNEL/ISA/WHAT, so that a filter picks what is being tuned:
//
//   sluice_kernels_bench --benchmark_filter='matmul/avx2/Q4_K/'
//
// `matmul` has its weights in the cache and so shows arithmetic; `stream` walks weights far larger than any cache and
// so shows what decoding sees. Rates count weights as they are stored, and an operation for each multiplication and
// each addition of a product. They are per second of processor time: other programs on the machine hardly change them.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/memory.h"
#include "ops/cpu/kernels.h"
#include "ops/test_data.h"
#include "quant/format.h"

namespace sluice {
namespace {

using benchmark::Counter;
using benchmark::State;
using ops::cpu::Kernels;
using test::Random;

// The shape of an expert's matrix in Qwen3.6-35B-A3B.
constexpr size_t kIn = 2048, kOut = 512;
constexpr size_t kMatrixWeights = kIn * kOut;
constexpr size_t kStreamBytes = size_t{192} << 20;  // many times the last-level cache that one core gets to see

void count(State& state, double bytes, double operations) {
  state.counters["bytes"] = Counter(bytes, Counter::kIsIterationInvariantRate, Counter::kIs1000);
  state.counters["ops"] = Counter(operations, Counter::kIsIterationInvariantRate, Counter::kIs1000);
}

// ---- products ------------------------------------------------------------------------------------------------------

void product(State& state, const Kernels& kernels, const quant::Format& format, size_t n_rows, bool stream) {
  Random random(1);
  const std::vector<std::byte> matrix = test::random_blocks(random, format, kMatrixWeights / format.block_weights);
  const size_t stride = align_up(matrix.size()), copies = stream ? kStreamBytes / stride : 1;
  Buffer weights(stride * copies, "weights");
  for (size_t i = 0; i < copies; ++i) std::memcpy(weights.data() + i * stride, matrix.data(), matrix.size());
  const test::Activated x(kernels, format, test::random_floats(random, n_rows * kIn), kIn);
  std::vector<float> y(n_rows * kOut);
  size_t at = 0;
  for (auto _ : state) {
    kernels.matmul(format, weights.data() + at * stride, kOut, x.rows(), y.data(), kOut, nullptr);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
    at = at + 1 == copies ? 0 : at + 1;
  }
  count(state, static_cast<double>(matrix.size()), 2.0 * kMatrixWeights * static_cast<double>(n_rows));
}

void quantize_row(State& state, const Kernels& kernels, size_t block) {
  Random random(1);
  const std::vector<float> x = test::random_floats(random, kIn);
  std::vector<int8_t> q(kIn);
  std::vector<float> scale(kIn / block);
  std::vector<int16_t> sums(kIn / quant::kScaleGroup);
  for (auto _ : state) {
    kernels.quantize_row(x.data(), kIn, block, q.data(), scale.data(), sums.data());
    benchmark::ClobberMemory();
  }
  count(state, kIn * sizeof(float), kIn);
}

// ---- rows of floats ------------------------------------------------------------------------------------------------

// Runs work(x, other), both [kIn], over values that stay as they are made.
template <typename Work>
void on_rows(State& state, double operations_per_value, Work work) {
  Random random(1);
  const std::vector<float> start = test::random_floats(random, kIn), other = test::random_floats(random, kIn);
  std::vector<float> x = start;
  for (auto _ : state) {
    std::memcpy(x.data(), start.data(), kIn * sizeof(float));  // in-place kernels must not run into denormals
    work(x.data(), other.data());
    benchmark::ClobberMemory();
  }
  count(state, 2 * kIn * sizeof(float), operations_per_value * kIn);
}

void add_float_kernels(const Kernels& k) {
  const auto add = [&](const char* kernel, double operations, auto work) {
    benchmark::RegisterBenchmark(fmt::format("{}/{}/{}", kernel, k.name, kIn).c_str(),
                                 [=](State& state) { on_rows(state, operations, work); });
  };
  add("rms_norm", 4, [&k](float* x, const float* w) { k.rms_norm(x, w, kIn, 1e-6f, x); });
  add("l2_norm", 3, [&k](float* x, const float*) { k.l2_norm(x, kIn, 1e-6f, 1.0f); });
  add("silu_mul", 5, [&k](float* x, const float* up) { k.silu_mul(x, up, kIn, x); });
  add("sigmoid_mul", 4, [&k](float* x, const float* gate) { k.sigmoid_mul(x, gate, kIn); });
  add("softmax", 4, [&k](float* x, const float*) { k.softmax(x, kIn); });
  add("add_scaled", 2, [&k](float* y, const float* x) { k.add_scaled(0.5f, x, kIn, y); });
  // Eight heads of 256, whose pairs are halves or stand side by side.
  const auto turn = [&k](float* x, const float* angles, size_t step, size_t partner) {
    for (size_t head = 0; head < kIn; head += 256) k.rope(x + head, angles, angles + 128, 128, step, partner);
  };
  add("rope_halves", 3, [turn](float* x, const float* angles) { turn(x, angles, 1, 128); });
  add("rope_pairs", 3, [turn](float* x, const float* angles) { turn(x, angles, 2, 1); });
}

// ---- kernels over a sequence ---------------------------------------------------------------------------------------

// One query row over a KV head of 256 dimensions, as Qwen3.6-35B-A3B has them: 8 query heads share one.
void attention(State& state, const Kernels& kernels, ops::cpu::CacheType type, size_t n_heads, size_t depth) {
  constexpr size_t kDim = 256;
  const size_t half = ops::cpu::kTile * kDim * ops::cpu::element_bytes(type), n_pages = depth / ops::cpu::kTile;
  Buffer cache(n_pages * 2 * half, "KV cache");
  Random random(1);
  if (type == ops::cpu::CacheType::kF32)
    for (float& x : cache.as<float>()) x = random.symmetric();
  else
    for (uint16_t& x : cache.as<uint16_t>()) x = static_cast<uint16_t>(0x3800 | (random.bits() & 0x83FF));
  std::vector<const std::byte*> pages(n_pages);
  for (size_t p = 0; p < n_pages; ++p) pages[p] = cache.data() + p * 2 * half;
  const std::vector<float> q = test::random_floats(random, n_heads * kDim);
  std::vector<float> out(n_heads * kDim);
  for (auto _ : state) {
    test::attend(kernels,
                 {.q = q.data(),
                  .q_stride = kDim,
                  .running = nullptr,
                  .n_heads = n_heads,
                  .head_dim = kDim,
                  .value_dim = kDim,
                  .first = 0,
                  .end = 0,
                  .pages = pages.data(),
                  .key_offset = 0,
                  .value_offset = half,
                  .type = type,
                  .scale = 0.0625f},
                 depth, out.data());
    benchmark::ClobberMemory();
  }
  count(state, static_cast<double>(cache.size()), 4.0 * static_cast<double>(depth * kDim * n_heads));
}

// Sixteen columns of one head's state over a run of tokens.
void delta_net(State& state, const Kernels& kernels, size_t n_tokens) {
  constexpr size_t kKey = 128, kColumns = ops::cpu::kColumns;
  Random random(1);
  std::vector<float> memory(kKey * kColumns, 0.0f), out(n_tokens * kColumns);
  const std::vector<float> q = test::random_floats(random, n_tokens * kKey, test::Kind::kPlain, 0.1f);
  const std::vector<float> k = test::random_floats(random, n_tokens * kKey, test::Kind::kPlain, 0.1f);
  const std::vector<float> v = test::random_floats(random, n_tokens * kColumns);
  const std::vector<float> decay(n_tokens, 0.97f), beta(n_tokens, 0.5f);
  for (auto _ : state) {
    kernels.delta_net({.state = memory.data(),
                       .n_tokens = n_tokens,
                       .key_dim = kKey,
                       .q = q.data(),
                       .k = k.data(),
                       .qk_stride = kKey,
                       .v = v.data(),
                       .v_stride = kColumns,
                       .decay = decay.data(),
                       .beta = beta.data(),
                       .head_stride = 1,
                       .out = out.data(),
                       .out_stride = kColumns});
    benchmark::ClobberMemory();
  }
  count(state, static_cast<double>(memory.size() * sizeof(float)),
        7.0 * static_cast<double>(n_tokens * kKey * kColumns));
}

void conv_silu(State& state, const Kernels& kernels, size_t n_tokens) {
  constexpr size_t kTaps = 4;
  Random random(1);
  const std::vector<float> history = test::random_floats(random, (kTaps - 1) * kIn);
  const std::vector<float> x = test::random_floats(random, n_tokens * kIn);
  const std::vector<float> weight = test::random_floats(random, kTaps * kIn);
  std::vector<float> out(n_tokens * kIn);
  for (auto _ : state) {
    kernels.conv_silu({.history = history.data(),
                       .x = x.data(),
                       .weight = weight.data(),
                       .out = out.data(),
                       .n_tokens = n_tokens,
                       .n_channels = kIn,
                       .taps = kTaps,
                       .stride = kIn,
                       .begin = 0,
                       .end = kIn});
    benchmark::ClobberMemory();
  }
  count(state, static_cast<double>(2 * x.size() * sizeof(float)), 2.0 * kTaps * static_cast<double>(x.size()));
}

// ---- the list ------------------------------------------------------------------------------------------------------

template <typename Function>
void add(const std::string& name, Function function) {
  benchmark::RegisterBenchmark(name.c_str(), function);
}

void add_all(const Kernels& k) {
  for (const quant::Format& format : quant::formats()) {
    for (const size_t rows : {1, 4, 16, 64, 512})
      add(fmt::format("matmul/{}/{}/{}", k.name, format.name, rows),
          [&k, &format, rows](State& state) { product(state, k, format, rows, false); });
    for (const size_t rows : {1, 4, 16})
      add(fmt::format("stream/{}/{}/{}", k.name, format.name, rows),
          [&k, &format, rows](State& state) { product(state, k, format, rows, true); });
  }
  for (const size_t block : {32, 256})
    add(fmt::format("quantize_row/{}/{}", k.name, block), [&k, block](State& state) { quantize_row(state, k, block); });
  add_float_kernels(k);
  using ops::cpu::CacheType;
  const std::map<std::string, CacheType> types = {
      {"f32", CacheType::kF32}, {"f16", CacheType::kF16}, {"bf16", CacheType::kBf16}};
  for (const auto& [name, type] : types)
    for (const size_t heads : {1, 8})
      add(fmt::format("attention/{}/{}/{}", k.name, name, heads),
          [&k, type, heads](State& state) { attention(state, k, type, heads, 4096); });
  for (const size_t tokens : {1, 64})
    add(fmt::format("delta_net/{}/{}", k.name, tokens), [&k, tokens](State& state) { delta_net(state, k, tokens); });
  for (const size_t tokens : {1, 64})
    add(fmt::format("conv_silu/{}/{}", k.name, tokens), [&k, tokens](State& state) { conv_silu(state, k, tokens); });
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  for (const auto* kernels : sluice::ops::cpu::usable_kernels()) sluice::add_all(*kernels);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
