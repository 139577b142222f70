// Loading in two passes over one description of the model: the first checks shapes and adds up sizes, the second, with
// the memory there, says which tensor goes where. Then every byte is read once, in the order of the files.
#include "model/weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "experts/pack.h"

namespace sluice::model {

namespace {

constexpr uint64_t kReadChunk = uint64_t{64} << 20;  // bytes between two reports of progress

std::string shape_text(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// A tensor without its trailing extents of 1: converters write [n] and [n, 1] for the same thing.
std::vector<uint64_t> trimmed(std::span<const uint64_t> shape) {
  std::vector<uint64_t> out(shape.begin(), shape.end());
  while (out.size() > 1 && out.back() == 1) out.pop_back();
  return out;
}

}  // namespace

ops::ExpertWeights ExpertView::at(std::span<const std::byte* const> parts, uint32_t expert) const {
  ops::ExpertWeights w{gate, up, down};
  w.gate.data = parts[0];
  w.up.data = parts[up_part] + up_offset;
  w.down.data = parts[down_part];
  if (!gate_scale.empty()) w.gate.scale = gate_scale[expert];
  if (!up_scale.empty()) w.up.scale = up_scale[expert];
  if (!down_scale.empty()) w.down.scale = down_scale[expert];
  return w;
}

class Loader {
 public:
  Loader(const gguf::Container& file, const Hyperparameters& hp, const LoadOptions& options)
      : file_(file),
        hp_(hp),
        draft_head_(options.draft_head),
        sidecar_(options.sidecar),
        known_(file.tensors().size(), false) {}

  // Describes the whole model into `w`; with `base` null only sizes and shapes come of it.
  void describe(Weights& w, std::byte* base) {
    base_ = base, used_ = 0, reads_.clear(), sources_.clear();
    w.layers.clear();
    const uint64_t d = hp_.n_embd, v = hp_.n_vocab;
    w.embedding = matrix("token_embd.weight", d, v);
    w.output_norm = vector("output_norm.weight", d);
    w.head = has("output.weight") ? matrix("output.weight", d, v) : w.embedding;
    if (has("rope_freqs.weight")) w.rope_factors = vector("rope_freqs.weight", hp_.n_rot / 2);
    for (uint32_t i = 0; i < hp_.n_layers + (draft_head_ ? hp_.n_draft_layers : 0); ++i) w.layers.push_back(layer(i));
    if (draft_head_ && hp_.n_draft_layers > 0) w.draft_head = draft_parts(hp_.n_layers);
    check_all_known();
  }

  WeightPlan plan() const { return {used_, sources_}; }

  Weights load(const LoadOptions& options) {
    Weights w;
    describe(w, nullptr);
    w.memory_ = Buffer(used_, "dense weights");
    describe(w, w.memory_.data());
    if (!sources_.empty())
      w.bank = std::make_unique<experts::Bank>(sources_, plan().slots(options.bank_size), options.bank);
    if (options.lock) {  // before anything is read: a refusal comes at once
      w.memory_.lock("dense weights");
      if (w.bank) w.bank->lock();
    }
    read_all(w.bank.get(), options);
    return w;
  }

 private:
  enum class Form { kAsStored, kF32, kF32Transposed };
  struct Read {
    const gguf::TensorInfo* tensor;
    Form form;
    std::byte* to;
  };

  // Reads what describe() listed, and experts.
  void read_all(experts::Bank* bank, const LoadOptions& options) {
    uint64_t total = 0, done = 0;
    if (bank != nullptr) total = bank->reserve(bank->streams() ? options.first : bank->every_unit());
    for (const Read& read : reads_) total += read.tensor->bytes;
    const auto report = [&](uint64_t bytes) {
      done += bytes;
      if (options.progress) options.progress(done, total);
    };
    std::ranges::sort(reads_, {}, [](const Read& r) { return std::pair(r.tensor->shard, r.tensor->offset); });
    for (const Read& read : reads_) execute(read, report);
    if (bank != nullptr) bank->fill(report);
  }

