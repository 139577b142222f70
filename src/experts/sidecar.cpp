#include "experts/sidecar.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "experts/pack.h"

namespace sluice::experts {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kGgufMagic = "GGUF";
constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;  // 180 tensors, a large model, take 130 KB
constexpr int kMaxDepth = 16;                               // known manifests are 4 levels deep
constexpr uint64_t kMaxValues = 4'000'000;                  // bounds the memory of a parsed manifest to a few 100 MB
constexpr uint64_t kMaxLayers = 4096;
constexpr const char* kRemedy = "the manifest is damaged or of another format, make the sidecar again";

constexpr std::string_view kFusedFamily = "ffn_gate_up_exps";
constexpr std::array<std::string_view, 4> kFamilies = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", kFusedFamily};

enum class Layout { kWholeTensors, kExperts };

constexpr const char* kWholeTensorsName = "layer_major_whole_tensor";
constexpr const char* kExpertsName = "layer_major_expert";
constexpr std::string_view kSlicesName = "expert_major_per_expert_slice";  // a file per expert

// Spellings of the layouts, with '_' for '-'.
constexpr std::pair<std::string_view, Layout> kLayouts[] = {
    {kWholeTensorsName, Layout::kWholeTensors},
    {"layer_major", Layout::kWholeTensors},
    {kExpertsName, Layout::kExperts},
    {"expert_major", Layout::kExperts},
};

// A value as messages show it: JSON, ASCII, cut.
std::string shown(const Json& value) {
  constexpr size_t kMaxShown = 80;
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kMaxShown) text.replace(kMaxShown, std::string::npos, "...");
  return text;
}

// An object of the manifest and its place in messages. Null counts as absent, as writers mean it.
class Object {
 public:
  Object(const Json& json, std::string place) : json_(&json), place_(std::move(place)) {
    if (!json.is_object()) refuse(ErrorKind::kFormat, "is {}, not an object; {}", shown(json), kRemedy);
  }

  void add_to_place(const std::string& more) { place_ += more; }

  template <typename... Args>
  [[noreturn]] void refuse(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) const {
    fail(kind, "{}: {}", place_, fmt::format(format, std::forward<Args>(args)...));
  }

  const Json* find(const char* name) const {
    const auto found = json_->find(name);
    return found == json_->end() || found->is_null() ? nullptr : &*found;
  }
  const Json& get(const char* name) const {
    if (const Json* found = find(name)) return *found;
    refuse(ErrorKind::kFormat, "{} is missing; {}", name, kRemedy);
  }

  std::optional<uint64_t> find_integer(const char* name, uint64_t min, uint64_t max) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    return integer_in(name, *value, min, max);
  }
  uint64_t integer(const char* name, uint64_t min, uint64_t max) const { return integer_in(name, get(name), min, max); }
  std::optional<std::string> find_text(const char* name) const { return find_as<std::string>(name, "text"); }
  std::optional<bool> find_flag(const char* name) const { return find_as<bool>(name, "true or false"); }
  std::string text(const char* name) const {
    get(name);
    return *find_text(name);
  }
  const Json& array(const char* name) const {
    const Json& value = get(name);
    if (!value.is_array()) refuse(ErrorKind::kFormat, "{} is {}, not an array; {}", name, shown(value), kRemedy);
    return value;
  }

  uint64_t integer_in(const char* name, const Json& value, uint64_t min, uint64_t max) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() < min || value.get<uint64_t>() > max) {
      refuse(ErrorKind::kFormat, "{} is {}, not an integer from {} to {}; {}", name, shown(value), min, max, kRemedy);
    }
    return value.get<uint64_t>();
  }

 private:
  template <typename T>
  std::optional<T> find_as(const char* name, const char* kind) const {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    const bool fits = std::is_same_v<T, bool> ? value->is_boolean() : value->is_string();
    if (!fits) refuse(ErrorKind::kFormat, "{} is {}, not {}; {}", name, shown(*value), kind, kRemedy);
    return value->get<T>();
  }

  const Json* json_;
  std::string place_;
};

// a * b for sizes of an entry.
uint64_t product(const Object& entry, const char* what, uint64_t a, uint64_t b) {
  if (const auto out = try_mul(a, b)) return *out;
  entry.refuse(ErrorKind::kFormat, "{}: {} x {} does not fit in 64 bits; {}", what, a, b, kRemedy);
}

// --- the manifest as a whole ---

