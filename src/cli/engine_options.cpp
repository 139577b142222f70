#include "cli/engine_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "cli/amounts.h"
#include "cli/progress.h"

namespace sluice::cli {

namespace {

// $XDG_CACHE_HOME or ~/.cache, as the XDG base directory specification has it; empty without a home.
std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::string(cache) + "/sluice";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/sluice";
  return {};
}

ExpertOptions expert_options(const ExpertChoices& choices) {
  using Mode = ExpertChoices::Mode;
  if (choices.memory && choices.slots)
    fail(ErrorKind::kUsage, "--expert-memory and --moe-slot-bank both say how many experts stay in memory; give one");
  if (choices.mode == Mode::kResident && (choices.memory.value_or(UINT64_MAX) != UINT64_MAX || choices.slots))
    fail(ErrorKind::kUsage,
         "--moe-mode resident keeps all experts in memory; --expert-memory and --moe-slot-bank can't be given with it");
  ExpertOptions options;
  if (choices.mode == Mode::kResident || choices.memory == UINT64_MAX)
    options.size = experts::BankSize::all();
  else if (choices.memory)
    options.size = experts::BankSize::bytes(*choices.memory);
  else if (choices.slots)
    options.size = experts::BankSize::per_layer(*choices.slots);
  options.bank = {
      .policy = choices.policy, .engine = choices.io, .look_ahead = choices.look_ahead, .verify = choices.verify};
  options.used = choices.used.value_or(0);
  options.sidecar = choices.sidecar;
  options.read_at_start = choices.read_at_start;
  if (choices.warm_start) options.warm_start = cache_folder();
  return options;
}

// What is really in force, where that is not simply all experts in memory.
void describe_experts(const Engine& engine, const EngineOptions& options) {
  const MemoryPlan& plan = engine.plan();
  const model::Hyperparameters& hp = engine.model().hp;
  if (hp.n_experts == 0) {
    const ExpertOptions& e = options.experts;
    if (e.size || e.used > 0 || e.read_at_start || !e.sidecar.empty() || e.bank.verify)
      fmt::print(stderr, "the model has no experts: options for them change nothing\n");
    return;
  }
  const std::string key = std::string(hp.architecture->name) + ".expert_used_count";
  if (const auto own = engine.metadata().find<uint32_t>(key); own && *own != hp.n_experts_used)
    fmt::print(stderr, "{} of the model's {} experts a token are used (--moe-topk): answers are not its own\n",
               hp.n_experts_used, *own);
  const auto& size = options.experts.size;
  if (size && size->kind == experts::BankSize::Kind::kPerLayer && size->amount > hp.n_experts)
    fmt::print(stderr, "--moe-slot-bank {} is more than the model's {} experts a layer: all are in memory\n",
               size->amount, hp.n_experts);
  if (options.experts.bank.verify && !engine.bank()->verifies())
    fmt::print(stderr,
               "the experts have no checksums: --verify changes nothing (`sluice pack` writes files with them)\n");
  if (!plan.streams()) return;
  const uint32_t per_layer = plan.slots * hp.n_experts / plan.experts;
  fmt::print(stderr, "{} of {} experts fit into memory ({} a layer, {}); the others are read by {} when needed\n",
             plan.slots, plan.experts, per_layer, human_bytes(plan.of(MemoryPlan::kExpertSlots)),
             engine.bank()->engine());
  if (per_layer < hp.n_experts_used)
    fmt::print(stderr, "a token uses {} experts of each layer: with so few in memory most are read each time\n",
               hp.n_experts_used);
}

}  // namespace

EngineOptions engine_options(const ModelOptions& model, const ComputeOptions& compute) {
  if (compute.cache_keys != compute.cache_values)
    fail(ErrorKind::kUnsupported,
         "--cache-type-k and --cache-type-v differ: keys and values are cached in one type so far");
  EngineOptions options;
  options.path = model.path;
  options.overrides = model.overrides;
  options.threads = static_cast<int>(compute.threads.value_or(0));
  options.threads_batch = static_cast<int>(compute.threads_batch.value_or(0));
  options.cpus = compute.cpus;
  options.lock_memory = compute.lock_memory;
  options.context = compute.context;
  options.most_micro_batch = std::min(compute.batch, options.most_micro_batch);
  if (compute.micro_batch) options.micro_batch = std::min(compute.batch, *compute.micro_batch);
  options.experts = expert_options(compute.experts);
  options.notice = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
  options.cache_type = compute.cache_keys;
  options.isa = compute.isa.value_or("");
  return options;
}

std::unique_ptr<Engine> load_engine(EngineOptions options, const std::function<void(double)>& loaded) {
  std::unique_ptr<Progress> progress;
  options.progress = [&](uint64_t done, uint64_t total) {
    if (!progress) progress = std::make_unique<Progress>("loading", total, ProgressUnit::kBytes);
    progress->update(done);
    if (loaded && total > 0) loaded(static_cast<double>(done) / static_cast<double>(total));
  };
  options.planned = [](const MemoryPlan& plan) {
    if (!plan.streams()) return;
    std::string line = "memory: ";
    for (const MemoryPlan::Category& category : plan.categories)
      line += fmt::format("{} {}, ", category.name, human_bytes(category.bytes));
    fmt::print(stderr, "{}{} in all\n", line, human_bytes(plan.total()));
  };
  auto engine = std::make_unique<Engine>(options);
  progress.reset();
  describe_experts(*engine, options);
  return engine;
}