  // ---- the parts of a model ----

  LayerWeights layer(uint32_t i) {
    layer_ = i;
    prefix_ = "blk." + std::to_string(i) + ".";
    const bool hybrid = hp_.architecture->family == Family::kHybrid;
    LayerWeights w;
    w.kind = hp_.layers[i];
    w.mixer_norm = vector(name("attn_norm.weight"), hp_.n_embd);
    if (w.kind == LayerKind::kAttention)
      w.attention = attention(hybrid);
    else
      w.delta_net = delta_net();
    w.ff_norm = vector(name(hybrid ? "post_attention_norm.weight" : "ffn_norm.weight"), hp_.n_embd);
    if (hp_.architecture->experts)
      w.experts = expert_layer();
    else
      w.feed_forward = feed_forward("", hp_.n_ff);
    return w;
  }

  AttentionWeights attention(bool gated) {
    AttentionWeights w;
    const uint64_t d = hp_.n_embd, q = uint64_t{hp_.n_heads} * hp_.key_dim * (gated ? 2 : 1);
    const uint64_t k = uint64_t{hp_.n_kv_heads} * hp_.key_dim, v = uint64_t{hp_.n_kv_heads} * hp_.value_dim;
    if (has(name("attn_qkv.weight"))) {
      const Matrix all = matrix(name("attn_qkv.weight"), d, q + k + v);
      w.q = rows_of(all, 0, q);
      w.k = rows_of(all, q, k);
      w.v = rows_of(all, q + k, v);
    } else {
      w.q = matrix(name("attn_q.weight"), d, q);
      w.k = matrix(name("attn_k.weight"), d, k);
      w.v = matrix(name("attn_v.weight"), d, v);
    }
    w.q_bias = optional_vector(name("attn_q.bias"), q);
    w.k_bias = optional_vector(name("attn_k.bias"), k);
    w.v_bias = optional_vector(name("attn_v.bias"), v);
    if (hp_.architecture->query_key_norms) {
      w.q_norm = vector(name("attn_q_norm.weight"), hp_.key_dim);
      w.k_norm = vector(name("attn_k_norm.weight"), hp_.key_dim);
    }
    w.out = matrix(name("attn_output.weight"), uint64_t{hp_.n_heads} * hp_.value_dim, d);
    return w;
  }

  DeltaNetWeights delta_net() {
    DeltaNetWeights w;
    const uint64_t d = hp_.n_embd, heads = hp_.n_value_heads, values = heads * hp_.state_value_dim;
    const uint64_t channels = 2 * uint64_t{hp_.n_key_heads} * hp_.state_key_dim + values;
    w.qkv = matrix(name("attn_qkv.weight"), d, channels);
    w.gate = matrix(name("attn_gate.weight"), d, values);
    w.alpha = matrix(name("ssm_alpha.weight"), d, heads);
    w.beta = matrix(name("ssm_beta.weight"), d, heads);
    w.conv = floats(name("ssm_conv1d.weight"), {hp_.conv_taps, channels}, Form::kF32Transposed);
    w.dt_bias = vector(name("ssm_dt.bias"), heads);
    w.a = vector(name("ssm_a"), heads);
    w.norm = vector(name("ssm_norm.weight"), hp_.state_value_dim);
    w.out = matrix(name("ssm_out.weight"), values, d);
    return w;
  }

  // suffix "" for dense layers, "_shexp" for shared experts.
  FeedForwardWeights feed_forward(const std::string& suffix, uint64_t ff) {
    return {matrix(name("ffn_gate" + suffix + ".weight"), hp_.n_embd, ff),
            matrix(name("ffn_up" + suffix + ".weight"), hp_.n_embd, ff),
            matrix(name("ffn_down" + suffix + ".weight"), ff, hp_.n_embd)};
  }

