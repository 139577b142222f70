// `sluice bench`: speed of reading a prompt and of answering, held against what the machine's memory can deliver.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/system.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/machine.h"

namespace sluice::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kMost = 1u << 27;  // so that depth and prompt together stay below the 2^28 positions of a model

struct BenchOptions {
  ModelOptions model;
  ComputeOptions compute;
  uint32_t prompt = 512, generated = 64, depth = 0, repetitions = 3;
  bool machine = false, json = false;

  void declare(OptionTable& table) {
    model.declare(table, /*required=*/false);
    table.group("Bench");
    table.flag("--machine", "measure this machine's limits instead of a model", &machine);
    table.option("--pp", "N", "tokens of the prompt", &prompt, {.min = 1, .max = kMost});
    table.option("--tg", "N", "tokens to generate, one at a time", &generated, {.min = 1, .max = kMost});
    table.option("--depth", "N", "tokens that stand in the context before either", &depth, {.max = kMost});
    table.option("--reps", "N", "repetitions; medians are printed", &repetitions, {.min = 1, .max = 1000});
    table.flag("--json", "print one JSON object", &json);
    compute.declare(table, /*with_context=*/false);
  }
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Token ids that are the same on every machine and spread over the vocabulary.
std::vector<int32_t> test_tokens(size_t n, uint32_t n_vocab) {
  std::vector<int32_t> ids(n);
  uint64_t x = 1;
  for (int32_t& id : ids) {
    x = x * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    id = static_cast<int32_t>((x >> 33) % n_vocab);
  }
  return ids;
}

class Runner {
 public:
  explicit Runner(Engine& engine)
      : engine_(engine), sequence_(engine.pages(), engine.model().layout.recurrent_floats()) {}

  // Seconds for `tokens` in batches of at most `rows`.
  double read(std::span<const int32_t> tokens, size_t rows) {
    const double start = now_seconds();
    for (size_t at = 0; at < tokens.size(); at += rows) {
      model::Batch batch{{&sequence_}, {}, {}, false};
      const size_t end = std::min(tokens.size(), at + rows);
      for (size_t i = at; i < end; ++i) batch.rows.push_back({0, tokens[i], i + 1 == end, false});
      model::Pass pass(engine_.model(), engine_.context(), engine_.workspace(), std::move(batch));
      pass.finish();
    }
    return now_seconds() - start;
  }
  void clear() { sequence_.clear(); }

 private:
  Engine& engine_;
  state::Sequence sequence_;
};

int print_machine(const BenchOptions& options) {
  Json rates = Json::object();
  for (int threads = 1; threads <= default_threads(); ++threads)
    rates[std::to_string(threads)] = measure_read_gbps(threads);
  if (options.json) {
    fmt::print("{}\n", Json{{"read_gbps", rates}}.dump());
    return 0;
  }
  for (const auto& [threads, gbps] : rates.items())
    fmt::print("memory read, {:>3} threads: {:6.1f} GB/s\n", threads, gbps.get<double>());
  return 0;
}

int print_bench(const BenchOptions& options) {
  if (options.machine) return print_machine(options);
  if (options.model.path.empty()) fail(ErrorKind::kUsage, "name a model with -m FILE, or ask for --machine");
  EngineOptions wanted = engine_options(options.model, options.compute);
  wanted.context = options.depth + std::max(options.prompt, options.generated);
  wanted.beyond_training = true;
  const auto engine = load_engine(wanted);
  const auto tokens = test_tokens(wanted.context, engine->model().hp.n_vocab);
  const auto at_depth = std::span(tokens).subspan(options.depth);
  Runner runner(*engine);
  runner.read(std::span(tokens).first(1), 1);  // touches every weight once
  std::vector<double> prompt_tps, answer_tps;
  for (uint32_t i = 0; i < options.repetitions; ++i) {
    for (const bool prompt : {true, false}) {
      runner.clear();
      if (options.depth > 0) runner.read(std::span(tokens).first(options.depth), engine->micro_batch());
      const size_t n = prompt ? options.prompt : options.generated;
      const double seconds = runner.read(at_depth.first(n), prompt ? engine->micro_batch() : 1);
      (prompt ? prompt_tps : answer_tps).push_back(static_cast<double>(n) / seconds);
    }
  }
  const int threads = engine->context().pool.size();
  const uint64_t peak = peak_resident_bytes();  // before the probe below takes memory of its own
  const double machine = measure_read_gbps(threads);
  const uint64_t per_token = ModelFile::open(wanted.path, wanted.overrides).bytes_per_token();
  const double achieved = static_cast<double>(per_token) * median(answer_tps) / 1e9;
  const Json out = {{"model", wanted.path},
                    {"threads", threads},
                    {"isa", engine->context().kernels.name},
                    {"depth", options.depth},
                    {"pp", options.prompt},
                    {"pp_tps", median(prompt_tps)},
                    {"tg", options.generated},
                    {"tg_tps", median(answer_tps)},
                    {"load_s", engine->load_seconds()},
                    {"peak_rss_bytes", peak},
                    {"bytes_per_token", per_token},
                    {"achieved_gbps", achieved},
                    {"machine_gbps", machine},
                    {"share_of_bandwidth", achieved / machine}};
  if (options.json) {
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("{} threads, {}, medians of {}\n", threads, engine->context().kernels.name, options.repetitions);
  fmt::print("prompt of {:5}: {:9.1f} tokens/s\nanswer of {:5}: {:9.1f} tokens/s\n", options.prompt, median(prompt_tps),
             options.generated, median(answer_tps));
  fmt::print("weights read per token {:.1f} MB: {:.2f} GB/s of this machine's {:.1f} ({:.0f} %)\n",
             static_cast<double>(per_token) / 1e6, achieved, machine, 100 * achieved / machine);
  fmt::print("loaded in {:.2f} s, peak memory {:.1f} MiB\n", engine->load_seconds(),
             static_cast<double>(peak) / (1 << 20));
  return 0;
}

}  // namespace

Command bench_command() {
  return make_command<BenchOptions>(
      {.name = "bench",
       .summary = "measure the speed of a model",
       .usage = {"-m MODEL [--pp N] [--tg N] [--depth N] [--reps N] [--json]", "--machine [--json]"},
       .examples = {{"sluice bench -m model.gguf", "prompt and answer speed, and the share of memory bandwidth"}}},
      print_bench);
}

}  // namespace sluice::cli
