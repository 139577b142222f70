// What `sluice bench` measures of a loaded model. Repetitions of different things alternate, so that what slows the
// machine down for a while slows all of them; medians are given.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace sluice::cli {

class ModelBench {
 public:
  // `depth` tokens stand in the context before whatever is measured. The engine must have room for depth and all that
  // is measured, and as many rows of logits as steps have rows.
  ModelBench(Engine& engine, uint32_t depth, uint32_t repetitions);

  // Reading a prompt in micro-batches, and generating one token at a time; and in the same alternation what the machine
  // gives: memory read by as many threads as generate, and byte operations of those that read prompts.
  struct Speed {
    double prompt_tps, answer_tps;
    double machine_gbps, machine_gops;
    uint64_t peak_rss;  // before the machine's own measurements took memory
    // Where experts are read while computing: what answers and prompts of all repetitions made of it, and the disk's
    // best rate, measured in the same alternation.
    experts::Traffic prompt_experts, answer_experts;
    double disk_gbps = 0;
  };
  Speed speed(uint32_t prompt, uint32_t generated);

  // One step of n rows of one sequence, each with logits: what checking a draft of n - 1 tokens costs.
  struct RowCost {
    uint32_t n;
    double ms;
    double bytes, operations;  // as model::Profile counts them
  };
  std::vector<RowCost> rows(uint32_t most);

  // `n` sequences that generate a token each in every step: tokens per second of all together.
  double streams(uint32_t n, uint32_t generated);

  // Sums over all repetitions of a prompt and of generating.
  struct Profiles {
    model::Profile prompt, answer;
  };
  Profiles profile(uint32_t prompt, uint32_t generated);

 private:
  // Seconds for tokens from `first` on in batches of at most `batch`; only the last of a batch wants logits.
  double read(state::Sequence& sequence, std::span<const int32_t> tokens, size_t batch,
              model::Profile* profile = nullptr);
  // Empties the sequence and reads `depth` tokens.
  void begin(state::Sequence& sequence);

  Engine& engine_;
  uint32_t depth_, repetitions_;
  std::vector<int32_t> tokens_;  // the same on every machine, spread over the vocabulary
};

}  // namespace sluice::cli
