// F32, F16 and BF16: "blocks" of one weight, exact in both directions but for the rounding of the narrow ones.
#include <cstring>

#include "quant/codecs.h"
#include "quant/fields.h"

namespace sluice::quant {
namespace {

template <float (*widen)(uint16_t)>
void widen_all(const std::byte* blocks, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = widen(load<uint16_t>(blocks + 2 * i));
}

template <uint16_t (*narrow)(float)>
void narrow_all(const float* in, size_t n, std::byte* out) {
  for (size_t i = 0; i < n; ++i) store(out + 2 * i, narrow(in[i]));
}

}  // namespace

void dequantize_f32(const std::byte* blocks, size_t n_blocks, float* out) {
  if (n_blocks != 0) std::memcpy(out, blocks, n_blocks * sizeof(float));
}
void dequantize_f16(const std::byte* blocks, size_t n_blocks, float* out) {
  widen_all<f16_to_f32>(blocks, n_blocks, out);
}
void dequantize_bf16(const std::byte* blocks, size_t n_blocks, float* out) {
  widen_all<bf16_to_f32>(blocks, n_blocks, out);
}

void quantize_f32(const float* in, size_t n_blocks, std::byte* out) {
  if (n_blocks != 0) std::memcpy(out, in, n_blocks * sizeof(float));
}
void quantize_f16(const float* in, size_t n_blocks, std::byte* out) { narrow_all<f32_to_f16>(in, n_blocks, out); }
void quantize_bf16(const float* in, size_t n_blocks, std::byte* out) { narrow_all<f32_to_bf16>(in, n_blocks, out); }

}  // namespace sluice::quant
