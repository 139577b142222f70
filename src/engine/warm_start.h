// Which experts were in memory when a model was used last: a small file, so that the next start can read them in large
// sequential reads before anything is asked. A file that is missing or damaged only costs the reads on demand.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "experts/bank.h"
#include "gguf/container.h"

namespace sluice {

// The file for a model in `folder`; its name is a hash of the model's tensors and size.
std::string warm_start_file(const std::string& folder, const gguf::Container& model);

// The experts that it names, the most worthy first, all of layers below `n_layers` and experts below `n_experts`; none
// if there is no such file, or if it is not one.
std::vector<experts::Bank::Unit> read_warm_start(const std::string& path, uint32_t n_layers, uint32_t n_experts);

// Creates the folder too. Throws Error(kIo).
void write_warm_start(const std::string& path, std::span<const experts::Bank::Unit> experts);

// Adds the experts that are not in the list yet.
void append_others(std::vector<experts::Bank::Unit>& list, uint32_t n_layers, uint32_t n_experts);

}  // namespace sluice
