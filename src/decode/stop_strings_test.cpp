#include "decode/stop_strings.h"

#include <gtest/gtest.h>

namespace sluice::decode {
namespace {

struct Outcome {
  std::string text;
  bool stopped;
  bool operator==(const Outcome&) const = default;
};

Outcome feed(std::vector<std::string> stops, const std::string& text, size_t piece) {
  StopStrings matcher(std::move(stops));
  std::string out;
  for (size_t i = 0; i < text.size() && !matcher.stopped(); i += piece) out += matcher.push(text.substr(i, piece));
  if (!matcher.stopped()) out += matcher.finish();
  return {out, matcher.stopped()};
}

TEST(StopStrings, FoundWhereverTheTextIsCut) {
  for (size_t piece : {1u, 2u, 3u, 5u, 100u}) {
    EXPECT_EQ(feed({"END"}, "before END after", piece), (Outcome{"before ", true})) << piece;
    EXPECT_EQ(feed({"aab"}, "aaaab", piece), (Outcome{"aa", true})) << "overlapping beginnings";
    EXPECT_EQ(feed({"xyz", "y"}, "axyz", piece), (Outcome{"ax", true})) << "the one complete first";
    EXPECT_EQ(feed({"END", ""}, "an EN at the EN", piece), (Outcome{"an EN at the EN", false}));
  }
}

TEST(StopStrings, HoldsBackOnlyWhatMayBecomeOne) {
  StopStrings matcher({"</end>"});
  EXPECT_EQ(matcher.push("text <"), "text ");
  EXPECT_EQ(matcher.push("b>"), "<b>");
  EXPECT_EQ(matcher.push("</en"), "");
  EXPECT_EQ(matcher.finish(), "</en");
}

}  // namespace
}  // namespace sluice::decode
