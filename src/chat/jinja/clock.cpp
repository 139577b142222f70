// Dates as strftime_now prints them: the C locale's names, whatever the process's locale is.
#include <array>
#include <ctime>

#include "chat/jinja/builtins.h"

namespace sluice::jinja {
namespace {

constexpr std::array<std::string_view, 7> kWeekdays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                       "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};

bool is_leap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

// 1 for January 1st.
int day_of_year(const DateTime& time) {
  constexpr int kDaysBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  return kDaysBefore[time.month - 1] + time.day + (time.month > 2 && is_leap(time.year) ? 1 : 0);
}

// 0 for Sunday: the Gregorian calendar repeats every 400 years, and 1 January of year 1 was a Monday.
int day_of_week(const DateTime& time) {
  const int years = time.year - 1;
  return (years * 365 + years / 4 - years / 100 + years / 400 + day_of_year(time)) % 7;
}

std::string number(int value, int width, char flag) {
  if (flag == '-') return fmt::format("{}", value);
  return flag == '_' ? fmt::format("{:{}d}", value, width) : fmt::format("{:0{}d}", value, width);
}

std::string directive(char letter, char flag, const DateTime& time) {
  const int weekday = day_of_week(time), hour12 = time.hour % 12 == 0 ? 12 : time.hour % 12;
  const std::string_view month = kMonths[static_cast<size_t>(time.month - 1)];
  const std::string_view weekday_name = kWeekdays[static_cast<size_t>(weekday)];
  switch (letter) {
    case 'Y':
      return number(time.year, 1, flag);
    case 'y':
      return number(time.year % 100, 2, flag);
    case 'm':
      return number(time.month, 2, flag);
    case 'd':
      return number(time.day, 2, flag);
    case 'e':
      return number(time.day, 2, flag == '\0' ? '_' : flag);
    case 'H':
      return number(time.hour, 2, flag);
    case 'I':
      return number(hour12, 2, flag);
    case 'M':
      return number(time.minute, 2, flag);
    case 'S':
      return number(time.second, 2, flag);
    case 'j':
      return number(day_of_year(time), 3, flag);
    case 'u':
      return number(weekday == 0 ? 7 : weekday, 1, flag);
    case 'w':
      return number(weekday, 1, flag);
    case 'f':
      return "000000";
    case 'p':
      return time.hour < 12 ? "AM" : "PM";
    case 'b':
    case 'h':
      return std::string(month.substr(0, 3));
    case 'B':
      return std::string(month);
    case 'a':
      return std::string(weekday_name.substr(0, 3));
    case 'A':
      return std::string(weekday_name);
    case 'D':
      return format_time("%m/%d/%y", time);
    case 'F':
      return format_time("%Y-%m-%d", time);
    case 'R':
      return format_time("%H:%M", time);
    case 'T':
      return format_time("%H:%M:%S", time);
    case 'c':
      return format_time("%a %b %e %H:%M:%S %Y", time);
    case 'x':
      return format_time("%m/%d/%y", time);
    case 'X':
      return format_time("%H:%M:%S", time);
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case 'z':
    case 'Z':
      return "";  // a naive local time has no zone
    case '%':
      return "%";
    default:
      throw TemplateError(FailureKind::kUnsupported,
                          fmt::format("strftime_now: the directive %{} is not supported", letter));
  }
}

}  // namespace

std::string format_time(std::string_view format, const DateTime& time) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    ++i;
    const bool has_flag = (format[i] == '-' || format[i] == '_') && i + 1 < format.size();
    const char flag = has_flag ? format[i++] : '\0';
    out += directive(format[i], flag, time);
  }
  return out;
}

DateTime system_local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec};
}

}  // namespace sluice::jinja
