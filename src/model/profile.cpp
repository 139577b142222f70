#include "model/profile.h"

#include "base/system.h"

namespace sluice::model {

const char* name_of(Part part) {
  constexpr std::array<const char*, kParts> kNames = {
      "set-up", "norms",   "attention projections", "attention",     "delta projections", "delta net",
      "router", "experts", "expert reads",          "shared expert", "feed-forward",      "head"};
  return kNames[static_cast<size_t>(part)];
}

void Profile::begin() { last_ = now_seconds(); }

void Profile::lap(Part part, double bytes, double operations) {
  const double now = now_seconds();
  Sum& sum = sums_[static_cast<size_t>(part)];
  sum.seconds += now - last_;
  sum.bytes += bytes;
  sum.operations += operations;
  last_ = now;
}

Profile::Sum Profile::total() const {
  Sum total;
  for (const Sum& sum : sums_) {
    total.seconds += sum.seconds;
    total.bytes += sum.bytes;
    total.operations += sum.operations;
  }
  return total;
}

}  // namespace sluice::model
