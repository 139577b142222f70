// The block formats of quantized weights: one table row per format, from which everything else learns a format's sizes,
// how to make floats of it, how to make it of floats, and the integers inside it. Nothing here knows about tensors,
// files or instruction sets; fast kernels live in ops and are tested against this room.
//
// Layouts: the GGUF specification and ggml's public block definitions. A block stands at any address (they are 2-byte
// aligned at best), all fields are little endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::quant {

// A weight format. The values are GGUF's tensor type ids; GGUF's integer and f64 types are no weight formats.
enum class Type : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
};

// What a row of activations is turned into before its products with weights of a format.
enum class Activation {
  kFloat,       // stays f32; the weights are widened to f32
  kInt8Per32,   // int8 with one f32 scale per 32 values
  kInt8Per256,  // int8 with one f32 scale per 256 values
};

inline constexpr size_t kMaxBlockWeights = 256;
inline constexpr size_t kScaleGroup = 16;  // weights that share an integer scale and minimum, in every format

// The integers of one block, the same view of every format but the float ones:
//
//   value[i] = (scale[i / (block_weights / segments)] * scales[i / 16]) * weights[i]  +  minimum * minimums[i / 16]
//
// Each product is rounded to f32 on its own, and the sum is left out when the format has no minimum; these are then
// the bits that `dequantize` gives. For an exact product with int8 activations sum scales * weights * activations and
// minimums * activations as integers, which fit in 32 bits for every block of every format.
struct UnpackedBlock {
  alignas(64) int8_t weights[kMaxBlockWeights];    // [block_weights]; what lies beyond is unspecified
  int16_t scales[kMaxBlockWeights / kScaleGroup];  // [block_weights / 16], -128..127; 1 where a format has none
  int16_t
      minimums[kMaxBlockWeights / kScaleGroup];  // [block_weights / 16], 0..63; set only if the format has a minimum
  float scale[4];                                // [segments]
  float minimum;                                 // set only if the format has a minimum
};

// One format. Pointers are null where a format has no such operation. Functions take any alignment and run over whole
// blocks; sizes are the caller's promise (see row_bytes).
struct Format {
  Type type;
  const char* name;        // as GGUF tools spell it, e.g. "Q4_K"
  uint32_t block_weights;  // weights in one block: 1, 32, 64 or 256
  uint32_t block_bytes;
  Activation activation;
  uint32_t segments;  // f32 scales in one block, each for an equal share of its weights: 4 for NVFP4, else 1
  bool has_minimum;
  // blocks [n_blocks * block_bytes] -> out [n_blocks * block_weights]; never null.
  void (*dequantize)(const std::byte* blocks, size_t n_blocks, float* out);
  // The integers of one block; null if `activation` is kFloat.
  void (*unpack)(const std::byte* block, UnpackedBlock& out);
  // in [n_blocks * block_weights] -> out [n_blocks * block_bytes]; null for formats that Sluice only reads. Block
  // formats throw Error(kUnsupported) for a value that is not finite or so large that a block's scale would pass the
  // largest f16.
  void (*quantize)(const float* in, size_t n_blocks, std::byte* out);
};

// All formats, by ascending id.
std::span<const Format> formats();

// By GGUF type id, or by name in any case ("q4_k"); nullptr if there is no such weight format.
const Format* find_format(uint32_t ggml_id);
const Format* find_format(std::string_view name);

// The row of `type`. Throws Error(kUnsupported) for a number that is none of the enumerators.
const Format& format(Type type);

// Bytes of a row of n_weights. Throws Error(kFormat) when that is no whole number of blocks, or overflows.
uint64_t row_bytes(const Format& format, uint64_t n_weights);

}  // namespace sluice::quant
