// Configuration files: one option a line, as `name = value` with the option's long name without dashes; a flag may
// stand alone; `#` begins a comment.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/options.h"

namespace sluice::cli {

// Throws Error(kUsage) that names file and line for a line that is none, Error(kIo).
std::vector<ConfigEntry> read_config_file(const std::string& path);

// The file that `--config FILE` names among these arguments, read; empty without one.
std::vector<ConfigEntry> config_named_by(std::span<const std::string> arguments);

}  // namespace sluice::cli