ExpertReport::ExpertReport(const Engine& engine) : engine_(engine) {
  if (engine.bank() != nullptr) before_ = counts();
}

ExpertReport::Counts ExpertReport::counts() const {
  const experts::Bank& bank = *engine_.bank();
  Counts now{bank.traffic_by_layer(), bank.foresight(), bank.read_seconds(), bank.verified()};
  for (size_t l = 0; l < before_.layers.size(); ++l) now.layers[l] = now.layers[l] - before_.layers[l];
  now.foresight.read -= before_.foresight.read;
  now.foresight.used -= before_.foresight.used;
  now.read_seconds -= before_.read_seconds;
  now.verified.bytes -= before_.verified.bytes;
  now.verified.seconds -= before_.verified.seconds;
  return now;
}

namespace {

double gbps(uint64_t bytes, double seconds) { return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0.0; }

experts::Traffic sum_of(const std::vector<experts::Traffic>& layers) {
  experts::Traffic sum;
  for (const experts::Traffic& layer : layers) sum += layer;
  return sum;
}

}  // namespace

Json ExpertReport::json() const {
  const experts::Bank& bank = *engine_.bank();
  const Counts now = counts();
  const experts::Traffic all = sum_of(now.layers);
  Json out = {{"slots", engine_.plan().slots},
              {"experts", engine_.plan().experts},
              {"hits", all.hits},
              {"misses", all.misses},
              {"hit_rate", all.hit_rate()},
              {"bytes_read", all.bytes_read},
              {"stall_s", all.stall_seconds},
              {"read_s", now.read_seconds},
              {"read_gbps", gbps(all.bytes_read, now.read_seconds)},
              {"io", bank.engine()},
              {"read_ahead", now.foresight.read},
              {"read_ahead_used", now.foresight.used}};
  if (bank.verifies())
    out["verify"] = {{"bytes", now.verified.bytes},
                     {"s", now.verified.seconds},
                     {"gbps", gbps(now.verified.bytes, now.verified.seconds)}};
  if (const auto& verdict = bank.look_ahead().verdict())
    out["look_ahead"] = {{"best", verdict->best()}, {"step_s", verdict->seconds}};  // no guesses, half, all
  out["layers"] = Json::array();
  for (const experts::Traffic& layer : now.layers)
    out["layers"].push_back({{"hits", layer.hits},
                             {"misses", layer.misses},
                             {"bytes_read", layer.bytes_read},
                             {"stall_s", layer.stall_seconds}});
  return out;
}

std::string ExpertReport::text() const {
  const Counts now = counts();
  const experts::Traffic all = sum_of(now.layers);
  std::string line =
      fmt::format("experts  {:.1f} % in memory, {} read", 100 * all.hit_rate(), human_bytes(all.bytes_read));
  if (now.read_seconds > 0)
    line += fmt::format(" at {:.2f} GB/s, waited {:.1f} s", gbps(all.bytes_read, now.read_seconds), all.stall_seconds);
  if (const auto& verdict = engine_.bank()->look_ahead().verdict()) {
    constexpr const char* kWays[] = {"is off", "is of half a token's experts", "is of all a token's experts"};
    line += fmt::format("; guessing ahead {}: a step took {:.0f} ms without, {:.0f} with half, {:.0f} with all",
                        kWays[verdict->best()], 1000 * verdict->seconds[0], 1000 * verdict->seconds[1],
                        1000 * verdict->seconds[2]);
  }
  return line;
}

namespace {

// "TOKEN+BIAS" or "TOKEN-BIAS".
std::pair<int32_t, float> parse_bias(const std::string& text) {
  int32_t token = 0;
  float bias = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, token);
  if (error == std::errc() && at != end && (*at == '+' || *at == '-')) {
    const auto [stop, bias_error] = std::from_chars(at + 1, end, bias);
    if (bias_error == std::errc() && stop == end) return {token, *at == '-' ? -bias : bias};
  }
  fail(ErrorKind::kUsage, "--logit-bias {}: write TOKEN+BIAS or TOKEN-BIAS, such as 15043-1.5", text);
}

uint64_t fresh_seed() {
  std::random_device entropy;
  return uint64_t{entropy()} << 32 | entropy();
}

}  // namespace

decode::SamplingParameters sampling_parameters(const SamplingOptions& options, const Engine& engine) {
  decode::SamplingParameters p = engine.sampling_defaults();
  p.temperature = options.temperature.value_or(p.temperature);
  p.top_k = options.top_k.value_or(p.top_k);
  p.top_p = options.top_p.value_or(p.top_p);
  p.min_p = options.min_p.value_or(p.min_p);
  p.repeat_penalty = options.repeat_penalty.value_or(p.repeat_penalty);
  p.presence_penalty = options.presence_penalty.value_or(p.presence_penalty);
  p.frequency_penalty = options.frequency_penalty.value_or(p.frequency_penalty);
  p.penalty_window = options.repeat_last_n.value_or(p.penalty_window);
  for (const std::string& bias : options.logit_bias) p.logit_bias.push_back(parse_bias(bias));
  p.seed = options.seed ? *options.seed : fresh_seed();
  return p;
}

std::string prompt_text(const std::string& text, const std::string& file) {
  if (text.empty() == file.empty())
    fail(ErrorKind::kUsage, "give the text with -p TEXT or with -f FILE (-f - reads standard input)");
  if (!text.empty()) return text;
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  return read_text_file(file);
}

}  // namespace sluice::cli
