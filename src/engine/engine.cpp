#include "engine/engine.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/system.h"
#include "chat/vocabulary_metadata.h"

namespace sluice {

namespace {

constexpr uint32_t kTile = ops::cpu::kTile;

uint32_t context_of(const EngineOptions& options, const model::Hyperparameters& hp) {
  if (options.context == 0) return hp.n_context;
  return options.beyond_training ? options.context : std::min(options.context, hp.n_context);
}

uint32_t checked_micro_batch(const EngineOptions& options) {
  if (options.micro_batch == 0 || options.max_logits == 0)
    fail(ErrorKind::kUsage, "batches of {} rows, of which {} may want logits: both must be at least 1",
         options.micro_batch, options.max_logits);
  return options.micro_batch;
}

// One page more than the context: a snapshot may share the last page, which is then copied before it is written.
size_t pages_for(size_t positions) { return (positions + kTile - 1) / kTile + 1; }

int threads_of(const EngineOptions& options) {
  if (!options.cpus.empty())
    restrict_to_cpus(options.cpus);  // before the first thread starts, and before they are counted
  return options.threads > 0 ? options.threads : default_threads();
}

const ops::cpu::Kernels& kernels_for(const std::string& isa) {
  return isa.empty() ? *ops::cpu::usable_kernels()[0] : ops::cpu::find_kernels(isa);
}

}  // namespace

uint64_t MemoryPlan::total() const {
  uint64_t sum = 0;
  for (const Category& category : categories) sum += category.bytes;
  return sum;
}

ModelFile ModelFile::open(const std::string& path, const std::vector<std::string>& overrides) {
  gguf::OpenOptions options;
  options.overrides = overrides;
  gguf::Container container = gguf::Container::open(path, options);
  model::Hyperparameters hp = model::read_hyperparameters(container);
  return {std::move(container), std::move(hp)};
}

MemoryPlan ModelFile::plan(const EngineOptions& options, uint32_t sessions) const {
  const model::WeightBytes weights = model::Weights::plan(container, hp, options.draft_head);
  const model::StateLayout layout(hp, options.cache_type);
  MemoryPlan plan;
  plan.categories = {
      {"dense weights", weights.dense},
      {"expert slots", weights.experts},
      {"KV cache", pages_for(context_of(options, hp)) * layout.page_bytes()},
      {"recurrent state", uint64_t{sessions} * layout.recurrent_floats() * sizeof(float)},
      {"scratch", model::Workspace::bytes(hp, options.micro_batch, options.max_logits)},
  };
  return plan;
}

namespace {

// Draft blocks are not part of a plain token.
bool is_of_draft(const gguf::TensorInfo& t, const model::Hyperparameters& hp) {
  return hp.n_draft_layers > 0 && t.name.starts_with("blk." + std::to_string(hp.n_layers) + ".");
}

}  // namespace

uint64_t ModelFile::bytes_to_load() const {
  uint64_t total = 0;
  for (const gguf::TensorInfo& t : container.tensors())
    if (!is_of_draft(t, hp)) total += t.bytes;
  return total;
}

uint64_t ModelFile::operations_per_token(bool with_head) const {
  const bool tied = container.find_tensor("output.weight") == nullptr;
  uint64_t weights = 0;
  for (const gguf::TensorInfo& t : container.tensors()) {
    // Vectors scale or shift; the taps of convolutions lie as a matrix, but nothing is multiplied by it as one.
    if (t.rows == 1 || t.name.ends_with(".ssm_conv1d.weight") || is_of_draft(t, hp)) continue;
    const bool embedding = t.name == "token_embd.weight";
    const bool head = t.name == "output.weight" || (embedding && tied);
    if (embedding && !tied) continue;  // a row is looked up
    if (head && !with_head) continue;
    const bool of_experts = t.name.find("_exps.weight") != std::string::npos;
    weights += t.extents[0] * (of_experts ? t.rows / hp.n_experts * hp.n_experts_used : t.rows);
  }
  return 2 * weights;
}

uint64_t ModelFile::bytes_per_token() const {
  uint64_t total = 0;
  for (const gguf::TensorInfo& t : container.tensors()) {
    if (is_of_draft(t, hp)) continue;
    // Of an untied embedding only a row is read.
    if (t.name == "token_embd.weight" && container.find_tensor("output.weight") != nullptr)
      total += t.row_bytes;
    else if (t.name.find("_exps.weight") != std::string::npos)
      total += t.bytes / hp.n_experts * hp.n_experts_used;
    else
      total += t.bytes;
  }
  return total;
}

Engine::Engine(const EngineOptions& options)
    : file_(ModelFile::open(options.path, options.overrides)),
      threads_(threads_of(options)),
      threads_batch_(options.threads_batch > 0 ? options.threads_batch : threads_),
      pool_(std::max(threads_, threads_batch_)),
      context_{pool_, kernels_for(options.isa)},
      plan_(file_.plan(options)),
      context_size_(context_of(options, file_.hp)),
      micro_batch_(checked_micro_batch(options)),
      tokenizer_(chat::read_vocabulary(file_.container.metadata())),
      model_([&] {
        const double start = now_seconds();
        model::Model loaded = model::Model::load(
            file_.container, options.cache_type,
            {.draft_head = options.draft_head, .lock = options.lock_memory, .progress = options.progress});
        load_seconds_ = now_seconds() - start;
        return loaded;
      }()) {
  workspace_ = std::make_unique<model::Workspace>(model_.hp, options.micro_batch, options.max_logits);
  pages_ = std::make_unique<state::PagePool>(model_.layout.page_bytes(), pages_for(context_size_));
  for (int32_t id = 0; id < static_cast<int32_t>(model_.hp.n_vocab); ++id)
    if (!tokenizer_.contains(id) || tokenizer_.is_unused(id)) never_.push_back(id);
}

model::Pass Engine::begin_pass(model::Batch batch, model::Profile* profile) {
  pool_.set_active(batch.rows.size() > 1 ? threads_batch_ : threads_);
  return {model_, context_, *workspace_, std::move(batch), profile};
}

decode::SamplingParameters Engine::sampling_defaults() const {
  decode::SamplingParameters p;
  const gguf::Metadata& meta = metadata();
  p.temperature = meta.find<float>("general.sampling.temp").value_or(p.temperature);
  p.top_k = meta.find<uint32_t>("general.sampling.top_k").value_or(p.top_k);
  p.top_p = meta.find<float>("general.sampling.top_p").value_or(p.top_p);
  p.min_p = meta.find<float>("general.sampling.min_p").value_or(p.min_p);
  p.repeat_penalty = meta.find<float>("general.sampling.penalty_repeat").value_or(p.repeat_penalty);
  p.penalty_window = meta.find<uint32_t>("general.sampling.penalty_last_n").value_or(p.penalty_window);
  return p;
}

decode::Sampler Engine::sampler(decode::SamplingParameters parameters) const {
  return decode::Sampler(std::move(parameters), model_.hp.n_vocab, never_);
}

const std::string* Engine::chat_template() const {
  const gguf::Value* value = metadata().find_value("tokenizer.chat_template");
  return value == nullptr ? nullptr : std::get_if<std::string>(value);
}

}  // namespace sluice
