// Packed files: all experts of a model in one file of Sluice's own, one record for each, aligned for direct reads and
// with a checksum. So an expert is one read instead of two or three. docs/pack-format.md describes every byte.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "experts/sidecar.h"
#include "gguf/container.h"

namespace sluice::experts {

// A packed file begins so.
constexpr std::string_view kPackMagic = "SLUICEPK";

// Checks all but the experts themselves: the header's checksum, every field, every place in the file. The sidecar owns
// the file; its tensors are those of the model's file, and every layer has a seal. Throws Error, beginning with the
// file's path and naming field and value: kFormat when the file is damaged, cut short or contradicts itself;
// kUnsupported for a version or a weight format that Sluice does not read; kIo.
Sidecar open_pack(std::unique_ptr<File> file);

// What ties a layer's experts to the model that they are of: xxh64 of the first bytes of the layer's router, which also
// a file without experts holds, and which differs from model to model. Throws Error(kFormat) when there is no router.
uint64_t router_mark(const gguf::Container& model, uint32_t layer);

// Packs the experts of a model, also those of its draft block.
class PackWriter {
 public:
  // Decides where everything will lie. `model` must outlive the writer. Throws Error(kUnsupported) when the model has
  // no experts; kFormat naming a tensor when a layer's experts are not all there or of different numbers.
  explicit PackWriter(const gguf::Container& model);

  uint32_t n_layers() const { return static_cast<uint32_t>(layers_.size()); }
  uint32_t n_experts() const { return n_experts_; }
  uint64_t expert_bytes() const;  // of all experts: what is read
  uint64_t file_bytes() const;    // of the packed file

  // Reads every byte of the experts once, in order, some tens of MB at a time, and puts the file in place when it is
  // complete. `progress` hears the bytes read so far. Throws Error(kIo): no file is left then, and one that was at
  // `path` is as before.
  void write(const std::string& path, const std::function<void(uint64_t done)>& progress) const;

 private:
  struct Part {
    uint32_t family;  // its code
    const gguf::TensorInfo* tensor;
    uint64_t offset;  // in the record
    uint64_t bytes;   // of one expert
  };
  struct Layer {
    uint32_t number;
    std::vector<Part> parts;
    uint64_t offset, stride;  // of the records
    uint64_t record_bytes;    // without what pads it
  };

  Layer layer_of(uint32_t number) const;
  std::string header(const std::vector<uint64_t>& checksums) const;

  const gguf::Container& model_;
  uint32_t n_experts_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace sluice::experts
