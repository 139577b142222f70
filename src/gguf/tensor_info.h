// What a GGUF file says of one tensor, and the rules that names, keys and extents obey, for reader and writer alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quant/format.h"

namespace sluice::gguf {

constexpr uint64_t kDefaultAlignment = 32;             // the specification's, when general.alignment is absent
constexpr uint64_t kMaxAlignment = uint64_t{2} << 20;  // a huge page; more only wastes the file
constexpr size_t kMaxKeyBytes = 65535;                 // the specification's limit
constexpr size_t kMaxNameBytes = 63;                   // llama.cpp stores 64 with the terminator
constexpr size_t kMaxExtents = 4;

struct TensorInfo {
  std::string name;
  // Number of weights by dimension in GGUF order: extents[0] is contiguous, a matrix [in, out] has `out` rows of `in`
  // weights, a stack of experts is [in, out, experts]. 1 to 4 entries, each at least 1.
  std::vector<uint64_t> extents;
  const quant::Format* format = nullptr;
  uint32_t shard = 0;      // which file of the model holds it
  uint64_t offset = 0;     // of its first byte, from the start of that file
  uint64_t bytes = 0;      // rows x row_bytes; rows follow one another without padding
  uint64_t row_bytes = 0;  // of extents[0] weights
  uint64_t rows = 0;       // extents[1] x extents[2] x extents[3]
};

// Computes rows, row_bytes and bytes from extents and format. Throws Error(kFormat), beginning with `where`, when there
// are not 1 to 4 extents, one is 0 or negative as an i64, a row is no whole number of blocks, or a product does not
// fit in an i64.
void compute_sizes(TensorInfo& tensor, const std::string& where);

// Throw Error(kFormat), beginning with `where`, unless the text is not empty, not too long and UTF-8 without control
// characters.
void check_key(std::string_view key, const std::string& where);
void check_tensor_name(std::string_view name, const std::string& where);

// Throws Error(kFormat), beginning with `where`, unless `alignment` is a power of two up to kMaxAlignment.
void check_alignment(uint64_t alignment, const std::string& where);

}  // namespace sluice::gguf
