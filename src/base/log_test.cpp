#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace sluice::log {
namespace {

using ::testing::EndsWith;
using ::testing::MatchesRegex;

const std::string kTime = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z";

class Log : public ::testing::Test {
 protected:
  ~Log() override {
    set_level(Level::kInfo);
    set_format(Format::kText);
  }

  static std::string written(const std::function<void()>& action) {
    ::testing::internal::CaptureStderr();
    action();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, ALineHasTimeLevelEventAndFields) {
  const auto event = [] {
    info("request done", {{"id", 7u}, {"status", 200}, {"path", "/health"}, {"ms", 1.5}, {"cached", true}});
  };
  EXPECT_THAT(written(event),
              MatchesRegex(kTime + " info request done id=7 status=200 path=/health ms=1.5 cached=true\n"));
  set_format(Format::kJson);
  EXPECT_THAT(written(event), MatchesRegex("\\{\"time\":\"" + kTime +
                                           "\",\"level\":\"info\",\"event\":\"request done\",\"id\":7,\"status\":200,"
                                           "\"path\":\"/health\",\"ms\":1.5,\"cached\":true\\}\n"));
}

TEST_F(Log, NumbersKeepEveryDigit) {
  const auto event = [] {
    error("numbers", {{"most", std::numeric_limits<uint64_t>::max()},
                      {"least", std::numeric_limits<int64_t>::min()},
                      {"tenth", 0.1},
                      {"none", std::nan("")},
                      {"text", std::string("17")}});
  };
  EXPECT_THAT(written(event), EndsWith(" error numbers most=18446744073709551615 least=-9223372036854775808 tenth=0.1 "
                                       "none=nan text=17\n"));
  set_format(Format::kJson);
  EXPECT_THAT(written(event), EndsWith("\"most\":18446744073709551615,\"least\":-9223372036854775808,\"tenth\":0.1,"
                                       "\"none\":null,\"text\":\"17\"}\n"));
}

TEST_F(Log, NoValueForgesALineOrAField) {
  const std::string hostile = "a\n2026-01-31T12:00:00.000Z error status=500\r\x1B[2J\"\\ \x9B\xC2\x9B\xE2\x80\xA8";
  const std::string escaped = R"("a\n2026-01-31T12:00:00.000Z error status=500\u000d\u001b[2J\"\\ )"
                              "\xEF\xBF\xBD"
                              R"(\u009b\u2028")";
  const auto event = [&] { warning("odd\nrequest", {{"path", hostile}, {"empty", ""}, {"pair", "a=b"}}); };
  EXPECT_THAT(written(event), EndsWith(" warning odd\\nrequest path=" + escaped + " empty=\"\" pair=\"a=b\"\n"));
  set_format(Format::kJson);
  const std::string json = written(event);
  EXPECT_THAT(json,
              EndsWith("\"event\":\"odd\\nrequest\",\"path\":" + escaped + ",\"empty\":\"\",\"pair\":\"a=b\"}\n"));
  EXPECT_EQ(std::ranges::count(json, '\n'), 1);
}

TEST_F(Log, BracesAndPercentsAreNoPatterns) {
  EXPECT_THAT(written([] { info("{} %v", {{"text", "{0}%l"}}); }), EndsWith(" info {} %v text={0}%l\n"));
}

TEST_F(Log, EventsAboveTheLevelAreDropped) {
  const auto all = [] { error("e"), warning("w"), info("i"), debug("d"); };
  const std::pair<Level, long> lines[] = {
      {Level::kError, 1}, {Level::kWarning, 2}, {Level::kInfo, 3}, {Level::kDebug, 4}};
  for (const auto& [level, n] : lines) {
    set_level(level);
    EXPECT_EQ(std::ranges::count(written(all), '\n'), n);
    EXPECT_EQ(enabled(Level::kDebug), level == Level::kDebug);
  }
}

TEST_F(Log, LinesOfSeveralThreadsStayWhole) {
  const std::string text = written([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([t] {
        for (int i = 0; i < 200; ++i) info("tick", {{"thread", t}, {"text", std::string(50, 'x')}});
      });
    for (std::thread& thread : threads) thread.join();
  });
  std::istringstream lines(text);
  int n = 0;
  for (std::string line; std::getline(lines, line); ++n)
    EXPECT_THAT(line, MatchesRegex(kTime + " info tick thread=[0-3] text=x{50}"));
  EXPECT_EQ(n, 800);
}

}  // namespace
}  // namespace sluice::log
