// Reads and checks the header of one GGUF file: everything that the file claims is compared with what it can hold
// before it is used, and memory grows with bytes that are there, never with a count that is only claimed. Several files
// that make one model are container.h.
//
// Format: the GGUF specification (ggml, docs/gguf.md), versions 2 and 3, which have the same layout, little endian.
// Stricter than the specification, like llama.cpp: tensor data lies in the order of the tensor list without gaps beyond
// the alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/file.h"
#include "gguf/metadata.h"
#include "gguf/tensor_info.h"

namespace sluice::gguf {

constexpr uint32_t kNewestVersion = 3;
// Metadata and tensor list together. A vocabulary of 250 thousand tokens with its merges takes 11 MB.
constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;
constexpr size_t kHeaderChunk = size_t{1} << 20;  // bytes a read: the header of a large model takes a dozen

// One file, open, with the numbers that lay it out.
struct Shard {
  std::unique_ptr<File> file;
  uint32_t version = kNewestVersion;
  uint64_t alignment = kDefaultAlignment;
  uint64_t data_offset = 0;   // where tensor data starts (or would: a file without tensors may end before)
  bool padded_to_end = true;  // the last tensor, or a header without tensors, is padded to the alignment too
};

// One file's content. Tensor names are unique only after Container has checked them over all files.
struct Part {
  Shard shard;
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in file order
};

// Throws Error, beginning with the file's path: kFormat when the content contradicts the format, itself or the file's
// size; kUnsupported for a version, byte order or tensor type that Sluice does not read; kIo when reading fails.
Part read_part(std::unique_ptr<File> file, size_t chunk_bytes = kHeaderChunk);

}  // namespace sluice::gguf
