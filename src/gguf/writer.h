// Writes GGUF files. A file that was read (reader.h) and is written again with the same version and padding keeps every
// byte. Where the bytes of a tensor come from is the caller's; they are streamed, never held whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "gguf/metadata.h"
#include "gguf/reader.h"
#include "gguf/tensor_info.h"

namespace sluice::gguf {

// Takes the next bytes of a file.
using Sink = std::function<void(std::span<const std::byte>)>;

// Hands the data of `tensor`, tensor.bytes in all, to the sink, in pieces of any size.
using TensorSource = std::function<void(const TensorInfo& tensor, const Sink& sink)>;

struct WriterOptions {
  uint32_t version = kNewestVersion;  // 2 or 3, which differ in nothing else
  bool pad_to_end = true;             // pad the last tensor (or the header, without tensors) to the alignment too
};

class Writer {
 public:
  // The alignment is metadata's general.alignment, or the default of 32. Throws Error(kFormat) when that, a key or the
  // version can't stand in a file.
  explicit Writer(Metadata metadata, WriterOptions options = {});

  // Declares the next tensor; only name, extents and format of `tensor` matter. Throws Error(kFormat) when they can't
  // stand in a file, or when there is one of that name.
  void add_tensor(TensorInfo tensor, TensorSource source);

  // What will be written: sizes set, offsets from the start of the file.
  std::vector<TensorInfo> layout() const;

  // Writes the file beside `path` first and puts it in its place when it is complete. Throws Error(kIo), what a source
  // throws, and Error(kInternal) when a source gives too few or too many bytes.
  void write(const std::string& path) const;
  void write(const Sink& sink) const;

 private:
  // All before the padding in front of the data.
  std::string header() const;

  Metadata metadata_;
  WriterOptions options_;
  uint64_t alignment_;
  std::vector<TensorInfo> tensors_;  // offsets from the start of the data
  std::vector<TensorSource> sources_;
  std::set<std::string> names_;
};

}  // namespace sluice::gguf
