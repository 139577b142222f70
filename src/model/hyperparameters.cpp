#include "model/hyperparameters.h"

#include <cmath>

#include "base/error.h"
#include "ops/cpu/kernels.h"

namespace sluice::model {

namespace {

constexpr uint32_t kMostHeadDim = 512;  // of a sane head; what is larger is damage

// Generous bounds: each is far above any model of these families, and low enough that products of two fit in 64 bits
// and tables of one entry per layer stay small.
constexpr uint64_t kMaxLayers = 4096, kMaxWidth = 1u << 20, kMaxVocab = 1u << 24, kMaxContext = 1u << 28;
constexpr uint64_t kMaxHeads = 4096, kMaxExperts = 65536, kMaxTaps = 64;

class Reader {
 public:
  explicit Reader(const gguf::Container& file, std::string architecture)
      : meta_(file.metadata()), path_(file.path()), prefix_(std::move(architecture) + ".") {}

  std::string key(const char* name) const { return prefix_ + name; }

  // An integer in [low, high]; what stands in for a missing one must lie there too.
  uint32_t integer(const char* name, uint64_t low, uint64_t high) const {
    return bounded(name, meta_.get<uint64_t>(key(name)), low, high);
  }
  uint32_t integer_or(const char* name, uint32_t otherwise, uint64_t low, uint64_t high) const {
    return bounded(name, meta_.find<uint64_t>(key(name)).value_or(otherwise), low, high);
  }
  double number_or(const char* name, double otherwise) const {
    return meta_.find<double>(key(name)).value_or(otherwise);
  }
  double positive_or(const char* name, double otherwise) const {
    const double value = number_or(name, otherwise);
    if (!(value > 0.0)) reject(name, fmt::format("{}", value), "must be above 0");
    return value;
  }

  double at_least_one_or(const char* name, double otherwise) const {
    const double value = number_or(name, otherwise);
    if (!(value >= 1.0)) reject(name, fmt::format("{}", value), "must be at least 1");
    return value;
  }

  [[noreturn]] void reject(const char* name, const std::string& value, const std::string& why) const {
    fail(ErrorKind::kFormat, "{}: {} = {}: {}; the file is damaged or was converted wrongly", path_, key(name), value,
         why);
  }

  const gguf::Metadata& metadata() const { return meta_; }
  const std::string& path() const { return path_; }

 private:
  uint32_t bounded(const char* name, uint64_t value, uint64_t low, uint64_t high) const {
    if (value < low || value > high)
      reject(name, fmt::format("{}", value), fmt::format("must lie in {}..{}", low, high));
    return static_cast<uint32_t>(value);
  }

