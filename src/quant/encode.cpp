#include "quant/encode.h"

#include <cmath>

#include "base/error.h"
#include "quant/half.h"

namespace sluice::quant {

void require_finite(Place place, std::span<const float> weights) {
  for (size_t i = 0; i < weights.size(); ++i) {
    if (std::isfinite(weights[i])) continue;
    fail(ErrorKind::kUnsupported,
         "{}: weight {} of block {} is {}; only finite values can be quantized, keep this tensor in F32, F16 or BF16",
         place.format, i, place.block, weights[i]);
  }
}

uint16_t encode_scale(Place place, float scale) {
  const uint16_t half = f32_to_f16(scale);
  if ((half & 0x7fffu) >= 0x7c00u) {
    fail(ErrorKind::kUnsupported,
         "{}: block {} needs a scale of {}, above the largest f16 (65504); keep this tensor in F32 or BF16",
         place.format, place.block, scale);
  }
  return half;
}

}  // namespace sluice::quant
