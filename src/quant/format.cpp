// The table of formats. Adding one takes its unpack function (and its quantizer, if it gets one) and a row here.
#include "quant/format.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "quant/codecs.h"

namespace sluice::quant {
namespace {

using UnpackFn = void (*)(const std::byte*, UnpackedBlock&);
using QuantizeFn = void (*)(const float*, size_t, std::byte*);

// Floats from a format's integers. The order of the f32 roundings is that of UnpackedBlock's formula; it is also what
// ggml's dequantizers round to, since powers of two are all that the formats' own formulas group otherwise.
template <UnpackFn unpack, size_t weights, size_t bytes, size_t segments, bool has_minimum>
void dequantize_unpacked(const std::byte* blocks, size_t n_blocks, float* out) {
  UnpackedBlock block;
  for (size_t b = 0; b < n_blocks; ++b) {
    unpack(blocks + b * bytes, block);
    for (size_t group = 0; group < weights / kScaleGroup; ++group) {
      const float scale = block.scale[group * kScaleGroup * segments / weights] * block.scales[group];
      const float minimum = has_minimum ? block.minimum * block.minimums[group] : 0.0f;
      const int8_t* from = block.weights + group * kScaleGroup;
      float* to = out + b * weights + group * kScaleGroup;
      for (size_t i = 0; i < kScaleGroup; ++i) {
        const float product = scale * static_cast<float>(from[i]);
        to[i] = has_minimum ? product + minimum : product;
      }
    }
  }
}

constexpr Format float_format(Type type, const char* name, uint32_t bytes,
                              void (*dequantize)(const std::byte*, size_t, float*), QuantizeFn quantize) {
  return {type, name, 1, bytes, Activation::kFloat, 1, false, dequantize, nullptr, quantize};
}

enum class Minimum : bool { kNone, kYes };

template <UnpackFn unpack, uint32_t weights, uint32_t bytes, Minimum minimum = Minimum::kNone, uint32_t segments = 1>
constexpr Format block_format(Type type, const char* name, QuantizeFn quantize) {
  constexpr bool kHasMinimum = minimum == Minimum::kYes;
  return {.type = type,
          .name = name,
          .block_weights = weights,
          .block_bytes = bytes,
          .activation = weights == kMaxBlockWeights ? Activation::kInt8Per256 : Activation::kInt8Per32,
          .segments = segments,
          .has_minimum = kHasMinimum,
          .dequantize = dequantize_unpacked<unpack, weights, bytes, segments, kHasMinimum>,
          .unpack = unpack,
          .quantize = quantize};
}

// clang-format off
constexpr Format kFormats[] = {
    float_format(Type::kF32, "F32", 4, dequantize_f32, quantize_f32),
    float_format(Type::kF16, "F16", 2, dequantize_f16, quantize_f16),
    //           unpack       weights bytes
    block_format<unpack_q4_0,     32,  18>(Type::kQ4_0, "Q4_0", quantize_q4_0),
    block_format<unpack_q4_1,     32,  20, Minimum::kYes>(Type::kQ4_1, "Q4_1", quantize_q4_1),
    block_format<unpack_q5_0,     32,  22>(Type::kQ5_0, "Q5_0", quantize_q5_0),
    block_format<unpack_q5_1,     32,  24, Minimum::kYes>(Type::kQ5_1, "Q5_1", quantize_q5_1),
    block_format<unpack_q8_0,     32,  34>(Type::kQ8_0, "Q8_0", quantize_q8_0),
    block_format<unpack_q2_k,    256,  84, Minimum::kYes>(Type::kQ2_K, "Q2_K", nullptr),
    block_format<unpack_q3_k,    256, 110>(Type::kQ3_K, "Q3_K", nullptr),
    block_format<unpack_q4_k,    256, 144, Minimum::kYes>(Type::kQ4_K, "Q4_K", quantize_q4_k),
    block_format<unpack_q5_k,    256, 176, Minimum::kYes>(Type::kQ5_K, "Q5_K", quantize_q5_k),
    block_format<unpack_q6_k,    256, 210>(Type::kQ6_K, "Q6_K", quantize_q6_k),
    block_format<unpack_iq2_xxs, 256,  66>(Type::kIQ2_XXS, "IQ2_XXS", nullptr),
    block_format<unpack_iq2_xs,  256,  74>(Type::kIQ2_XS, "IQ2_XS", nullptr),
    block_format<unpack_iq3_xxs, 256,  98>(Type::kIQ3_XXS, "IQ3_XXS", nullptr),
    block_format<unpack_iq1_s,   256,  50>(Type::kIQ1_S, "IQ1_S", nullptr),
    block_format<unpack_iq4_nl,   32,  18>(Type::kIQ4_NL, "IQ4_NL", nullptr),
    block_format<unpack_iq3_s,   256, 110>(Type::kIQ3_S, "IQ3_S", nullptr),
    block_format<unpack_iq2_s,   256,  82>(Type::kIQ2_S, "IQ2_S", nullptr),
    block_format<unpack_iq4_xs,  256, 136>(Type::kIQ4_XS, "IQ4_XS", nullptr),
    block_format<unpack_iq1_m,   256,  56>(Type::kIQ1_M, "IQ1_M", nullptr),
    float_format(Type::kBF16, "BF16", 2, dequantize_bf16, quantize_bf16),
    block_format<unpack_tq1_0,   256,  54>(Type::kTQ1_0, "TQ1_0", nullptr),
    block_format<unpack_tq2_0,   256,  66>(Type::kTQ2_0, "TQ2_0", nullptr),
    block_format<unpack_mxfp4,    32,  17>(Type::kMXFP4, "MXFP4", nullptr),
    block_format<unpack_nvfp4,    64,  36, Minimum::kNone, 4>(Type::kNVFP4, "NVFP4", nullptr),
};
// clang-format on

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::span<const Format> formats() { return kFormats; }

const Format* find_format(uint32_t ggml_id) {
  const auto* found = std::ranges::find(kFormats, static_cast<Type>(ggml_id), &Format::type);
  return found == std::end(kFormats) ? nullptr : found;
}

const Format* find_format(std::string_view name) {
  const auto same = [&](const Format& row) {
    return std::ranges::equal(std::string_view(row.name), name, {}, lower, lower);
  };
  const auto* found = std::ranges::find_if(kFormats, same);
  return found == std::end(kFormats) ? nullptr : found;
}

const Format& format(Type type) {
  const auto id = static_cast<uint32_t>(type);
  if (const Format* found = find_format(id)) return *found;
  fail(ErrorKind::kUnsupported, "type {} is no weight format that Sluice knows", id);
}

uint64_t row_bytes(const Format& format, uint64_t n_weights) {
  if (n_weights % format.block_weights != 0) {
    fail(ErrorKind::kFormat, "a row of {} weights is no whole number of {} blocks of {}", n_weights, format.name,
         format.block_weights);
  }
  return checked_mul<uint64_t>(n_weights / format.block_weights, format.block_bytes, "bytes of a row");
}

}  // namespace sluice::quant
