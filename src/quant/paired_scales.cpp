// Writing Q4_K and Q5_K: super-blocks of 8 sub-blocks of 32 weights, each with a 6-bit scale and a 6-bit minimum. The
// method is described in k_search.h; reading is in k_quants.cpp.
#include "quant/codecs.h"
#include "quant/encode.h"
#include "quant/fields.h"
#include "quant/k_search.h"

namespace sluice::quant {
namespace {

constexpr size_t kSubBlocks = 8, kSubWeights = 32;
constexpr int kMaxInteger = 63;  // of a sub-block's scale and minimum

// The levels that suit the given codes best, by least squares, with the minimum kept at 0 or above.
Levels fit_levels(const float* x, const float* codes, float sum_x) {
  constexpr float kCount = kSubWeights;
  const float sum_c = sum_of<kSubWeights>([&](size_t i) { return codes[i]; });
  const float sum_cc = sum_of<kSubWeights>([&](size_t i) { return codes[i] * codes[i]; });
  const float sum_xc = sum_of<kSubWeights>([&](size_t i) { return x[i] * codes[i]; });
  const float determinant = kCount * sum_cc - sum_c * sum_c;  // exact: sums of small integers
  if (determinant > 0.0f) {
    const float scale = (kCount * sum_xc - sum_x * sum_c) / determinant;
    const float minimum = (scale * sum_c - sum_x) / kCount;
    if (minimum >= 0.0f) return {scale, minimum};
  }
  return {sum_cc > 0.0f ? sum_xc / sum_cc : 0.0f, 0.0f};
}

template <int max_code>
Levels search_levels(const float* x) {
  const float low = std::min(*std::min_element(x, x + kSubWeights), 0.0f);
  const float high = *std::max_element(x, x + kSubWeights);
  if (high - low < kNegligible) return {0.0f, -low};
  const float sum_x = sum_of<kSubWeights>([&](size_t i) { return x[i]; });
  Levels best;
  float best_error = INFINITY;
  // Spacings from one that spans the values with a code and a half to spare to one that cuts off as much at the ends.
  constexpr int kSteps = 12;
  for (int step = 0; step <= kSteps; ++step) {
    const float spans = static_cast<float>(max_code) - 1.5f + 3.0f * static_cast<float>(step) / kSteps;
    float codes[kSubWeights];
    nearest_codes<kSubWeights, max_code>(x, {(high - low) / spans, -low}, codes);
    const Levels levels = fit_levels(x, codes, sum_x);
    const float error = squared_error<kSubWeights, max_code>(x, levels);
    if (error < best_error) {
      best_error = error;
      best = levels;
    }
  }
  return best;
}

// The integers and f16 scales of a super-block of Q4_K or Q5_K.
struct PairedScales {
  uint16_t d = 0, dmin = 0;  // f16
  int scales[kSubBlocks] = {}, minimums[kSubBlocks] = {};
  float error = INFINITY;

  // As dequantization rounds them.
  Levels levels(size_t j) const { return levels(scales[j], minimums[j]); }
  Levels levels(int scale, int minimum) const {
    return {f16_to_f32(d) * static_cast<float>(scale), f16_to_f32(dmin) * static_cast<float>(minimum)};
  }
};

int nearest_integer(float value, float step, int limit) {
  return step == 0.0f ? 0 : static_cast<int>(std::clamp(value / step + 0.5f, 0.0f, static_cast<float>(limit)));
}

// For the f16 scales in `fit`: the best integers next to every sub-block's wanted levels. Sets fit.error.
template <int max_code>
void choose_integers(const float* x, const Levels* wanted, PairedScales& fit) {
  fit.error = 0.0f;
  for (size_t j = 0; j < kSubBlocks; ++j) {
    const int scale = nearest_integer(wanted[j].scale, f16_to_f32(fit.d), kMaxInteger);
    const int minimum = nearest_integer(wanted[j].minimum, f16_to_f32(fit.dmin), kMaxInteger);
    float best = INFINITY;
    for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, kMaxInteger); ++s) {
      for (int m = std::max(minimum - 1, 0); m <= std::min(minimum + 1, kMaxInteger); ++m) {
        const float error = squared_error<kSubWeights, max_code>(x + j * kSubWeights, fit.levels(s, m));
        if (error < best) {
          best = error;
          fit.scales[j] = s;
          fit.minimums[j] = m;
        }
      }
    }
    fit.error += best;
  }
}

