// `sluice plan`: the memory that a model will take with given options, without loading it.
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/memory_need.h"

namespace sluice::cli {
namespace {

struct PlanOptions {
  ModelOptions model;
  ComputeOptions compute;
  bool json = false;

  void declare(OptionTable& table) {
    model.declare(table);
    table.group("Plan");
    table.flag("--json", "print one JSON object", &json);
    compute.declare(table);
  }
};

int print_plan(const PlanOptions& options) {
  const EngineOptions wanted = engine_options(options.model, options.compute);
  const MemoryNeed need = memory_need(ModelFile::open(wanted), wanted);
  if (!options.json) {
    print_memory(need);
    return 0;
  }
  Json out;
  out["categories"] = Json::object();
  for (const MemoryPlan::Category& category : need.plan.categories) out["categories"][category.name] = category.bytes;
  out["expert_slots"] = need.plan.slots;
  out["experts"] = need.plan.experts;
  out["micro_batch"] = need.plan.micro_batch;
  out["total_bytes"] = need.plan.total();
  // Null where the system does not say what is available.
  out["available_bytes"] = need.available ? Json(*need.available) : nullptr;
  out["fits"] = need.available ? Json(*need.fits()) : nullptr;
  print_json(out);
  return 0;
}

}  // namespace

Command plan_command() {
  return make_command<PlanOptions>(
      {.name = "plan",
       .summary = "say what memory a model will take",
       .description = "Reads only the head of the file. The same plan is what `sluice run` allocates.",
       .usage = {"-m MODEL [-c N] [--cache-type-k TYPE --cache-type-v TYPE] [--json]"},
       .examples = {{"sluice plan -m model.gguf -c 32768", "memory by category for 32768 tokens of context"}}},
      print_plan);
}

}  // namespace sluice::cli
