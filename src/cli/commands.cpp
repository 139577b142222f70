#include "cli/commands.h"

namespace sluice::cli {

std::vector<Command> all_commands() {
  return {
      version_command(),
      man_command(),
      completion_command(),
  };
}

}  // namespace sluice::cli
