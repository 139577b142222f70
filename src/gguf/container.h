// One model as its user sees it: metadata and tensors of a GGUF file, or of all the files of a split model. Every name,
// size and place in it has been checked against the files (reader.h); what the numbers mean for a model is the model
// room's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "gguf/metadata.h"
#include "gguf/reader.h"
#include "gguf/tensor_info.h"

namespace sluice::gguf {

using FileOpener = std::function<std::unique_ptr<File>(const std::string& path)>;

struct OpenOptions {
  std::vector<std::string> overrides;  // "KEY=TYPE:VALUE", see Metadata::apply_override
  FileOpener opener = open_file;       // tests put faults and files in memory behind it
  size_t header_chunk = kHeaderChunk;
};

class Container {
 public:
  // Opens a model: a single file, or the first of the files <prefix>-00001-of-<count>.gguf of a split one, whose others
  // must lie beside it. Throws Error as read_part, and when a part of a split model is missing or belongs to another
  // model, a tensor name occurs twice, or `path` is a later part (the message names the first).
  static Container open(const std::string& path, const OpenOptions& options = {});

  const std::string& path() const { return shards_.front().file->path(); }
  const Metadata& metadata() const { return metadata_; }

  // In the order of the files.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  // nullptr when there is none of that name.
  const TensorInfo* find_tensor(std::string_view name) const;
  // Throws Error(kFormat) naming file and tensor when there is none.
  const TensorInfo& get_tensor(std::string_view name) const;

  // The files, in order; TensorInfo::shard counts in it.
  std::span<const Shard> shards() const { return shards_; }

  // Fills `out` from byte `offset` of the tensor's data on. Throws Error(kIo) naming the tensor when the file fails or
  // has shrunk, Error(kInternal) when the range is not inside the tensor. From any thread.
  void read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const;

 private:
  Container() = default;
  void append(Part part);
  void index_names();

  Metadata metadata_;
  std::vector<Shard> shards_;
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> by_name_;  // places in tensors_, sorted by name
};

}  // namespace sluice::gguf
