// The public face of Sluice: an Engine is a loaded model with its tokenizer, threads and caches; a Session (session.h)
// is one conversation on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "chat/tokenizer.h"
#include "decode/sampler.h"
#include "experts/bank.h"
#include "gguf/container.h"
#include "model/forward.h"

namespace sluice {

// Of models with experts: how many are kept in memory, and how the others are read.
struct ExpertOptions {
  std::optional<experts::BankSize> size;  // not set: all, or as many as there is memory for
  experts::BankOptions bank;
  std::string sidecar;  // where they are read from (experts::Sidecar::open); empty, or the model's own path: from the
                        // model's file
  uint32_t used = 0;    // experts of a token; 0: as the model has it; fewer change what it says
  bool read_at_start = false;  // as many as there are slots for, rather than when they are needed
  std::string warm_start;      // a folder where the choice of experts in memory is kept between runs; empty: nowhere
};

// What a model will need, by category, known before anything is allocated.
struct MemoryPlan {
  struct Category {
    std::string name;
    uint64_t bytes;
  };
  static constexpr const char *kDenseWeights = "dense weights", *kExpertSlots = "expert slots", *kCache = "KV cache",
                              *kRecurrentState = "recurrent state", *kPromptCache = "prompt cache",
                              *kScratch = "scratch";
  std::vector<Category> categories;  // of these names, in this order
  uint64_t of(std::string_view name) const;
  uint64_t total() const;

  // What was chosen to get there.
  uint32_t micro_batch = 0;
  uint64_t cache_bytes = 0;
  experts::BankSize bank_size;
  uint32_t slots = 0, experts = 0;  // experts that have a slot, and all, over all layers
  bool streams() const { return slots < experts; }
};

struct EngineOptions {
  std::string path;                    // a GGUF file, or the first of a split one
  std::vector<std::string> overrides;  // "KEY=TYPE:VALUE"
  int threads = 0;                     // for single tokens; 0: default_threads()
  int threads_batch = 0;               // for passes of several rows; 0: as many
  std::vector<int> cpus;               // the only ones to run on; empty: all that the process may use
  uint32_t context = 0;                // positions of KV cache, shared by all sessions; 0, and at most: as trained for
  bool beyond_training = false;        // take `context` as it is: tools measure also where a model was not trained
  // Rows that are computed together; 0: 512, or where experts are read while computing up to 2048, since each batch
  // reads nearly every expert once.
  uint32_t micro_batch = 0;
  uint32_t most_micro_batch = 2048;  // of those that 0 stands for
  uint32_t max_logits = 1;           // rows of a batch that may want logits
  uint32_t sequences = 1;            // conversations that are computed side by side (StepLoop)
  // Memory for states of earlier prompts and answers, from which later ones start; not set: for a few turns of one
  // chat.
  std::optional<uint64_t> cache_bytes;
  ops::cpu::CacheType cache_type = ops::cpu::CacheType::kF16;
  std::string isa;           // kernels by name; empty: the best that this machine runs
  bool draft_head = false;   // load the multi-token-prediction block
  bool lock_memory = false;  // keep the weights in memory, whatever else wants it
  ExpertOptions experts;
  std::function<void(const MemoryPlan&)> planned;  // told what will be taken, before it is
  std::function<void(const std::string&)> notice;  // gets what a user should know of a running engine, a line each
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes read while loading
};

// A model file that has been opened and checked, but not loaded.
struct ModelFile {
  gguf::Container container;
  model::Hyperparameters hp;
  std::shared_ptr<const experts::Sidecar> sidecar;  // null: the experts are in the container

