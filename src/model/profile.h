// Where the time of passes goes, by the parts that a layer is made of; for `sluice bench --profile`. A pass without a
// profile takes no time of the clock.
#pragma once

#include <array>
#include <cstddef>

namespace sluice::model {

enum class Part {
  kSetUp,                 // pages, rows, embedding, rotary angles
  kNorms,                 // of the residual stream, and the additions to it
  kAttentionProjections,  // q, k, v and output products of attention layers
  kAttention,             // what lies between them: rotation, storing keys and values, attending
  kDeltaProjections,      // q, k, v, gate, alpha, beta and output products of delta-net layers
  kDeltaNet,              // convolution, recurrence, norm and gate
  kRouter,
  kExperts,
  kExpertReads,  // waiting for experts that are not in memory yet
  kSharedExpert,
  kFeedForward,  // of dense layers
  kHead,         // the last norm and the product with the vocabulary
};
constexpr size_t kParts = 12;

const char* name_of(Part part);

// Sums over passes.
class Profile {
 public:
  struct Sum {
    double seconds = 0;
    double bytes = 0;       // of weights, caches and states that were read or written, each once a pass
    double operations = 0;  // multiplications and additions
  };

  // A pass begins: the time from now on belongs to the part that is named next.
  void begin();
  // The time since the last lap() or begin() went into `part`.
  void lap(Part part, double bytes, double operations);

  const Sum& of(Part part) const { return sums_[static_cast<size_t>(part)]; }
  Sum total() const;

 private:
  std::array<Sum, kParts> sums_;
  double last_ = 0;
};

}  // namespace sluice::model
