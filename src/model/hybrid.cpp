// Qwen3.5 and Qwen3.6 (`qwen35`, `qwen35moe`): gated delta net layers with full attention on every few, each followed
// by a dense feed-forward layer or by experts with a shared one.
//
// Source: transformers' modeling_qwen3_5(_moe), and the conventions of GGUF files: norm weights have their 1 added,
// ssm_a is -exp(A_log), value heads are tiled over key heads.
#include "model/forward.h"

namespace sluice::model {

void Pass::hybrid_layer(uint32_t i) {
  const LayerWeights& w = model_.weights.layers[i];
  norm(w.mixer_norm);  // h = norm(x)             [R, n_embd]
  if (w.kind == LayerKind::kAttention)
    attention(i, /*gated=*/true);  // y = Wo(sigmoid(gate) * attend(q, k, v))
  else
    delta_net(i);     // y = Wo(silu(z) * norm(delta(q, k, v)))
  add_to_residual();  // x += y
  norm(w.ff_norm);    // h = norm(x)
  if (w.experts)
    experts(i);  // y = sum of experts + sigmoid(s) * shared expert
  else
    dense(i);         // y = down(silu(gate h) * up h)
  add_to_residual();  // x += y
}

}  // namespace sluice::model
