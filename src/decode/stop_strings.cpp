#include "decode/stop_strings.h"

#include <algorithm>
#include <utility>

namespace sluice::decode {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
}

std::string StopStrings::push(std::string_view text) {
  if (stopped()) return {};
  held_ += text;
  // The stop string that is complete first counts, however the text was cut; of those, the one that began first.
  std::pair<size_t, size_t> match{std::string::npos, 0};  // end, begin
  size_t undecided = held_.size();
  for (const std::string& stop : stops_) {
    if (const size_t at = held_.find(stop); at != std::string::npos && std::pair(at + stop.size(), at) < match) {
      match = {at + stop.size(), at};
      matched_ = stop;
    }
    // The longest end of the text that begins this stop string.
    const size_t longest = std::min(stop.size() - 1, held_.size());
    for (size_t n = longest; n > 0; --n)
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) {
        undecided = std::min(undecided, held_.size() - n);
        break;
      }
  }
  std::string shown = held_.substr(0, stopped() ? match.second : undecided);
  held_ = stopped() ? "" : held_.substr(undecided);
  return shown;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace sluice::decode
