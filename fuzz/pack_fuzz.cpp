// A packed file of any content ends in an Error or in a sidecar whose every expert can be read, lies apart from all
// others, and is found by its name. Its checksum is put right before it is read, else no change would get past that.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "experts/pack.h"
#include "experts/source.h"

namespace {

using sluice::experts::Sidecar;
using sluice::experts::SidecarTensor;
using Bytes = std::vector<std::byte>;

constexpr size_t kChecksum = 32, kHeaderBytes = 128, kLayerBytes = 128;  // docs/pack-format.md

void seal(Bytes& bytes) {
  if (bytes.size() < kHeaderBytes) return;
  const uint64_t layers = sluice::load<uint32_t>(&bytes[12]), experts = sluice::load<uint32_t>(&bytes[16]);
  if (layers > 4096 || experts > 65536) return;
  const uint64_t front = kHeaderBytes + layers * (kLayerBytes + 8 * experts);
  if (front > bytes.size()) return;
  sluice::store(&bytes[kChecksum], uint64_t{0});
  sluice::store(&bytes[kChecksum], sluice::xxh64(std::span(bytes).first(front)));
}

// Reads every expert, and claims each of its bytes once.
void read_all(const Sidecar& sidecar, size_t file_bytes) {
  std::vector<bool> claimed(file_bytes);
  std::map<uint32_t, std::vector<sluice::experts::Part>> layers;
  for (const SidecarTensor& tensor : sidecar.tensors()) {
    if (sidecar.find(tensor.layer, tensor.family) != &tensor) std::abort();
    if (tensor.bytes != tensor.shape[1] * sluice::quant::row_bytes(*tensor.format, tensor.shape[0])) std::abort();
    Bytes expert(tensor.bytes);
    for (uint64_t e = 0; e < tensor.shape[2]; ++e) {
      tensor.file->read_at(tensor.offset_of(e), expert);
      for (uint64_t i = tensor.offset_of(e); i < tensor.offset_of(e) + tensor.bytes; ++i) {
        if (claimed[i]) std::abort();
        claimed[i] = true;
      }
    }
    layers[tensor.layer].push_back({tensor.file, tensor.offset, tensor.bytes, tensor.stride});
  }
  for (auto& [layer, parts] : layers) {
    std::ranges::sort(parts, {}, &sluice::experts::Part::offset);
    const auto& checksums = sidecar.seal(layer)->checksums;
    // Which wants an expert to be one read.
    const sluice::experts::LayerSource source(static_cast<uint32_t>(checksums.size()), parts, checksums);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  seal(bytes);
  try {
    read_all(sluice::experts::open_pack(sluice::memory_file("P", bytes)), size);
  } catch (const sluice::Error& error) {
    if (error.kind() == sluice::ErrorKind::kInternal) std::abort();
  }
  return 0;
}
