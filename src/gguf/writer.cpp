#include "gguf/writer.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"

namespace sluice::gguf {

namespace {

template <typename T>
void append(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_string(std::string& out, const std::string& text) {
  append<uint64_t>(out, text.size());
  out += text;
}

template <typename T>
void append_scalar(std::string& out, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    append_string(out, value);
  } else if constexpr (std::is_same_v<T, bool>) {
    append<uint8_t>(out, value ? 1 : 0);
  } else {
    append<T>(out, value);
  }
}

void append_array(std::string& out, const Array& array) {
  append(out, static_cast<uint32_t>(element_type(array)));
  const auto append_elements = [&out](const auto& elements) {
    using Elements = std::decay_t<decltype(elements)>;
    if constexpr (!std::is_same_v<Elements, std::monostate>) {
      append<uint64_t>(out, elements.size());
      for (const typename Elements::value_type& element : elements) append_scalar(out, element);
    }
  };
  std::visit(append_elements, array);
}

void append_value(std::string& out, const Value& value) {
  append(out, static_cast<uint32_t>(type_of(value)));
  const auto append_held = [&out](const auto& held) {
    if constexpr (std::is_same_v<std::decay_t<decltype(held)>, Array>) {
      append_array(out, held);
    } else {
      append_scalar(out, held);
    }
  };
  std::visit(append_held, value);
}

// Counts what a source gives and passes it on.
class TensorSink {
 public:
  TensorSink(const TensorInfo& tensor, const Sink& sink) : tensor_(tensor), sink_(sink) {}

  void operator()(std::span<const std::byte> bytes) {
    if (bytes.size() > tensor_.bytes - written_)
      fail(ErrorKind::kInternal, "tensor {}: its source gives more than its {} bytes", tensor_.name, tensor_.bytes);
    sink_(bytes);
    written_ += bytes.size();
  }

  void finish() const {
    if (written_ != tensor_.bytes)
      fail(ErrorKind::kInternal, "tensor {}: its source gives {} of its {} bytes", tensor_.name, written_,
           tensor_.bytes);
  }

 private:
  const TensorInfo& tensor_;
  const Sink& sink_;
  uint64_t written_ = 0;
};

void write_padding(const Sink& sink, uint64_t bytes) {
  const std::vector<std::byte> zeros(bytes);
  sink(zeros);
}

}  // namespace

Writer::Writer(Metadata metadata, WriterOptions options) : metadata_(std::move(metadata)), options_(options) {
  const std::string& where = metadata_.source();
  if (options_.version != 2 && options_.version != kNewestVersion)
    fail(ErrorKind::kFormat, "{}: GGUF version {} is not written, only 2 and {}", where, options_.version,
         kNewestVersion);
  for (const auto& [key, value] : metadata_.entries()) {
    check_key(key, where);
    const auto* array = std::get_if<Array>(&value);
    if (array != nullptr && element_type(*array) == ValueType::kArray)
      fail(ErrorKind::kFormat, "{}: key {}: an array of arrays can't be written", where, key);
  }
  alignment_ = metadata_.find<uint64_t>("general.alignment").value_or(kDefaultAlignment);
  check_alignment(alignment_, where);
}

void Writer::add_tensor(TensorInfo tensor, TensorSource source) {
  check_tensor_name(tensor.name, metadata_.source());
  const std::string where = metadata_.source() + ": tensor " + tensor.name;
  compute_sizes(tensor, where);
  if (!names_.insert(tensor.name).second) fail(ErrorKind::kFormat, "{}: occurs twice", where);
  tensor.shard = 0;
  tensor.offset = 0;
  if (!tensors_.empty()) {
    const TensorInfo& last = tensors_.back();
    const auto next = try_align_up(checked_add(last.offset, last.bytes, where.c_str()), alignment_);
    if (!next) fail(ErrorKind::kFormat, "{}: its offset does not fit in 64 bits", where);
    tensor.offset = *next;
  }
  tensors_.push_back(std::move(tensor));
  sources_.push_back(std::move(source));
}

std::string Writer::header() const {
  std::string out = "GGUF";
  append<uint32_t>(out, options_.version);
  append<uint64_t>(out, tensors_.size());
  append<uint64_t>(out, metadata_.entries().size());
  for (const auto& [key, value] : metadata_.entries()) {
    append_string(out, key);
    append_value(out, value);
  }
  for (const TensorInfo& tensor : tensors_) {
    append_string(out, tensor.name);
    append<uint32_t>(out, static_cast<uint32_t>(tensor.extents.size()));
    for (const uint64_t extent : tensor.extents) append<uint64_t>(out, extent);
    append<uint32_t>(out, static_cast<uint32_t>(tensor.format->type));
    append<uint64_t>(out, tensor.offset);
  }
  return out;
}

std::vector<TensorInfo> Writer::layout() const {
  const uint64_t data_offset = try_align_up<uint64_t>(header().size(), alignment_).value();
  std::vector<TensorInfo> placed = tensors_;
  for (TensorInfo& tensor : placed) tensor.offset += data_offset;
  return placed;
}

void Writer::write(const Sink& sink) const {
  const std::string head = header();
  sink(std::as_bytes(std::span(head)));
  uint64_t unpadded_end = head.size();
  const auto pad = [&] { write_padding(sink, try_align_up(unpadded_end, alignment_).value() - unpadded_end); };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    pad();
    TensorSink counted(tensors_[i], sink);
    sources_[i](tensors_[i], std::ref(counted));
    counted.finish();
    unpadded_end = tensors_[i].bytes;  // the data starts aligned, and so does each tensor
  }
  if (options_.pad_to_end) pad();
}

void Writer::write(const std::string& path) const {
  AtomicFileWriter file(path);
  write([&file](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
}

}  // namespace sluice::gguf
