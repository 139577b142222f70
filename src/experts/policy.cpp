#include "experts/policy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace sluice::experts {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// log2(2^a + 2^b)
double add_logs(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return low == kNever ? high : high + std::log2(1 + std::exp2(low - high));
}

// The least recently used goes. It has a clock of its own, which tells apart the layers of one token.
class LeastRecent final : public Policy {
 public:
  double used(uint32_t, uint32_t, bool, double) override { return clock_++; }

 private:
  double clock_ = 0;
};

// The least often used goes, where a use counts half as much after each half-life. The count is kept for experts
// without a slot too. It is kept as a logarithm relative to time 0, so that it stays as it is between uses.
// Source: the combined recency and frequency of Lee et al., "LRFU" (2001).
//
// A guarded policy does not count the use that brought an expert in towards its worth: an expert that comes once, or
// whose turn comes round only after all others', takes the slot of the one that came before it, and those that are used
// again stay. So a scan, or a cycle longer than the bank, cannot flush it.
class Frequency final : public Policy {
 public:
  Frequency(uint32_t n_units, double half_life, bool guarded)
      : counts_(n_units, kNever), half_life_(half_life), guarded_(guarded) {}

  double used(uint32_t unit, uint32_t uses, bool hit, double now) override {
    const double one = now / half_life_, before = counts_[unit];
    counts_[unit] = add_logs(before, one + std::log2(uses));
    if (hit || !guarded_) return counts_[unit];
    return uses == 1 ? before : add_logs(before, one + std::log2(uses - 1));
  }

 private:
  std::vector<double> counts_;
  double half_life_;
  bool guarded_;
};

// Follows whichever of the others would have missed least of late. Each is best where it is: a new topic needs the
// recent, a topic that comes back the frequent, a scan a guard. Source: Gramacy et al., "Adaptive caching by
// refetching" (2002), whose master cache follows the best of virtual ones.
class Adaptive final : public Policy {
 public:
  double used(uint32_t, uint32_t, bool, double) override {
    fail(ErrorKind::kInternal, "the adaptive policy judges by its contestants");
  }
  std::vector<std::string> contestants() const override { return {"lru", "frequency", "guarded"}; }
};

using Make = std::unique_ptr<Policy> (*)(uint32_t n_units);

struct Entry {
  PolicyInfo info;
  Make make;
};

// Half-lives in tokens: docs/findings.md, "Which experts stay".
constexpr double kShort = 16, kLong = 128;

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {{"lru", "the least recently used goes"},
       [](uint32_t) -> std::unique_ptr<Policy> { return std::make_unique<LeastRecent>(); }},
      {{"frequency", "the least often used goes; a use counts half after 16 tokens"},
       [](uint32_t n) -> std::unique_ptr<Policy> { return std::make_unique<Frequency>(n, kShort, false); }},
      {{"guarded", "the same after 128 tokens, and the use that brought an expert in does not count"},
       [](uint32_t n) -> std::unique_ptr<Policy> { return std::make_unique<Frequency>(n, kLong, true); }},
      {{"adaptive", "whichever of these would have missed least of late"},
       [](uint32_t) -> std::unique_ptr<Policy> { return std::make_unique<Adaptive>(); }},
  };
  return all;
}

}  // namespace

const char* const kDefaultPolicy = "adaptive";

std::unique_ptr<Policy> make_policy(std::string_view name, uint32_t n_units) {
  for (const Entry& entry : entries())
    if (entry.info.name == name) return entry.make(n_units);
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.push_back(entry.info.name);
  fail(ErrorKind::kUsage, "no eviction policy is called {}; there are {}", name, fmt::join(names, ", "));
}

std::span<const PolicyInfo> policies() {
  static const std::vector<PolicyInfo> infos = [] {
    std::vector<PolicyInfo> all;
    for (const Entry& entry : entries()) all.push_back(entry.info);
    return all;
  }();
  return infos;
}

}  // namespace sluice::experts
