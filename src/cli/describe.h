// How an option is spelled out in prose; shared by the writers of documents.h and by no one else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"

namespace sluice::cli {

std::string join(const std::vector<std::string>& words, std::string_view separator);
// Names and negations in declared order: "--mmap", "--no-mmap".
std::vector<std::string> all_names(const Option& option);
// "-t, --threads N"
std::string signature(const Option& option);
// Its help with what the table knows besides: "threads that compute (default: all cores; env: SLUICE_THREADS)"
std::string explanation(const Option& option);
std::string explanation(const Positional& positional);
// Whether its value is a path, by the placeholder.
bool takes_path(const Option& option);

}  // namespace sluice::cli
