// What every command that writes a model-sized file checks before it begins.
#pragma once

#include <cstdint>
#include <string>

#include "gguf/container.h"

namespace sluice::cli {

// Throws Error(kUsage) when `out` is one of the files that are read.
void refuse_same_file(const gguf::Container& in, const std::string& out);

// Throws Error(kIo) when the file system of `out` has fewer than `bytes` free.
void check_free_space(const std::string& out, uint64_t bytes);

}  // namespace sluice::cli
