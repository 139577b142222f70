// The frame of a pass: scratch, rows, steps, and the loop over layers. The layers themselves are hybrid.cpp and
// transformer.cpp, their blocks blocks.cpp.
#include "model/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/system.h"
#include "ops/math.h"

namespace sluice::model {

// ---- layout and scratch --------------------------------------------------------------------------------------------

StateLayout::StateLayout(const Hyperparameters& hp, ops::cpu::CacheType cache_type) {
  attention_ = {.n_heads = hp.n_heads,
                .n_kv_heads = hp.n_kv_heads,
                .key_dim = hp.key_dim,
                .value_dim = hp.value_dim,
                .key_value_type = cache_type,
                .layer_offset = 0,
                .scale = hp.attention_scale};
  delta_ = {.n_key_heads = hp.n_key_heads,
            .n_value_heads = hp.n_value_heads,
            .key_dim = hp.state_key_dim,
            .value_dim = hp.state_value_dim,
            .taps = hp.conv_taps,
            .eps = hp.rms_eps};
  for (uint32_t i = 0; i < hp.n_blocks(); ++i) {
    if (hp.layers[i] == LayerKind::kAttention) {
      offsets_.push_back(page_bytes_);
      page_bytes_ += align_up(hp.n_kv_heads * attention_.head_bytes());
    } else {
      offsets_.push_back(recurrent_floats_);
      recurrent_floats_ += align_up(delta_.history_floats(), 16) + delta_.state_floats();
    }
  }
}

ops::AttentionShape StateLayout::attention(uint32_t layer) const {
  ops::AttentionShape shape = attention_;
  shape.layer_offset = offsets_[layer];
  return shape;
}

namespace {

// Widths of the pieces that mixers and feed-forward layers share.
struct Widths {
  size_t first, second, third, fourth, inner;
};

Widths widths_of(const Hyperparameters& hp) {
  const size_t q = size_t{hp.n_heads} * hp.key_dim * (hp.architecture->family == Family::kHybrid ? 2 : 1);
  const size_t k = size_t{hp.n_kv_heads} * hp.key_dim, v = size_t{hp.n_kv_heads} * hp.value_dim;
  const size_t heads_out = size_t{hp.n_heads} * hp.value_dim;
  const size_t values = size_t{hp.n_value_heads} * hp.state_value_dim;
  const size_t channels = 2 * size_t{hp.n_key_heads} * hp.state_key_dim + values;
  const size_t ff = std::max(hp.n_ff, hp.n_shared_ff);
  return {.first = std::max({q, channels, ff}),
          .second = std::max({k, channels, ff}),
          .third = std::max(v, values),
          .fourth = std::max(heads_out, values),
          .inner = std::max({heads_out, values, ff, size_t{hp.n_embd}})};
}

}  // namespace

std::vector<Workspace::Piece> Workspace::pieces(const Hyperparameters& hp, size_t max_rows, size_t max_logits) {
  const Widths w = widths_of(hp);
  const size_t r = max_rows, d = hp.n_embd;
  return {{&Workspace::x, r * d},
          {&Workspace::h, r * d},
          {&Workspace::y, r * d},
          {&Workspace::shared, hp.n_shared_ff > 0 ? r * d : 0},
          {&Workspace::first, r * w.first},
          {&Workspace::second, r * w.second},
          {&Workspace::third, r * w.third},
          {&Workspace::fourth, r * w.fourth},
          {&Workspace::alpha, r * hp.n_value_heads},
          {&Workspace::beta, r * hp.n_value_heads},
          {&Workspace::angles, r * hp.n_rot},
          {&Workspace::router, r * hp.n_experts},
          {&Workspace::expert_weights, r * hp.n_experts_used},
          {&Workspace::expert_out, r * hp.n_experts_used * d},
          {&Workspace::shared_gate, hp.n_shared_ff > 0 ? r : 0},
          {&Workspace::logits, max_logits * hp.n_vocab}};
}

Workspace::Workspace(const Hyperparameters& hp, size_t max_rows, size_t max_logits)
    : max_rows_(max_rows),
      max_logits_(max_logits),
      input(max_rows * hp.n_embd),
      inner(max_rows * widths_of(hp).inner),
      attention(hp.n_heads, hp.value_dim) {
  size_t total = 0;
  for (const Piece& piece : pieces(hp, max_rows, max_logits)) total += align_up(piece.floats * sizeof(float));
  memory_ = Buffer(total, "scratch of the forward pass");
  std::byte* at = memory_.data();
  for (const Piece& piece : pieces(hp, max_rows, max_logits)) {
    this->*piece.at = reinterpret_cast<float*>(at);
    at += align_up(piece.floats * sizeof(float));
  }
  if (hp.n_experts > 0) experts = std::make_unique<ops::ExpertScratch>(max_rows * hp.n_experts_used, hp.n_expert_ff);
}

uint64_t Workspace::bytes(const Hyperparameters& hp, size_t max_rows, size_t max_logits) {
  uint64_t total = ops::Activations::bytes(max_rows * hp.n_embd) +
                   ops::Activations::bytes(max_rows * widths_of(hp).inner) +
                   ops::AttentionScratch::bytes(hp.n_heads, hp.value_dim);
  for (const Piece& piece : pieces(hp, max_rows, max_logits)) total += align_up(piece.floats * sizeof(float));
  if (hp.n_experts > 0) total += ops::ExpertScratch::bytes(max_rows * hp.n_experts_used, hp.n_expert_ff);
  return total;
}

// ---- the model -----------------------------------------------------------------------------------------------------

namespace {

// YaRN: frequencies whose wave turns often within the original context stay, slow ones are stretched by the factor, and
// a ramp over whole pairs lies between. Source: Peng et al. (2023), section 3.2.
void stretch(const Hyperparameters& hp, ops::RopeTable& table) {
  const RopeScaling& scaling = hp.rope_scaling;
  constexpr double kTwoPi = 6.283185307179586;
  const double n = hp.n_rot;
  const auto pair_turning = [&](double turns) {
    return n * ops::log(scaling.original_context / (turns * kTwoPi)) / (2.0 * ops::log(hp.rope_base));
  };
  const double low = std::max(std::floor(pair_turning(scaling.beta_fast)), 0.0);
  const double high = std::min(std::ceil(pair_turning(scaling.beta_slow)), n - 1.0);
  for (size_t j = 0; j < table.frequencies.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / std::max(high - low, 0.001), 0.0, 1.0);
    table.frequencies[j] *= (1.0 - ramp) + ramp / scaling.factor;
  }
  table.size = static_cast<float>(1.0 + 0.1 * ops::log(scaling.factor));
}

// Angles must stay where sincos() is exact: |x| <= 2^30 (ops/math.h), at positions up to 2^28.
void check_frequencies(const gguf::Container& file, const ops::RopeTable& table) {
  constexpr double kFastest = 4.0;
  for (size_t j = 0; j < table.frequencies.size(); ++j)
    if (!(table.frequencies[j] > 0.0 && table.frequencies[j] <= kFastest))
      fail(ErrorKind::kFormat,
           "{}: rotary pair {} turns by {} a position, which must lie above 0 and up to {}; rope.freq_base, "
           "rope.scaling.* or the tensor rope_freqs.weight is damaged",
           file.path(), j, table.frequencies[j], kFastest);
}

}  // namespace

