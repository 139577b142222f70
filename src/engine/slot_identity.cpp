#include "engine/slot_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/hash.h"
#include "engine/engine.h"

namespace sluice {

namespace {

constexpr uint64_t kSampleBytes = 4096;

// Floats in hexadecimal: every bit of them.
std::string numbers_of(const model::Hyperparameters& hp) {
  const model::RopeScaling& rope = hp.rope_scaling;
  std::string out = fmt::format("{} {} {} {} {:a} ", hp.architecture->name, hp.n_layers, hp.n_embd, hp.n_vocab,
                                static_cast<double>(hp.rms_eps));
  out += fmt::format("{} {} {} {} {:a} ", hp.n_heads, hp.n_kv_heads, hp.key_dim, hp.value_dim,
                     static_cast<double>(hp.attention_scale));
  out += fmt::format("{} {:a} {} {:a} {:a} {:a} {:a} ", hp.n_rot, hp.rope_base, static_cast<int>(rope.kind),
                     rope.factor, rope.original_context, rope.beta_fast, rope.beta_slow);
  out += fmt::format("{} {} {} {} {} {:a} ", hp.n_ff, hp.n_experts, hp.n_experts_used, hp.n_expert_ff, hp.n_shared_ff,
                     static_cast<double>(hp.expert_weights_scale));
  out += fmt::format("{} {} {} {} {} ", hp.conv_taps, hp.n_key_heads, hp.n_value_heads, hp.state_key_dim,
                     hp.state_value_dim);
  for (const model::LayerKind kind : hp.layers) out += kind == model::LayerKind::kAttention ? 'a' : 'r';
  return out;
}

// A line of a tensor: how it looks, and how it begins.
std::string line_of(const quant::Format& format, std::span<const uint64_t> extents, std::span<const std::byte> sample) {
  return fmt::format("{} {} {:016x}", static_cast<uint32_t>(format.type), fmt::join(extents, "x"), xxh64(sample));
}

}  // namespace

uint64_t model_mark(const Engine& engine) {
  const gguf::Container& container = engine.file().container;
  std::map<std::string, std::string> tensors;  // by name: another order in the file is the same model
  std::vector<std::byte> sample;
  for (const gguf::TensorInfo& tensor : container.tensors()) {
    sample.resize(std::min(tensor.bytes, kSampleBytes));
    container.read(tensor, 0, sample);
    tensors[tensor.name] = line_of(*tensor.format, tensor.extents, sample);
  }
  if (const experts::Sidecar* sidecar = engine.file().sidecar.get(); sidecar != nullptr) {
    for (const experts::SidecarTensor& tensor : sidecar->tensors()) {
      const std::string name = fmt::format("blk.{}.{}.weight", tensor.layer, tensor.family);
      if (tensors.contains(name)) continue;
      sample.resize(std::min(tensor.bytes, kSampleBytes));  // from the first expert, where the stack begins
      tensor.file->read_at(tensor.offset_of(0), sample);
      tensors[name] = line_of(*tensor.format, tensor.shape, sample);
    }
  }
  std::string all = numbers_of(engine.model().hp);
  for (const auto& [name, line] : tensors) all += fmt::format("\n{} {}", name, line);
  return xxh64(std::as_bytes(std::span(all)));
}

SlotIdentity slot_identity(const Engine& engine) {
  const model::StateLayout& layout = engine.model().layout;
  return {model_mark(engine), layout.attention(0).key_value_type, layout.page_bytes(),
          layout.recurrent_floats() * sizeof(float)};
}

}  // namespace sluice
