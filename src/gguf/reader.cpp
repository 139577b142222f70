#include "gguf/reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "gguf/cursor.h"
#include "gguf/look_alike.h"

namespace sluice::gguf {

namespace {

constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;           // key length, key, type, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name length, name, count, one extent, type, offset
constexpr size_t kReserve = 1 << 16;                         // elements made room for before any is read

struct Counts {
  uint64_t tensors, entries;
};

void check_magic(const File& file) {
  std::array<char, kLookAlikeBytes> head{};
  const auto length = std::min<uint64_t>(file.size(), head.size());
  if (length == 0) fail(ErrorKind::kFormat, "{}: the file is empty; download it again", file.path());
  file.read_at(0, std::as_writable_bytes(std::span(head).first(length)));
  const std::string_view text(head.data(), length);
  if (text.starts_with("GGUF")) return;
  if (std::string_view("GGUF").starts_with(text))
    fail(ErrorKind::kFormat, "{}: the file ends after {} bytes; it is truncated, download it again", file.path(),
         length);
  fail(ErrorKind::kFormat, "{}: is {}", file.path(), explain_not_gguf(text));
}

uint32_t read_version(Cursor& in) {
  const auto version = in.take<uint32_t>("version");
  if (version == 2 || version == kNewestVersion) return version;
  if (version != 0 && (version & 0xFFFF) == 0)
    in.fail_here(ErrorKind::kUnsupported,
                 "version {:#010x} shows swapped bytes (big endian); get the little-endian file", version);
  if (version < 2)
    in.fail_here(ErrorKind::kUnsupported,
                 "GGUF version {} is not read, only 2 and {}; convert the original model again", version,
                 kNewestVersion);
  in.fail_here(ErrorKind::kUnsupported,
               "GGUF version {} is newer than {}, the newest that is read; update Sluice or "
               "convert to version {}",
               version, kNewestVersion, kNewestVersion);
}

ValueType read_value_type(Cursor& in) {
  const auto type = in.take<uint32_t>("value type");
  if (type >= kValueTypes)
    in.fail_here(ErrorKind::kFormat, "value type {} is unknown; 0 to {} are defined", type, kValueTypes - 1);
  return static_cast<ValueType>(type);
}

bool read_bool(Cursor& in) {
  const auto byte = in.take<uint8_t>("bool");
  if (byte > 1) in.fail_here(ErrorKind::kFormat, "a bool is {}; only 0 and 1 are allowed", byte);
  return byte == 1;
}

template <typename T>
std::vector<T> read_elements(Cursor& in, uint64_t count) {
  constexpr bool kString = std::is_same_v<T, std::string>;
  in.need(count, kString ? sizeof(uint64_t) : sizeof(T), "array elements");
  std::vector<T> out;
  if constexpr (kString || std::is_same_v<T, bool>) {
    out.reserve(std::min<uint64_t>(count, kReserve));
    for (uint64_t i = 0; i < count; ++i) {
      if constexpr (kString) {
        out.push_back(in.take_string("string"));
      } else {
        out.push_back(read_bool(in));
      }
    }
  } else {
    out.resize(count);
    in.read(out.data(), count * sizeof(T), "array");
  }
  return out;
}

Array read_array(Cursor& in) {
  const auto type = read_value_type(in);
  const auto count = in.take<uint64_t>("array length");
  switch (type) {
    case ValueType::kU8:
      return read_elements<uint8_t>(in, count);
    case ValueType::kI8:
      return read_elements<int8_t>(in, count);
    case ValueType::kU16:
      return read_elements<uint16_t>(in, count);
    case ValueType::kI16:
      return read_elements<int16_t>(in, count);
    case ValueType::kU32:
      return read_elements<uint32_t>(in, count);
    case ValueType::kI32:
      return read_elements<int32_t>(in, count);
    case ValueType::kF32:
      return read_elements<float>(in, count);
    case ValueType::kBool:
      return read_elements<bool>(in, count);
    case ValueType::kString:
      return read_elements<std::string>(in, count);
    case ValueType::kU64:
      return read_elements<uint64_t>(in, count);
    case ValueType::kI64:
      return read_elements<int64_t>(in, count);
    case ValueType::kF64:
      return read_elements<double>(in, count);
    case ValueType::kArray:
      break;
  }
  in.fail_here(ErrorKind::kUnsupported, "an array of arrays is not read; no known model has one");
}

Value read_value(Cursor& in) {
  switch (read_value_type(in)) {
    case ValueType::kU8:
      return in.take<uint8_t>("u8");
    case ValueType::kI8:
      return in.take<int8_t>("i8");
    case ValueType::kU16:
      return in.take<uint16_t>("u16");
    case ValueType::kI16:
      return in.take<int16_t>("i16");
    case ValueType::kU32:
      return in.take<uint32_t>("u32");
    case ValueType::kI32:
      return in.take<int32_t>("i32");
    case ValueType::kF32:
      return in.take<float>("f32");
    case ValueType::kBool:
      return read_bool(in);
    case ValueType::kString:
      return in.take_string("string");
    case ValueType::kU64:
      return in.take<uint64_t>("u64");
    case ValueType::kI64:
      return in.take<int64_t>("i64");
    case ValueType::kF64:
      return in.take<double>("f64");
    case ValueType::kArray:
      break;
  }
  return read_array(in);
}

Metadata read_metadata(Cursor& in, const std::string& path, uint64_t count) {
  in.need(count, kMinEntryBytes, "metadata entries");
  Metadata metadata(path);
  for (uint64_t i = 0; i < count; ++i) {
    in.enter(fmt::format("metadata entry {} of {}", i + 1, count));
    std::string key = in.take_string("key");
    check_key(key, in.where());
    in.enter("key " + key);
    if (metadata.find_value(key) != nullptr)
      in.fail_here(ErrorKind::kFormat, "occurs twice; the file is damaged or was edited badly, get it again");
    metadata.add(std::move(key), read_value(in));
  }
  return metadata;
}

uint64_t read_alignment(const Metadata& metadata) {
  const uint64_t alignment = metadata.find<uint64_t>("general.alignment").value_or(kDefaultAlignment);
  check_alignment(alignment, metadata.source());
  return alignment;
}

// ggml type ids that exist or existed but are no weight formats of Sluice: the name and why.
std::string explain_type(uint32_t id) {
  constexpr std::string_view kRemoved = "was removed from GGUF; quantize the original model again";
  constexpr std::string_view kActivations = "is for activations, never for files; the file is damaged";
  constexpr std::string_view kNoWeights = "is not a format for weights; the file is not a language model or is damaged";
  constexpr std::string_view kNotYet = "is not read by this version of Sluice; use another quantization";
  struct Known {
    uint32_t id;
    std::string_view name, reason;
  };
  static constexpr Known kKnown[] = {
      {4, "Q4_2", kRemoved},        {5, "Q4_3", kRemoved},        {9, "Q8_1", kActivations},
      {15, "Q8_K", kActivations},   {24, "I8", kNoWeights},       {25, "I16", kNoWeights},
      {26, "I32", kNoWeights},      {27, "I64", kNoWeights},      {28, "F64", kNoWeights},
      {31, "Q4_0_4_4", kRemoved},   {32, "Q4_0_4_8", kRemoved},   {33, "Q4_0_8_8", kRemoved},
      {36, "IQ4_NL_4_4", kRemoved}, {37, "IQ4_NL_4_8", kRemoved}, {38, "IQ4_NL_8_8", kRemoved},
      {41, "Q1_0", kNotYet},
  };
  for (const Known& known : kKnown) {
    if (known.id == id) return fmt::format("type {} ({}) {}", id, known.name, known.reason);
  }
  return fmt::format("type {} is unknown; the file is damaged or newer than this version of Sluice", id);
}

// One entry of the tensor list. `offset` is left as the file has it: from the start of the data.
TensorInfo read_tensor(Cursor& in) {
  TensorInfo tensor;
  tensor.name = in.take_string("tensor name");
  check_tensor_name(tensor.name, in.where());
  in.enter("tensor " + tensor.name);
  const auto dimensions = in.take<uint32_t>("number of dimensions");
  if (dimensions == 0 || dimensions > kMaxExtents)
    in.fail_here(ErrorKind::kFormat, "has {} dimensions; 1 to {} are allowed", dimensions, kMaxExtents);
  for (uint32_t i = 0; i < dimensions; ++i) tensor.extents.push_back(in.take<uint64_t>("dimension"));
  const auto type = in.take<uint32_t>("tensor type");
  tensor.format = quant::find_format(type);
  if (tensor.format == nullptr) in.fail_here(ErrorKind::kUnsupported, "{}", explain_type(type));
  compute_sizes(tensor, in.where());
  tensor.offset = in.take<uint64_t>("offset");
  return tensor;
}

std::vector<TensorInfo> read_tensors(Cursor& in, uint64_t count) {
  in.need(count, kMinTensorBytes, "tensor entries");
  std::vector<TensorInfo> tensors;
  tensors.reserve(std::min<uint64_t>(count, kReserve));
  for (uint64_t i = 0; i < count; ++i) {
    in.enter(fmt::format("tensor {} of {}", i + 1, count));
    tensors.push_back(read_tensor(in));
  }
  return tensors;
}

// Checks that the data of all tensors lies one after another inside the file, and makes offsets absolute.
void place_tensors(std::vector<TensorInfo>& tensors, Shard& shard) {
  const std::string& path = shard.file->path();
  const uint64_t size = shard.file->size();
  const uint64_t data_bytes = size - std::min(size, shard.data_offset);
  uint64_t expected = 0;  // offset from the start of the data
  for (TensorInfo& tensor : tensors) {
    const auto refuse = [&](const char* how) {
      fail(ErrorKind::kFormat,
           "{}: tensor {}: offset {} {}; {} is expected after the tensors before it; the file is damaged, get it again",
           path, tensor.name, tensor.offset, how, expected);
    };
    if (tensor.offset % shard.alignment != 0) refuse("is no multiple of the alignment");
    if (tensor.offset < expected) refuse("overlaps the tensor before");
    if (tensor.offset > expected) refuse("leaves a gap");
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset)
      fail(ErrorKind::kFormat,
           "{}: tensor {}: offset {} + size {} passes the end of the file ({}); the file is truncated, download it "
           "again",
           path, tensor.name, shard.data_offset + tensor.offset, tensor.bytes, size);
    expected = try_align_up(tensor.offset + tensor.bytes, shard.alignment).value();
    tensor.offset += shard.data_offset;
  }
  shard.padded_to_end = size >= shard.data_offset + expected;
}

}  // namespace

Part read_part(std::unique_ptr<File> file, size_t chunk_bytes) {
  check_magic(*file);
  Cursor in(*file, chunk_bytes, kMaxHeaderBytes);
  in.take<uint32_t>("magic");
  Part part;
  part.shard.version = read_version(in);
  const auto tensor_count = in.take<uint64_t>("number of tensors");
  const auto entry_count = in.take<uint64_t>("number of metadata entries");
  part.metadata = read_metadata(in, file->path(), entry_count);
  part.shard.alignment = read_alignment(part.metadata);
  in.enter("tensor list");
  part.tensors = read_tensors(in, tensor_count);
  part.shard.data_offset = try_align_up(in.position(), part.shard.alignment).value();
  part.shard.file = std::move(file);
  place_tensors(part.tensors, part.shard);
  return part;
}

}  // namespace sluice::gguf