ops::RopeTable make_rope_table(const Hyperparameters& hp, Vector factors) {
  ops::RopeTable table;
  table.adjacent_pairs = hp.architecture->adjacent_pairs;
  for (uint32_t j = 0; j < hp.n_rot / 2; ++j) {
    double frequency = ops::pow(hp.rope_base, -2.0 * j / hp.n_rot);
    if (factors != nullptr) frequency /= factors[j];
    table.frequencies.push_back(frequency);
  }
  if (hp.rope_scaling.kind == RopeScaling::Kind::kLinear)
    for (double& frequency : table.frequencies) frequency /= hp.rope_scaling.factor;
  if (hp.rope_scaling.kind == RopeScaling::Kind::kYarn) stretch(hp, table);
  return table;
}

Model Model::load(const gguf::Container& file, Hyperparameters hp, ops::cpu::CacheType cache_type,
                  const LoadOptions& options) {
  Weights weights = Weights::load(file, hp, options);
  ops::RopeTable rope = make_rope_table(hp, weights.rope_factors);
  check_frequencies(file, rope);
  StateLayout layout(hp, cache_type);
  return {std::move(hp), std::move(weights), std::move(rope), std::move(layout)};
}

// ---- the pass ------------------------------------------------------------------------------------------------------

Pass::Pass(const Model& model, const ops::Context& context, Workspace& workspace, Batch batch, Profile* profile)
    : model_(model),
      context_(context),
      w_(workspace),
      profile_(profile),
      batch_(std::move(batch)),
      start_(now_seconds()) {
  if (profile_ != nullptr) profile_->begin();
  check();
  if (model_.weights.bank) model_.weights.bank->begin_step(static_cast<uint32_t>(batch_.rows.size()));
  begin_steps();
  const size_t n = batch_.rows.size();
  std::vector<int32_t> tokens(n);
  for (size_t r = 0; r < n; ++r) tokens[r] = batch_.rows[r].token;
  ops::embed(context_, model_.weights.embedding, tokens, w_.x);
  ops::rope_angles(model_.rope, positions_, w_.angles);
  part_done(Part::kSetUp);
}

