// The numbers of a model, read from GGUF metadata and checked against each other, so that the rest of the engine can
// trust them. What a tensor of these sizes must look like is weights.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/container.h"

namespace sluice::model {

// How a family's layers are put together; one forward pass each (hybrid.cpp, transformer.cpp).
enum class Family { kHybrid, kTransformer };

struct Architecture {
  const char* name;  // general.architecture
  Family family;
  bool experts;          // feed-forward layers are mixtures of experts
  bool adjacent_pairs;   // rotary pairs (2j, 2j + 1) instead of halves
  bool query_key_norms;  // norms on queries and keys are required
};

// The architectures that Sluice runs.
const std::vector<Architecture>& architectures();

enum class LayerKind : uint8_t { kAttention, kRecurrent };

struct RopeScaling {
  enum class Kind { kNone, kLinear, kYarn } kind = Kind::kNone;
  double factor = 1.0;
  double original_context = 0.0;  // positions
  double beta_fast = 32.0, beta_slow = 1.0;
};

struct Hyperparameters {
  const Architecture* architecture = nullptr;
  std::string name;

  uint32_t n_layers = 0;        // of the trunk: draft blocks are not counted
  uint32_t n_draft_layers = 0;  // multi-token-prediction blocks behind them (0 or 1)
  uint32_t n_context = 0;       // positions the model was trained for
  uint32_t n_embd = 0, n_vocab = 0;
  uint32_t n_ff = 0;  // dense feed-forward width; 0 with experts
  float rms_eps = 0.0f;

  std::vector<LayerKind> layers;  // [n_layers + n_draft_layers]

  // Attention layers.
  uint32_t n_heads = 0, n_kv_heads = 0, key_dim = 0, value_dim = 0;
  float attention_scale = 0.0f;
  uint32_t n_rot = 0;  // leading dimensions of a head that turn
  double rope_base = 10000.0;
  RopeScaling rope_scaling;

  // Experts.
  uint32_t n_experts = 0, n_experts_used = 0, n_expert_ff = 0, n_shared_ff = 0;  // n_shared_ff 0: no shared expert
  float expert_weights_scale = 1.0f;

  // Recurrent (gated delta net) layers.
  uint32_t conv_taps = 0, n_key_heads = 0, n_value_heads = 0, state_key_dim = 0, state_value_dim = 0;

  uint32_t n_blocks() const { return n_layers + n_draft_layers; }
};

// Reads and checks them. Throws Error(kUnsupported) for an architecture that Sluice does not run (with the list of
// those it does), Error(kFormat) naming file, key, value and limit when a number is missing, absurd or contradicts
// another. `experts_used`: use so many experts a token, fewer than the model's own number; 0: as many; Error(kUsage)
// for more. Keys: GGUF's `<architecture>.*`, facts from the converters of llama.cpp.
Hyperparameters read_hyperparameters(const gguf::Container& file, uint32_t experts_used = 0);

}  // namespace sluice::model
