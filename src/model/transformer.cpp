// Plain pre-norm transformers: `llama`, `qwen2` (biases on q, k, v), `qwen3` (norms on q and k) and `qwen3moe`. What a
// model of the family lacks is absent from its weights.
//
// Source: transformers' modeling_llama, modeling_qwen2, modeling_qwen3 and modeling_qwen3_moe.
#include "model/forward.h"

namespace sluice::model {

void Pass::transformer_layer(uint32_t i) {
  const LayerWeights& w = model_.weights.layers[i];
  norm(w.mixer_norm);             // h = norm(x)             [R, n_embd]
  attention(i, /*gated=*/false);  // y = Wo attend(q, k, v)
  add_to_residual();              // x += y
  norm(w.ff_norm);                // h = norm(x)
  if (w.experts)
    experts(i);  // y = weighted sum of experts
  else
    dense(i);         // y = down(silu(gate h) * up h)
  add_to_residual();  // x += y
}

}  // namespace sluice::model
