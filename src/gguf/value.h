// A GGUF metadata value with its exact type, so that a file that is read and written again keeps every byte.
// Looking a value up by key and converting it to what a program wants is metadata.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sluice::gguf {

// The type ids of the GGUF specification; a Value's and an Array's alternative stands at its type's id.
enum class ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
constexpr uint32_t kValueTypes = 13;

// "u8", ..., "str", "array": the names that messages use.
std::string_view type_name(ValueType type);

// The monostate holds the place of an array of arrays, which GGUF does not have.
using Array = std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>, std::vector<int16_t>,
                           std::vector<uint32_t>, std::vector<int32_t>, std::vector<float>, std::vector<bool>,
                           std::vector<std::string>, std::monostate, std::vector<uint64_t>, std::vector<int64_t>,
                           std::vector<double>>;

using Value = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string, Array,
                           uint64_t, int64_t, double>;

static_assert(std::variant_size_v<Value> == kValueTypes && std::variant_size_v<Array> == kValueTypes);

inline ValueType type_of(const Value& value) { return static_cast<ValueType>(value.index()); }
inline ValueType element_type(const Array& array) { return static_cast<ValueType>(array.index()); }

// The type in words: "u32", "array of str".
std::string describe_type(const Value& value);

// The value as a person reads it, at most about `max_bytes` long: 12, true, "gpt2", [11, 11, 10, 0], ["a", ... 248320].
std::string format_value(const Value& value, size_t max_bytes = 80);

// `text` with what is not UTF-8 replaced and control characters escaped, cut to about `max_bytes`: fit for a terminal.
std::string printable(std::string_view text, size_t max_bytes = 80);

}  // namespace sluice::gguf