std::string manifest_path(const std::string& path) {
  std::error_code not_there;  // then opening tells
  if (!std::filesystem::is_directory(path, not_there)) return path;
  return (std::filesystem::path(path) / "manifest.json").string();
}

std::unique_ptr<File> open_first(const std::string& path, const Sidecar::Opener& opener) {
  try {
    return opener(path);
  } catch (const Error& error) {
    fail(error.kind(),
         "{}; a sidecar is a directory with a manifest.json, or that file, or a file that `sluice pack` wrote",
         error.what());
  }
}

// As many as tell what kind of file it is.
std::string first_bytes(const File& file) {
  std::string text(std::min<uint64_t>(file.size(), kPackMagic.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string read_manifest_text(const File& file) {
  if (file.size() > kMaxManifestBytes)
    fail(ErrorKind::kLimit, "{}: {} bytes are more than the {} that a manifest may have; name the sidecar's directory",
         file.path(), file.size(), kMaxManifestBytes);
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

Json parse_manifest(const std::string& path, const std::string& text) {
  uint64_t values = 0;
  const auto bounded = [&](int depth, Json::parse_event_t event, Json&) {
    if (depth > kMaxDepth)
      fail(ErrorKind::kLimit, "{}: is nested more than {} levels deep; {}", path, kMaxDepth, kRemedy);
    if (event != Json::parse_event_t::key && ++values > kMaxValues)
      fail(ErrorKind::kLimit, "{}: holds more than {} values; {}", path, kMaxValues, kRemedy);
    return true;
  };
  try {
    return Json::parse(text, bounded);
  } catch (const Json::parse_error& error) {  // whose own words may hold any bytes of the file
    fail(ErrorKind::kFormat, "{}: is not JSON: syntax error at byte {} of {}; {}", path, error.byte, text.size(),
         kRemedy);
  } catch (const Json::out_of_range&) {
    fail(ErrorKind::kFormat, "{}: holds a number that is too large; {}", path, kRemedy);
  }
}

void check_kind(const Object& manifest) {
  const uint64_t version = manifest.integer("schema_version", 0, UINT64_MAX);
  if (version != 1)
    manifest.refuse(ErrorKind::kUnsupported,
                    "schema_version is {}; Sluice reads version 1, make the sidecar again with a tool that writes it",
                    version);
  const Json& kind = manifest.get("sidecar_kind");
  if (kind != "flashmoe_gguf")
    manifest.refuse(ErrorKind::kUnsupported,
                    "sidecar_kind is {}; Sluice reads \"flashmoe_gguf\" alone, make the sidecar again from a GGUF file",
                    shown(kind));
}

[[noreturn]] void refuse_slices(const Object& object, const char* field, const std::string& value) {
  object.refuse(ErrorKind::kUnsupported,
                "{} is {}: the layout {} (a file per expert) is not read; Sluice reads {} and {}, make the sidecar "
                "again in one of them",
                field, value, kSlicesName, kWholeTensorsName, kExpertsName);
}

std::optional<Layout> named_layout(const Object& object, const char* field) {
  const auto text = object.find_text(field);
  if (!text) return std::nullopt;
  std::string name = *text;
  std::ranges::replace(name, '-', '_');
  for (const auto& [spelling, layout] : kLayouts) {
    if (name == spelling) return layout;
  }
  if (name == kSlicesName) refuse_slices(object, field, shown(*text));
  object.refuse(ErrorKind::kUnsupported, "{} is {}; Sluice reads {} and {}, make the sidecar again in one of them",
                field, shown(*text), kWholeTensorsName, kExpertsName);
}

// By the name at the top or that of newer tools beside the model's figures; without one, by the first entry, to which
// the others are then held.
Layout find_layout(const Object& manifest, const std::optional<Object>& model, const Object& first) {
  const auto top = named_layout(manifest, "layout");
  if (model) {
    const auto inner = named_layout(*model, "sidecar_layout");
    if (top && inner && *top != *inner)
      manifest.refuse(ErrorKind::kFormat, "layout is {}, but model.sidecar_layout is {}; {}",
                      shown(manifest.get("layout")), shown(model->get("sidecar_layout")), kRemedy);
    if (inner) return *inner;
  }
  if (top) return *top;
  const bool by_expert = first.find("expert_stride") != nullptr || first.find_flag("expert_major").value_or(false);
  return by_expert ? Layout::kExperts : Layout::kWholeTensors;
}

using Key = std::pair<uint32_t, std::string_view>;  // layer and family

Key key_of(const SidecarTensor& tensor) { return {tensor.layer, tensor.family}; }

// --- entries ---

struct Entry {
  size_t number;  // in the manifest
  Object object;
  SidecarTensor tensor;
};

std::string read_family(const Object& entry) {
  std::string family = entry.text("tensor_family");
  if (std::ranges::find(kFamilies, family) == kFamilies.end())
    entry.refuse(ErrorKind::kUnsupported,
                 "tensor_family is {}; Sluice reads ffn_gate_exps, ffn_up_exps, ffn_down_exps and ffn_gate_up_exps, "
                 "make the sidecar again of routed experts alone",
                 shown(family));
  return family;
}

const quant::Format& read_format(const Object& entry) {
  const std::string name = entry.text("quant_type");
  const quant::Format* format = quant::find_format(name);
  if (format == nullptr)
    entry.refuse(ErrorKind::kUnsupported,
                 "quant_type is {}, which is no weight format that Sluice knows; quantize the model to another one",
                 shown(name));
  const auto block = entry.find_integer("block_size", 1, UINT32_MAX);
  if (block && *block != format->block_weights)
    entry.refuse(ErrorKind::kFormat, "block_size is {}, but a block of {} has {} weights; {}", *block, format->name,
                 format->block_weights, kRemedy);
  return *format;
}

std::vector<uint64_t> read_shape(const Object& entry) {
  const Json& shape = entry.array("shape");
  if (shape.size() != 3)
    entry.refuse(ErrorKind::kFormat, "shape is {}, not [n_in, n_out, n_experts]; {}", shown(shape), kRemedy);
  std::vector<uint64_t> out;
  for (const Json& extent : shape) out.push_back(entry.integer_in("an extent of shape", extent, 1, UINT32_MAX));
  return out;
}

// Shape, format and the sizes that the entry states are one claim made four times.
void read_size(const Object& entry, const std::optional<uint32_t>& model_experts, SidecarTensor& out) {
  const auto [n_in, n_out, n_experts] = std::tie(out.shape[0], out.shape[1], out.shape[2]);
  if (n_in % out.format->block_weights != 0)
    entry.refuse(ErrorKind::kFormat, "shape has rows of {} weights, which is no whole number of blocks of {} ({}); {}",
                 n_in, out.format->block_weights, out.format->name, kRemedy);
  const uint64_t row = quant::row_bytes(*out.format, n_in);
  out.bytes = entry.integer("bytes_per_expert", 1, UINT64_MAX);
  const uint64_t needed = product(entry, "bytes of an expert", n_out, row);
  if (out.bytes != needed)
    entry.refuse(ErrorKind::kFormat, "bytes_per_expert is {}, but an expert of {} x {} weights in {} has {}; {}",
                 out.bytes, n_in, n_out, out.format->name, needed, kRemedy);
  const uint64_t all = entry.integer("exact_byte_length", 1, UINT64_MAX);
  const uint64_t needed_all = product(entry, "bytes of all experts", out.bytes, n_experts);
  if (all != needed_all)
    entry.refuse(ErrorKind::kFormat, "exact_byte_length is {}, but {} experts of {} bytes have {}; {}", all, n_experts,
                 out.bytes, needed_all, kRemedy);
  const auto own_experts = entry.find_integer("expert_count", 1, UINT32_MAX);
  if (own_experts && *own_experts != n_experts)
    entry.refuse(ErrorKind::kFormat, "expert_count is {}, but shape has {} experts; {}", *own_experts, n_experts,
                 kRemedy);
  if (model_experts && *model_experts != n_experts)
    entry.refuse(ErrorKind::kFormat, "shape has {} experts, but model.expert_count is {}; {}", n_experts,
                 *model_experts, kRemedy);
}

void read_stride(const Object& entry, Layout layout, SidecarTensor& out) {
  const auto flag = entry.find_flag("expert_major");
  if (flag && *flag != (layout == Layout::kExperts))
    entry.refuse(ErrorKind::kFormat, "expert_major is {}, but the sidecar's layout is {}; {}", *flag,
                 layout == Layout::kExperts ? kExpertsName : kWholeTensorsName, kRemedy);
  if (layout == Layout::kExperts) {
    out.stride = entry.integer("expert_stride", 1, UINT64_MAX);
    if (out.stride < out.bytes)
      entry.refuse(ErrorKind::kFormat, "expert_stride is {}, but an expert has {} bytes: experts would overlap; {}",
                   out.stride, out.bytes, kRemedy);
    return;
  }
  out.stride = out.bytes;
  const auto stride = entry.find_integer("expert_stride", 1, UINT64_MAX);
  if (stride && *stride != out.bytes)
    entry.refuse(ErrorKind::kFormat, "expert_stride is {}, but in the layout {} experts are {} bytes apart; {}",
                 *stride, kWholeTensorsName, out.bytes, kRemedy);
}

// All but the file.
Entry read_entry(size_t number, Object object, Layout layout, const std::optional<uint32_t>& model_experts) {
  SidecarTensor out;
  out.layer = static_cast<uint32_t>(object.integer("layer", 0, kMaxLayers - 1));
  out.family = read_family(object);
  object.add_to_place(fmt::format(" (layer {}, {})", out.layer, out.family));
  if (const Json* expert = object.find("expert_id")) refuse_slices(object, "expert_id", shown(*expert));
  out.format = &read_format(object);
  out.shape = read_shape(object);
  read_size(object, model_experts, out);
  read_stride(object, layout, out);
  out.offset = object.integer("repacked_offset", 0, UINT64_MAX);
  return {number, std::move(object), std::move(out)};
}

// A file beside the manifest and nowhere else.
std::string read_file_name(const Object& entry) {
  std::string name = entry.text("repacked_file");
  const bool plain = !name.empty() && name != "." && name != ".." &&
                     std::ranges::none_of(name, [](unsigned char c) { return c == '/' || c < ' ' || c == 0x7F; });
  if (!plain)
    entry.refuse(ErrorKind::kFormat,
                 "repacked_file is {}, not the plain name of a file; the files of a sidecar lie beside its manifest",
                 shown(name));
  return name;
}

// Opens each file once.
std::vector<std::unique_ptr<File>> open_files(const std::filesystem::path& directory, const Sidecar::Opener& opener,
                                              std::vector<Entry>& entries) {
  std::vector<std::unique_ptr<File>> files;
  std::map<std::string, const File*> by_name;
  for (Entry& entry : entries) {
    const std::string name = read_file_name(entry.object);
    const File*& file = by_name[name];
    if (file == nullptr) {
      try {
        files.push_back(opener((directory / name).string()));
      } catch (const Error& error) {
        entry.object.refuse(error.kind(),
                            "repacked_file can't be opened: {}; the files of a sidecar lie beside its manifest",
                            error.what());
      }
      file = files.back().get();
    }
    entry.tensor.file = file;
  }
  return files;
}

// Where the last expert ends; inside the file.
uint64_t end_of(const Entry& entry) {
  const SidecarTensor& tensor = entry.tensor;
  const uint64_t to_last = product(entry.object, "experts before the last", tensor.stride, tensor.shape[2] - 1);
  const auto last = try_add(tensor.offset, to_last);
  const auto end = last ? try_add(*last, tensor.bytes) : std::nullopt;
  if (!end || *end > tensor.file->size())
    entry.object.refuse(ErrorKind::kFormat,
                        "{} experts of {} bytes, {} apart from repacked_offset {} on, pass the end of {} ({} bytes); "
                        "the file is truncated or of another sidecar, copy it again",
                        tensor.shape[2], tensor.bytes, tensor.stride, tensor.offset, tensor.file->path(),
                        tensor.file->size());
  return *end;
}

// The same tensor twice, or gates both fused with ups and apart.
void check_layers(const std::vector<Entry>& entries) {
  std::map<Key, const Entry*> seen;
  for (const Entry& entry : entries) {
    const auto [other, is_new] = seen.emplace(key_of(entry.tensor), &entry);
    if (!is_new)
      entry.object.refuse(ErrorKind::kFormat, "is the same tensor as entries[{}]; {}", other->second->number, kRemedy);
  }
  for (const Entry& entry : entries) {
    if (entry.tensor.family != "ffn_gate_exps" && entry.tensor.family != "ffn_up_exps") continue;
    const auto fused = seen.find({entry.tensor.layer, kFusedFamily});
    if (fused != seen.end())
      entry.object.refuse(ErrorKind::kFormat,
                          "stands beside entries[{}], which is {}; a layer has one or the other, {}",
                          fused->second->number, kFusedFamily, kRemedy);
  }
}

// Whether no byte is in experts of both; `a` begins first. Ranges that are interleaved need the same stride.
bool disjoint(const SidecarTensor& a, uint64_t end_of_a, const SidecarTensor& b) {
  if (b.offset >= end_of_a) return true;
  if (a.stride != b.stride) return false;
  const uint64_t shift = (b.offset - a.offset) % a.stride;
  return shift >= a.bytes && b.bytes <= a.stride - shift;
}

void check_places(const std::vector<Entry>& entries) {
  struct Range {
    const Entry* entry;
    uint64_t end;
  };
  std::map<std::string_view, std::vector<Range>> by_file;
  for (const Entry& entry : entries) by_file[entry.tensor.file->path()].push_back({&entry, end_of(entry)});
  for (auto& [path, ranges] : by_file) {
    std::ranges::stable_sort(ranges, {}, [](const Range& range) { return range.entry->tensor.offset; });
    for (size_t i = 0; i < ranges.size(); ++i) {
      const Range& first = ranges[i];
      for (size_t j = i + 1; j < ranges.size() && ranges[j].entry->tensor.offset < first.end; ++j) {
        const Entry& second = *ranges[j].entry;
        if (!disjoint(first.entry->tensor, first.end, second.tensor))
          second.object.refuse(ErrorKind::kFormat,
                               "repacked_offset is {}, which puts experts over those of entries[{}] in {}; {}",
                               second.tensor.offset, first.entry->number, path, kRemedy);
      }
    }
  }
}

std::optional<uint32_t> narrow(std::optional<uint64_t> value) {
  return value ? std::optional(static_cast<uint32_t>(*value)) : std::nullopt;
}

}  // namespace

Sidecar Sidecar::open(const std::string& path, const Opener& opener) {
  Contents out;
  out.path = manifest_path(path);
  auto file = open_first(out.path, opener);
  const std::string first = first_bytes(*file);
  if (first == kPackMagic) return open_pack(std::move(file));
  if (first.starts_with(kGgufMagic))
    fail(ErrorKind::kUsage,
         "{}: is a GGUF file other than the model, not a sidecar; name a directory with a manifest.json or a file "
         "that `sluice pack` wrote, or none: experts are read from the model's own file",
         out.path);
  const Json json = parse_manifest(out.path, read_manifest_text(*file));
  const Object manifest(json, out.path);
  check_kind(manifest);

  std::optional<Object> model;
  if (const Json* found = manifest.find("model")) {
    model.emplace(*found, out.path + ": model");
    out.architecture = model->find_text("arch");
    out.expert_count = narrow(model->find_integer("expert_count", 1, UINT32_MAX));
    model->find_integer("expert_used_count", 1, out.expert_count.value_or(UINT32_MAX));  // of no use but to agree
  }

  const Json& list = manifest.array("entries");
  const auto object_at = [&](size_t i) { return Object(list[i], fmt::format("{}: entries[{}]", out.path, i)); };
  if (list.empty()) manifest.refuse(ErrorKind::kFormat, "entries is empty; {}", kRemedy);
  const Layout layout = find_layout(manifest, model, object_at(0));
  out.layout = layout == Layout::kExperts ? kExpertsName : kWholeTensorsName;

  std::vector<Entry> entries;
  for (size_t i = 0; i < list.size(); ++i) entries.push_back(read_entry(i, object_at(i), layout, out.expert_count));
  check_layers(entries);
  out.files = open_files(std::filesystem::path(out.path).parent_path(), opener, entries);
  check_places(entries);

  for (Entry& entry : entries) out.tensors.push_back(std::move(entry.tensor));
  return Sidecar(std::move(out));
}

Sidecar::Sidecar(Contents contents) : contents_(std::move(contents)) {
  std::ranges::sort(contents_.tensors, {}, key_of);
}

const SidecarTensor* Sidecar::find(uint32_t layer, std::string_view family) const {
  const auto found = std::ranges::lower_bound(contents_.tensors, Key(layer, family), {}, key_of);
  return found != contents_.tensors.end() && key_of(*found) == Key(layer, family) ? &*found : nullptr;
}

const LayerSeal* Sidecar::seal(uint32_t layer) const {
  const auto found = contents_.seals.find(layer);
  return found == contents_.seals.end() ? nullptr : &found->second;
}

}  // namespace sluice::experts
