#include "support/safetensors.h"

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/file.h"

namespace sluice::test {
namespace {

using nlohmann::json;

std::vector<std::byte> read_whole_file(const std::string& path) {
  const auto file = open_file(path);
  std::vector<std::byte> bytes(file->size());
  file->read_at(0, bytes);
  return bytes;
}

// Bytes of one element; 0 for a type that no golden vector uses.
uint64_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, uint64_t> kBytes = {{"F64", 8}, {"I64", 8}, {"U64", 8},  {"F32", 4}, {"I32", 4},
                                                         {"U32", 4}, {"F16", 2}, {"BF16", 2}, {"I16", 2}, {"U16", 2},
                                                         {"I8", 1},  {"U8", 1},  {"BOOL", 1}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 0 : found->second;
}

Tensor read_tensor(const std::string& where, const json& entry, std::span<const std::byte> data) {
  Tensor tensor;
  tensor.dtype = entry.at("dtype").get<std::string>();
  tensor.shape = entry.at("shape").get<std::vector<uint64_t>>();
  const auto begin = entry.at("data_offsets").at(0).get<uint64_t>();
  const auto end = entry.at("data_offsets").at(1).get<uint64_t>();
  if (begin > end || end > data.size()) {
    fail(ErrorKind::kFormat, "{}: bytes {} to {} lie outside of the {} data bytes", where, begin, end, data.size());
  }
  const uint64_t size = checked_mul(tensor.count(), element_bytes(tensor.dtype), where.c_str());
  if (size != end - begin) {
    fail(ErrorKind::kFormat, "{}: {} elements of {} are not {} bytes", where, tensor.count(), tensor.dtype,
         end - begin);
  }
  const auto bytes = data.subspan(begin, end - begin);
  tensor.bytes.assign(bytes.begin(), bytes.end());
  return tensor;
}

}  // namespace

uint64_t Tensor::count() const {
  uint64_t n = 1;
  for (const uint64_t extent : shape) n = checked_mul(n, extent, "elements of a tensor");
  return n;
}

void Tensor::check_dtype(char kind, size_t bits) const {
  const std::string wanted = fmt::format("{}{}", kind, bits);
  if (dtype != wanted) fail(ErrorKind::kFormat, "a tensor of {} was read as {}", dtype, wanted);
}

std::map<std::string, Tensor> read_safetensors(const std::string& path) {
  const std::vector<std::byte> file = read_whole_file(path);
  if (file.size() < sizeof(uint64_t)) fail(ErrorKind::kFormat, "{}: no header in {} bytes", path, file.size());
  const auto header_bytes = load<uint64_t>(file.data());
  const auto rest = std::span(file).subspan(sizeof(uint64_t));
  if (header_bytes > rest.size()) {
    fail(ErrorKind::kFormat, "{}: a header of {} bytes passes the end of the file", path, header_bytes);
  }
  std::map<std::string, Tensor> tensors;
  try {
    const char* text = reinterpret_cast<const char*>(rest.data());
    const json header = json::parse(text, text + header_bytes);
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      tensors.emplace(name, read_tensor(path + ": tensor " + name, entry, rest.subspan(header_bytes)));
    }
  } catch (const json::exception& error) {
    fail(ErrorKind::kFormat, "{}: header: {}", path, error.what());
  }
  return tensors;
}

}  // namespace sluice::test
