// The blocks that layers are made of, each from the normed input h to what it adds to the residual stream, y. R is the
// number of rows of the batch; shapes are [rows, columns].
#include <algorithm>
#include <numeric>

#include "model/forward.h"

namespace sluice::model {

void Pass::norm(Vector weight) {
  const size_t n = model_.hp.n_embd, rows = batch_.rows.size();
  ops::rms_norm(context_, w_.x, n, weight, rows, n, model_.hp.rms_eps, w_.h, n);  // h [R, n_embd]
  w_.input.reset(w_.h, rows, n);
  part_done(Part::kNorms);
}

void Pass::add_to_residual() {
  ops::add(context_, w_.y, batch_.rows.size(), model_.hp.n_embd, w_.x);
  part_done(Part::kNorms);
}

// Causal grouped-query attention. In hybrids ("gated") each query head is followed by a gate for its output.
void Pass::attention(uint32_t i, bool gated) {
  const Hyperparameters& hp = model_.hp;
  const AttentionWeights& w = model_.weights.layers[i].attention;
  const size_t rows = batch_.rows.size(), heads = hp.n_heads, kv_heads = hp.n_kv_heads;
  const size_t q_head = gated ? 2 * size_t{hp.key_dim} : hp.key_dim, q_width = heads * q_head;
  const size_t k_width = kv_heads * hp.key_dim, v_width = kv_heads * hp.value_dim, out_width = heads * hp.value_dim;
  float *q = w_.first, *k = w_.second, *v = w_.third, *out = w_.fourth;

  ops::linear(context_, w.q, w_.input, q, q_width);  // q [R, heads, q_head]
  ops::linear(context_, w.k, w_.input, k, k_width);  // k [R, kv_heads, key_dim]
  ops::linear(context_, w.v, w_.input, v, v_width);  // v [R, kv_heads, value_dim]
  part_done(Part::kAttentionProjections, {&w.q, &w.k, &w.v}, rows);
  if (w.q_bias) ops::add_bias(context_, w.q_bias, rows, q_width, q);
  if (w.k_bias) ops::add_bias(context_, w.k_bias, rows, k_width, k);
  if (w.v_bias) ops::add_bias(context_, w.v_bias, rows, v_width, v);
  if (w.q_norm) {
    ops::rms_norm(context_, q, q_head, w.q_norm, rows * heads, hp.key_dim, hp.rms_eps, q, q_head);
    ops::rms_norm(context_, k, hp.key_dim, w.k_norm, rows * kv_heads, hp.key_dim, hp.rms_eps, k, hp.key_dim);
  }
  ops::rope(context_, model_.rope, w_.angles, rows, heads, q_head, q_width, q);
  ops::rope(context_, model_.rope, w_.angles, rows, kv_heads, hp.key_dim, k_width, k);

  const ops::AttentionShape shape = model_.layout.attention(i);
  for (const Run& run : runs_)
    for (size_t r = run.first_row; r < run.first_row + run.n_rows; ++r) {
      const auto position = static_cast<size_t>(positions_[r]);
      std::byte* page = batch_.sequences[run.sequence]->page_of(position);
      ops::store_key_value(shape, page, position, k + r * k_width, v + r * v_width);
    }
  ops::attention(context_, shape, attention_rows_, q, q_width, q_head, w_.attention, out);  // out [R, heads, value_dim]
  if (gated) ops::sigmoid_mul(context_, q + hp.key_dim, q_head, rows * heads, hp.value_dim, out, hp.value_dim);
  attention_done(shape);
  w_.inner.reset(out, rows, out_width);
  ops::linear(context_, w.out, w_.inner, w_.y, hp.n_embd);  // y [R, n_embd]
  part_done(Part::kAttentionProjections, {&w.out}, rows);
}

// Gated delta net: a convolution over the last inputs, then a matrix state that each token corrects and asks.
void Pass::delta_net(uint32_t i) {
  const DeltaNetWeights& w = model_.weights.layers[i].delta_net;
  const ops::DeltaShape& shape = model_.layout.delta();
  const size_t rows = batch_.rows.size(), heads = shape.n_value_heads, width = heads * shape.value_dim;
  float *qkv = w_.first, *conv = w_.second, *z = w_.third, *out = w_.fourth;

  ops::linear(context_, w.qkv, w_.input, qkv, shape.channels());  // [R, key heads | key heads | value heads]
  ops::linear(context_, w.gate, w_.input, z, width);              // z [R, heads, value_dim]
  ops::linear(context_, w.alpha, w_.input, w_.alpha, heads);      // [R, heads]
  ops::linear(context_, w.beta, w_.input, w_.beta, heads);        // [R, heads]
  part_done(Part::kDeltaProjections, {&w.qkv, &w.gate, &w.alpha, &w.beta}, rows);

  const size_t history = model_.layout.history_offset(i), state = model_.layout.state_offset(i);
  std::vector<ops::DeltaRun> runs;
  for (const Run& run : runs_) {
    float* memory = batch_.sequences[run.sequence]->recurrent().data();
    runs.push_back({run.first_row, run.n_rows, memory + history, memory + state, {}});
    for (Capture& capture : captures_) {
      if (capture.row < run.first_row || capture.row >= run.first_row + run.n_rows) continue;
      float* copy = capture.recurrent.as<float>().data();
      runs.back().captures.push_back({capture.row - run.first_row + 1, copy + history, copy + state});
    }
  }
  ops::delta_net(context_, shape, {w.conv, w.dt_bias, w.a, w.norm}, runs, qkv, z, w_.alpha, w_.beta, conv, out);
  delta_net_done();
  w_.inner.reset(out, rows, width);                                // out [R, heads, value_dim], normed and gated
  ops::linear(context_, w.out, w_.inner, w_.y, model_.hp.n_embd);  // y [R, n_embd]
  part_done(Part::kDeltaProjections, {&w.out}, rows);
}

// SwiGLU: out = down(silu(gate h) * up h).
void Pass::feed_forward(const FeedForwardWeights& w, float* out) {
  const size_t rows = batch_.rows.size(), ff = w.gate.n_out;
  float *gate = w_.first, *up = w_.second;
  ops::linear(context_, w.gate, w_.input, gate, ff);      // [R, ff]
  ops::linear(context_, w.up, w_.input, up, ff);          // [R, ff]
  ops::silu_mul(context_, gate, up, ff, rows, ff, gate);  // [R, ff]
  w_.inner.reset(gate, rows, ff);
  ops::linear(context_, w.down, w_.inner, out, model_.hp.n_embd);  // [R, n_embd]
}

void Pass::dense(uint32_t i) {
  const FeedForwardWeights& w = model_.weights.layers[i].feed_forward;
  feed_forward(w, w_.y);
  part_done(Part::kFeedForward, {&w.gate, &w.up, &w.down}, batch_.rows.size());
}

// Mixture of experts: each row's top experts, weighed by the router and summed by rank, then the shared expert. Experts
// are computed as they become ready; each row and rank has a place of its own for the result, so that their order
// doesn't matter.
void Pass::experts(uint32_t i) {
  const Hyperparameters& hp = model_.hp;
  const ExpertLayerWeights& w = *model_.weights.layers[i].experts;
  const size_t rows = batch_.rows.size(), k = hp.n_experts_used;
  std::vector<uint32_t> ids(rows * k);                                 // [R, k], best first
  ops::linear(context_, w.router, w_.input, w_.router, hp.n_experts);  // [R, n_experts]
  ops::route(context_, w_.router, rows, hp.n_experts, k, hp.expert_weights_scale, ids.data(), w_.expert_weights);
  part_done(Part::kRouter, {&w.router}, rows);

  // The distinct experts of the batch, ascending, each with the rows that chose it.
  std::vector<uint32_t> uses_of(hp.n_experts, 0), distinct, uses;
  for (const uint32_t id : ids) ++uses_of[id];
  for (uint32_t e = 0; e < hp.n_experts; ++e)
    if (uses_of[e] > 0) distinct.push_back(e), uses.push_back(uses_of[e]);
  experts::Bank::Request request = model_.weights.bank->request(i, distinct, uses);
  foresee(i, distinct.size());
  std::vector<ops::ExpertGroup> groups = group_rows(ids, distinct);
  if (batch_.routes) routes_.push_back(std::move(ids));

  const bool shared = !w.shared_gate.empty();
  if (shared) {
    feed_forward(w.shared, w_.shared);                                  // [R, n_embd]
    ops::linear(context_, w.shared_gate, w_.input, w_.shared_gate, 1);  // [R, 1]
    part_done(Part::kSharedExpert, {&w.shared.gate, &w.shared.up, &w.shared.down, &w.shared_gate}, rows);
  }
  std::vector<ops::ExpertGroup> ready;
  for (auto next = request.next(); !next.empty(); next = request.next()) {
    part_done(Part::kExpertReads);
    ready.clear();
    for (const experts::Bank::Ready& expert : next) {
      ready.push_back(std::move(groups[expert.index]));
      ready.back().weights = w.experts.at(expert.parts, distinct[expert.index]);
    }
    ops::expert_ffn(context_, ready, w_.input, *w_.experts, hp.n_embd, w_.expert_out);  // [R, k, n_embd]
    experts_done(ready);
  }
  ops::combine_experts(context_, w_.expert_weights, w_.expert_out, rows, k, hp.n_embd,
                       shared ? w_.shared_gate : nullptr, shared ? w_.shared : nullptr, w_.y);  // y [R, n_embd]
  part_done(Part::kExperts);
}

// Per distinct expert, the rows that chose it and where their results go. Weights are still to be set.
std::vector<ops::ExpertGroup> Pass::group_rows(std::span<const uint32_t> ids,
                                               std::span<const uint32_t> distinct) const {
  std::vector<uint32_t> group_of(model_.hp.n_experts);
  for (uint32_t g = 0; g < distinct.size(); ++g) group_of[distinct[g]] = g;
  std::vector<ops::ExpertGroup> groups(distinct.size());
  for (uint32_t pair = 0; pair < ids.size(); ++pair) {
    ops::ExpertGroup& group = groups[group_of[ids[pair]]];
    group.rows.push_back(pair / model_.hp.n_experts_used);
    group.out.push_back(pair);
  }
  return groups;
}

// Tells the bank what the next layer will need, so that the disk is not idle until its router has spoken. A batch that
// used nearly all experts of this layer will do so in the next. For a few rows, the next router is asked about the
// residual stream as it is now: what this layer still adds to it changes few choices.
void Pass::foresee(uint32_t i, size_t n_distinct) {
  experts::Bank& bank = *model_.weights.bank;
  const Hyperparameters& hp = model_.hp;
  const uint32_t next = i + 1;
  if (!bank.streams() || next >= hp.n_layers) return;
  if (10 * n_distinct >= 9 * size_t{hp.n_experts}) {
    std::vector<uint32_t> all(hp.n_experts);
    std::iota(all.begin(), all.end(), 0);
    bank.expect(next, all, /*surely=*/true);
    return;
  }
  const size_t rows = batch_.rows.size(), k = hp.n_experts_used, n = hp.n_embd;
  const size_t guesses = bank.look_ahead().wanted(rows, k);  // for each row
  if (guesses == 0) return;
  const LayerWeights& w = model_.weights.layers[next];
  std::vector<uint32_t> ids(rows * k);
  std::vector<float> weights(rows * k);
  ops::rms_norm(context_, w_.x, n, w.ff_norm, rows, n, hp.rms_eps, w_.y, n);  // y is free until the block's end
  w_.inner.reset(w_.y, rows, n);
  ops::linear(context_, w.experts->router, w_.inner, w_.router, hp.n_experts);
  ops::route(context_, w_.router, rows, hp.n_experts, k, hp.expert_weights_scale, ids.data(), weights.data());
  std::vector<uint32_t> likely;
  for (size_t r = 0; r < rows; ++r)  // ids [R, k], best first
    likely.insert(likely.end(), ids.begin() + static_cast<ptrdiff_t>(r * k),
                  ids.begin() + static_cast<ptrdiff_t>(r * k + guesses));
  std::ranges::sort(likely);
  likely.erase(std::unique(likely.begin(), likely.end()), likely.end());
  bank.expect(next, likely, /*surely=*/false);
  part_done(Part::kRouter, {&w.experts->router}, rows);
}

// The distribution of the next token, for the rows that want it.
void Pass::head() {
  const size_t n = model_.hp.n_embd;
  size_t wanted = 0;
  for (size_t r = 0; r < batch_.rows.size(); ++r)
    if (batch_.rows[r].logits)
      ops::rms_norm(context_, w_.x + r * n, n, model_.weights.output_norm, 1, n, model_.hp.rms_eps, w_.h + wanted++ * n,
                    n);
  if (wanted == 0) return;
  w_.input.reset(w_.h, wanted, n);
  ops::linear(context_, model_.weights.head, w_.input, w_.logits, model_.hp.n_vocab);  // [wanted, n_vocab]
  part_done(Part::kHead, {&model_.weights.head}, wanted);
}

// ---- what a profile is told ---------------------------------------------------------------------------------------

namespace {

double stored_bytes(const Matrix& m) { return static_cast<double>(m.n_out * m.row_bytes()); }
double operations(const Matrix& m, size_t rows) {
  return 2.0 * static_cast<double>(m.n_in) * static_cast<double>(m.n_out) * static_cast<double>(rows);
}

}  // namespace

void Pass::part_done(Part part, std::initializer_list<const Matrix*> matrices, size_t rows) const {
  if (profile_ == nullptr) return;
  double bytes = 0, ops = 0;
  for (const Matrix* m : matrices) {
    bytes += stored_bytes(*m);
    ops += operations(*m, rows);
  }
  profile_->lap(part, bytes, ops);
}

void Pass::experts_done(std::span<const ops::ExpertGroup> groups) const {
  if (profile_ == nullptr) return;
  double bytes = 0, ops = 0;
  for (const ops::ExpertGroup& group : groups)
    for (const Matrix* m : {&group.weights.gate, &group.weights.up, &group.weights.down}) {
      bytes += stored_bytes(*m);
      ops += operations(*m, group.rows.size());
    }
  profile_->lap(Part::kExperts, bytes, ops);
}

// A sequence's keys and values count once, however many of its rows attend to them.
void Pass::attention_done(const ops::AttentionShape& shape) const {
  if (profile_ == nullptr) return;
  const auto dims = static_cast<double>(shape.key_dim + shape.value_dim);
  double keys_read = 0, keys_met = 0;
  for (const Run& run : runs_) {
    keys_read += static_cast<double>(attention_rows_[run.first_row + run.n_rows - 1].n_keys);
    for (size_t r = run.first_row; r < run.first_row + run.n_rows; ++r)
      keys_met += static_cast<double>(attention_rows_[r].n_keys);
  }
  const auto element = static_cast<double>(ops::cpu::element_bytes(shape.key_value_type));
  profile_->lap(Part::kAttention, keys_read * dims * element * static_cast<double>(shape.n_kv_heads),
                2.0 * keys_met * dims * static_cast<double>(shape.n_heads));
}

void Pass::delta_net_done() const {
  if (profile_ == nullptr) return;
  const auto state = static_cast<double>(model_.layout.delta().state_floats());
  constexpr double kPerValue = 7;  // decay; read and answer, each a product and a sum; the write's product and sum
  profile_->lap(Part::kDeltaNet, 2.0 * sizeof(float) * state * static_cast<double>(runs_.size()),
                kPerValue * state * static_cast<double>(batch_.rows.size()));
}

}  // namespace sluice::model
