// A batch on its way through a model: the forward pass over a flat list of rows, which may be prompt chunks, single
// tokens and speculative blocks of different sequences side by side. It can stop between layers and go on later.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "model/hyperparameters.h"
#include "model/profile.h"
#include "model/weights.h"
#include "ops/ops.h"
#include "state/sequence.h"

namespace sluice::model {

// One row of a batch: the next token of a sequence, and what is wanted of it. Rows of one sequence stand together, in
// order; their positions follow from the sequence's length.
struct Row {
  uint32_t sequence = 0;  // index into Batch::sequences
  int32_t token = 0;
  bool logits = false;    // compute the distribution of the token that follows
  bool snapshot = false;  // keep the sequence as it is after this row
};

struct Batch {
  std::vector<state::Sequence*> sequences;
  std::vector<Row> rows;
  std::vector<uint32_t> taps;  // layers after which the residual stream of every row is kept, ascending
  bool routes = false;         // keep the experts that every row chose
};

// How a model's state is laid out in pages and recurrent memory.
class StateLayout {
 public:
  StateLayout(const Hyperparameters& hp, ops::cpu::CacheType cache_type);

  size_t page_bytes() const { return page_bytes_; }
  size_t recurrent_floats() const { return recurrent_floats_; }
  ops::AttentionShape attention(uint32_t layer) const;
  const ops::DeltaShape& delta() const { return delta_; }
  // Where a recurrent layer's convolution history and state lie in a sequence's recurrent memory.
  size_t history_offset(uint32_t layer) const { return offsets_[layer]; }
  size_t state_offset(uint32_t layer) const { return offsets_[layer] + delta_.history_floats(); }

 private:
  ops::AttentionShape attention_;
  ops::DeltaShape delta_;
  std::vector<size_t> offsets_;  // [layers]: bytes into a page, or floats into recurrent memory
  size_t page_bytes_ = 0, recurrent_floats_ = 0;
};

// Scratch for batches of up to `max_rows`, allocated once.
class Workspace {
 public:
  // `max_logits` rows at most may want logits in one batch. Throws Error(kLimit).
  Workspace(const Hyperparameters& hp, size_t max_rows, size_t max_logits);
  static uint64_t bytes(const Hyperparameters& hp, size_t max_rows, size_t max_logits);

  size_t max_rows() const { return max_rows_; }
  size_t max_logits() const { return max_logits_; }

 private:
  friend class Pass;
  size_t max_rows_, max_logits_;
  Buffer memory_;
  // Pieces of memory_: [max_rows, ...] unless said otherwise.
  float* x = nullptr;       // [n_embd] the residual stream
  float* h = nullptr;       // [n_embd] the normed input of a block
  float* y = nullptr;       // [n_embd] what a block adds to the stream
  float* shared = nullptr;  // [n_embd] the shared expert's output
  // Attention: q, k, v, heads' outputs. Delta net: q|k|v, the same convolved, gate z, heads' outputs. Feed-forward:
  // gate, up.
  float *first = nullptr, *second = nullptr, *third = nullptr, *fourth = nullptr;
  float *alpha = nullptr, *beta = nullptr;             // [n_value_heads]
  float* angles = nullptr;                             // [2, n_rot / 2]
  float *router = nullptr, *expert_weights = nullptr;  // [n_experts], [n_experts_used]
  float* expert_out = nullptr;                         // [n_experts_used, n_embd]
  float* shared_gate = nullptr;                        // [1]
  float* logits = nullptr;                             // [max_logits, n_vocab]
  ops::Activations input, inner;                       // of a block's input; of what its last matrix reads
  ops::AttentionScratch attention;
  std::unique_ptr<ops::ExpertScratch> experts;
  struct Piece {
    float* Workspace::*at;
    size_t floats;
  };
  static std::vector<Piece> pieces(const Hyperparameters& hp, size_t max_rows, size_t max_logits);
};

// A loaded model and how it computes: what every pass shares.
struct Model {
  Hyperparameters hp;
  Weights weights;
  ops::RopeTable rope;
  StateLayout layout;

  // `hp` as read_hyperparameters() gives them for the file. Throws as Weights::load, and Error(kFormat) for rotary
  // frequencies that no model has.
  static Model load(const gguf::Container& file, Hyperparameters hp, ops::cpu::CacheType cache_type,
                    const LoadOptions& options = {});
};

// The angles per position that a model turns its heads by.
ops::RopeTable make_rope_table(const Hyperparameters& hp, Vector factors);

class Pass {
 public:
  // Begins a step of every sequence of the batch. Throws Error(kLimit) when pages run out or the batch is too large for
  // the workspace, Error(kUsage) when a token is none of the vocabulary; no sequence has changed then. A
  // profile, which must outlive the pass, is told where its time goes.
  Pass(const Model& model, const ops::Context& context, Workspace& workspace, Batch batch, Profile* profile = nullptr);
  // A pass that is not finished empties its sequences (see state::Sequence).
  ~Pass();
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  uint32_t layer() const { return layer_; }  // the next to compute
  // Computes layers up to, but not including, `end`.
  void run_layers(uint32_t end);
  // Computes what is left, commits the sequences, and makes logits and snapshots ready.
  void finish();

  // After finish(). Row i of those that wanted logits, in order: [n_vocab], valid until the workspace's next pass.
  std::span<const float> logits(size_t i) const;
  // The snapshot of row r, taken out.
  state::Snapshot take_snapshot(size_t r);
  // After layer taps[t]: [n_rows, n_embd].
  std::span<const float> tap(size_t t) const { return taps_[t]; }
  // The experts that the rows chose in a layer that has been computed, [n_rows, n_experts_used], best first.
  std::span<const uint32_t> routes(uint32_t layer) const { return routes_[layer]; }

 private:
  // Consecutive rows of one sequence.
  struct Run {
    uint32_t sequence;
    size_t first_row, n_rows;
  };
  struct Capture {
    size_t row;
    Buffer recurrent;
    state::Snapshot snapshot;
  };

  void check() const;
  void begin_steps();
  void hybrid_layer(uint32_t i);
  void transformer_layer(uint32_t i);
  // Blocks (blocks.cpp): norm(x) makes the input h, the others leave in y what add_to_residual() adds to x.
  void norm(Vector weight);
  void add_to_residual();
  void attention(uint32_t i, bool gated);
  void delta_net(uint32_t i);
  void feed_forward(const FeedForwardWeights& weights, float* out);
  void dense(uint32_t i);
  void experts(uint32_t i);
  std::vector<ops::ExpertGroup> group_rows(std::span<const uint32_t> ids, std::span<const uint32_t> distinct) const;
  void foresee(uint32_t i, size_t n_distinct);
  void head();
  // Tell the profile, if there is one, what the time since the last of these calls went into: products of `rows` rows
  // with matrices, or the operation between a mixer's products.
  void part_done(Part part, std::initializer_list<const Matrix*> matrices = {}, size_t rows = 0) const;
  void experts_done(std::span<const ops::ExpertGroup> groups) const;
  void attention_done(const ops::AttentionShape& shape) const;
  void delta_net_done() const;

  const Model& model_;
  ops::Context context_;
  Workspace& w_;
  Profile* profile_;
  Batch batch_;
  double start_;
  std::vector<Run> runs_;
  std::vector<int32_t> positions_;
  std::vector<ops::AttentionRow> attention_rows_;
  std::vector<Capture> captures_;
  std::vector<std::vector<float>> taps_;
  std::vector<std::vector<uint32_t>> routes_;  // by layer
  uint32_t layer_ = 0;
  bool finished_ = false;
};

}  // namespace sluice::model
