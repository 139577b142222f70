#include "gguf/value.h"

#include <fmt/core.h>

#include <type_traits>

#include "base/utf8.h"

namespace sluice::gguf {

namespace {

template <typename T>
std::string format_scalar(const T& value, size_t max_bytes) {
  if constexpr (std::is_same_v<T, std::string>) {
    return fmt::format("\"{}\"", printable(value, max_bytes));
  } else {
    return fmt::format("{}", value);
  }
}

template <typename T>
std::string format_elements(const std::vector<T>& elements, size_t max_bytes) {
  std::string out = "[";
  for (size_t i = 0; i < elements.size(); ++i) {
    if (out.size() >= max_bytes) return out + fmt::format("... {}]", elements.size());
    out += format_scalar<T>(elements[i], max_bytes / 2);
    if (i + 1 < elements.size()) out += ", ";
  }
  return out + "]";
}

}  // namespace

std::string_view type_name(ValueType type) {
  static constexpr std::string_view kNames[kValueTypes] = {"u8",   "i8",  "u16",   "i16", "u32", "i32", "f32",
                                                           "bool", "str", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

std::string describe_type(const Value& value) {
  if (const auto* array = std::get_if<Array>(&value))
    return fmt::format("array of {}", type_name(element_type(*array)));
  return std::string(type_name(type_of(value)));
}

std::string format_value(const Value& value, size_t max_bytes) {
  const auto format_array = [&](const auto& elements) -> std::string {
    if constexpr (std::is_same_v<std::decay_t<decltype(elements)>, std::monostate>) {
      return "[]";
    } else {
      return format_elements(elements, max_bytes);
    }
  };
  const auto format_any = [&](const auto& held) -> std::string {
    if constexpr (std::is_same_v<std::decay_t<decltype(held)>, Array>) {
      return std::visit(format_array, held);
    } else {
      return format_scalar(held, max_bytes);
    }
  };
  return std::visit(format_any, value);
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= max_bytes) return out + "...";
    const auto decoded = utf8::decode(text);
    if (decoded.code_point < 0x20 || decoded.code_point == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(decoded.code_point));
    } else {
      utf8::append(out, decoded.code_point);
    }
    text.remove_prefix(decoded.length);
  }
  return out;
}

}  // namespace sluice::gguf
