// Writing Q6_K: super-blocks of 16 sub-blocks of 16 weights, each with a signed 8-bit scale and no minimum. The method
// is described in k_search.h; reading is in k_quants.cpp.
#include "quant/codecs.h"
#include "quant/encode.h"
#include "quant/fields.h"
#include "quant/k_search.h"

namespace sluice::quant {
namespace {

constexpr size_t kSubBlocks = 16, kSubWeights = 16;
constexpr int kMaxCode = 63, kZeroCode = 32;
constexpr int kMostNegativeScale = -128;

// Code kZeroCode stands for 0.
Levels levels_around_zero(float scale) { return {scale, kZeroCode * scale}; }

// The scale that suits a sub-block best on its own.
float search_scale(const float* x) {
  const float* extreme =
      std::max_element(x, x + kSubWeights, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  if (std::fabs(*extreme) < kNegligible) return 0.0f;
  float best = 0.0f, best_error = INFINITY;
  constexpr int kSteps = 6;
  for (int step = 0; step <= kSteps; ++step) {
    // The extreme value lies this many levels from zero, on the side that has 32 or on the one that has 31.
    const float distance = 30.5f + 3.0f * static_cast<float>(step) / kSteps;
    for (const float sign : {-1.0f, 1.0f}) {
      float codes[kSubWeights];
      nearest_codes<kSubWeights, kMaxCode>(x, levels_around_zero(*extreme / (sign * distance)), codes);
      for (float& code : codes) code -= kZeroCode;
      const float xc = sum_of<kSubWeights>([&](size_t i) { return x[i] * codes[i]; });
      const float cc = sum_of<kSubWeights>([&](size_t i) { return codes[i] * codes[i]; });
      const float scale = cc > 0.0f ? xc / cc : 0.0f;
      const float error = squared_error<kSubWeights, kMaxCode>(x, levels_around_zero(scale));
      if (error < best_error) {
        best_error = error;
        best = scale;
      }
    }
  }
  return best;
}

// The integers and f16 scale of a super-block.
struct SignedScales {
  uint16_t d = 0;  // f16
  int scales[kSubBlocks] = {};
  float error = INFINITY;

  Levels levels(int scale) const { return levels_around_zero(f16_to_f32(d) * static_cast<float>(scale)); }
};

// For the f16 scale in `fit`: the best integer next to every sub-block's wanted scale. Sets fit.error.
void choose_integers(const float* x, const float* wanted, SignedScales& fit) {
  const float d = f16_to_f32(fit.d);
  fit.error = 0.0f;
  for (size_t j = 0; j < kSubBlocks; ++j) {
    const float position = d == 0.0f ? 0.0f : std::clamp(wanted[j] / d, -128.0f, 127.0f);
    const int nearest = static_cast<int>(std::floor(position + 0.5f));
    float best = INFINITY;
    for (int s = std::max(nearest - 1, -128); s <= std::min(nearest + 1, 127); ++s) {
      const float error = squared_error<kSubWeights, kMaxCode>(x + j * kSubWeights, fit.levels(s));
      if (error < best) {
        best = error;
        fit.scales[j] = s;
      }
    }
    fit.error += best;
  }
}

// Least squares for d with the integers and codes of `fit`: a fit with a lower error, or `fit` itself.
SignedScales refit(const float* x, const SignedScales& fit) {
  float aa = 0.0f, xa = 0.0f;
  for (size_t j = 0; j < kSubBlocks; ++j) {
    const float* sub = x + j * kSubWeights;
    float codes[kSubWeights];
    nearest_codes<kSubWeights, kMaxCode>(sub, fit.levels(fit.scales[j]), codes);
    for (float& code : codes) code -= kZeroCode;
    const auto s = static_cast<float>(fit.scales[j]);
    aa += s * s * sum_of<kSubWeights>([&](size_t i) { return codes[i] * codes[i]; });
    xa += s * sum_of<kSubWeights>([&](size_t i) { return sub[i] * codes[i]; });
  }
  if (aa == 0.0f) return fit;
  SignedScales better = fit;
  better.d = f32_to_f16(xa / aa);
  better.error = 0.0f;
  for (size_t j = 0; j < kSubBlocks; ++j) {
    better.error += squared_error<kSubWeights, kMaxCode>(x + j * kSubWeights, better.levels(better.scales[j]));
  }
  return better.error < fit.error ? better : fit;
}

SignedScales search_scales(Place place, const float* x) {
  float wanted[kSubBlocks];
  for (size_t j = 0; j < kSubBlocks; ++j) wanted[j] = search_scale(x + j * kSubWeights);
  const float largest =
      *std::max_element(wanted, wanted + kSubBlocks, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  SignedScales best;
  for (const float top : {-128.0f, -125.0f}) {
    SignedScales fit;
    fit.d = encode_scale(place, largest / top);
    choose_integers(x, wanted, fit);
    fit = refit(x, fit);
    if (fit.error < best.error) best = fit;
  }
  return best;
}

}  // namespace

void quantize_q6_k(const float* in, size_t n_blocks, std::byte* out) {
  constexpr size_t kBytes = 210;
  for (size_t b = 0; b < n_blocks; ++b) {
    const Place place{"Q6_K", b};
    const float* x = in + b * kSuperBlock;
    std::byte* block = out + b * kBytes;
    if (!begin_block(place, x, -kMostNegativeScale * kZeroCode, block, kBytes)) continue;
    const SignedScales fit = search_scales(place, x);
    uint8_t codes[kSuperBlock];
    for (size_t j = 0; j < kSubBlocks; ++j) {
      store_nearest_codes<kSubWeights, kMaxCode>(x + j * kSubWeights, fit.levels(fit.scales[j]),
                                                 codes + j * kSubWeights);
    }
    for (size_t half = 0; half < 2; ++half) {
      const uint8_t* from = codes + 128 * half;
      pack_nibbles<64>(from, block + 64 * half);   // ql
      std::byte* upper = block + 128 + 32 * half;  // qh: bit pair k of byte l belongs to weight 32 k + l of the half
      for (size_t i = 0; i < 128; ++i) upper[i % 32] |= static_cast<std::byte>((from[i] >> 4) << (2 * (i / 32)));
    }
    for (size_t j = 0; j < kSubBlocks; ++j) block[192 + j] = static_cast<std::byte>(fit.scales[j]);
    store(block + 208, fit.d);
  }
}

}  // namespace sluice::quant
