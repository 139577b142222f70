// For tests of this room: engines on the small model of tests/data, and copies of it with other metadata.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session.h"
#include "gguf/writer.h"
#include "support/reference.h"

namespace sluice::test {

// Four layers, every second of them attention; 640 rows of vocabulary, of which 571 are tokens; random weights.
inline std::string micro_model() { return test_data_dir() + "/models/qwen35moe-micro/model.gguf"; }

inline EngineOptions micro_options() {
  EngineOptions options;
  options.path = micro_model();
  options.threads = 1;  // test programs run side by side
  options.context = 256;
  options.micro_batch = 64;
  return options;
}

// n tokens of text, other ones for every `variant`.
inline std::vector<int32_t> some_tokens(size_t n, uint32_t variant = 0) {
  std::vector<int32_t> ids(n);
  uint32_t x = 12345 + variant;
  for (int32_t& id : ids) {
    x = x * 1664525u + 1013904223u;  // Numerical Recipes' generator
    id = static_cast<int32_t>((x >> 8) % 550);
  }
  return ids;
}

inline std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::vector<int32_t> first(const std::vector<int32_t>& tokens, size_t n) {
  return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n)};
}

inline ::testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.empty() || a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " and " << b.size();
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0)
      return ::testing::AssertionFailure() << "value " << i << ": " << a[i] << " and " << b[i];
  return ::testing::AssertionSuccess();
}

// A copy of the small model without one of its metadata keys, removed with this object.
class ModelWithoutKey {
 public:
  explicit ModelWithoutKey(std::string_view key)
      : path_(::testing::TempDir() + "sluice-without-" + std::string(key) + ".gguf") {
    const gguf::Container original = gguf::Container::open(micro_model());
    gguf::Metadata kept;
    for (const gguf::Metadata::Entry& entry : original.metadata().entries())
      if (entry.key != key) kept.add(entry.key, entry.value);
    gguf::Writer writer(std::move(kept));
    for (const gguf::TensorInfo& tensor : original.tensors())
      writer.add_tensor(tensor, [&](const gguf::TensorInfo&, const gguf::Sink& sink) {
        std::vector<std::byte> bytes(tensor.bytes);
        original.read(tensor, 0, bytes);
        sink(bytes);
      });
    writer.write(path_);
  }
  ~ModelWithoutKey() { std::filesystem::remove(path_); }
  ModelWithoutKey(const ModelWithoutKey&) = delete;
  ModelWithoutKey& operator=(const ModelWithoutKey&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace sluice::test
