// Stop strings in a stream of text: what may still become one is held back until it is decided.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::decode {

class StopStrings {
 public:
  // Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  // The text that may be shown after `text` has arrived. Once a stop string is complete, stopped() is true, and nothing
  // from its first byte on is ever shown.
  std::string push(std::string_view text);
  // What was held back at the end of the stream.
  std::string finish();
  bool stopped() const { return !matched_.empty(); }
  // The stop string that was found.
  const std::string& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string matched_;
};

}  // namespace sluice::decode
