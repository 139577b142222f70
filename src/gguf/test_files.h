// GGUF files in memory, for the tests of this room.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

namespace sluice::test {

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

inline gguf::Part read_memory(std::string_view file) { return gguf::read_part(memory_file("M.gguf", bytes_of(file))); }

inline std::string write_memory(const gguf::Writer& writer) {
  std::string out;
  writer.write([&out](std::span<const std::byte> bytes) {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return out;
}

inline gguf::TensorInfo f32_tensor(std::string name, std::vector<uint64_t> extents) {
  gguf::TensorInfo tensor;
  tensor.name = std::move(name);
  tensor.extents = std::move(extents);
  tensor.format = &quant::format(quant::Type::kF32);
  return tensor;
}

inline gguf::TensorSource constant_source(int byte) {
  return [byte](const gguf::TensorInfo& tensor, const gguf::Sink& sink) {
    sink(std::vector<std::byte>(tensor.bytes, static_cast<std::byte>(byte)));
  };
}

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace sluice::test
