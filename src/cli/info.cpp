// `sluice info`: what is in a model file and what it will need, from its head alone; or one tensor's values.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "chat/vocabulary_metadata.h"
#include "cli/amounts.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/memory_need.h"
#include "cli/npy.h"
#include "cli/suggest.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kPieceWeights = uint64_t{1} << 20;  // of a tensor that is written: 4 MiB of f32 at a time

struct InfoOptions {
  std::optional<std::string> file, model;
  std::vector<std::string> overrides;
  std::optional<std::string> tensor, npy;
  bool tensors = false, json = false;

  void declare(OptionTable& table) {
    table.positional("MODEL", "a GGUF file, or the first of a split one", &file);
    table.group("Model");
    table.option("-m, --model", "FILE", "the same", &model);
    table.option("--override-kv", "KEY=TYPE:VALUE",
                 "use this value of a metadata key instead of the file's; TYPE is int, float, bool or str", &overrides);
    table.group("Output");
    table.flag("--tensors", "list every tensor too: name, shape, format, bytes, offset in the file", &tensors);
    table.flag("--json", "print one JSON object", &json);
    table.option("--tensor", "NAME", "write this tensor's values to the file of --npy", &tensor);
    table.option("--npy", "OUT", "file for --tensor: float32, slowest dimension first", &npy);
  }
};

struct TypeShare {
  uint64_t count = 0, bytes = 0;
};

// The bytes of one expert's matrices, which may differ from layer to layer.
struct ExpertBytes {
  uint64_t least = 0, most = 0;
};

// Everything that is shown. What a file does not say or Sluice can't know is not set.
struct Summary {
  std::string architecture, name;
  uint64_t file_bytes = 0, parameters = 0, tensor_bytes = 0;
  std::map<std::string, TypeShare> types;
  std::optional<chat::VocabularyData> vocabulary;
  bool chat_template = false;
  // Of models that Sluice runs; else `reason` says why these are not set.
  std::string reason;
  std::optional<model::Hyperparameters> hp;
  std::optional<uint64_t> bytes_per_token;
  std::optional<MemoryNeed> memory;
  ExpertBytes expert;
};

ExpertBytes expert_bytes(const gguf::Container& file, const model::Hyperparameters& hp) {
  std::map<std::string, uint64_t> by_layer;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    // blk.<layer>.ffn_<part>_exps.weight
    if (tensor.name.ends_with("_exps.weight"))
      by_layer[tensor.name.substr(0, tensor.name.find(".ffn_"))] += tensor.bytes;
  }
  if (by_layer.empty() || hp.n_experts == 0) return {};
  ExpertBytes sizes{UINT64_MAX, 0};
  for (const auto& [layer, bytes] : by_layer) {
    sizes.least = std::min(sizes.least, bytes / hp.n_experts);
    sizes.most = std::max(sizes.most, bytes / hp.n_experts);
  }
  return sizes;
}

void summarize_file(const gguf::Container& file, Summary& out) {
  const gguf::Metadata& metadata = file.metadata();
  out.architecture = metadata.find<std::string>("general.architecture").value_or("");
  out.name = metadata.find<std::string>("general.name").value_or("");
  for (const gguf::Shard& shard : file.shards()) out.file_bytes += shard.file->size();
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    TypeShare& type = out.types[tensor.format->name];
    ++type.count;
    type.bytes += tensor.bytes;
    out.parameters += tensor.rows * tensor.extents[0];
    out.tensor_bytes += tensor.bytes;
  }
  if (metadata.find_value("tokenizer.ggml.model") != nullptr) out.vocabulary = chat::read_vocabulary(metadata);
  out.chat_template = metadata.find_value("tokenizer.chat_template") != nullptr;
}

void summarize_model(const ModelFile& model, Summary& out) {
  out.hp = model.hp;
  out.expert = expert_bytes(model.container, model.hp);
  out.bytes_per_token = model.bytes_per_token();
  out.memory = memory_need(model, engine_options({}, {}));
}

// A file without tensors is a vocabulary; one of an architecture that Sluice does not run has still much to show.
// Damage is an error.
Summary summarize(ModelFile& model) {
  Summary out;
  summarize_file(model.container, out);
  if (model.container.tensors().empty()) {
    out.reason = "the file has no tensors, only a vocabulary";
    return out;
  }
  try {
    model.hp = model::read_hyperparameters(model.container);
    summarize_model(model, out);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    out.reason = error.what();
  }
  return out;
}

// ---- one object of JSON

Json json_id(std::optional<uint32_t> id) { return id ? Json(*id) : Json(nullptr); }

Json tokenizer_json(const Summary& summary) {
  if (!summary.vocabulary) return nullptr;
  const chat::VocabularyData& v = *summary.vocabulary;
  return {{"model", v.model},
          {"pre", v.pre},
          {"tokens", v.tokens.size()},
          {"bos", json_id(v.bos)},
          {"eos", json_id(v.eos)},
          {"eot", json_id(v.eot)},
          {"padding", json_id(v.padding)},
          {"chat_template", summary.chat_template}};
}

