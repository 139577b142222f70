#include "gguf/metadata.h"

#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "gguf/tensor_info.h"

namespace sluice::gguf {

namespace {

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
concept Integer = std::integral<T> && !std::same_as<T, bool>;

template <typename T>
std::string wanted() {
  if constexpr (IsVector<T>::value) {
    return "an array: each element " + wanted<typename T::value_type>();
  } else if constexpr (std::same_as<T, bool>) {
    return "a bool";
  } else if constexpr (std::same_as<T, std::string>) {
    return "a string";
  } else if constexpr (std::floating_point<T>) {
    return "a finite float";
  } else {
    return fmt::format("an integer from {} to {}", std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }
}

// nullopt when `from`, a scalar or an Array, is not a To or can't be held by one.
template <typename To, typename From>
std::optional<To> convert(const From& from) {
  if constexpr (Integer<To> && Integer<From>) {
    if (std::in_range<To>(from)) return static_cast<To>(from);
  } else if constexpr (std::floating_point<To> && std::floating_point<From>) {
    if (const To to = static_cast<To>(from); std::isfinite(to)) return to;
  } else if constexpr (std::same_as<To, From>) {
    return from;
  }
  return std::nullopt;
}

template <typename To, typename From>
std::optional<std::vector<To>> convert_elements(const From& from) {
  if constexpr (IsVector<From>::value) {
    std::vector<To> out;
    out.reserve(from.size());
    for (const typename From::value_type& element : from) {
      const auto converted = convert<To>(element);
      if (!converted) return std::nullopt;
      out.push_back(*converted);
    }
    return out;
  }
  return std::nullopt;
}

template <typename T>
std::optional<T> convert_value(const Value& value) {
  if constexpr (IsVector<T>::value) {
    const auto* array = std::get_if<Array>(&value);
    if (array == nullptr) return std::nullopt;
    return std::visit([](const auto& held) { return convert_elements<typename T::value_type>(held); }, *array);
  } else {
    return std::visit([](const auto& held) { return convert<T>(held); }, value);
  }
}

[[noreturn]] void fail_type(const Metadata& metadata, std::string_view key, const Value& value,
                            const std::string& wanted_type) {
  fail(ErrorKind::kFormat, "{}: key {}: is {} {}, but {} is needed; convert the model again or override the key",
       metadata.source(), printable(key), describe_type(value), format_value(value), wanted_type);
}

template <typename T>
T parse_number(std::string_view text, std::string_view override_text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size())
    fail(ErrorKind::kUsage, "override \"{}\": \"{}\" is not {}", printable(override_text), printable(text),
         wanted<T>());
  return value;
}

Value parse_override_value(std::string_view type, std::string_view text, std::string_view override_text) {
  if (type == "int") return parse_number<int64_t>(text, override_text);
  if (type == "float") {
    const auto value = parse_number<double>(text, override_text);
    if (!std::isfinite(value)) fail(ErrorKind::kUsage, "override \"{}\": is not finite", printable(override_text));
    return value;
  }
  if (type == "bool") {
    if (text == "true") return true;
    if (text == "false") return false;
    fail(ErrorKind::kUsage, "override \"{}\": a bool is true or false", printable(override_text));
  }
  if (type == "str") return std::string(text);
  fail(ErrorKind::kUsage, "override \"{}\": type \"{}\" is not one of int, float, bool, str", printable(override_text),
       printable(type));
}

}  // namespace

bool Metadata::add(std::string key, Value value) {
  if (!index_.try_emplace(key, entries_.size()).second) return false;
  entries_.push_back({std::move(key), std::move(value)});
  return true;
}

void Metadata::set(std::string key, Value value) {
  if (const auto found = index_.find(key); found != index_.end()) {
    entries_[found->second].value = std::move(value);
  } else {
    add(std::move(key), std::move(value));
  }
}

void Metadata::apply_override(std::string_view text) {
  const size_t equals = text.find('=');
  const size_t colon = equals == std::string_view::npos ? equals : text.find(':', equals);
  if (colon == std::string_view::npos)
    fail(ErrorKind::kUsage, "override \"{}\": write KEY=TYPE:VALUE, for example llama.context_length=int:4096",
         printable(text));
  const std::string key(text.substr(0, equals));
  check_key(key, fmt::format("override \"{}\"", printable(text)));
  if (key == "general.alignment" || key.starts_with("split."))
    fail(ErrorKind::kUsage, "override \"{}\": {} says how the file is laid out and can't be overridden",
         printable(text), key);
  set(key, parse_override_value(text.substr(equals + 1, colon - equals - 1), text.substr(colon + 1), text));
}

const Value* Metadata::find_value(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

template <typename T>
std::optional<T> Metadata::find(std::string_view key) const {
  const Value* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  auto converted = convert_value<T>(*value);
  if (!converted) fail_type(*this, key, *value, wanted<T>());
  return converted;
}

template <typename T>
T Metadata::get(std::string_view key) const {
  auto value = find<T>(key);
  if (!value) fail_missing(key);
  return *std::move(value);
}

const std::vector<std::string>* Metadata::find_strings(std::string_view key) const {
  const Value* value = find_value(key);
  if (value == nullptr) return nullptr;
  const auto* array = std::get_if<Array>(value);
  const auto* strings = array == nullptr ? nullptr : std::get_if<std::vector<std::string>>(array);
  if (strings == nullptr) fail_type(*this, key, *value, "an array of strings");
  return strings;
}

const std::vector<std::string>& Metadata::get_strings(std::string_view key) const {
  const auto* strings = find_strings(key);
  if (strings == nullptr) fail_missing(key);
  return *strings;
}

void Metadata::fail_missing(std::string_view key) const {
  fail(ErrorKind::kFormat, "{}: key {} is missing; convert the model again, or give the key by an override", source_,
       printable(key));
}

#define SLUICE_INSTANTIATE(...)                                                            \
  template std::optional<__VA_ARGS__> Metadata::find<__VA_ARGS__>(std::string_view) const; \
  template __VA_ARGS__ Metadata::get<__VA_ARGS__>(std::string_view) const;
SLUICE_INSTANTIATE(bool)
SLUICE_INSTANTIATE(std::string)
SLUICE_INSTANTIATE(int32_t)
SLUICE_INSTANTIATE(uint32_t)
SLUICE_INSTANTIATE(int64_t)
SLUICE_INSTANTIATE(uint64_t)
SLUICE_INSTANTIATE(float)
SLUICE_INSTANTIATE(double)
SLUICE_INSTANTIATE(std::vector<int32_t>)
SLUICE_INSTANTIATE(std::vector<uint32_t>)
SLUICE_INSTANTIATE(std::vector<int64_t>)
SLUICE_INSTANTIATE(std::vector<float>)
SLUICE_INSTANTIATE(std::vector<bool>)
#undef SLUICE_INSTANTIATE

}  // namespace sluice::gguf
