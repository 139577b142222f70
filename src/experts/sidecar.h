// Sidecars: the experts of a model apart from its GGUF file. Either one packed file (pack.h), or a directory that
// flash-MoE tools write, with a manifest.json and files of layers beside it. Either is compared with itself and with
// the sizes of its files before anyone reads an expert; whether the experts fit a model is for those who know the
// model.
//
// Format of the directories: schema version 1 as flashmoe_sidecar.py writes it (Anemll, 2026), learnt from its files.
// It holds no checksum and nothing that identifies the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "quant/format.h"

namespace sluice::experts {

// One stacked tensor of experts in a sidecar: expert e is `bytes` bytes at offset_of(e), all of them inside the file.
struct SidecarTensor {
  uint32_t layer = 0;
  std::string family;  // "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps" or "ffn_gate_up_exps"
  const quant::Format* format = nullptr;
  std::vector<uint64_t> shape;  // [n_in, n_out, n_experts], the fastest first as in GGUF
  const File* file = nullptr;   // the Sidecar's own
  uint64_t offset = 0;          // of expert 0
  uint64_t stride = 0;          // from one expert to the next, >= bytes
  uint64_t bytes = 0;           // of one expert: n_out rows of n_in weights

  uint64_t offset_of(uint64_t expert) const { return offset + expert * stride; }
};

// What a packed file says of a layer besides where its experts lie.
struct LayerSeal {
  uint64_t router = 0;              // router_mark() of the layer that the experts belong to
  std::vector<uint64_t> checksums;  // by expert: xxh64 of its parts and what lies between them
};

class Sidecar {
 public:
  using Opener = std::function<std::unique_ptr<File>(const std::string& path)>;

  // Opens the sidecar at `path`: a packed file, a directory with a manifest.json, or such a manifest. Tests and fuzzing
  // put faults and files in memory behind `opener`. A packed file is read as open_pack() has it.
  //
  // Two layouts of directories are known: whole tensors one after another (layer_major_whole_tensor), and the parts of
  // an expert side by side, expert after expert (layer_major_expert); a manifest that names none is told by its
  // entries. What some writers leave out (layout, block_size, expert_count, model, anything about the source) may be
  // missing, but what is there has to agree.
  //
  // Throws Error, beginning with the path of manifest or packed file and naming entry, field and value: kFormat when it
  // contradicts the format, itself or the files' sizes; kUnsupported for a version, kind, layout, family or weight
  // format that Sluice does not read; kLimit when the manifest is too large or too deep; kUsage for a GGUF file; kIo
  // when a file can't be read.
  static Sidecar open(const std::string& path, const Opener& opener = open_file);

  // What opening yields; for the readers of the formats.
  struct Contents {
    std::string path, layout;
    std::optional<std::string> architecture;
    std::optional<uint32_t> expert_count;
    std::vector<std::unique_ptr<File>> files;
    std::vector<SidecarTensor> tensors;
    std::map<uint32_t, LayerSeal> seals;  // by layer
  };
  explicit Sidecar(Contents contents);

  // The path of the manifest or packed file.
  const std::string& path() const { return contents_.path; }
  // "layer_major_whole_tensor" or "layer_major_expert", whichever way the manifest spells it; "pack".
  const std::string& layout() const { return contents_.layout; }

  // What is said of the model; nullopt where nothing is. The count of experts is every tensor's own.
  const std::optional<std::string>& architecture() const { return contents_.architecture; }
  std::optional<uint32_t> expert_count() const { return contents_.expert_count; }

  // By layer, then by family. Not every layer need have every family.
  std::span<const SidecarTensor> tensors() const { return contents_.tensors; }
  // nullptr when the sidecar has no such tensor.
  const SidecarTensor* find(uint32_t layer, std::string_view family) const;
  // Of a layer in a packed file, else nullptr.
  const LayerSeal* seal(uint32_t layer) const;

 private:
  Contents contents_;
};

}  // namespace sluice::experts