Json tensor_list_json(const gguf::Container& file) {
  Json list = Json::array();
  for (const gguf::TensorInfo& t : file.tensors())
    list.push_back({{"name", t.name},
                    {"shape", t.extents},
                    {"type", t.format->name},
                    {"bytes", t.bytes},
                    {"part", t.shard},
                    {"offset", t.offset}});
  return list;
}

// Null stands for what the file does not say, or what only a model that Sluice runs has.
Json summary_json(const gguf::Container& file, const Summary& summary) {
  const auto of_model = [&](auto number) { return summary.hp ? Json((*summary.hp).*number) : Json(nullptr); };
  Json types = Json::object();
  for (const auto& [name, type] : summary.types) types[name] = {{"count", type.count}, {"bytes", type.bytes}};
  Json memory;
  if (summary.memory)
    for (const MemoryPlan::Category& category : summary.memory->plan.categories) memory[category.name] = category.bytes;
  return {{"architecture", summary.architecture},
          {"layers", of_model(&model::Hyperparameters::n_layers)},
          {"experts", of_model(&model::Hyperparameters::n_experts)},
          {"experts_used", of_model(&model::Hyperparameters::n_experts_used)},
          {"context_length", of_model(&model::Hyperparameters::n_context)},
          {"parameters", summary.parameters},
          {"file_bytes", summary.file_bytes},
          {"tensors", file.tensors().size()},
          {"types", types},
          {"bytes_per_token", summary.bytes_per_token ? Json(*summary.bytes_per_token) : Json(nullptr)},
          {"tokenizer", tokenizer_json(summary)},
          {"memory", memory}};
}

// ---- a page for people

void print_line(const char* what, const std::string& text) { fmt::print("{:<15} {}\n", what, text); }

std::string layers_text(const model::Hyperparameters& hp) {
  const auto trunk = std::span(hp.layers).first(hp.n_layers);
  const auto recurrent = std::ranges::count(trunk, model::LayerKind::kRecurrent);
  std::string text = std::to_string(hp.n_layers);
  if (recurrent > 0) text += fmt::format(": {} attention, {} recurrent", hp.n_layers - recurrent, recurrent);
  if (hp.n_draft_layers > 0) text += fmt::format("; and {} to draft tokens", hp.n_draft_layers);
  return text;
}

std::string experts_text(const Summary& summary) {
  const model::Hyperparameters& hp = *summary.hp;
  const auto& [least, most] = summary.expert;
  const std::string size =
      least == most ? human_bytes(most) : fmt::format("{} to {}", human_bytes(least), human_bytes(most));
  return fmt::format("{} a layer, {} used{}; one takes {}", hp.n_experts, hp.n_experts_used,
                     hp.n_shared_ff > 0 ? " and a shared one" : "", size);
}

std::string token_text(const char* what, const chat::VocabularyData& vocabulary, std::optional<uint32_t> id) {
  if (!id || *id >= vocabulary.tokens.size()) return fmt::format(", no {}", what);
  return fmt::format(", {} {} {}", what, *id, gguf::printable(vocabulary.tokens[*id]));
}

std::string tokenizer_text(const Summary& summary) {
  const chat::VocabularyData& v = *summary.vocabulary;
  return fmt::format("{}{}, {} tokens{}{}, {} chat template", v.model, v.pre.empty() ? "" : " (" + v.pre + ")",
                     v.tokens.size(), token_text("eos", v, v.eos), token_text("bos", v, v.bos),
                     summary.chat_template ? "with a" : "no");
}

void print_model(const Summary& summary) {
  const model::Hyperparameters& hp = *summary.hp;
  print_line("layers", layers_text(hp));
  print_line("width", fmt::format("{}, {} of {}", hp.n_embd, hp.n_experts > 0 ? "experts" : "feed-forward",
                                  hp.n_experts > 0 ? hp.n_expert_ff : hp.n_ff));
  print_line("attention",
             fmt::format("{} heads, {} for keys and values, each of {}", hp.n_heads, hp.n_kv_heads, hp.key_dim));
  if (hp.n_experts > 0) print_line("experts", experts_text(summary));
  print_line("context", fmt::format("{} tokens", hp.n_context));
  print_line("read per token", human_bytes(*summary.bytes_per_token));
}

void print_types(const Summary& summary) {
  std::vector<std::pair<std::string, TypeShare>> types(summary.types.begin(), summary.types.end());
  std::ranges::stable_sort(types, std::greater<>(), [](const auto& type) { return type.second.bytes; });
  fmt::print("\n{:<15} {:>7} {:>10}  share\n", "format", "tensors", "size");
  for (const auto& [name, type] : types)
    fmt::print("  {:<13} {:>7} {:>10} {:>5.1f}%\n", name, type.count, human_bytes(type.bytes),
               100 * static_cast<double>(type.bytes) / static_cast<double>(summary.tensor_bytes));
}

