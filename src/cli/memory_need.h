// What a model needs beside what this machine has: the part that `sluice info` and `sluice plan` share.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/engine_options.h"
#include "engine/engine.h"

namespace sluice::cli {

struct MemoryNeed {
  MemoryPlan plan;
  uint32_t context = 0;               // positions that it is made for
  std::optional<uint64_t> available;  // bytes; not set when the system doesn't say

  // Whether the total fits into what is available, where that is known.
  std::optional<bool> fits() const;
};

// The need of an engine with these options for one conversation, with a context of at most what the model was trained
// for. Throws as ModelFile::plan.
MemoryNeed memory_need(const ModelFile& file, EngineOptions options);

// A table: a line per category, the total, what is available.
void print_memory(const MemoryNeed& need);

}  // namespace sluice::cli
