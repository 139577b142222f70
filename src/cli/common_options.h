// Groups of options that several commands have, declared once so that a name means the same everywhere. A command's
// struct of options holds the groups it wants and calls their declare() in its own. Names and meanings are llama.cpp's
// where it has the option.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "experts/bank.h"
#include "ops/cpu/kernels.h"

namespace sluice::cli {

// Which model.
struct ModelOptions {
  std::string path;
  std::vector<std::string> overrides;  // "KEY=TYPE:VALUE" as given; read by the room that reads metadata

  void declare(OptionTable& table, bool required = true);
};

// Of models with experts: how many are kept in memory, and how the others are read.
struct ExpertChoices {
  // What kind of start was asked for by the names that forks of llama.cpp use.
  enum class Mode { kUnsaid, kResident, kSlotBank };
  std::optional<uint64_t> memory;  // bytes; UINT64_MAX: all. Not given: all, or as many as there is memory for
  std::optional<uint32_t> slots;   // for each layer
  Mode mode = Mode::kUnsaid;
  std::optional<uint32_t> used;  // experts of a token; not given: as the model has it
  std::string sidecar;           // a packed file, a folder or its manifest.json; empty: the model's own file
  std::string policy = experts::kDefaultPolicy;
  ReadEngine io = ReadEngine::kAuto;
  experts::LookAhead::Mode look_ahead = experts::LookAhead::Mode::kAuto;
  bool read_at_start = false, warm_start = true, verify = false;

  void declare(OptionTable& table);
};

// How a forward pass is computed and how long a context may be.
struct ComputeOptions {
  std::optional<uint32_t> threads;        // not given: one per core that the process may use
  std::optional<uint32_t> threads_batch;  // not given: as many
  std::vector<int> cpus;                  // empty: all that the process may use
  bool lock_memory = false;
  uint32_t context = 16384;             // tokens, at most as many as the model was trained for; 0: just as many
  uint32_t batch = 2048;                // tokens of a prompt that are handed to the model together
  std::optional<uint32_t> micro_batch;  // tokens that are computed together; not given: see EngineOptions
  ops::cpu::CacheType cache_keys = ops::cpu::CacheType::kF16;
  ops::cpu::CacheType cache_values = ops::cpu::CacheType::kF16;
  std::optional<std::string> isa;  // not given: the best that this processor has
  ExpertChoices experts;

  // A command whose windows are its contexts declares --ctx-size itself.
  void declare(OptionTable& table, bool with_context = true);
};

// How the next token is chosen. What is not given comes from the model file, else it is llama.cpp's default.
struct SamplingOptions {
  std::optional<uint64_t> seed;  // not given (or -1): a new one for each run
  std::optional<float> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<uint32_t> top_k, repeat_last_n;
  std::vector<std::string> logit_bias;  // "TOKEN+BIAS" or "TOKEN-BIAS" as given

  void declare(OptionTable& table);
};

// Options of llama.cpp that change nothing here, each with the reason that is printed on use.
void declare_accepted_options(OptionTable& table);

}  // namespace sluice::cli