void print_tensors(const gguf::Container& file) {
  size_t widest = 6;
  for (const gguf::TensorInfo& t : file.tensors()) widest = std::max(widest, t.name.size());
  fmt::print("\n{:<{}} {:<8} {:>13} {:>14}  shape\n", "tensor", widest, "format", "bytes", "offset");
  for (const gguf::TensorInfo& t : file.tensors()) {
    const std::string part = file.shards().size() > 1 ? fmt::format("  in part {}", t.shard + 1) : "";
    fmt::print("{:<{}} {:<8} {:>13} {:>14}  {}{}\n", t.name, widest, t.format->name, t.bytes, t.offset,
               fmt::join(t.extents, " x "), part);
  }
}

void print_page(const gguf::Container& file, const Summary& summary) {
  const size_t parts = file.shards().size();
  if (!summary.name.empty()) print_line("name", gguf::printable(summary.name));
  print_line("architecture", summary.architecture.empty() ? "not named" : gguf::printable(summary.architecture));
  print_line("file", fmt::format("{} ({} bytes){}", human_bytes(summary.file_bytes), summary.file_bytes,
                                 parts > 1 ? fmt::format(" in {} parts", parts) : ""));
  if (!file.tensors().empty())
    print_line("parameters",
               fmt::format("{} in {} tensors, {:.2f} bits each", human_count(summary.parameters), file.tensors().size(),
                           8 * static_cast<double>(summary.tensor_bytes) / static_cast<double>(summary.parameters)));
  if (summary.hp) print_model(summary);
  if (summary.vocabulary) print_line("tokenizer", tokenizer_text(summary));
  if (!summary.types.empty()) print_types(summary);
  if (summary.memory) {
    fmt::print("\n");
    print_memory(*summary.memory);
  }
  if (!summary.reason.empty()) fmt::print("\ncannot be run: {}\n", summary.reason);
}

// ---- one tensor

const gguf::TensorInfo& named_tensor(const gguf::Container& file, const std::string& name) {
  if (const gguf::TensorInfo* tensor = file.find_tensor(name)) return *tensor;
  std::vector<std::string> names;
  for (const gguf::TensorInfo& tensor : file.tensors()) names.push_back(tensor.name);
  const std::string near = nearest_word(name, names);
  fail(ErrorKind::kUsage, "--tensor {}: {} has none of that name{}; --tensors lists them", gguf::printable(name),
       file.path(), near.empty() ? "" : fmt::format(", did you mean {}?", near));
}

void write_tensor(const gguf::Container& file, const gguf::TensorInfo& tensor, const std::string& path) {
  NpyWriter out(path, std::vector<uint64_t>(tensor.extents.rbegin(), tensor.extents.rend()));
  const quant::Format& format = *tensor.format;
  const uint64_t piece = std::min<uint64_t>(kPieceWeights / format.block_weights * format.block_bytes, tensor.bytes);
  std::vector<std::byte> blocks(piece);
  std::vector<float> values(piece / format.block_bytes * format.block_weights);
  for (uint64_t at = 0; at < tensor.bytes; at += piece) {
    const uint64_t bytes = std::min(piece, tensor.bytes - at);
    file.read(tensor, at, std::span(blocks).first(bytes));
    const uint64_t n_blocks = bytes / format.block_bytes;
    format.dequantize(blocks.data(), n_blocks, values.data());
    out.write(std::span(values).first(n_blocks * format.block_weights));
  }
  out.commit();
}

// ---- the command

int print_info(const InfoOptions& options) {
  if (options.file && options.model) fail(ErrorKind::kUsage, "name one model, either as MODEL or with -m MODEL");
  if (!options.file && !options.model) fail(ErrorKind::kUsage, "name the model: sluice info MODEL");
  if (options.tensor.has_value() != options.npy.has_value())
    fail(ErrorKind::kUsage, "--tensor NAME and --npy OUT go together: which values, and to which file");
  gguf::OpenOptions open;
  open.overrides = options.overrides;
  ModelFile model{gguf::Container::open(options.file ? *options.file : *options.model, open), {}, nullptr};
  const gguf::Container& file = model.container;
  if (options.tensor) {
    write_tensor(file, named_tensor(file, *options.tensor), *options.npy);
    return 0;
  }
  const Summary summary = summarize(model);
  if (options.json) {
    Json out = summary_json(file, summary);
    if (options.tensors) out["tensor_list"] = tensor_list_json(file);
    if (!summary.reason.empty()) out["not_runnable"] = summary.reason;
    print_json(out);
    return 0;
  }
  print_page(file, summary);
  if (options.tensors) print_tensors(file);
  return 0;
}

}  // namespace

Command info_command() {
  return make_command<InfoOptions>(
      {.name = "info",
       .summary = "say what is in a model file and what it will need",
       .description = "Reads only the head of the file. Files with only a vocabulary, and models that Sluice does not "
                      "run, are described as far as they go.",
       .usage = {"MODEL [--tensors] [--json]", "MODEL --tensor NAME --npy OUT"},
       .examples = {{"sluice info model.gguf", "sizes, experts, formats, tokenizer, memory"},
                    {"sluice info model.gguf --tensor output_norm.weight --npy norm.npy", "one tensor as float32"}}},
      print_info);
}

}  // namespace sluice::cli
