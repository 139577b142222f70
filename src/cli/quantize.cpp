// `sluice quantize`: a model file in other weight formats.
#include <algorithm>

#include "base/error.h"
#include "cli/amounts.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/quantize_model.h"

namespace sluice::cli {
namespace {

struct QuantizeOptions {
  std::string in, out, type;
  std::vector<std::string> rules;
  std::optional<uint32_t> threads;

  void declare(OptionTable& table) {
    table.positional("IN", "the model: a GGUF file, or the first of a split one", &in);
    table.positional("OUT", "the file to write; replaced when the new one is complete", &out);
    table.positional("TYPE", "format of the weight matrices: F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q4_K, ...", &type);
    table.group("Formats");
    table.option("--override", "REGEX=TYPE",
                 "another format for matrices whose name matches; of several, the first that matches wins", &rules);
    table.group("Compute");
    table.option("-t, --threads", "N", "threads that compute", &threads,
                 {.env = "THREADS", .min = 1, .max = 1024, .default_text = "one per core"});
  }
};

// One line for each pair of formats: most models have many such tensors, all for the same reason.
void report_fallbacks(std::span<const FormatChoice> choices) {
  struct Group {
    const FormatChoice* first;
    size_t count;
  };
  std::vector<Group> groups;
  for (const FormatChoice& choice : choices) {
    if (choice.format == choice.wanted) continue;
    const auto same = [&](const Group& g) {
      return g.first->wanted == choice.wanted && g.first->format == choice.format;
    };
    const auto found = std::ranges::find_if(groups, same);
    if (found != groups.end())
      ++found->count;
    else
      groups.push_back({&choice, 1});
  }
  for (const auto& [first, count] : groups)
    fmt::print(stderr, "note: {} instead of {} for {} tensor{} whose rows are no multiple of {} weights: {} ({}){}\n",
               first->format->name, first->wanted->name, count, count == 1 ? "" : "s", first->wanted->block_weights,
               first->tensor->name, first->tensor->extents[0], count == 1 ? "" : ", ...");
}

int quantize(const QuantizeOptions& options) {
  const quant::Format& format = writable_format(options.type);
  std::vector<FormatRule> rules;
  for (const std::string& text : options.rules) rules.push_back(parse_format_rule(text));
  const gguf::Container file = gguf::Container::open(options.in);
  refuse_same_file(file, options.out);
  const std::vector<FormatChoice> choices = choose_formats(file, format, rules);
  report_fallbacks(choices);
  uint64_t before = 0, after = 0, weights = 0, converted = 0;
  for (const FormatChoice& choice : choices) {
    const uint64_t row = choice.tensor->extents[0];
    before += choice.tensor->bytes;
    after += choice.tensor->rows * quant::row_bytes(*choice.format, row);
    weights += choice.tensor->rows * row;
    converted += choice.format != choice.tensor->format;
  }
  {
    ThreadPool pool(options.threads ? static_cast<int>(*options.threads) : default_threads());
    Progress progress("quantizing", before, ProgressUnit::kBytes);
    write_converted(file, choices, format, options.out, pool, [&](uint64_t done) { progress.update(done); });
  }
  const auto bits = [&](uint64_t bytes) {
    return weights == 0 ? 0.0 : 8 * static_cast<double>(bytes) / static_cast<double>(weights);
  };
  fmt::print("{}: {} of {} tensors converted, {} -> {}, {:.2f} -> {:.2f} bits a weight\n", options.out, converted,
             choices.size(), human_bytes(before), human_bytes(after), bits(before), bits(after));
  return 0;
}

}  // namespace

Command quantize_command() {
  return make_command<QuantizeOptions>(
      {.name = "quantize",
       .summary = "convert a model's weights to another format",
       .description =
           "Weight matrices become TYPE, whatever they are stored as; norms, biases, the experts' routers and "
           "short convolutions stay as they are. Rows that are no whole number of TYPE's blocks take a format "
           "with smaller ones (Q4_K: Q5_0, Q5_K: Q5_1, Q6_K: Q8_0, others: F16), which is reported.\n\n"
           "The parts of a split model become one file. The weights are rounded to nearest, without an "
           "importance matrix; results are the same for any number of threads.",
       .usage = {"IN OUT TYPE [--override REGEX=TYPE]... [-t N]"},
       .examples = {{"sluice quantize model-bf16.gguf model-q4.gguf Q4_K --override 'output|token_embd=Q6_K'",
                     "4 bits, the embedding and the head with 6"},
                    {"sluice quantize model.gguf model-f32.gguf F32", "exactly the values that the model has"}}},
      quantize);
}

}  // namespace sluice::cli
