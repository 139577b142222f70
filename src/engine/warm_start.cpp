#include "engine/warm_start.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace sluice {

namespace {

constexpr const char* kTitle = "sluice experts in memory, version 1";

}  // namespace

std::string warm_start_file(const std::string& folder, const gguf::Container& model) {
  std::string identity;
  for (const gguf::TensorInfo& t : model.tensors()) identity += fmt::format("{} {} {};", t.name, t.offset, t.bytes);
  for (const auto& shard : model.shards()) identity += fmt::format("{};", shard.file->size());
  return fmt::format("{}/{:016x}.experts", folder, xxh64(std::as_bytes(std::span(identity))));
}

std::vector<experts::Bank::Unit> read_warm_start(const std::string& path, uint32_t n_layers, uint32_t n_experts) {
  constexpr uint64_t kMostBytes = uint64_t{16} << 20;
  std::vector<experts::Bank::Unit> units;
  std::string text;
  try {
    text = read_text_file(path, kMostBytes);
  } catch (const Error&) {
    return units;  // missing, a folder, absurdly long: nothing to begin with
  }
  std::istringstream lines(std::move(text));
  std::string title;
  if (!std::getline(lines, title) || title != kTitle) return {};
  for (experts::Bank::Unit unit; lines >> unit.layer >> unit.expert;) {
    if (unit.layer >= n_layers || unit.expert >= n_experts) return {};
    units.push_back(unit);
  }
  return units;
}

void write_warm_start(const std::string& path, std::span<const experts::Bank::Unit> experts) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);  // writing says if it failed
  AtomicFileWriter file(path);
  file.write(fmt::format("{}\n", kTitle));
  for (const auto& unit : experts) file.write(fmt::format("{} {}\n", unit.layer, unit.expert));
  file.commit();
}

void append_others(std::vector<experts::Bank::Unit>& list, uint32_t n_layers, uint32_t n_experts) {
  const std::set<experts::Bank::Unit> there(list.begin(), list.end());
  for (uint32_t expert = 0; expert < n_experts; ++expert)  // as many of each layer, if not all will have a slot
    for (uint32_t layer = 0; layer < n_layers; ++layer)
      if (!there.contains({layer, expert})) list.push_back({layer, expert});
}

}  // namespace sluice
