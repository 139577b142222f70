// Groups of options that several commands have, declared once so that a name means the same everywhere. A command's
// struct of options holds the groups it wants and calls their declare() in its own. Names and meanings are llama.cpp's
// where it has the option.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"

namespace sluice::cli {

// Which model.
struct ModelOptions {
  std::string path;
  std::vector<std::string> overrides;  // "KEY=TYPE:VALUE" as given; read by the room that reads metadata

  void declare(OptionTable& table);
};

enum class CacheType { kF32, kF16 };

// How a forward pass is computed and how long a context may be.
struct ComputeOptions {
  std::optional<uint32_t> threads;  // not given: one per core that the process may use
  uint32_t context = 0;             // tokens; 0: as many as the model was trained for
  uint32_t batch = 2048;            // tokens of a prompt that are handed to the model together
  uint32_t micro_batch = 512;       // tokens that are computed together
  CacheType cache_keys = CacheType::kF16;
  CacheType cache_values = CacheType::kF16;
  std::optional<std::string> isa;  // not given: the best that this processor has

  void declare(OptionTable& table);
};

// How the next token is chosen.
struct SamplingOptions {
  std::optional<uint64_t> seed;  // not given (or -1): a new one for each run
  float temperature = 0.8f;      // 0: always the likeliest token
  uint32_t top_k = 40;           // 0: all
  float top_p = 0.95f;           // 1: off
  float min_p = 0.05f;           // 0: off
  float repeat_penalty = 1.0f;   // 1: off
  uint32_t repeat_last_n = 64;   // tokens that the penalties look at
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<std::string> logit_bias;  // "TOKEN+BIAS" or "TOKEN-BIAS" as given

  void declare(OptionTable& table);
};

// Options of llama.cpp that change nothing here, each with the reason that is printed on use.
void declare_accepted_options(OptionTable& table);

}  // namespace sluice::cli
