#include "gguf/metadata.h"

#include <algorithm>
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

// An integer of any type, or each of an array of them, as int64_t or uint64_t; nullopt when the value is something else
// or Wide can't hold it. To look into a value takes the compiler long: it is done twice per sign, not for every type
// that can be asked for.
template <typename Wide>
std::optional<Wide> widen(const Value& value) {
  return std::visit(
      []<typename T>(const T& held) -> std::optional<Wide> {
        if constexpr (Integer<T>) {
          if (std::in_range<Wide>(held)) return static_cast<Wide>(held);
        }
        return std::nullopt;
      },
      value);
}

template <typename Wide>
std::optional<std::vector<Wide>> widen_elements(const Array& array) {
  return std::visit(
      []<typename T>(const T& held) -> std::optional<std::vector<Wide>> {
        if constexpr (IsVector<T>::value) {
          if constexpr (Integer<typename T::value_type>) {
            if (std::ranges::all_of(held, [](auto element) { return std::in_range<Wide>(element); }))
              return std::vector<Wide>(held.begin(), held.end());
          }
        }
        return std::nullopt;
      },
      array);
}

// The finite number as a To; nullopt when a To can't hold it.
template <typename To, typename From>
std::optional<To> convert(From from) {
  if constexpr (Integer<To>) {
    if (std::in_range<To>(from)) return static_cast<To>(from);
  } else if (const To to = static_cast<To>(from); std::isfinite(to)) {
    return to;
  }
  return std::nullopt;
}

template <typename To, typename From>
std::optional<std::vector<To>> convert_elements(const std::vector<From>& from) {
  std::vector<To> out;
  out.reserve(from.size());
  for (const From element : from) {
    const auto converted = convert<To>(element);
    if (!converted) return std::nullopt;
    out.push_back(*converted);
  }
  return out;
}

template <typename T>
using WideOf = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;

template <typename T>
std::optional<T> convert_scalar(const Value& value) {
  if constexpr (Integer<T>) {
    const auto wide = widen<WideOf<T>>(value);
    return wide ? convert<T>(*wide) : std::nullopt;
  } else if constexpr (std::floating_point<T>) {
    if (const auto* held = std::get_if<float>(&value)) return convert<T>(*held);
    if (const auto* held = std::get_if<double>(&value)) return convert<T>(*held);
    return std::nullopt;
  } else {
    const auto* held = std::get_if<T>(&value);
    return held != nullptr ? std::optional<T>(*held) : std::nullopt;
  }
}

template <typename T>
std::optional<std::vector<T>> convert_array(const Array& array) {
  if constexpr (Integer<T>) {
    const auto wide = widen_elements<WideOf<T>>(array);
    return wide ? convert_elements<T>(*wide) : std::nullopt;
  } else if constexpr (std::floating_point<T>) {
    if (const auto* held = std::get_if<std::vector<float>>(&array)) return convert_elements<T>(*held);
    if (const auto* held = std::get_if<std::vector<double>>(&array)) return convert_elements<T>(*held);
    return std::nullopt;
  } else {
    const auto* held = std::get_if<std::vector<T>>(&array);
    return held != nullptr ? std::optional<std::vector<T>>(*held) : std::nullopt;
  }
}

// nullopt when the value is no T.
template <typename T>
std::optional<T> convert_value(const Value& value) {
  if constexpr (IsVector<T>::value) {
    const auto* array = std::get_if<Array>(&value);
    return array != nullptr ? convert_array<typename T::value_type>(*array) : std::nullopt;
  } else {
    return convert_scalar<T>(value);
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

Metadata::Metadata(std::string source) : source_(std::move(source)) {}
Metadata::Metadata(const Metadata&) = default;
Metadata::Metadata(Metadata&&) noexcept = default;
Metadata& Metadata::operator=(const Metadata& other) { return *this = Metadata(other); }
Metadata& Metadata::operator=(Metadata&&) noexcept = default;
Metadata::~Metadata() = default;

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
