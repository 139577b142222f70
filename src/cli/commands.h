// The commands of the program. Each stands in a file of its name and is listed, in the order of help, in commands.cpp.
#pragma once

#include <vector>

#include "cli/command.h"

namespace sluice::cli {

std::vector<Command> all_commands();

Command run_command();
Command serve_command();
Command info_command();
Command plan_command();
Command bench_command();
Command perplexity_command();
Command logits_command();
Command tokenize_command();
Command detokenize_command();
Command template_command();
Command quantize_command();
Command pack_command();
Command trace_command();
Command simulate_command();
Command version_command();
Command man_command();         // hidden: prints the man page, for installing
Command completion_command();  // hidden: prints a shell's completion script

}  // namespace sluice::cli
