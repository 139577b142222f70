// Reads golden vectors from safetensors files, for tests only: a whole file at once into memory, no views, no writing.
// Format: https://github.com/huggingface/safetensors (u64 header length, a JSON header, then the tensors' bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace sluice::test {

struct Tensor {
  std::string dtype;  // as the file spells it: "F32", "F64", "F16", "BF16", "I8", "U8", "I16", "I32", "I64", "BOOL" ...
  std::vector<uint64_t> shape;   // outermost first
  std::vector<std::byte> bytes;  // row-major, little endian

  // Number of elements: the product of `shape`.
  uint64_t count() const;

  // The elements as a vector of T. Throws Error(kFormat) when T is not what `dtype` says.
  template <typename T>
  std::vector<T> as() const {
    check_dtype(std::is_floating_point_v<T> ? 'F' : std::is_signed_v<T> ? 'I' : 'U', 8 * sizeof(T));
    std::vector<T> out(bytes.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
    return out;
  }

 private:
  void check_dtype(char kind, size_t bits) const;
};

// All tensors of the file at `path` by name. Throws Error(kIo) when it cannot be read and Error(kFormat) when the
// header or an offset in it is wrong, naming the file and the tensor.
std::map<std::string, Tensor> read_safetensors(const std::string& path);

}  // namespace sluice::test
