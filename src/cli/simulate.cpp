// `sluice simulate`: what a recorded trace would have cost with other numbers of slots and other policies.
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "cli/amounts.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "experts/policy.h"
#include "experts/simulate.h"

namespace sluice::cli {
namespace {

enum class Half { kBoth, kFirst, kSecond };

struct SimulateOptions {
  std::string trace;
  std::vector<uint32_t> slots;
  std::vector<std::string> policies;  // empty: all, and the clairvoyant bound
  bool total = false, json = false;
  uint32_t step = 1;
  Half half = Half::kBoth;

  void declare(OptionTable& table) {
    table.positional("TRACE", "a trace made by `sluice trace`", &trace);
    table.group("Simulation");
    table.custom("--slots", "N[,N..]", "slots a layer on average; all layers share them",
                 [this](std::string_view text) { slots = numbers(text); }, {.required = true});
    table.flag("--total", "--slots counts the slots of all layers together", &total);
    table.custom("--policy", "NAME[,..]",
                 fmt::format("eviction policies, \"{}\" among them for the clairvoyant bound (default: all)",
                             experts::kClairvoyant),
                 [this](std::string_view text) { policies = words(text); });
    table.option("--step", "N", "tokens computed together, as of a prompt; an expert then counts once for all", &step,
                 {.min = 1});
    table.choice("--half", "HALF", "replay only the first or the second half of the tokens", &half,
                 {{"both", Half::kBoth}, {"first", Half::kFirst}, {"second", Half::kSecond}});
    table.flag("--json", "print one JSON array", &json);
  }

 private:
  static std::vector<std::string> words(std::string_view text) {
    std::vector<std::string> out;
    for (size_t end = text.find(','); end != std::string_view::npos; end = text.find(',')) {
      out.emplace_back(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
    out.emplace_back(text);
    return out;
  }
  static std::vector<uint32_t> numbers(std::string_view text) {
    std::vector<uint32_t> out;
    for (const std::string& word : words(text)) out.push_back(static_cast<uint32_t>(parse_integer(word, 1, 1 << 22)));
    return out;
  }
};

struct Outcome {
  std::string policy;
  uint32_t slots;  // as asked for
  experts::Replay replay, bound;
};

experts::Trace chosen_part(experts::Trace trace, Half half) {
  const size_t middle = trace.tokens() / 2;
  switch (half) {
    case Half::kFirst:
      return trace.part(0, middle);
    case Half::kSecond:
      return trace.part(middle, trace.tokens());
    case Half::kBoth:
      return trace;
  }
  return trace;
}

// Slots of all layers; never more than there are experts.
uint32_t all_slots(const SimulateOptions& options, const experts::Trace& trace, uint32_t slots) {
  const uint64_t units = uint64_t{trace.n_layers} * trace.n_experts;
  return static_cast<uint32_t>(std::min(units, slots * uint64_t{options.total ? 1 : trace.n_layers}));
}

std::vector<Outcome> outcomes(const SimulateOptions& options, const experts::Trace& trace) {
  std::vector<std::string> names = options.policies;
  if (names.empty()) {
    for (const experts::PolicyInfo& policy : experts::policies()) names.push_back(policy.name);
    names.emplace_back(experts::kClairvoyant);
  }
  std::vector<Outcome> out;
  for (const uint32_t slots : options.slots) {
    const uint32_t all = all_slots(options, trace, slots);
    const experts::Replay bound = experts::replay(trace, experts::kClairvoyant, all, options.step);
    for (const std::string& name : names)
      out.push_back({name, slots, experts::replay(trace, name, all, options.step), bound});
  }
  return out;
}

Json to_json(const std::vector<Outcome>& all, bool bytes_known) {
  Json out = Json::array();
  for (const Outcome& outcome : all)
    out.push_back({{"policy", outcome.policy},
                   {"slots", outcome.slots},
                   {"hit_rate", outcome.replay.hit_rate()},
                   {"bytes", bytes_known ? Json(outcome.replay.bytes) : nullptr}});
  return out;
}

void print_table(const std::vector<Outcome>& all, const experts::Trace& trace, bool bytes_known) {
  fmt::print("{}: {} layers of {} experts, {} used; {} tokens\n\n", trace.architecture, trace.n_layers, trace.n_experts,
             trace.top_k, trace.tokens());
  fmt::print("{:>6}  {:<12} {:>8}  {:>12}  {:>10}  {:>9}\n", "slots", "policy", "hits", "below bound", "loads",
             bytes_known ? "read" : "");
  for (const Outcome& outcome : all)
    fmt::print("{:>6}  {:<12} {:>6.2f} %  {:>5.2f} points  {:>10}  {:>9}\n", outcome.slots, outcome.policy,
               100 * outcome.replay.hit_rate(), 100 * (outcome.bound.hit_rate() - outcome.replay.hit_rate()),
               outcome.replay.misses, bytes_known ? human_bytes(outcome.replay.bytes) : "");
}

int simulate(const SimulateOptions& options) {
  const experts::Trace trace = chosen_part(experts::read_trace(*open_file(options.trace)), options.half);
  const std::vector<Outcome> all = outcomes(options, trace);
  const bool bytes_known = !trace.expert_bytes.empty();
  if (options.json)
    print_json(to_json(all, bytes_known));
  else
    print_table(all, trace, bytes_known);
  return 0;
}

}  // namespace

Command simulate_command() {
  return make_command<SimulateOptions>(
      {.name = "simulate",
       .summary = "replay a trace with other slots and policies",
       .description = "Says how often an expert would have been in a slot when a token of the trace used it, beginning "
                      "with empty slots, and how far that is below what a policy that knew the future would have "
                      "reached. No policy can be better than that.",
       .usage = {"TRACE --slots N[,N..] [--total] [--policy NAME[,..]] [--step N] [--half HALF] [--json]"},
       .examples = {{"sluice simulate text.trace --slots 32,64,128", "every policy with three sizes of bank"},
                    {"sluice simulate text.trace --slots 64 --policy lru,optimal --json", "for scripts"}}},
      simulate);
}

}  // namespace sluice::cli
