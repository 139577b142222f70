#include "model/test_edited_model.h"

#include <algorithm>

#include "base/error.h"
#include "gguf/writer.h"

namespace sluice::model {

EditedModel::EditedModel(const gguf::Container& original) : metadata(original.metadata()) {
  for (const gguf::TensorInfo& info : original.tensors()) {
    Tensor tensor{info.name, info.extents, info.format, std::vector<std::byte>(info.bytes)};
    original.read(info, 0, tensor.bytes);
    tensors.push_back(std::move(tensor));
  }
}

void EditedModel::remove_key(std::string_view key) {
  gguf::Metadata kept(metadata.source());
  for (const gguf::Metadata::Entry& entry : metadata.entries())
    if (entry.key != key) kept.add(entry.key, entry.value);
  metadata = std::move(kept);
}

EditedModel::Tensor& EditedModel::tensor(std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &Tensor::name);
  if (found == tensors.end()) fail(ErrorKind::kInternal, "the model to edit has no tensor {}", name);
  return *found;
}

EditedModel::Tensor EditedModel::take_tensor(std::string_view name) {
  const Tensor taken = tensor(name);
  std::erase_if(tensors, [&](const Tensor& t) { return t.name == taken.name; });
  return taken;
}

std::vector<std::byte> EditedModel::file() const {
  gguf::Writer writer(metadata);
  for (const Tensor& tensor : tensors) {
    gguf::TensorInfo info;
    info.name = tensor.name;
    info.extents = tensor.extents;
    info.format = tensor.format;
    writer.add_tensor(std::move(info),
                      [&tensor](const gguf::TensorInfo&, const gguf::Sink& sink) { sink(tensor.bytes); });
  }
  std::vector<std::byte> out;
  writer.write([&out](std::span<const std::byte> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); });
  return out;
}

gguf::Container EditedModel::open(const ReadFault& fault) const { return open_memory("edited.gguf", file(), fault); }

EditedModel::Tensor f32_tensor(std::string name, std::vector<uint64_t> extents, const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {std::move(name), std::move(extents), &quant::format(quant::Type::kF32), {bytes.begin(), bytes.end()}};
}

gguf::Container open_memory(std::string name, std::vector<std::byte> file, const ReadFault& fault) {
  gguf::OpenOptions options;
  options.opener = [&](const std::string& path) {
    auto opened = memory_file(path, std::move(file));
    return fault ? with_faults(std::move(opened), fault) : std::move(opened);
  };
  return gguf::Container::open(name, options);
}

gguf::Container exact_twin(const gguf::Container& original) {
  EditedModel twin(original);
  for (EditedModel::Tensor& tensor : twin.tensors) {
    const quant::Format& format = *tensor.format;
    if (format.activation == quant::Activation::kFloat) continue;
    const size_t n_blocks = tensor.bytes.size() / format.block_bytes;
    std::vector<float> values(n_blocks * format.block_weights);
    format.dequantize(tensor.bytes.data(), n_blocks, values.data());
    tensor = f32_tensor(tensor.name, tensor.extents, values);
  }
  return open_memory(original.path() + " (exact twin)", twin.file());
}

}  // namespace sluice::model
