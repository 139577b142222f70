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
#include "gguf/container.h"
#include "model/forward.h"

namespace sluice {

struct EngineOptions {
  std::string path;                    // a GGUF file, or the first of a split one
  std::vector<std::string> overrides;  // "KEY=TYPE:VALUE"
  int threads = 0;                     // for single tokens; 0: default_threads()
  int threads_batch = 0;               // for passes of several rows; 0: as many
  std::vector<int> cpus;               // the only ones to run on; empty: all that the process may use
  uint32_t context = 0;                // positions of KV cache, shared by all sessions; 0, and at most: as trained for
  bool beyond_training = false;        // take `context` as it is: tools measure also where a model was not trained
  uint32_t micro_batch = 512;          // rows that are computed together
  uint32_t max_logits = 1;             // rows of a batch that may want logits
  ops::cpu::CacheType cache_type = ops::cpu::CacheType::kF16;
  std::string isa;           // kernels by name; empty: the best that this machine runs
  bool draft_head = false;   // load the multi-token-prediction block
  bool lock_memory = false;  // keep the weights in memory, whatever else wants it
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes read while loading
};

// What a model will need, by category, known before anything is allocated.
struct MemoryPlan {
  struct Category {
    std::string name;
    uint64_t bytes;
  };
  std::vector<Category> categories;
  uint64_t total() const;
};

// A model file that has been opened and checked, but not loaded.
struct ModelFile {
  gguf::Container container;
  model::Hyperparameters hp;

  // Throws as gguf::Container::open and model::read_hyperparameters.
  static ModelFile open(const std::string& path, const std::vector<std::string>& overrides = {});
  // The memory that an engine with these options will take, for `sessions` conversations.
  MemoryPlan plan(const EngineOptions& options, uint32_t sessions = 1) const;
  // Bytes of weights that are read for one token: all dense ones, the embedding's row, and the experts that are used.
  uint64_t bytes_per_token() const;
  // Bytes of weights that loading reads.
  uint64_t bytes_to_load() const;
  // Multiplications and additions in the products of one token, with or without those of the vocabulary.
  uint64_t operations_per_token(bool with_head) const;
};

class Engine {
 public:
  // Loads a model; with `cpus`, keeps the calling thread and those it starts to them. Throws Error: kFormat,
  // kUnsupported or kIo for the file, kLimit when memory runs out, kUsage for options that make no sense.
  explicit Engine(const EngineOptions& options);

  const model::Model& model() const { return model_; }
  const gguf::Metadata& metadata() const { return file_.container.metadata(); }
  const chat::Tokenizer& tokenizer() const { return tokenizer_; }
  const MemoryPlan& plan() const { return plan_; }
  const ops::Context& context() const { return context_; }
  // Threads for single tokens, and for passes of several rows.
  int threads() const { return threads_; }
  int threads_batch() const { return threads_batch_; }
  uint32_t micro_batch() const { return micro_batch_; }
  // Positions that fit into the KV cache.
  uint32_t context_size() const { return context_size_; }
  double load_seconds() const { return load_seconds_; }

  // Sampling defaults: the file's `general.sampling.*`, else llama.cpp's.
  decode::SamplingParameters sampling_defaults() const;
  // A sampler that never gives padding tokens. Throws as decode::Sampler.
  decode::Sampler sampler(decode::SamplingParameters parameters) const;
  // The chat template of the file; nullptr when it has none.
  const std::string* chat_template() const;

  // For sessions and tools that drive passes themselves; one pass at a time. Throws as model::Pass.
  model::Pass begin_pass(model::Batch batch, model::Profile* profile = nullptr);
  model::Workspace& workspace() { return *workspace_; }
  state::PagePool& pages() { return *pages_; }

 private:
  ModelFile file_;
  int threads_, threads_batch_;
  ThreadPool pool_;
  ops::Context context_;
  MemoryPlan plan_;
  uint32_t context_size_, micro_batch_;
  double load_seconds_ = 0;
  chat::Tokenizer tokenizer_;
  model::Model model_;
  std::unique_ptr<model::Workspace> workspace_;
  std::unique_ptr<state::PagePool> pages_;
  std::vector<int32_t> never_;  // tokens that are never sampled
};

}  // namespace sluice