  ExpertLayerWeights expert_layer() {
    ExpertLayerWeights w;
    w.router = matrix(name("ffn_gate_inp.weight"), hp_.n_embd, hp_.n_experts);
    w.experts = experts_of_layer();
    if (hp_.n_shared_ff > 0) {
      w.shared_gate = matrix(name("ffn_gate_inp_shexp.weight"), hp_.n_embd, 1);
      w.shared = feed_forward("_shexp", hp_.n_shared_ff);
    }
    return w;
  }

  // A stacked tensor of the layer's experts, wherever it is.
  struct Stack {
    const quant::Format* format;
    experts::Part part;
  };

  Stack stack_of(const std::string& family, uint64_t n_in, uint64_t n_out) {
    const std::vector<uint64_t> shape{n_in, n_out, hp_.n_experts};
    const std::string tensor_name = name(family + ".weight");
    const gguf::TensorInfo* in_file = has(tensor_name) ? &tensor(tensor_name, shape) : nullptr;
    const experts::SidecarTensor* aside = sidecar_ == nullptr ? nullptr : sidecar_->find(layer_, family);
    if (aside == nullptr) {
      if (sidecar_ != nullptr)
        fail(ErrorKind::kFormat, "{}: has no {} of layer {}; the sidecar is of another model or not whole",
             sidecar_->path(), family, layer_);
      if (in_file == nullptr)
        fail(ErrorKind::kUnsupported,
             "{}: has no tensor {}; if the experts are kept apart from this file, say where (--moe-sidecar)",
             file_.path(), tensor_name);
      const uint64_t bytes = in_file->row_bytes * n_out;
      return {in_file->format, {file_.shards()[in_file->shard].file.get(), in_file->offset, bytes, bytes}};
    }
    if (aside->shape != shape)
      fail(ErrorKind::kFormat,
           "{}: {} of layer {} is {}, but the model {} calls for {}; the sidecar is of another model", sidecar_->path(),
           family, layer_, shape_text(aside->shape), file_.path(), shape_text(shape));
    if (in_file != nullptr) compare(*in_file, *aside);
    return {aside->format, {aside->file, aside->offset, aside->bytes, aside->stride}};
  }

  // Where both have a tensor, they must be of one model. A few bytes of a few experts tell.
  void compare(const gguf::TensorInfo& in_file, const experts::SidecarTensor& aside) const {
    constexpr uint64_t kSample = 256, kSamples = 4;
    bool same = in_file.format == aside.format;
    for (uint64_t i = 0; same && i < kSamples; ++i) {
      const uint64_t expert = i * (hp_.n_experts - 1) / (kSamples - 1);
      const uint64_t n = std::min(kSample, aside.bytes), at = (aside.bytes - n) / 2;
      std::vector<std::byte> ours(n), theirs(n);
      file_.read(in_file, expert * aside.bytes + at, ours);
      aside.file->read_at(aside.offset_of(expert) + at, theirs);
      same = ours == theirs;
    }
    if (!same)
      fail(ErrorKind::kFormat, "{}: {} of layer {} is not the same as in {}; the sidecar is of another model",
           sidecar_->path(), aside.family, layer_, file_.path());
  }

  // Experts that are packed say which router chooses among them. A file without experts has it too.
  std::span<const uint64_t> checksums_of_layer() const {
    const experts::LayerSeal* seal = sidecar_ == nullptr ? nullptr : sidecar_->seal(layer_);
    if (seal == nullptr) return {};
    if (seal->router != experts::router_mark(file_, layer_))
      fail(ErrorKind::kFormat,
           "{}: its experts of layer {} were packed with another router than that of {}; the packed file is of another "
           "model: pack this one (`sluice pack`)",
           sidecar_->path(), layer_, file_.path());
    return seal->checksums;
  }

