// A GGUF file of any content ends in an Error or in a container whose every byte can be read. What was accepted is
// written again, and then reading and writing change nothing more.
//
// Random changes seldom keep a file readable up to the place that matters, so half of the changes are made where a
// number stands: a walk over the header finds the places, and a value at the edge of what is legal is put there.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "gguf/container.h"
#include "gguf/writer.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using sluice::gguf::Container;

Container open_bytes(std::vector<std::byte> bytes) {
  sluice::gguf::OpenOptions options;
  options.opener = [&bytes](const std::string& path) { return sluice::memory_file(path, bytes); };
  return Container::open("M-00001-of-00002.gguf", options);
}

// The values of all keys as each type that a model asks for.
void ask_for_everything(const sluice::gguf::Metadata& metadata) {
  const auto ask = [](auto getter) {
    try {
      getter();
    } catch (const sluice::Error&) {
    }
  };
  for (const auto& [key, value] : metadata.entries()) {
    sluice::gguf::format_value(value);
    ask([&, &k = key] { metadata.get<uint32_t>(k); });
    ask([&, &k = key] { metadata.get<int64_t>(k); });
    ask([&, &k = key] { metadata.get<float>(k); });
    ask([&, &k = key] { metadata.get<bool>(k); });
    ask([&, &k = key] { metadata.get<std::string>(k); });
    ask([&, &k = key] { metadata.get<std::vector<int32_t>>(k); });
    ask([&, &k = key] { metadata.get_strings(k); });
  }
}

std::vector<std::byte> rewrite(const Container& container) {
  const auto& shard = container.shards()[0];
  sluice::gguf::Writer writer(container.metadata(), {shard.version, shard.padded_to_end});
  for (const auto& tensor : container.tensors()) {
    writer.add_tensor(tensor, [&container, from = &tensor](const auto& to, const auto& sink) {
      std::vector<std::byte> data(to.bytes);
      container.read(*from, 0, data);
      sink(data);
    });
  }
  std::vector<std::byte> out;
  writer.write([&out](std::span<const std::byte> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); });
  return out;
}

// Collects where the header's numbers stand, believing nothing: it stops where a claim can't be followed.
class HeaderWalk {
 public:
  struct Field {
    size_t offset;
    size_t bytes;
  };

  HeaderWalk(const uint8_t* data, size_t size) : data_(data), size_(size) {
    at_ = 4;
    number(4);
    const uint64_t tensors = number(8), entries = number(8);
    for (uint64_t i = 0; i < entries && !done(); ++i) {
      text();
      value(number(4));
    }
    for (uint64_t i = 0; i < tensors && !done(); ++i) {
      text();
      const uint64_t dimensions = number(4);
      for (uint64_t d = 0; d < dimensions && !done(); ++d) number(8);
      number(4);
      number(8);
    }
  }

  const std::vector<Field>& fields() const { return fields_; }

 private:
  bool done() const { return at_ >= size_; }

  uint64_t number(size_t bytes) {
    if (bytes > size_ || at_ > size_ - bytes) {
      at_ = size_;
      return 0;
    }
    uint64_t value = 0;
    std::memcpy(&value, data_ + at_, bytes);
    fields_.push_back({at_, bytes});
    at_ += bytes;
    return value;
  }

  void text() { at_ += std::min<uint64_t>(number(8), size_ - at_); }

  void value(uint64_t type) {
    static constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) return text();
    if (type != 9) {
      number(type < std::size(kBytes) ? kBytes[type] : 1);
      return;
    }
    const uint64_t element = number(4), count = number(8);
    for (uint64_t i = 0; i < count && element != 9 && !done(); ++i) value(element);
  }

  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
  std::vector<Field> fields_;
};

uint64_t edge_value(std::minstd_rand& random, uint64_t old, size_t file_size) {
  const uint64_t choices[] = {0,
                              1,
                              2,
                              3,
                              4,
                              5,
                              8,
                              9,
                              13,
                              32,
                              64,
                              256,
                              old - 1,
                              old + 1,
                              old * 2,
                              file_size,
                              file_size / 4,
                              0x7F,
                              0x7FFF,
                              1U << 31,
                              ~0U,
                              1ULL << 32,
                              1ULL << 61,
                              1ULL << 62,
                              1ULL << 63,
                              (1ULL << 63) - 1,
                              ~0ULL,
                              ~0ULL - 31,
                              old ^ 32,
                              random() % 48};
  return choices[random() % std::size(choices)];
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  std::minstd_rand random(seed);
  if (random() % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const HeaderWalk walk(data, size);
  if (walk.fields().empty()) return LLVMFuzzerMutate(data, size, max_size);
  const auto field = walk.fields()[random() % walk.fields().size()];
  uint64_t value = 0;
  std::memcpy(&value, data + field.offset, field.bytes);
  value = edge_value(random, value, size);
  std::memcpy(data + field.offset, &value, field.bytes);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::optional<Container> container;
  try {
    container = open_bytes({bytes, bytes + size});
  } catch (const sluice::Error& error) {
    if (error.kind() == sluice::ErrorKind::kInternal) std::abort();
    return 0;
  }
  ask_for_everything(container->metadata());
  const std::vector<std::byte> once = rewrite(*container);
  if (rewrite(open_bytes(once)) != once) std::abort();
  return 0;
}
