#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/system.h"
#include "chat/vocabulary_metadata.h"
#include "engine/warm_start.h"

namespace sluice {

namespace {

constexpr uint32_t kTile = ops::cpu::kTile;

uint32_t context_of(const EngineOptions& options, const model::Hyperparameters& hp) {
  if (options.context == 0) return hp.n_context;
  return options.beyond_training ? options.context : std::min(options.context, hp.n_context);
}

// One page more for each sequence: a snapshot may share the last page, which is then copied before it is written.
size_t pages_for(size_t positions, uint32_t sequences) { return (positions + kTile - 1) / kTile + sequences; }

// Rows of a step beside a prompt that is paused: the answers', and some of other prompts.
size_t small_rows(uint32_t sequences) { return sequences + 64; }

int threads_of(const EngineOptions& options) {
  if (!options.cpus.empty())
    restrict_to_cpus(options.cpus);  // before the first thread starts, and before they are counted
  return options.threads > 0 ? options.threads : default_threads();
}

const ops::cpu::Kernels& kernels_for(const std::string& isa) {
  return isa.empty() ? *ops::cpu::usable_kernels()[0] : ops::cpu::find_kernels(isa);
}

}  // namespace

uint64_t MemoryPlan::of(std::string_view name) const {
  return std::ranges::find(categories, name, &Category::name)->bytes;
}

uint64_t MemoryPlan::total() const {
  uint64_t sum = 0;
  for (const Category& category : categories) sum += category.bytes;
  return sum;
}

namespace {

// The sidecar that is asked for. The model's own file is none: experts are read from it anyway.
std::shared_ptr<const experts::Sidecar> open_sidecar(const EngineOptions& options) {
  const std::string& path = options.experts.sidecar;
  std::error_code error;
  if (path.empty() || std::filesystem::equivalent(path, options.path, error)) return nullptr;
  return std::make_shared<const experts::Sidecar>(experts::Sidecar::open(path));
}

// Files that other programs made of a GGUF file, with everything in another order, carry this key.
void refuse_unknown_layout(const gguf::Container& file) {
  const auto layout = file.metadata().find<std::string>("stream_moe.layout");
  if (layout && *layout != "sections-v1")
    fail(ErrorKind::kUnsupported,
         "{}: stream_moe.layout = {}: an unknown layout of experts; use the original GGUF file, from which experts are "
         "read as they are",
         file.path(), *layout);
}

}  // namespace

ModelFile ModelFile::open(const EngineOptions& options) {
  gguf::OpenOptions how;
  how.overrides = options.overrides;
  gguf::Container container = gguf::Container::open(options.path, how);
  refuse_unknown_layout(container);
  model::Hyperparameters hp = model::read_hyperparameters(container, options.experts.used);
  auto sidecar = hp.n_experts > 0 ? open_sidecar(options) : nullptr;
  if (sidecar && sidecar->architecture() && *sidecar->architecture() != hp.architecture->name)
    fail(ErrorKind::kFormat, "{}: holds the experts of a model of architecture {}, but {} is of {}", sidecar->path(),
         *sidecar->architecture(), options.path, hp.architecture->name);
  return {std::move(container), std::move(hp), std::move(sidecar)};
}

namespace {

constexpr uint32_t kMicroBatch = 512;

// What the process takes besides what is planned: its code, tokenizer, buffers of files; and something for the system.
uint64_t reserve_of(uint64_t available) { return available / 32 + (uint64_t{128} << 20); }

}  // namespace

MemoryPlan ModelFile::plan(const EngineOptions& options, uint64_t available) const {
  const model::StateLayout layout(hp, options.cache_type);
  const model::WeightPlan weights =
      model::Weights::plan(container, hp, {.draft_head = options.draft_head, .sidecar = sidecar.get()});
  constexpr uint64_t kTurns = 4;  // of one chat, that can be gone back to
  const uint64_t state_bytes = layout.recurrent_floats() * sizeof(float);
  const uint64_t cache_bytes = options.cache_bytes.value_or(kTurns * state_bytes);
  const uint32_t max_logits = std::max(options.max_logits, options.sequences);
  const auto with = [&](uint32_t micro_batch, const experts::BankSize& size) {
    const experts::SlotPlan slots = weights.slots(size);
    MemoryPlan plan;
    plan.categories = {
        {MemoryPlan::kDenseWeights, weights.dense},
        {MemoryPlan::kExpertSlots, slots.bytes()},
        {MemoryPlan::kCache, pages_for(context_of(options, hp), options.sequences) * layout.page_bytes()},
        {MemoryPlan::kRecurrentState, options.sequences * state_bytes},
        {MemoryPlan::kPromptCache, cache_bytes},
        {MemoryPlan::kScratch,
         model::Workspace::bytes(hp, micro_batch, max_logits) +
             (options.sequences > 1 ? model::Workspace::bytes(hp, small_rows(options.sequences), options.sequences)
                                    : 0)},
    };
    plan.cache_bytes = cache_bytes;
    plan.micro_batch = micro_batch;
    plan.bank_size = size;
    plan.slots = slots.n_slots();
    plan.experts = static_cast<uint32_t>(weights.experts.size()) * hp.n_experts;
    return plan;
  };
  // No batch has more rows than the context, and rows that want logits must fit into one.
  const uint32_t most = std::max(std::min(options.most_micro_batch, context_of(options, hp)), max_logits);
  const uint32_t large = options.micro_batch > 0 ? options.micro_batch : most;
  const uint32_t small = options.micro_batch > 0 ? options.micro_batch : std::clamp(kMicroBatch, max_logits, most);
  const std::optional<experts::BankSize>& size = options.experts.size;
  const uint64_t usable = available - std::min(available, reserve_of(available));
  const MemoryPlan all = with(small, size.value_or(experts::BankSize::all()));
  if (size ? !all.streams() : all.experts == 0 || available == 0 || all.total() <= usable) return all;
  // Large batches are worth their scratch as long as it is a small part of the memory for experts, and fits.
  for (uint32_t micro_batch = large;; micro_batch = std::max(small, micro_batch / 2)) {
    const MemoryPlan plan = with(micro_batch, size.value_or(experts::BankSize::per_layer(1)));
    const uint64_t slots = plan.of(MemoryPlan::kExpertSlots), others = plan.total() - slots;
    const uint64_t for_slots = size ? slots : usable - std::min(usable, others);
    const bool fits = !size || available == 0 || plan.total() <= available;
    if (micro_batch > small && (!fits || plan.of(MemoryPlan::kScratch) > for_slots / 8)) continue;
    return size || for_slots <= slots ? plan : with(micro_batch, experts::BankSize::bytes(for_slots));
  }
}

MemoryPlan ModelFile::plan_that_fits(const EngineOptions& options, uint64_t available) const {
  if (options.max_logits == 0) fail(ErrorKind::kUsage, "no row of a batch may want logits; at least 1 must");
  MemoryPlan chosen = plan(options, available);
  if (available == 0 || chosen.total() <= available) return chosen;
  const uint64_t excess = chosen.total() - available;
  const uint64_t slots = chosen.of(MemoryPlan::kExpertSlots), cache = chosen.of(MemoryPlan::kCache);
  const uint64_t page = model::StateLayout(hp, options.cache_type).page_bytes();
  EngineOptions fewest = options;
  fewest.experts.size = experts::BankSize::per_layer(1);
  std::string remedy = fmt::format("free {} MiB", (excess >> 20) + 1);
  if (slots > excess && slots - excess >= plan(fewest, available).of(MemoryPlan::kExpertSlots))
    remedy = fmt::format("give --expert-memory {}KiB or less, or auto", (slots - excess) >> 10);
  else if (cache > excess && (cache - excess) / page >= 2)  // a page more than the context's, see pages_for()
    remedy = fmt::format("give --ctx-size {} or less", ((cache - excess) / page - 1) * kTile);
  fail(ErrorKind::kLimit,
       "{}: {} MiB of memory are needed, and {} MiB are available; {} (`sluice plan` lists what for)", options.path,
       chosen.total() >> 20, available >> 20, remedy);
}

namespace {

// Draft blocks are not part of a plain token.
bool is_of_draft(const gguf::TensorInfo& t, const model::Hyperparameters& hp) {
  return hp.n_draft_layers > 0 && t.name.starts_with("blk." + std::to_string(hp.n_layers) + ".");
}

bool is_of_experts(const gguf::TensorInfo& t) { return t.name.find("_exps.weight") != std::string::npos; }

}  // namespace

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
    if (!is_of_experts(t)) weights += t.extents[0] * t.rows;
  }
  weights += uint64_t{hp.n_experts > 0 ? hp.n_layers : 0} * hp.n_experts_used * 3 * hp.n_embd * hp.n_expert_ff;
  return 2 * weights;
}

