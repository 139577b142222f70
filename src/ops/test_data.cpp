#include "ops/test_data.h"

#include <bit>
#include <cmath>
#include <limits>

namespace sluice::test {

uint64_t Random::bits() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

std::vector<float> random_floats(Random& random, size_t n, Kind kind, float scale) {
  std::vector<float> out(n);
  for (float& x : out) {
    x = random.symmetric() * scale;
    const auto word = static_cast<uint32_t>(random.bits());
    if (kind == Kind::kExtreme && (word >> 23 & 255) != 255) x = std::bit_cast<float>(word);
    if (kind == Kind::kExtreme && word % 8 == 0) x = word % 16 == 0 ? 0.0f : -0.0f;
    if (kind == Kind::kSpecial && word % 16 == 0) x = std::numeric_limits<float>::infinity();
    if (kind == Kind::kSpecial && word % 16 == 1) x = -std::numeric_limits<float>::infinity();
    if (kind == Kind::kSpecial && word % 64 == 2) x = std::numeric_limits<float>::quiet_NaN();
  }
  return out;
}

namespace {

bool is_sane(float scale) {
  const float magnitude = std::fabs(scale);
  return scale == 0.0f || (magnitude >= 0x1p-12f && magnitude <= 16.0f);
}

bool has_sane_scales(const quant::Format& format, const std::byte* block) {
  quant::UnpackedBlock unpacked;
  format.unpack(block, unpacked);
  for (size_t s = 0; s < format.segments; ++s)
    if (!is_sane(unpacked.scale[s])) return false;
  return !format.has_minimum || is_sane(unpacked.minimum);
}

}  // namespace

std::vector<std::byte> random_blocks(Random& random, const quant::Format& format, size_t n_blocks) {
  std::vector<std::byte> out(n_blocks * format.block_bytes);
  if (format.unpack == nullptr) {
    const std::vector<float> values = random_floats(random, n_blocks);
    format.quantize(values.data(), n_blocks, out.data());
    return out;
  }
  for (size_t b = 0; b < n_blocks; ++b) {
    std::byte* block = out.data() + b * format.block_bytes;
    do {
      for (size_t i = 0; i < format.block_bytes; ++i) block[i] = static_cast<std::byte>(random.bits() & 255);
    } while (!has_sane_scales(format, block));
  }
  return out;
}

Activated::Activated(const ops::cpu::Kernels& kernels, const quant::Format& format, std::vector<float> x, size_t n)
    : x_(std::move(x)) {
  const size_t n_rows = x_.size() / n;
  if (format.activation == quant::Activation::kFloat) {
    rows_ = {.f32 = x_.data(), .n = n, .n_rows = n_rows};
    return;
  }
  const size_t block = format.activation == quant::Activation::kInt8Per32 ? 32 : 256;
  q_.resize(x_.size()), scale_.resize(x_.size() / block), sums_.resize(x_.size() / 16);
  for (size_t r = 0; r < n_rows; ++r)
    kernels.quantize_row(x_.data() + r * n, n, block, q_.data() + r * n, scale_.data() + r * n / block,
                         sums_.data() + r * n / 16);
  rows_ = {.q = q_.data(), .scale = scale_.data(), .sums = sums_.data(), .n = n, .block = block, .n_rows = n_rows};
}

Activated::Activated(std::vector<int8_t> q, std::vector<float> scale)
    : scale_(std::move(scale)), q_(std::move(q)), sums_(q_.size() / 16) {
  for (size_t i = 0; i < q_.size(); ++i) sums_[i / 16] = static_cast<int16_t>(sums_[i / 16] + q_[i]);
  const size_t block = q_.size() / scale_.size();
  rows_ = {.q = q_.data(), .scale = scale_.data(), .sums = sums_.data(), .n = q_.size(), .block = block, .n_rows = 1};
}

double Activated::value(size_t r, size_t i) const {
  if (rows_.f32 != nullptr) return x_[r * rows_.n + i];
  return static_cast<double>(scale_[(r * rows_.n + i) / rows_.block]) * q_[r * rows_.n + i];
}

void attend(const ops::cpu::Kernels& kernels, ops::cpu::AttentionJob job, size_t n_keys, float* out) {
  const size_t stride = ops::cpu::running_floats(job.value_dim);
  std::vector<float> segment(job.n_heads * stride), all(job.n_heads * stride, 0.0f);
  for (size_t h = 0; h < job.n_heads; ++h) all[h * stride + job.value_dim] = -std::numeric_limits<float>::infinity();
  job.running = segment.data();
  for (job.first = 0; job.first < n_keys; job.first = job.end) {
    job.end = std::min(n_keys, job.first + ops::cpu::kSegment);
    kernels.attention(job);
    for (size_t h = 0; h < job.n_heads; ++h)
      kernels.attention_merge(segment.data() + h * stride, 1, stride, job.value_dim, all.data() + h * stride,
                              job.end == n_keys ? out + h * job.value_dim : nullptr);
  }
}

testing::AssertionResult same_bits(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return testing::AssertionFailure() << got.size() << " values, want " << want.size();
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i]))
      return testing::AssertionFailure() << "value " << i << " of " << got.size() << ": got "
                                         << testing::PrintToString(got[i]) << ", want "
                                         << testing::PrintToString(want[i]);
  }
  return testing::AssertionSuccess();
}

}  // namespace sluice::test
