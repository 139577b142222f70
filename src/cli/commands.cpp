#include "cli/commands.h"

namespace sluice::cli {

std::vector<Command> all_commands() {
  return {
      run_command(),        serve_command(),      info_command(),     plan_command(),       bench_command(),
      perplexity_command(), logits_command(),     tokenize_command(), detokenize_command(), template_command(),
      quantize_command(),   pack_command(),       trace_command(),    simulate_command(),   version_command(),
      man_command(),        completion_command(),
  };
}

}  // namespace sluice::cli