// Least squares for d and dmin with the integers and codes of `fit`: a fit with a lower error, or `fit` itself. (Scales
// that pass f16 have an error that is not lower.)
template <int max_code>
PairedScales refit(const float* x, const PairedScales& fit) {
  // x ~ d * a - dmin * m with a = scale * code: sums of products of a, m and x.
  float aa = 0.0f, am = 0.0f, mm = 0.0f, xa = 0.0f, xm = 0.0f;
  for (size_t j = 0; j < kSubBlocks; ++j) {
    const float* sub = x + j * kSubWeights;
    float codes[kSubWeights];
    nearest_codes<kSubWeights, max_code>(sub, fit.levels(j), codes);
    const auto s = static_cast<float>(fit.scales[j]), m = static_cast<float>(fit.minimums[j]);
    aa += s * s * sum_of<kSubWeights>([&](size_t i) { return codes[i] * codes[i]; });
    am += s * m * sum_of<kSubWeights>([&](size_t i) { return codes[i]; });
    mm += m * m * kSubWeights;
    xa += s * sum_of<kSubWeights>([&](size_t i) { return sub[i] * codes[i]; });
    xm += m * sum_of<kSubWeights>([&](size_t i) { return sub[i]; });
  }
  const float determinant = aa * mm - am * am;
  PairedScales better = fit;
  if (determinant > 0.0f) {
    better.d = f32_to_f16((xa * mm - xm * am) / determinant);
    better.dmin = f32_to_f16((xa * am - xm * aa) / determinant);
  } else if (aa > 0.0f) {
    better.d = f32_to_f16(xa / aa);
  }
  better.error = 0.0f;
  for (size_t j = 0; j < kSubBlocks; ++j) {
    better.error += squared_error<kSubWeights, max_code>(x + j * kSubWeights, better.levels(j));
  }
  return better.error < fit.error ? better : fit;
}

template <int max_code>
PairedScales search_paired_scales(Place place, const float* x) {
  Levels wanted[kSubBlocks];
  Levels largest;
  for (size_t j = 0; j < kSubBlocks; ++j) {
    wanted[j] = search_levels<max_code>(x + j * kSubWeights);
    largest.scale = std::max(largest.scale, wanted[j].scale);
    largest.minimum = std::max(largest.minimum, wanted[j].minimum);
  }
  PairedScales best;
  for (const int top : {kMaxInteger, kMaxInteger - 2, kMaxInteger - 4}) {
    PairedScales fit;
    fit.d = encode_scale(place, largest.scale / static_cast<float>(top));
    fit.dmin = encode_scale(place, largest.minimum / kMaxInteger);
    choose_integers<max_code>(x, wanted, fit);
    fit = refit<max_code>(x, fit);
    if (fit.error < best.error) best = fit;
  }
  return best;
}

// The twelve bytes that unpack_six_bit_pairs (k_quants.cpp) reads.
void pack_six_bit_pairs(const PairedScales& fit, std::byte* out) {
  for (size_t j = 0; j < 4; ++j) {
    const int upper_scale = fit.scales[j + 4], upper_minimum = fit.minimums[j + 4];
    out[j] = static_cast<std::byte>(fit.scales[j] | ((upper_scale >> 4) << 6));
    out[j + 4] = static_cast<std::byte>(fit.minimums[j] | ((upper_minimum >> 4) << 6));
    out[j + 8] = static_cast<std::byte>((upper_scale & 15) | ((upper_minimum & 15) << 4));
  }
}

// Writes super-blocks of `bytes` bytes: the scales in front, then what `pack_codes` makes of the 256 codes.
template <int max_code, size_t bytes, typename PackCodes>
void quantize_paired(const char* format, const float* in, size_t n_blocks, std::byte* out, PackCodes pack_codes) {
  constexpr size_t kHeader = 16;
  for (size_t b = 0; b < n_blocks; ++b) {
    const Place place{format, b};
    const float* x = in + b * kSuperBlock;
    std::byte* block = out + b * bytes;
    if (!begin_block(place, x, kMaxInteger * max_code, block, bytes)) continue;
    const PairedScales fit = search_paired_scales<max_code>(place, x);
    uint8_t codes[kSuperBlock];
    for (size_t j = 0; j < kSubBlocks; ++j) {
      store_nearest_codes<kSubWeights, max_code>(x + j * kSubWeights, fit.levels(j), codes + j * kSubWeights);
    }
    store(block, fit.d);
    store(block + 2, fit.dmin);
    pack_six_bit_pairs(fit, block + 4);
    pack_codes(codes, block + kHeader);
  }
}

// qs[128]: pairs of sub-blocks, the first in the low nibbles of 32 bytes, the second in the high ones.
void pack_sub_block_pairs(const uint8_t* codes, std::byte* out) {
  for (size_t pair = 0; pair < kSubBlocks / 2; ++pair) pack_nibbles<32>(codes + 64 * pair, out + 32 * pair);
}

}  // namespace

void quantize_q4_k(const float* in, size_t n_blocks, std::byte* out) {
  quantize_paired<15, 144>("Q4_K", in, n_blocks, out, pack_sub_block_pairs);
}

void quantize_q5_k(const float* in, size_t n_blocks, std::byte* out) {
  quantize_paired<31, 176>("Q5_K", in, n_blocks, out, [](const uint8_t* codes, std::byte* packed) {
    for (size_t i = 0; i < kSuperBlock; ++i) {  // qh[32]: bit j of byte l is the fifth bit of weight l of sub-block j
      packed[i % kSubWeights] |= static_cast<std::byte>((codes[i] >> 4) << (i / kSubWeights));
    }
    pack_sub_block_pairs(codes, packed + 32);
  });
}

}  // namespace sluice::quant