Pass::~Pass() {
  if (finished_) return;
  for (const Run& run : runs_) batch_.sequences[run.sequence]->abort_step();
}

void Pass::check() const {
  const size_t n = batch_.rows.size();
  if (n == 0 || n > w_.max_rows_)
    fail(ErrorKind::kLimit, "a batch of {} rows; this engine takes 1 to {} (see --ubatch-size)", n, w_.max_rows_);
  const auto logits = static_cast<size_t>(std::ranges::count_if(batch_.rows, &Row::logits));
  if (logits > w_.max_logits_)
    fail(ErrorKind::kLimit, "{} rows want logits; this engine gives {} a batch", logits, w_.max_logits_);
  for (const Row& row : batch_.rows)
    if (row.token < 0 || static_cast<uint32_t>(row.token) >= model_.hp.n_vocab)
      fail(ErrorKind::kUsage, "token {} is none of the vocabulary's 0..{}", row.token, model_.hp.n_vocab - 1);
}

void Pass::begin_steps() {
  std::vector<bool> seen(batch_.sequences.size(), false);
  for (size_t r = 0; r < batch_.rows.size(); ++r) {
    const uint32_t sequence = batch_.rows[r].sequence;
    if (r == 0 || sequence != batch_.rows[r - 1].sequence) {
      if (seen.at(sequence)) fail(ErrorKind::kInternal, "rows of sequence {} are not together in the batch", sequence);
      seen[sequence] = true;
      runs_.push_back({sequence, r, 0});
    }
    ++runs_.back().n_rows;
    if (batch_.rows[r].snapshot)
      captures_.push_back(
          {r, Buffer(model_.layout.recurrent_floats() * sizeof(float), "snapshot of recurrent state"), {}});
  }
  size_t begun = 0;
  try {
    for (; begun < runs_.size(); ++begun) batch_.sequences[runs_[begun].sequence]->begin_step(runs_[begun].n_rows);
  } catch (...) {
    for (size_t i = 0; i < begun; ++i) batch_.sequences[runs_[i].sequence]->cancel_step();
    throw;
  }
  for (const Run& run : runs_) {
    const state::Sequence& sequence = *batch_.sequences[run.sequence];
    for (size_t i = 0; i < run.n_rows; ++i) {
      positions_.push_back(static_cast<int32_t>(sequence.length() + i));
      attention_rows_.push_back({sequence.pages(), sequence.length() + i + 1});
    }
  }
}

void Pass::run_layers(uint32_t end) {
  for (; layer_ < end; ++layer_) {
    if (model_.hp.architecture->family == Family::kHybrid)
      hybrid_layer(layer_);
    else
      transformer_layer(layer_);
    if (std::ranges::find(batch_.taps, layer_) != batch_.taps.end())
      taps_.emplace_back(w_.x, w_.x + batch_.rows.size() * model_.hp.n_embd);
  }
}

void Pass::finish() {
  const bool whole = layer_ == 0;
  run_layers(model_.hp.n_layers);
  head();
  if (experts::Bank* bank = model_.weights.bank.get()) {
    bank->check_files();
    if (whole && bank->streams()) bank->step_took(static_cast<uint32_t>(batch_.rows.size()), now_seconds() - start_);
  }
  for (const Run& run : runs_) batch_.sequences[run.sequence]->commit_step();
  finished_ = true;
  for (Capture& capture : captures_) {
    const state::Sequence& sequence = *batch_.sequences[batch_.rows[capture.row].sequence];
    capture.snapshot =
        sequence.snapshot(static_cast<size_t>(positions_[capture.row]) + 1, std::move(capture.recurrent));
  }
}

std::span<const float> Pass::logits(size_t i) const { return {w_.logits + i * model_.hp.n_vocab, model_.hp.n_vocab}; }

state::Snapshot Pass::take_snapshot(size_t r) {
  for (Capture& capture : captures_)
    if (capture.row == r) return std::move(capture.snapshot);
  fail(ErrorKind::kInternal, "row {} was not asked for a snapshot", r);
}

}  // namespace sluice::model
