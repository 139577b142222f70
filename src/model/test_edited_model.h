// For tests: a model file in memory whose metadata and tensors can be changed before it is opened (again). Broken
// models, other spellings of the same weights, and the exact twin are made with it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "gguf/container.h"

namespace sluice::model {

struct EditedModel {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> extents;
    const quant::Format* format;
    std::vector<std::byte> bytes;
  };

  // Takes metadata and tensors of a file, all in memory.
  explicit EditedModel(const gguf::Container& original);

  void set(std::string key, gguf::Value value) { metadata.set(std::move(key), std::move(value)); }
  void remove_key(std::string_view key);
  // The tensor of that name, which must be there.
  Tensor& tensor(std::string_view name);
  void add_tensor(Tensor tensor) { tensors.push_back(std::move(tensor)); }
  // Takes a tensor out.
  Tensor take_tensor(std::string_view name);

  // The bytes of a GGUF file with what is here now.
  std::vector<std::byte> file() const;
  // That file, opened under the name "edited.gguf"; `fault` sees every read of it.
  gguf::Container open(const ReadFault& fault = {}) const;

  gguf::Metadata metadata;
  std::vector<Tensor> tensors;
};

// A tensor of f32 values.
EditedModel::Tensor f32_tensor(std::string name, std::vector<uint64_t> extents, const std::vector<float>& values);

// Opens `file` under `name`; `fault` sees every read of it.
gguf::Container open_memory(std::string name, std::vector<std::byte> file, const ReadFault& fault = {});

// The model with every quantized tensor written out as F32: the same weights to the last bit, but activations stay
// f32, so that everything except the integer products can be held to float32 tolerances.
gguf::Container exact_twin(const gguf::Container& original);

}  // namespace sluice::model
