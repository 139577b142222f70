// `sluice pack`: the experts of a model in a file that is made for reading them one by one.
#include "experts/pack.h"
#include "base/error.h"
#include "base/system.h"
#include "cli/amounts.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/output_file.h"
#include "cli/progress.h"

namespace sluice::cli {
namespace {

struct PackOptions {
  std::string in, out;
  bool json = false;

  void declare(OptionTable& table) {
    table.positional("IN", "the model: a GGUF file, or the first of a split one", &in);
    table.positional("OUT", "the file to write; replaced when the new one is complete", &out);
    table.flag("--json", "print one JSON object", &json);
  }
};

int pack(const PackOptions& options) {
  const gguf::Container model = gguf::Container::open(options.in);
  refuse_same_file(model, options.out);
  const experts::PackWriter writer(model);
  check_free_space(options.out, writer.file_bytes());
  const double start = now_seconds();
  {
    Progress progress("packing", writer.expert_bytes(), ProgressUnit::kBytes);
    writer.write(options.out, [&](uint64_t done) { progress.update(done); });
  }
  const double seconds = now_seconds() - start;
  const double gbps = static_cast<double>(writer.file_bytes()) / seconds / 1e9;
  if (options.json)
    print_json({{"path", options.out},
                {"layers", writer.n_layers()},
                {"experts_per_layer", writer.n_experts()},
                {"expert_bytes", writer.expert_bytes()},
                {"file_bytes", writer.file_bytes()},
                {"s", seconds},
                {"gbps", gbps}});
  else
    fmt::print("{}: {} layers of {} experts, {} in {:.1f} s ({:.2f} GB/s); use it with --moe-sidecar {}\n", options.out,
               writer.n_layers(), writer.n_experts(), human_bytes(writer.file_bytes()), seconds, gbps, options.out);
  return 0;
}

}  // namespace

Command pack_command() {
  return make_command<PackOptions>(
      {.name = "pack",
       .summary = "copy a model's experts to a file that is faster to read them from",
       .description =
           "In a GGUF file the parts of an expert lie far apart, so that each expert that is not in memory takes two "
           "or "
           "three reads. In OUT they lie together, aligned for direct reads and with a checksum that --verify holds "
           "them against. The weights stay as they are, bit for bit, and so do all answers.\n\n"
           "OUT is given to other commands with --moe-sidecar, beside the model with -m, which may then be one without "
           "experts. It belongs to the model that it was made of and is refused by others.",
       .usage = {"IN OUT [--json]"},
       .examples = {{"sluice pack model.gguf model.experts", "takes as much room as the experts do in the model"},
                    {"sluice run -m model.gguf --moe-sidecar model.experts -p 'Hello'",
                     "experts are read from there"}}},
      pack);
}

}  // namespace sluice::cli