  ExpertView experts_of_layer() {
    ExpertView view;
    std::vector<experts::Part> parts;
    const uint64_t d = hp_.n_embd, ff = hp_.n_expert_ff;
    const auto stack = [&](const std::string& family, uint64_t n_in, uint64_t n_out) {
      const Stack found = stack_of(family, n_in, n_out);
      parts.push_back(found.part);
      return Matrix{found.format, n_in, n_out, nullptr};
    };
    const bool fused = has(name("ffn_gate_up_exps.weight")) ||
                       (sidecar_ != nullptr && sidecar_->find(layer_, "ffn_gate_up_exps") != nullptr);
    if (fused) {  // rows: gate, then up
      const Matrix both = stack("ffn_gate_up_exps", d, 2 * ff);
      view.gate = view.up = both;
      view.gate.n_out = view.up.n_out = ff;
      view.up_offset = ff * both.row_bytes();
      view.gate_scale = view.up_scale = expert_scales("ffn_gate_up_exps");
    } else {
      view.gate = stack("ffn_gate_exps", d, ff);
      view.up = stack("ffn_up_exps", d, ff);
      view.up_part = 1;
      view.gate_scale = expert_scales("ffn_gate_exps");
      view.up_scale = expert_scales("ffn_up_exps");
    }
    view.down = stack("ffn_down_exps", ff, d);
    view.down_part = parts.size() - 1;
    view.down_scale = expert_scales("ffn_down_exps");
    sources_.emplace_back(hp_.n_experts, std::move(parts), checksums_of_layer());
    return view;
  }

  DraftHeadWeights draft_parts(uint32_t block) {
    prefix_ = "blk." + std::to_string(block) + ".nextn.";
    DraftHeadWeights w;
    w.embedding_norm = vector(name("enorm.weight"), hp_.n_embd);
    w.hidden_norm = vector(name("hnorm.weight"), hp_.n_embd);
    w.projection = matrix(name("eh_proj.weight"), 2 * uint64_t{hp_.n_embd}, hp_.n_embd);
    w.head_norm = vector(name("shared_head_norm.weight"), hp_.n_embd);
    return w;
  }

  // ---- tensors ----

  std::string name(const std::string& rest) const { return prefix_ + rest; }
  bool has(const std::string& tensor_name) const { return file_.find_tensor(tensor_name) != nullptr; }

  const gguf::TensorInfo& tensor(const std::string& tensor_name, std::vector<uint64_t> shape) {
    const gguf::TensorInfo& t = file_.get_tensor(tensor_name);
    known_[static_cast<size_t>(&t - file_.tensors().data())] = true;
    if (trimmed(t.extents) != trimmed(shape))
      fail(ErrorKind::kFormat, "{}: tensor {} is {}, but {} calls for {}; the file is damaged or was converted wrongly",
           file_.path(), tensor_name, shape_text(t.extents), hp_.architecture->name, shape_text(shape));
    return t;
  }

  // A tensor that nothing asked for is a part of the model that the forward pass would leave out in silence. Only the
  // draft block may be left, and the scales of quantized activations that some NVFP4 files carry.
  void check_all_known() const {
    const std::string draft_block = "blk." + std::to_string(hp_.n_layers) + ".";
    for (size_t i = 0; i < known_.size(); ++i) {
      const std::string& left = file_.tensors()[i].name;
      if (known_[i] || left.ends_with(".input_scale")) continue;
      if (hp_.n_draft_layers > 0 && left.starts_with(draft_block)) continue;
      fail(ErrorKind::kUnsupported,
           "{}: tensor {} is none that Sluice knows in {} models of {} layers; without it answers would be wrong",
           file_.path(), gguf::printable(left), hp_.architecture->name, hp_.n_layers);
    }
  }

  // Room for `bytes` in the dense weights.
  std::byte* take(uint64_t bytes) {
    const uint64_t at = used_;
    used_ = align_up(used_ + bytes);
    return base_ == nullptr ? nullptr : base_ + at;
  }

  Matrix matrix(const std::string& tensor_name, uint64_t n_in, uint64_t n_out) {
    const gguf::TensorInfo& t = tensor(tensor_name, {n_in, n_out});
    std::byte* to = take(t.bytes);
    reads_.push_back({&t, Form::kAsStored, to});
    return {t.format, n_in, n_out, to, matrix_scale(tensor_name)};
  }

