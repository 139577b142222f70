#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/program.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return sluice::cli::run_program(sluice::cli::all_commands(), arguments, sluice::cli::process_environment);
}
