#include "cli/memory_need.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/system.h"
#include "cli/amounts.h"

namespace sluice::cli {

std::optional<bool> MemoryNeed::fits() const {
  if (!available) return std::nullopt;
  return plan.total() <= *available;
}

MemoryNeed memory_need(const ModelFile& file, EngineOptions options) {
  options.context = options.context == 0 ? file.hp.n_context : std::min(options.context, file.hp.n_context);
  const uint64_t available = available_memory();
  MemoryNeed need{file.plan(options, available), options.context, std::nullopt};
  if (available > 0) need.available = available;
  return need;
}

void print_memory(const MemoryNeed& need) {
  fmt::print("memory for a context of {} tokens\n", need.context);
  for (const MemoryPlan::Category& category : need.plan.categories)
    fmt::print("  {:<15} {:>10}\n", category.name, human_bytes(category.bytes));
  fmt::print("  {:<15} {:>10}", "total", human_bytes(need.plan.total()));
  if (need.available)
    fmt::print(" of {} available{}", human_bytes(*need.available), *need.fits() ? "" : ": does not fit");
  fmt::print("\n");
  if (need.plan.experts > 0)
    fmt::print("{} of {} experts have a slot; prompts are computed {} tokens at a time\n", need.plan.slots,
               need.plan.experts, need.plan.micro_batch);
}

}  // namespace sluice::cli