  const gguf::Metadata& meta_;
  const std::string& path_;
  std::string prefix_;
};

const Architecture& find_architecture(const gguf::Container& file) {
  const auto name = file.metadata().get<std::string>("general.architecture");
  std::string known;
  for (const Architecture& architecture : architectures()) {
    if (name == architecture.name) return architecture;
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  fail(ErrorKind::kUnsupported, "{}: architecture {} is not one that Sluice runs ({})", file.path(),
       gguf::printable(name), known);
}

// `attention.recurrent_layers` says it layer by layer and wins over the interval, which converters write as 4 even
// where it does not hold.
void read_layer_kinds(const Reader& read, Hyperparameters& hp) {
  hp.layers.assign(hp.n_blocks(), LayerKind::kAttention);
  if (hp.architecture->family != Family::kHybrid) return;
  if (const auto listed = read.metadata().find<std::vector<bool>>(read.key("attention.recurrent_layers"))) {
    if (listed->size() != hp.n_blocks())
      read.reject("attention.recurrent_layers", fmt::format("{} entries", listed->size()),
                  fmt::format("must have one for each of the {} blocks", hp.n_blocks()));
    for (uint32_t i = 0; i < hp.n_layers; ++i)
      if ((*listed)[i]) hp.layers[i] = LayerKind::kRecurrent;
    return;
  }
  const uint32_t interval = read.integer_or("full_attention_interval", 4, 1, kMaxLayers);
  for (uint32_t i = 0; i < hp.n_layers; ++i)
    if ((i + 1) % interval != 0) hp.layers[i] = LayerKind::kRecurrent;
}

// One number for all layers, or an array of them in which recurrent layers have 0.
uint32_t read_kv_heads(const Reader& read, const Hyperparameters& hp) {
  const gguf::Value* value = read.metadata().find_value(read.key("attention.head_count_kv"));
  if (value == nullptr || !std::holds_alternative<gguf::Array>(*value))
    return read.integer_or("attention.head_count_kv", hp.n_heads, 1, kMaxHeads);
  const auto listed = read.metadata().get<std::vector<uint32_t>>(read.key("attention.head_count_kv"));
  if (listed.size() != hp.n_blocks())
    read.reject("attention.head_count_kv", fmt::format("{} entries", listed.size()),
                fmt::format("must have one for each of the {} blocks", hp.n_blocks()));
  uint32_t heads = 0;
  for (uint32_t i = 0; i < hp.n_blocks(); ++i) {
    if (hp.layers[i] == LayerKind::kRecurrent) continue;
    if (listed[i] == 0 || listed[i] > kMaxHeads || (heads != 0 && listed[i] != heads))
      read.reject("attention.head_count_kv", fmt::format("{} at layer {}", listed[i], i),
                  "attention layers must all have the same number, above 0");
    heads = listed[i];
  }
  return heads == 0 ? 1 : heads;
}

void read_attention(const Reader& read, Hyperparameters& hp) {
  hp.n_heads = read.integer("attention.head_count", 1, kMaxHeads);
  hp.n_kv_heads = read_kv_heads(read, hp);
  if (hp.n_heads % hp.n_kv_heads != 0)
    read.reject("attention.head_count", fmt::format("{}", hp.n_heads),
                fmt::format("must be a multiple of the {} KV heads", hp.n_kv_heads));
  hp.key_dim = read.integer_or("attention.key_length", hp.n_embd / hp.n_heads, 1, kMostHeadDim);
  hp.value_dim = read.integer_or("attention.value_length", hp.key_dim, 1, kMostHeadDim);
  if (hp.value_dim % 16 != 0)
    read.reject("attention.value_length", fmt::format("{}", hp.value_dim), "must be a multiple of 16");
  hp.attention_scale =
      static_cast<float>(read.positive_or("attention.scale", 1.0 / std::sqrt(static_cast<double>(hp.key_dim))));

  hp.n_rot = read.integer_or("rope.dimension_count", hp.key_dim, 2, hp.key_dim);
  if (hp.n_rot % 2 != 0) read.reject("rope.dimension_count", fmt::format("{}", hp.n_rot), "must be even");
  hp.rope_base = read.at_least_one_or("rope.freq_base", 10000.0);
  const std::string kind = read.metadata().find<std::string>(read.key("rope.scaling.type")).value_or("none");
  RopeScaling& scaling = hp.rope_scaling;
  if (kind == "none") return;
  if (kind != "linear" && kind != "yarn")
    fail(ErrorKind::kUnsupported, "{}: {} = {}: Sluice knows none, linear and yarn", read.path(),
         read.key("rope.scaling.type"), gguf::printable(kind));
  scaling.kind = kind == "linear" ? RopeScaling::Kind::kLinear : RopeScaling::Kind::kYarn;
  scaling.factor = read.at_least_one_or("rope.scaling.factor", 1.0);
  scaling.original_context = read.integer_or("rope.scaling.original_context_length", hp.n_context, 1, kMaxContext);
  scaling.beta_fast = read.positive_or("rope.scaling.yarn_beta_fast", 32.0);
  scaling.beta_slow = read.positive_or("rope.scaling.yarn_beta_slow", 1.0);
}

void read_experts(const Reader& read, Hyperparameters& hp, uint32_t used) {
  hp.n_experts = read.integer("expert_count", 1, kMaxExperts);
  hp.n_experts_used = read.integer("expert_used_count", 1, kMaxExperts);
  if (hp.n_experts_used > hp.n_experts)
    read.reject("expert_used_count", fmt::format("{}", hp.n_experts_used),
                fmt::format("can't be more than the {} experts there are", hp.n_experts));
  if (used > hp.n_experts_used)
    fail(ErrorKind::kUsage, "{}: {} experts a token are more than the model's {}; give fewer (--moe-topk)", read.path(),
         used, hp.n_experts_used);
  if (used > 0) hp.n_experts_used = used;
  hp.n_expert_ff = read.integer("expert_feed_forward_length", 1, kMaxWidth);
  hp.n_shared_ff = read.integer_or("expert_shared_feed_forward_length", 0, 0, kMaxWidth);
  const double scale = read.number_or("expert_weights_scale", 1.0);
  hp.expert_weights_scale = scale == 0.0 ? 1.0f : static_cast<float>(scale);  // converters write 0 for "not set"
}

void read_recurrent(const Reader& read, Hyperparameters& hp) {
  hp.conv_taps = read.integer("ssm.conv_kernel", 2, kMaxTaps);
  hp.state_key_dim = read.integer("ssm.state_size", 1, kMaxWidth);
  hp.n_key_heads = read.integer("ssm.group_count", 1, kMaxHeads);
  hp.n_value_heads = read.integer("ssm.time_step_rank", 1, kMaxHeads);
  const uint32_t inner = read.integer("ssm.inner_size", 1, kMaxWidth);
  if (hp.n_value_heads % hp.n_key_heads != 0)
    read.reject("ssm.time_step_rank", fmt::format("{}", hp.n_value_heads),
                fmt::format("must be a multiple of ssm.group_count {}", hp.n_key_heads));
  if (inner % hp.n_value_heads != 0)
    read.reject("ssm.inner_size", fmt::format("{}", inner),
                fmt::format("must be a multiple of ssm.time_step_rank {}", hp.n_value_heads));
  hp.state_value_dim = inner / hp.n_value_heads;
  if (hp.state_key_dim % 4 != 0 || hp.state_value_dim % ops::cpu::kColumns != 0)
    read.reject("ssm.state_size", fmt::format("{} keys x {} values", hp.state_key_dim, hp.state_value_dim),
                "keys must be a multiple of 4 and values of 16");
}

}  // namespace

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = {
      {"qwen35moe", Family::kHybrid, true, false, true},     {"qwen35", Family::kHybrid, false, false, true},
      {"qwen3moe", Family::kTransformer, true, false, true}, {"qwen3", Family::kTransformer, false, false, true},
      {"qwen2", Family::kTransformer, false, false, false},  {"llama", Family::kTransformer, false, true, false},
  };
  return all;
}

Hyperparameters read_hyperparameters(const gguf::Container& file, uint32_t experts_used) {
  Hyperparameters hp;
  hp.architecture = &find_architecture(file);
  const Reader read(file, hp.architecture->name);
  hp.name = file.metadata().find<std::string>("general.name").value_or("");
  const uint32_t blocks = read.integer("block_count", 1, kMaxLayers);
  hp.n_draft_layers = read.integer_or("nextn_predict_layers", 0, 0, kMaxLayers);
  if (hp.n_draft_layers >= blocks)
    read.reject("nextn_predict_layers", fmt::format("{}", hp.n_draft_layers),
                fmt::format("leaves no layer of the {} blocks", blocks));
  if (hp.n_draft_layers > 1)
    fail(ErrorKind::kUnsupported, "{}: {} = {}: Sluice runs models with one draft block at most", read.path(),
         read.key("nextn_predict_layers"), hp.n_draft_layers);
  hp.n_layers = blocks - hp.n_draft_layers;
  hp.n_context = read.integer("context_length", 1, kMaxContext);
  hp.n_embd = read.integer("embedding_length", 1, kMaxWidth);
  hp.rms_eps = static_cast<float>(read.number_or("attention.layer_norm_rms_epsilon", 1e-5));
  if (!(hp.rms_eps > 0.0f && hp.rms_eps < 1.0f))
    read.reject("attention.layer_norm_rms_epsilon", fmt::format("{}", hp.rms_eps), "must lie between 0 and 1");

  const gguf::TensorInfo& table = file.get_tensor("token_embd.weight");
  if (table.extents.size() != 2 || table.extents[1] > kMaxVocab)
    fail(ErrorKind::kFormat, "{}: tensor token_embd.weight must be [embedding_length, vocabulary], at most {} tokens",
         file.path(), kMaxVocab);
  hp.n_vocab = static_cast<uint32_t>(table.extents[1]);
  if (const auto* tokens = file.metadata().find_strings("tokenizer.ggml.tokens");
      tokens && tokens->size() != hp.n_vocab)
    fail(ErrorKind::kFormat, "{}: tokenizer.ggml.tokens lists {} tokens, but token_embd.weight has {} rows",
         file.path(), tokens->size(), hp.n_vocab);

  read_layer_kinds(read, hp);
  read_attention(read, hp);
  if (hp.architecture->experts)
    read_experts(read, hp, experts_used);
  else
    hp.n_ff = read.integer("feed_forward_length", 1, kMaxWidth);
  if (hp.architecture->family == Family::kHybrid) read_recurrent(read, hp);
  return hp;
}

}  // namespace sluice::model