  static Matrix rows_of(const Matrix& all, size_t first, size_t n) {
    Matrix part = all;
    part.n_out = n;
    if (all.data != nullptr) part.data = all.data + first * all.row_bytes();
    return part;
  }

  Vector vector(const std::string& tensor_name, uint64_t n) { return floats(tensor_name, {n}, Form::kF32); }
  Vector optional_vector(const std::string& tensor_name, uint64_t n) {
    return has(tensor_name) ? vector(tensor_name, n) : nullptr;
  }

  Vector floats(const std::string& tensor_name, std::vector<uint64_t> shape, Form form) {
    const gguf::TensorInfo& t = tensor(tensor_name, std::move(shape));
    std::byte* to = take(t.rows * t.extents[0] * sizeof(float));
    reads_.push_back({&t, form, to});
    return reinterpret_cast<Vector>(to);
  }

  // Files with NVFP4 weights scale some products by a tensor beside the weights: "<name>.scale" for "<name>.weight".
  float matrix_scale(const std::string& weight_name) {
    const std::string scale = weight_name.substr(0, weight_name.rfind(".weight")) + ".scale";
    return has(scale) ? side_values(scale, 1)[0] : 1.0f;
  }
  std::vector<float> expert_scales(const std::string& base) {
    const std::string scale = name(base + ".scale");
    return has(scale) ? side_values(scale, hp_.n_experts) : std::vector<float>{};
  }
  std::vector<float> side_values(const std::string& tensor_name, uint64_t n) {
    const gguf::TensorInfo& t = tensor(tensor_name, {n});
    std::vector<float> values(n);
    if (base_ == nullptr) return values;  // only shapes are wanted yet
    std::vector<std::byte> stored(t.bytes);
    file_.read(t, 0, stored);
    t.format->dequantize(stored.data(), n / t.format->block_weights, values.data());
    return values;
  }

  template <typename Report>
  void execute(const Read& read, const Report& report) const {
    const gguf::TensorInfo& t = *read.tensor;
    if (read.form == Form::kAsStored) {
      for (uint64_t at = 0; at < t.bytes; at += kReadChunk) {
        const uint64_t n = std::min(kReadChunk, t.bytes - at);
        file_.read(t, at, {read.to + at, n});
        report(n);
      }
      return;
    }
    std::vector<std::byte> stored(t.bytes);
    file_.read(t, 0, stored);
    auto* out = reinterpret_cast<float*>(read.to);
    const uint64_t n = t.rows * t.extents[0];
    t.format->dequantize(stored.data(), n / t.format->block_weights, out);
    if (read.form == Form::kF32Transposed) {
      const std::vector<float> rows(out, out + n);
      for (uint64_t r = 0; r < t.rows; ++r)
        for (uint64_t c = 0; c < t.extents[0]; ++c) out[c * t.rows + r] = rows[r * t.extents[0] + c];
    }
    report(t.bytes);
  }

  const gguf::Container& file_;
  const Hyperparameters& hp_;
  bool draft_head_;
  const experts::Sidecar* sidecar_;
  uint32_t layer_ = 0;       // that is being described
  std::string prefix_;       // of its tensors
  std::vector<bool> known_;  // by place in file_.tensors(): asked for by the description
  std::byte* base_ = nullptr;
  uint64_t used_ = 0;
  std::vector<Read> reads_;
  std::vector<experts::LayerSource> sources_;
};

Weights Weights::load(const gguf::Container& file, const Hyperparameters& hp, const LoadOptions& options) {
  return Loader(file, hp, options).load(options);
}

WeightPlan Weights::plan(const gguf::Container& file, const Hyperparameters& hp, const LoadOptions& options) {
  Loader loader(file, hp, options);
  Weights sizes;
  loader.describe(sizes, nullptr);
  return loader.plan();
}

}  // namespace sluice::model
