// `sluice bench`: the speed of a model, held against what the machine's memory and arithmetic units can deliver.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/system.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/machine.h"
#include "cli/model_bench.h"

namespace sluice::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kMost = 1u << 27;  // so that depth and prompt together stay below the 2^28 positions of a model
constexpr uint32_t kMostRows = 16;    // of a step in the table of --rows
constexpr uint32_t kMostStreams = 256;

struct BenchOptions {
  ModelOptions model;
  ComputeOptions compute;
  uint32_t prompt = 512, generated = 64, depth = 0, repetitions = 3;
  std::optional<uint32_t> streams;
  bool machine = false, rows = false, profile = false, json = false;

  void declare(OptionTable& table) {
    model.declare(table, /*required=*/false);
    table.group("Bench");
    table.option("-p, --pp", "N", "tokens of the prompt", &prompt, {.min = 1, .max = kMost});
    table.option("-n, --tg", "N", "tokens to generate, one at a time", &generated, {.min = 1, .max = kMost});
    table.option("-d, --depth", "N", "tokens that stand in the context before either", &depth, {.max = kMost});
    table.option("-r, --reps", "N", "repetitions; medians are printed", &repetitions, {.min = 1, .max = 1000});
    table.flag("--rows", "measure steps of 1 to 16 rows of one sequence instead: what checking drafts costs", &rows);
    table.option("--streams", "N", "measure N sequences that generate together instead", &streams,
                 {.min = 1, .max = kMostStreams});
    table.flag("--profile", "measure where the time of prompt and answer goes instead", &profile);
    table.flag("--machine", "measure this machine's limits instead of a model's speed; with -m FILE, its disk's too",
               &machine);
    table.flag("--json", "print one JSON object", &json);
    compute.declare(table, /*with_context=*/false);
  }
};

double share_of(double part, double whole) { return whole > 0 ? part / whole : 0; }

// ---- the machine
// -----------------------------------------------------------------------------------------------------

struct Measured {
  std::vector<double> values;
  double typical() const { return median(values); }
  double best() const { return *std::ranges::max_element(values); }
};

template <typename Measure>
Measured repeat(uint32_t n, Measure measure) {
  Measured measured;
  for (uint32_t i = 0; i < n; ++i) measured.values.push_back(measure());
  return measured;
}

// 1, 2, 4, ... and the pool's size.
std::vector<int> thread_counts(int size) {
  std::vector<int> counts;
  for (int n = 1; n < size; n *= 2) counts.push_back(n);
  counts.push_back(size);
  return counts;
}

int print_machine(const BenchOptions& options) {
  const EngineOptions wanted = engine_options(options.model, options.compute);
  if (!wanted.cpus.empty()) restrict_to_cpus(wanted.cpus);
  ThreadPool pool(wanted.threads > 0 ? wanted.threads : default_threads());
  const uint32_t repetitions = std::max<uint32_t>(options.repetitions, 9);  // passes take a fraction of a second
  const bool json = options.json;
  Json out = {{"threads", pool.size()}, {"read_gbps", Json::object()}, {"read_gbps_best", Json::object()}};
  {
    MemoryProbe memory(pool);
    for (const int threads : thread_counts(pool.size())) {
      pool.set_active(threads);
      const Measured gbps = repeat(repetitions, [&] { return memory.measure_gbps(); });
      out["read_gbps"][std::to_string(threads)] = gbps.typical();
      out["read_gbps_best"][std::to_string(threads)] = gbps.best();
      if (!json)
        fmt::print("memory read, {:>3} threads: {:7.1f} GB/s   best {:7.1f}\n", threads, gbps.typical(), gbps.best());
    }
  }
  const auto arithmetic = [&](const std::string& key, const char* unit, const machine::Units& units,
                              const machine::RegisterLoop& loop, const char* how) {
    if (loop.run == nullptr) return;
    for (const int threads : thread_counts(pool.size())) {
      pool.set_active(threads);
      const Measured gops = repeat(repetitions, [&] { return measure_gops(pool, loop); });
      out[key + "_by_threads"][units.name][std::to_string(threads)] = gops.typical();
      if (threads == pool.size()) out[key][units.name] = gops.typical();
      if (!json)
        fmt::print("{}, {:>3} threads, {:<12}: {:7.1f} {}   best {:7.1f}   ({})\n", key.substr(0, key.find('_')),
                   threads, units.name, gops.typical(), unit, gops.best(), how);
    }
  };
  for (const machine::Units& units : machine::usable_units()) {
    arithmetic("int8_gops", "GOP/s", units, units.int8, units.int8_how);
    arithmetic("f32_gops", "GOP/s", units, units.f32, "fused multiply-add");
  }
  if (!options.model.path.empty()) {
    const DiskRates disk = measure_disk(options.model.path);
    out["disk"] = {{"direct_gbps", disk.direct_gbps ? Json(*disk.direct_gbps) : Json(nullptr)},
                   {"cached_gbps", disk.cached_gbps}};
    if (!json && disk.direct_gbps) fmt::print("disk, past the page cache: {:7.2f} GB/s\n", *disk.direct_gbps);
    if (!json) fmt::print("disk, in the page cache:   {:7.2f} GB/s\n", disk.cached_gbps);
  }
  if (json) fmt::print("{}\n", out.dump());
  return 0;
}