  // Heeds the path, the overrides, and of the experts the sidecar and how many are used. Throws as
  // gguf::Container::open, model::read_hyperparameters and experts::Sidecar::open.
  static ModelFile open(const EngineOptions& options);
  // The memory that an engine with these options will take, where `available` bytes can be had (0: unknown).
  MemoryPlan plan(const EngineOptions& options, uint64_t available) const;
  // The same; refuses what doesn't fit, with the smallest change that would. Throws Error(kLimit).
  MemoryPlan plan_that_fits(const EngineOptions& options, uint64_t available) const;
  // Bytes of weights that are read for one token: all dense ones, the embedding's row, and the experts that are used.
  uint64_t bytes_per_token() const;
  // Multiplications and additions in the products of one token, with or without those of the vocabulary.
  uint64_t operations_per_token(bool with_head) const;
};

class Engine {
 public:
  // Loads a model; with `cpus`, keeps the calling thread and those it starts to them. Throws Error: kFormat,
  // kUnsupported or kIo for the file, kLimit when memory runs out, kUsage for options that make no sense.
  explicit Engine(const EngineOptions& options);
  ~Engine();

  const ModelFile& file() const { return file_; }
  const model::Model& model() const { return model_; }
  const gguf::Metadata& metadata() const { return file_.container.metadata(); }
  const chat::Tokenizer& tokenizer() const { return tokenizer_; }
  const MemoryPlan& plan() const { return plan_; }
  const ops::Context& context() const { return context_; }
  // Threads for single tokens, and for passes of several rows.
  int threads() const { return threads_; }
  int threads_batch() const { return threads_batch_; }
  uint32_t micro_batch() const { return plan_.micro_batch; }
  // Positions that fit into the KV cache.
  uint32_t context_size() const { return context_size_; }
  double load_seconds() const { return load_seconds_; }
  uint64_t loaded_bytes() const { return loaded_bytes_; }

  // Sampling defaults: the file's `general.sampling.*`, else llama.cpp's.
  decode::SamplingParameters sampling_defaults() const;
  // A sampler that never gives padding tokens. Throws as decode::Sampler.
  decode::Sampler sampler(decode::SamplingParameters parameters) const;
  // The chat template of the file; nullptr when it has none.
  const std::string* chat_template() const;

  // Conversations that it was planned for, and the pages that those can need at once.
  uint32_t sequences() const { return sequences_; }
  size_t pages_of_sequences() const;

  // For the step loop and tools that drive passes themselves; one pass at a time in each workspace. Throws as
  // model::Pass.
  model::Pass begin_pass(model::Batch batch, model::Profile* profile = nullptr) {
    return begin_pass(std::move(batch), *workspace_, profile);
  }
  model::Pass begin_pass(model::Batch batch, model::Workspace& workspace, model::Profile* profile = nullptr);
  // Before a pass of so many rows goes on that was left for another one.
  void resume(size_t rows) { pool_.set_active(rows > 1 ? threads_batch_ : threads_); }
  model::Workspace& workspace() { return *workspace_; }
  // Of answers and short prompts, while a pass in the other one is paused; the same one where there is one sequence.
  model::Workspace& small_workspace() { return small_workspace_ ? *small_workspace_ : *workspace_; }
  state::PagePool& pages() { return *pages_; }
  // The experts' memory; nullptr for models without.
  experts::Bank* bank() const { return model_.weights.bank.get(); }

 private:
  void give_back_memory();

  ModelFile file_;
  int threads_, threads_batch_;
  ThreadPool pool_;
  ops::Context context_;
  MemoryPlan plan_;
  uint32_t context_size_;
  double load_seconds_ = 0;
  uint64_t loaded_bytes_ = 0;
  chat::Tokenizer tokenizer_;
  std::string warm_start_;  // file; empty: none
  model::Model model_;
  std::function<void(const std::string&)> notice_;
  double next_memory_check_ = 0;
  uint32_t sequences_;
  std::unique_ptr<model::Workspace> workspace_, small_workspace_;
  std::unique_ptr<state::PagePool> pages_;
  std::vector<int32_t> never_;  // tokens that are never sampled
};

}  // namespace sluice
