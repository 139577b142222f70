// From the process's arguments to a command's exit code; main() without the process, for tests.
#pragma once

#include <span>
#include <string>

#include "cli/command.h"

namespace sluice::cli {

// Runs the command that `arguments` (without the program's name) ask for. Results go to stdout; an error is one line
// "error: ..." on stderr. Returns 0 when done, 1 when the command failed or stdout could not be written, 2 on a usage
// error. Throws nothing.
int run_program(std::span<const Command> commands, std::span<const std::string> arguments,
                const Environment& environment);

}  // namespace sluice::cli