// ---- a model
// ---------------------------------------------------------------------------------------------------------

// What every measurement of a model says of how it was made.
Json heading(const BenchOptions& options, const Engine& engine) {
  return {{"model", options.model.path},
          {"threads", engine.threads()},
          {"threads_batch", engine.threads_batch()},
          {"isa", engine.context().kernels.name},
          {"depth", options.depth}};
}

void print_heading(const BenchOptions& options, const Engine& engine) {
  std::string threads = std::to_string(engine.threads());
  if (engine.threads_batch() != engine.threads()) threads += fmt::format(" and {}", engine.threads_batch());
  fmt::print("{} threads, {}, medians of {}{}\n", threads, engine.context().kernels.name, options.repetitions,
             options.depth > 0 ? fmt::format(", at depth {}", options.depth) : "");
}

// Of the time, what the disk at its best needs for the bytes.
double share_of_disk(const experts::Traffic& traffic, double seconds, double disk_gbps) {
  return share_of(static_cast<double>(traffic.bytes_read) / seconds / 1e9, disk_gbps);
}

int print_speed(const BenchOptions& options, Engine& engine) {
  const ExpertReport experts(engine);
  const ModelBench::Speed speed =
      ModelBench(engine, options.depth, options.repetitions).speed(options.prompt, options.generated);
  const ModelFile file = ModelFile::open(engine_options(options.model, options.compute));
  const auto bytes = static_cast<double>(file.bytes_per_token());
  const auto operations = static_cast<double>(file.operations_per_token(/*with_head=*/false));
  const double gbps = bytes * speed.answer_tps / 1e9, gops = operations * speed.prompt_tps / 1e9;
  const double read = static_cast<double>(options.repetitions) * options.prompt;  // tokens, in all repetitions
  const double answered = static_cast<double>(options.repetitions) * options.generated;
  const double load_gbps = static_cast<double>(engine.loaded_bytes()) / engine.load_seconds() / 1e9;
  if (options.json) {
    Json out = heading(options, engine);
    out.update({{"pp", options.prompt},
                {"pp_tps", speed.prompt_tps},
                {"tg", options.generated},
                {"tg_tps", speed.answer_tps},
                {"load_s", engine.load_seconds()},
                {"load_gbps", load_gbps},
                {"peak_rss_bytes", speed.peak_rss},
                {"bytes_per_token", file.bytes_per_token()},
                {"achieved_gbps", gbps},
                {"machine_gbps", speed.machine_gbps},
                {"share_of_bandwidth", share_of(gbps, speed.machine_gbps)},
                {"operations_per_token", operations},
                {"achieved_gops", gops},
                {"machine_gops", speed.machine_gops},
                {"share_of_arithmetic", share_of(gops, speed.machine_gops)}});
    if (engine.bank() != nullptr) out["experts"] = experts.json();
    if (engine.plan().streams()) {
      out["disk_gbps"] = speed.disk_gbps;
      out["answer_bytes_read"] = static_cast<double>(speed.answer_experts.bytes_read) / answered;
      out["answer_hit_rate"] = speed.answer_experts.hit_rate();
      out["answer_share_of_disk"] = share_of_disk(speed.answer_experts, answered / speed.answer_tps, speed.disk_gbps);
      out["prompt_share_of_disk"] = share_of_disk(speed.prompt_experts, read / speed.prompt_tps, speed.disk_gbps);
    }
    fmt::print("{}\n", out.dump());
    return 0;
  }
  print_heading(options, engine);
  fmt::print("prompt of {:5}: {:9.1f} tokens/s   {:7.1f} GOP/s", options.prompt, speed.prompt_tps, gops);
  if (speed.machine_gops > 0)
    fmt::print(" of this machine's {:.1f} ({:.0f} %)", speed.machine_gops, 100 * share_of(gops, speed.machine_gops));
  fmt::print("\nanswer of {:5}: {:9.1f} tokens/s   {:7.2f} GB/s of this machine's {:.1f} ({:.0f} %)\n",
             options.generated, speed.answer_tps, gbps, speed.machine_gbps, 100 * share_of(gbps, speed.machine_gbps));
  fmt::print("a token takes {:.1f} MB of weights and {:.2f} billion operations\n", bytes / 1e6,
             static_cast<double>(file.operations_per_token(true)) / 1e9);
  fmt::print("loaded in {:.2f} s ({:.2f} GB/s), peak memory {:.1f} MiB\n", engine.load_seconds(), load_gbps,
             static_cast<double>(speed.peak_rss) / (1 << 20));
  if (!engine.plan().streams()) return 0;
  const auto print_reads = [&](const char* what, const experts::Traffic& traffic, double tokens, double tps) {
    fmt::print(
        "{}: {:.1f} % of experts in memory, {:.1f} MB read a token, {:.2f} GB/s of the disk's {:.2f} ({:.0f} %)\n",
        what, 100 * traffic.hit_rate(), static_cast<double>(traffic.bytes_read) / tokens / 1e6,
        static_cast<double>(traffic.bytes_read) / tokens * tps / 1e9, speed.disk_gbps,
        100 * share_of_disk(traffic, tokens / tps, speed.disk_gbps));
  };
  print_reads("prompt", speed.prompt_experts, read, speed.prompt_tps);
  print_reads("answer", speed.answer_experts, answered, speed.answer_tps);
  fmt::print("{}\n", experts.text());
  return 0;
}

