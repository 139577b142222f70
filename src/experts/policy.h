// Which expert gives up its slot: how worthy each is of being kept, from when and how often it was used. Pure: policies
// see uses and nothing else, so a recorded trace can be replayed against them (`sluice simulate`), and none of them can
// change a result.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::experts {

class Policy {
 public:
  virtual ~Policy() = default;

  // `unit` (an expert of a layer) was used by `uses` tokens at time `now`, which counts tokens; `hit`: it was in a
  // slot. Returns its worth from now on: who is worth least goes first. Worth has no unit; only the order counts.
  virtual double used(uint32_t unit, uint32_t uses, bool hit, double now) = 0;

  // The names of policies of which this one follows the best; empty: it is one by itself. A slot map then plays out
  // each of them, and does not ask used().
  virtual std::vector<std::string> contestants() const { return {}; }
};

// A policy by name, for `n_units` experts of all layers. Throws Error(kUsage) with the names that there are.
std::unique_ptr<Policy> make_policy(std::string_view name, uint32_t n_units);

struct PolicyInfo {
  std::string name, summary;
};
std::span<const PolicyInfo> policies();
extern const char* const kDefaultPolicy;

}  // namespace sluice::experts