uint64_t ModelFile::bytes_per_token() const {
  uint64_t total = 0;
  for (const gguf::TensorInfo& t : container.tensors()) {
    if (is_of_draft(t, hp)) continue;
    // Of an untied embedding only a row is read.
    if (t.name == "token_embd.weight" && container.find_tensor("output.weight") != nullptr)
      total += t.row_bytes;
    else if (!is_of_experts(t))
      total += t.bytes;
    else if (!sidecar)
      total += t.bytes / hp.n_experts * hp.n_experts_used;
  }
  if (sidecar)
    for (const experts::SidecarTensor& t : sidecar->tensors())
      if (t.layer < hp.n_layers) total += t.bytes * hp.n_experts_used;
  return total;
}

Engine::Engine(const EngineOptions& options)
    : file_(ModelFile::open(options)),
      threads_(threads_of(options)),
      threads_batch_(options.threads_batch > 0 ? options.threads_batch : threads_),
      pool_(std::max(threads_, threads_batch_)),
      context_{pool_, kernels_for(options.isa)},
      plan_(file_.plan_that_fits(options, available_memory())),
      context_size_(context_of(options, file_.hp)),
      tokenizer_(chat::read_vocabulary(file_.container.metadata())),
      model_([&] {
        if (options.planned) options.planned(plan_);
        const double start = now_seconds();
        const uint32_t n_layers = options.draft_head ? file_.hp.n_blocks() : file_.hp.n_layers;
        model::LoadOptions load{.draft_head = options.draft_head,
                                .lock = options.lock_memory,
                                .progress =
                                    [&](uint64_t done, uint64_t total) {
                                      loaded_bytes_ = done;
                                      if (options.progress) options.progress(done, total);
                                    },
                                .bank_size = plan_.bank_size,
                                .bank = options.experts.bank,
                                .sidecar = file_.sidecar.get()};
        if (!options.experts.warm_start.empty() && plan_.streams()) {
          warm_start_ = warm_start_file(options.experts.warm_start, file_.container);
          load.first = read_warm_start(warm_start_, n_layers, file_.hp.n_experts);
        }
        if (options.experts.read_at_start) append_others(load.first, n_layers, file_.hp.n_experts);
        model::Model loaded = model::Model::load(file_.container, file_.hp, options.cache_type, load);
        load_seconds_ = now_seconds() - start;
        return loaded;
      }()),
      notice_(options.notice),
      sequences_(options.sequences) {
  workspace_ =
      std::make_unique<model::Workspace>(model_.hp, plan_.micro_batch, std::max(options.max_logits, sequences_));
  if (sequences_ > 1)
    small_workspace_ = std::make_unique<model::Workspace>(model_.hp, small_rows(sequences_), sequences_);
  const size_t page_bytes = model_.layout.page_bytes();
  pages_ = std::make_unique<state::PagePool>(page_bytes, pages_of_sequences() + plan_.cache_bytes / page_bytes);
  for (int32_t id = 0; id < static_cast<int32_t>(model_.hp.n_vocab); ++id)
    if (!tokenizer_.contains(id) || tokenizer_.is_unused(id)) never_.push_back(id);
}