int print_rows(const BenchOptions& options, Engine& engine) {
  const auto costs = ModelBench(engine, options.depth, options.repetitions).rows(kMostRows);
  if (options.json) {
    Json out = heading(options, engine);
    out["rows"] = Json::array();
    for (const ModelBench::RowCost& c : costs)
      out["rows"].push_back({{"n", c.n}, {"ms", c.ms}, {"bytes", c.bytes}, {"ops", c.operations}});
    fmt::print("{}\n", out.dump());
    return 0;
  }
  print_heading(options, engine);
  fmt::print("rows        ms   x 1 row        MB      GB/s     GOP/s\n");
  for (const ModelBench::RowCost& c : costs)
    fmt::print("{:4} {:9.2f} {:9.2f} {:9.1f} {:9.2f} {:9.1f}\n", c.n, c.ms, c.ms / costs[0].ms, c.bytes / 1e6,
               c.bytes / c.ms / 1e6, c.operations / c.ms / 1e6);
  return 0;
}

int print_streams(const BenchOptions& options, Engine& engine) {
  const double tps =
      ModelBench(engine, options.depth, options.repetitions).streams(*options.streams, options.generated);
  if (options.json) {
    Json out = heading(options, engine);
    out.update({{"streams", *options.streams}, {"tg", options.generated}, {"streams_tps", tps}});
    fmt::print("{}\n", out.dump());
    return 0;
  }
  print_heading(options, engine);
  fmt::print("{} sequences, {} tokens each: {:.1f} tokens/s in all\n", *options.streams, options.generated, tps);
  return 0;
}

struct PartCost {
  const char* name;
  double ms, share, gbps, gops;  // milliseconds per token
};

// The parts of a profile that took time, longest first.
std::vector<PartCost> parts_of(const model::Profile& profile, double tokens) {
  std::vector<PartCost> parts;
  for (size_t i = 0; i < model::kParts; ++i) {
    const auto part = static_cast<model::Part>(i);
    const model::Profile::Sum& sum = profile.of(part);
    if (sum.seconds > 0)
      parts.push_back({name_of(part), 1000 * sum.seconds / tokens, sum.seconds / profile.total().seconds,
                       sum.bytes / sum.seconds / 1e9, sum.operations / sum.seconds / 1e9});
  }
  std::ranges::sort(parts, std::greater(), &PartCost::ms);
  return parts;
}

