#include "cli/progress.h"

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

constexpr uint64_t kGB = 1000000000;

TEST(ProgressLine, ShowsShareAmountsRateAndTimeLeft) {
  EXPECT_EQ(progress_line("loading", 3 * kGB, 12 * kGB, ProgressUnit::kBytes, 2.0, 79),
            "loading [======>                  ] 25%  3.00 GB of 12.0 GB  1.50 GB/s  ETA 6 s");
  EXPECT_EQ(progress_line("prompt", 512, 0, ProgressUnit::kTokens, 4.0, 79), "prompt  512  128 t/s");
  EXPECT_EQ(progress_line("x", 10, 10, ProgressUnit::kItems, 1.0, 50),
            "x [==============] 100%  10 of 10  10.0/s  ETA 0 s");
}

TEST(ProgressLine, NeverPassesTheWidth) {
  for (int width = 1; width < 120; ++width) {
    for (const uint64_t done : {uint64_t{0}, kGB, 7 * kGB, 20 * kGB}) {
      EXPECT_LE(progress_line("loading model", done, 12 * kGB, ProgressUnit::kBytes, 3601.5, width).size(),
                static_cast<size_t>(width));
    }
  }
}

TEST(ProgressLine, BeforeTheFirstReportNothingIsDividedByZero) {
  EXPECT_EQ(progress_line("loading", 0, 12 * kGB, ProgressUnit::kBytes, 0.0, 60).find("ETA"), std::string::npos);
}

}  // namespace
}  // namespace sluice::cli
