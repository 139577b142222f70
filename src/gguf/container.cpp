#include "gguf/container.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace sluice::gguf {

namespace {

constexpr std::string_view kExtension = ".gguf";
constexpr uint32_t kMaxShards = 99999;  // five digits in a file's name

// "<prefix>-00002-of-00003.gguf"
struct ShardName {
  std::string prefix;
  uint32_t number;  // from 1
  uint32_t count;

  std::string path_of(uint32_t other) const {
    return fmt::format("{}-{:05}-of-{:05}{}", prefix, other, count, kExtension);
  }
};

std::optional<uint32_t> parse_five_digits(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<ShardName> parse_shard_name(std::string_view path) {
  constexpr std::string_view kPattern = "-00001-of-00003";
  if (!path.ends_with(kExtension)) return std::nullopt;
  path.remove_suffix(kExtension.size());
  if (path.size() <= kPattern.size()) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kPattern.size());
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return std::nullopt;
  const auto number = parse_five_digits(tail.substr(1, 5));
  const auto count = parse_five_digits(tail.substr(10, 5));
  if (!number || !count) return std::nullopt;
  return ShardName{std::string(path.substr(0, path.size() - kPattern.size())), *number, *count};
}

// What a file says of the split that it belongs to.
struct Split {
  uint32_t number;  // from 0
  uint32_t count;
  uint64_t tensors;  // over all files
};

// nullopt when the file is a whole model.
std::optional<Split> read_split(const Metadata& metadata) {
  const uint32_t count = metadata.find<uint32_t>("split.count").value_or(0);
  if (count <= 1) return std::nullopt;
  if (count > kMaxShards)
    fail(ErrorKind::kFormat, "{}: split.count is {}; up to {} files are possible", metadata.source(), count,
         kMaxShards);
  return Split{metadata.get<uint32_t>("split.no"), count, metadata.get<uint64_t>("split.tensors.count")};
}

// The names of the files of a split model, from the first one's. Throws Error(kFormat) when `path` is not the first or
// is named so that the others can't be found.
ShardName find_shard_names(const std::string& path, const Split& split) {
  const auto name = parse_shard_name(path);
  if (split.number != 0)
    fail(ErrorKind::kFormat, "{}: is part {} of {} of a split model; open the first part{}", path, split.number + 1,
         split.count, name ? ": " + name->path_of(1) : "");
  if (!name || name->number != 1 || name->count != split.count)
    fail(ErrorKind::kFormat,
         "{}: is part 1 of {} of a split model, but its name does not end in -00001-of-{:05}{}; give all parts the "
         "names "
         "they were published with",
         path, split.count, split.count, kExtension);
  return *name;
}

Part open_next_part(const std::string& path, uint32_t number, const Split& split, const OpenOptions& options) {
  std::unique_ptr<File> file;
  try {
    file = options.opener(path);
  } catch (const Error& error) {
    fail(error.kind(), "part {} of {} of the model can't be opened: {}; put all parts into one folder", number + 1,
         split.count, error.what());
  }
  Part part = read_part(std::move(file), options.header_chunk);
  const auto found = read_split(part.metadata);
  if (!found)
    fail(ErrorKind::kFormat, "{}: is not part of a split model, though its name says so; download it again", path);
  if (found->number != number || found->count != split.count || found->tensors != split.tensors)
    fail(
        ErrorKind::kFormat,
        "{}: says that it is part {} of {} of a model with {} tensors, but part {} of {} of one with {} is needed; the "
        "parts are of different models, download them again",
        path, uint64_t{found->number} + 1, found->count, found->tensors, number + 1, split.count, split.tensors);
  return part;
}

}  // namespace

Container Container::open(const std::string& path, const OpenOptions& options) {
  Container container;
  Part first = read_part(options.opener(path), options.header_chunk);
  const auto split = read_split(first.metadata);
  container.metadata_ = std::move(first.metadata);
  container.append(std::move(first));
  if (split) {
    const ShardName names = find_shard_names(path, *split);
    for (uint32_t i = 1; i < split->count; ++i) {
      container.append(open_next_part(names.path_of(i + 1), i, *split, options));
    }
    if (container.tensors_.size() != split->tensors)
      fail(ErrorKind::kFormat, "{}: split.tensors.count is {}, but the {} parts hold {} tensors; download them again",
           path, split->tensors, split->count, container.tensors_.size());
  }
  container.index_names();
  for (const std::string& text : options.overrides) container.metadata_.apply_override(text);
  return container;
}

void Container::append(Part part) {
  const auto shard = static_cast<uint32_t>(shards_.size());
  for (TensorInfo& tensor : part.tensors) {
    tensor.shard = shard;
    tensors_.push_back(std::move(tensor));
  }
  shards_.push_back(std::move(part.shard));
}

void Container::index_names() {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  const auto name_of = [this](uint32_t i) -> const std::string& { return tensors_[i].name; };
  std::ranges::sort(by_name_, {}, name_of);
  const auto twin = std::ranges::adjacent_find(by_name_, {}, name_of);
  if (twin == by_name_.end()) return;
  const TensorInfo& second = tensors_[std::max(twin[0], twin[1])];
  fail(ErrorKind::kFormat, "{}: tensor {} occurs twice; the file is damaged or was edited badly, get it again",
       shards_[second.shard].file->path(), second.name);
}

const TensorInfo* Container::find_tensor(std::string_view name) const {
  const auto name_of = [this](uint32_t i) -> std::string_view { return tensors_[i].name; };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, name_of);
  return found != by_name_.end() && name_of(*found) == name ? &tensors_[*found] : nullptr;
}

const TensorInfo& Container::get_tensor(std::string_view name) const {
  const TensorInfo* tensor = find_tensor(name);
  if (tensor == nullptr)
    fail(ErrorKind::kFormat, "{}: tensor {} is missing; the file is no complete model of its architecture", path(),
         printable(name));
  return *tensor;
}

void Container::read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const {
  const auto end = try_add<uint64_t>(offset, out.size());
  if (!end || *end > tensor.bytes)
    fail(ErrorKind::kInternal, "tensor {}: bytes {} + {} are not inside its {}", tensor.name, offset, out.size(),
         tensor.bytes);
  try {
    shards_[tensor.shard].file->read_at(tensor.offset + offset, out);
  } catch (const Error& error) {
    fail(error.kind(), "tensor {}: {}", tensor.name, error.what());
  }
}

}  // namespace sluice::gguf