Json to_json(const std::vector<PartCost>& parts) {
  Json list = Json::array();
  for (const PartCost& p : parts)
    list.push_back({{"name", p.name}, {"ms", p.ms}, {"share", p.share}, {"gbps", p.gbps}, {"gops", p.gops}});
  return list;
}

void print_parts(const char* what, const std::vector<PartCost>& parts) {
  fmt::print("{:<23} ms/token     share      GB/s     GOP/s\n", what);
  double ms = 0;
  for (const PartCost& p : parts) {
    ms += p.ms;
    fmt::print("  {:<21} {:8.4f} {:7.1f} % {:9.2f} {:9.1f}\n", p.name, p.ms, 100 * p.share, p.gbps, p.gops);
  }
  fmt::print("  {:<21} {:8.4f}\n", "all", ms);
}

int print_profile(const BenchOptions& options, Engine& engine) {
  const auto profiles =
      ModelBench(engine, options.depth, options.repetitions).profile(options.prompt, options.generated);
  const double repetitions = options.repetitions;
  const auto prompt = parts_of(profiles.prompt, options.prompt * repetitions);
  const auto answer = parts_of(profiles.answer, options.generated * repetitions);
  if (options.json) {
    Json out = heading(options, engine);
    out.update(
        {{"pp", options.prompt}, {"tg", options.generated}, {"ops", to_json(answer)}, {"prompt_ops", to_json(prompt)}});
    fmt::print("{}\n", out.dump());
    return 0;
  }
  print_heading(options, engine);
  print_parts("prompt", prompt);
  print_parts("answer", answer);
  return 0;
}

int print_bench(const BenchOptions& options) {
  if (options.machine + options.rows + options.profile + options.streams.has_value() > 1)
    fail(ErrorKind::kUsage, "--machine, --rows, --streams and --profile measure different things; ask for one of them");
  if (options.machine) return print_machine(options);
  if (options.model.path.empty()) fail(ErrorKind::kUsage, "name a model with -m FILE, or ask for --machine");
  EngineOptions wanted = engine_options(options.model, options.compute);
  wanted.beyond_training = true;
  wanted.context = options.depth + std::max({options.prompt, options.generated, uint32_t{ops::cpu::kTile} + kMostRows});
  if (options.rows) wanted.max_logits = kMostRows;
  if (options.streams) {
    // Pages are whole, so each sequence may leave most of one unused.
    const uint64_t context = uint64_t{*options.streams} * (options.depth + options.generated + ops::cpu::kTile);
    wanted.context = static_cast<uint32_t>(std::min<uint64_t>(context, 2 * kMost));
    wanted.max_logits = *options.streams;
  }
  if (wanted.micro_batch > 0) wanted.micro_batch = std::max(wanted.micro_batch, wanted.max_logits);
  const auto engine = load_engine(wanted);
  if (options.rows) return print_rows(options, *engine);
  if (options.streams) return print_streams(options, *engine);
  if (options.profile) return print_profile(options, *engine);
  return print_speed(options, *engine);
}

}  // namespace

Command bench_command() {
  return make_command<BenchOptions>(
      {.name = "bench",
       .summary = "measure the speed of a model",
       .description = "Measurements alternate and medians are printed, beside what this machine could deliver: the "
                      "bandwidth of its memory for answers, byte operations of its arithmetic units for prompts.",
       .usage = {"-m MODEL [--pp N] [--tg N] [--depth N] [--reps N] [--json]", "-m MODEL --rows",
                 "-m MODEL --streams N", "-m MODEL --profile", "--machine [-m FILE] [--json]"},
       .examples = {{"sluice bench -m model.gguf", "prompt and answer speed, and their shares of the machine's limits"},
                    {"sluice bench -m model.gguf --profile", "the same by operation"},
                    {"sluice bench -m model.gguf --rows", "what steps of several tokens of one text cost"},
                    {"sluice bench --machine", "the limits themselves"}}},
      print_bench);
}

}  // namespace sluice::cli