Engine::~Engine() {
  if (warm_start_.empty()) return;
  try {
    write_warm_start(warm_start_, bank()->resident());
  } catch (const Error& error) {
    if (notice_) notice_(std::string("the experts in memory could not be noted for the next start: ") + error.what());
  }
}

// When others need the memory, a smaller bank is better than a machine that swaps or a process that is killed.
void Engine::give_back_memory() {
  constexpr double kSecondsBetween = 0.5, kSecondsToHelp = 10;  // the system's figures are of the last ten seconds
  const double now = now_seconds();
  if (!model_.weights.bank || now < next_memory_check_) return;
  next_memory_check_ = now + kSecondsBetween;
  const uint64_t shortage = memory_shortage();
  if (shortage == 0) return;
  next_memory_check_ = now + kSecondsToHelp;
  const uint64_t given = model_.weights.bank->shrink(shortage);
  if (given > 0 && notice_)
    notice_(fmt::format("memory is running out: {} MB of expert slots were given back", given / 1000000));
}

size_t Engine::pages_of_sequences() const { return pages_for(context_size_, sequences_); }

model::Pass Engine::begin_pass(model::Batch batch, model::Workspace& workspace, model::Profile* profile) {
  give_back_memory();
  resume(batch.rows.size());
  return {model_, context_, workspace, std::move(batch), profile};
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
