// A model's weights as the forward pass reads them: matrices in their own format, vectors as f32, experts in the slot
// bank. Shapes in GGUF order: a matrix [n_in, n_out] has n_out rows of n_in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "experts/bank.h"
#include "experts/sidecar.h"
#include "gguf/container.h"
#include "model/hyperparameters.h"
#include "ops/ops.h"

namespace sluice::model {

using ops::Matrix;
using Vector = const float*;  // null where a model has none

struct AttentionWeights {
  Matrix q, k, v;  // [n_embd, heads x dim]; in hybrids each query head is followed by its output gate
  Matrix out;      // [n_heads x value_dim, n_embd]
  Vector q_norm = nullptr, k_norm = nullptr;  // [key_dim]
  Vector q_bias = nullptr, k_bias = nullptr, v_bias = nullptr;
};

struct DeltaNetWeights {
  Matrix qkv;                             // [n_embd, channels]
  Matrix gate;                            // [n_embd, value heads x value dim]
  Matrix alpha, beta;                     // [n_embd, value heads]
  Matrix out;                             // [value heads x value dim, n_embd]
  Vector conv = nullptr;                  // [taps, channels]
  Vector dt_bias = nullptr, a = nullptr;  // [value heads]
  Vector norm = nullptr;                  // [value dim]
};

struct FeedForwardWeights {
  Matrix gate, up, down;  // [n_embd, ff], [n_embd, ff], [ff, n_embd]
};

// Where an expert's matrices lie in a slot, and in which format.
struct ExpertView {
  Matrix gate, up, down;  // data: null; see at()
  // Which part of its LayerSource each is in, and where; only in fused files ups don't begin with their part.
  size_t up_part = 0, down_part = 0, up_offset = 0;
  std::vector<float> gate_scale, up_scale, down_scale;  // [n_experts], empty without

  // An expert whose parts lie at these addresses.
  ops::ExpertWeights at(std::span<const std::byte* const> parts, uint32_t expert) const;
};

struct ExpertLayerWeights {
  Matrix router;  // [n_embd, n_experts]
  ExpertView experts;
  Matrix shared_gate;  // [n_embd, 1]; empty without a shared expert
  FeedForwardWeights shared;
};

struct LayerWeights {
  LayerKind kind = LayerKind::kAttention;
  Vector mixer_norm = nullptr, ff_norm = nullptr;  // [n_embd]
  AttentionWeights attention;
  DeltaNetWeights delta_net;
  FeedForwardWeights feed_forward;            // dense layers
  std::optional<ExpertLayerWeights> experts;  // layers with experts
};

// The multi-token-prediction block's own parts; its layer is the last entry of Weights::layers.
struct DraftHeadWeights {
  Vector embedding_norm = nullptr, hidden_norm = nullptr;  // [n_embd]
  Matrix projection;                                       // [2 n_embd, n_embd]: embedding half first
  Vector head_norm = nullptr;                              // [n_embd]
};

struct LoadOptions {
  bool draft_head = false;  // load the multi-token-prediction block too
  bool lock = false;        // keep the weights in memory, whatever else wants it
  // Called as bytes arrive, with those read so far and those to read in all.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
  experts::BankSize bank_size = {};
  experts::BankOptions bank = {};
  // Experts to read at once, where not all have a slot.
  std::vector<experts::Bank::Unit> first = {};
  const experts::Sidecar* sidecar = nullptr;  // where the experts are read from, instead of from the file
};

// What weights will take; what the planner shows and peak memory is held against.
struct WeightPlan {
  uint64_t dense = 0;  // bytes
  std::vector<experts::LayerSource> experts;

  experts::SlotPlan slots(const experts::BankSize& size) const {
    return experts.empty() ? experts::SlotPlan() : experts::SlotPlan(experts, size);
  }
};

class Weights {
 public:
  // Checks every tensor's shape against the hyper-parameters, then reads each byte once to where it is used; experts
  // without a slot are read when they are needed, so `file` and the sidecar must outlive the weights. Throws
  // Error(kFormat) naming file, tensor, found and wanted shape; Error(kIo); Error(kLimit) also when locking is refused.
  static Weights load(const gguf::Container& file, const Hyperparameters& hp, const LoadOptions& options = {});
  // What load() would allocate, from the header alone; the same checks.
  // Of the options it heeds `draft_head` and `sidecar`.
  static WeightPlan plan(const gguf::Container& file, const Hyperparameters& hp, const LoadOptions& options = {});

  Matrix embedding;                  // [n_embd, n_vocab]
  Vector output_norm = nullptr;      // [n_embd]
  Matrix head;                       // [n_embd, n_vocab]; the embedding itself in tied models
  Vector rope_factors = nullptr;     // [n_rot / 2] divisors of the rotary frequencies (llama3 scaling)
  std::vector<LayerWeights> layers;  // of the trunk, then the draft block if loaded
  std::optional<DraftHeadWeights> draft_head;
  std::unique_ptr<experts::Bank> bank;  // null without experts

 private:
  friend class Loader;
  Buffer memory_;  // all dense weights
};

}  // namespace sluice::model
