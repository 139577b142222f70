#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>

#include "base/utf8.h"

namespace sluice::log {

namespace {

// Spdlog adds time and level, and writes whole lines one after another; what is between is ours.
constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

spdlog::level::level_enum level_of(Level level) {
  switch (level) {
    case Level::kError:
      return spdlog::level::err;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kDebug:
      return spdlog::level::debug;
  }
  return spdlog::level::info;
}

struct Log {
  Log() : logger("sluice", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger.set_level(spdlog::level::info);
    logger.set_error_handler([](const std::string&) {});
    set_format(Format::kText);
  }

  void set_format(Format to) {
    const char* pattern = to == Format::kText ? kTextPattern : kJsonPattern;
    logger.set_formatter(
        std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc, std::string("\n")));
    format = to;
  }

  spdlog::logger logger;
  std::atomic<Format> format{Format::kText};
};

// Never destroyed: threads may log while the program ends.
Log& instance() {
  static Log& log = *new Log;
  return log;
}

// Control characters move the cursor, begin lines, or are no JSON. U+2028 and U+2029 end lines for some readers.
bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029; }

// As a JSON string has it, without the quotes. What is not UTF-8 becomes U+FFFD.
void append_escaped(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const utf8::Decoded next = utf8::decode(text);
    text.remove_prefix(next.length);
    if (next.code_point == '\n')
      out += "\\n";
    else if (next.code_point == '"' || next.code_point == '\\')
      out += {'\\', static_cast<char>(next.code_point)};
    else if (is_control(next.code_point))
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint32_t>(next.code_point));
    else
      utf8::append(out, next.code_point);
  }
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  append_escaped(out, text);
  out += '"';
}

// Whether a text can stand without quotes and still be told from what is around it.
bool is_plain(std::string_view text) {
  const auto plain = [](unsigned char c) { return c > ' ' && c < 0x7F && c != '"' && c != '\\' && c != '='; };
  return !text.empty() && std::all_of(text.begin(), text.end(), plain);
}

void append_value(std::string& out, const Field::Value& value, Format format) {
  if (const auto* text = std::get_if<std::string_view>(&value); text != nullptr) {
    if (format == Format::kText && is_plain(*text))
      out += *text;
    else
      append_quoted(out, *text);
    return;
  }
  if (const auto* number = std::get_if<double>(&value);
      number != nullptr && !std::isfinite(*number) && format == Format::kJson) {
    out += "null";  // JSON has no such numbers
    return;
  }
  std::visit([&](const auto& v) { fmt::format_to(std::back_inserter(out), "{}", v); }, value);
}

std::string text_of(std::string_view event, Fields fields) {
  std::string out;
  append_escaped(out, event);
  for (const Field& field : fields) {
    out += fmt::format(" {}=", field.name());
    append_value(out, field.value(), Format::kText);
  }
  return out;
}

std::string json_of(std::string_view event, Fields fields) {
  std::string out = "\"event\":";
  append_quoted(out, event);
  for (const Field& field : fields) {
    out += ',';
    append_quoted(out, field.name());
    out += ':';
    append_value(out, field.value(), Format::kJson);
  }
  return out;
}

}  // namespace

void set_level(Level level) { instance().logger.set_level(level_of(level)); }
bool enabled(Level level) { return instance().logger.should_log(level_of(level)); }
void set_format(Format format) { instance().set_format(format); }

void write(Level level, std::string_view event, Fields fields) {
  if (!enabled(level)) return;
  Log& log = instance();
  const std::string line = log.format == Format::kText ? text_of(event, fields) : json_of(event, fields);
  log.logger.log(level_of(level), spdlog::string_view_t(line));
}

}  // namespace sluice::log
