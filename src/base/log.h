// What the program tells on standard error while it runs for long: one line an event, with named fields, as text or as
// JSON. What a value holds is escaped, so that nobody can forge a line. From any thread.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <variant>

namespace sluice::log {

enum class Level { kError, kWarning, kInfo, kDebug };

enum class Format {
  kText,  // 2026-01-31T12:00:00.123Z info request done id=7 status=200 path="/v1/chat completions"
  kJson,  // {"time":"2026-01-31T12:00:00.123Z","level":"info","event":"request done","id":7,"status":200}
};

// A name, plain and of the program's own, and a value. Text is not copied: it must outlive the call.
class Field {
 public:
  using Value = std::variant<std::string_view, int64_t, uint64_t, double, bool>;

  template <typename T>
  requires std::is_arithmetic_v<T> Field(std::string_view name, T value) : name_(name), value_(widened(value)) {}
  template <std::convertible_to<std::string_view> T>
  Field(std::string_view name, const T& value) : name_(name), value_(std::string_view(value)) {}

  std::string_view name() const { return name_; }
  const Value& value() const { return value_; }

 private:
  template <typename T>
  static auto widened(T value) {
    if constexpr (std::same_as<T, bool>)
      return value;
    else if constexpr (std::floating_point<T>)
      return static_cast<double>(value);
    else if constexpr (std::is_signed_v<T>)
      return static_cast<int64_t>(value);
    else
      return static_cast<uint64_t>(value);
  }

  std::string_view name_;
  Value value_;
};

using Fields = std::initializer_list<Field>;

// Events above the level are dropped; kInfo at first.
void set_level(Level level);
bool enabled(Level level);
// Text at first.
void set_format(Format format);

// Writes the line at once. An error of writing is ignored: there is nowhere to tell it.
void write(Level level, std::string_view event, Fields fields = {});

inline void error(std::string_view event, Fields fields = {}) { write(Level::kError, event, fields); }
inline void warning(std::string_view event, Fields fields = {}) { write(Level::kWarning, event, fields); }
inline void info(std::string_view event, Fields fields = {}) { write(Level::kInfo, event, fields); }
inline void debug(std::string_view event, Fields fields = {}) { write(Level::kDebug, event, fields); }

}  // namespace sluice::log
