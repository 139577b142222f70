#include "model/test_reference_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/reference.h"

namespace sluice::model {

namespace {

using Json = nlohmann::json;

Json read_json(const std::string& folder) {
  Json json;
  std::ifstream(folder + "/reference.json") >> json;
  return json;
}

bool is_quantized(const Json& json) {
  for (const auto& [type, count] : json.at("gguf").at("tensor_types").items())
    if (type != "F32" && type != "F16" && type != "BF16") return true;
  return false;
}

std::vector<std::string> folders_where(bool quantized) {
  std::vector<std::string> some;
  for (const std::string& folder : reference_folders())
    if (is_quantized(read_json(folder)) == quantized) some.push_back(folder);
  return some;
}

}  // namespace

std::vector<std::string> reference_folders() {
  const auto root = test::reference_root();
  std::vector<std::string> all;
  for (const auto& entry :
       std::filesystem::directory_iterator(root ? *root + "/models" : test::test_data_dir() + "/models"))
    if (std::filesystem::exists(entry.path() / "model.gguf") &&
        std::filesystem::exists(entry.path() / "reference.safetensors"))
      all.push_back(entry.path());
  std::ranges::sort(all);
  return all;
}

std::vector<std::string> float_folders() { return folders_where(false); }
std::vector<std::string> quantized_folders() { return folders_where(true); }

std::string test_name(const ::testing::TestParamInfo<std::string>& folder) {
  std::string name = std::filesystem::path(folder.param).filename();
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

ReferenceModel::ReferenceModel(const std::string& folder)
    : name_(std::filesystem::path(folder).filename()),
      folder_(folder),
      tensors_(test::read_safetensors(folder + "/reference.safetensors")) {
  const Json json = read_json(folder);
  quantized_ = is_quantized(json);
  tolerances_ = json.at("tolerance").get<std::map<std::string, double>>();
  if (const auto simulated = json.at("measured").find("rounded_activations"); simulated != json.at("measured").end())
    simulated_top1_ = simulated->at("top1_agreement").get<double>();
  for (const auto& [key, tensor] : tensors_)
    if (key.starts_with("prompt.") && key.ends_with(".tokens")) prompts_.push_back(std::stoi(key.substr(7)));
  std::ranges::sort(prompts_);
}

double max_difference(std::span<const float> a, std::span<const float> b) {
  double worst = a.size() == b.size() ? 0.0 : HUGE_VAL;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    worst = std::isnan(difference) ? HUGE_VAL : std::max(worst, difference);
  }
  return worst;
}

void expect_logits_in_float32(const ReferenceModel& reference, TestEngine& engine) {
  const size_t vocab = engine.model.hp.n_vocab;
  for (const int length : reference.prompts()) {
    const std::vector<float> logits = engine.run(reference.prompt(length)).logits;
    const auto positions = reference.ints(reference.at(length, "positions"));
    const auto expected = reference.floats(reference.at(length, "logits"));
    double worst = 0;
    for (size_t i = 0; i < positions.size(); ++i)
      worst = std::max(worst, max_difference({expected.data() + i * vocab, vocab},
                                             {logits.data() + static_cast<size_t>(positions[i]) * vocab, vocab}));
    EXPECT_LE(worst, reference.tolerance("logits_float32")) << reference.name() << ", " << length << " tokens";
  }
}

namespace {

struct KeysAndValues {
  std::vector<float> keys, values;  // [n_tokens, n_kv_heads, dim]
};

// Out of f32 pages, in which a head's keys are stored [key_dim, kTile] and its values [kTile, value_dim].
KeysAndValues read_pages(state::Sequence& sequence, const ops::AttentionShape& shape) {
  KeysAndValues all;
  for (size_t position = 0; position < sequence.length(); ++position) {
    const std::byte* page = sequence.pages()[position / ops::cpu::kTile] + shape.layer_offset;
    const size_t row = position % ops::cpu::kTile;
    for (size_t h = 0; h < shape.n_kv_heads; ++h) {
      const auto* keys = reinterpret_cast<const float*>(page + h * shape.head_bytes());
      const float* values = keys + ops::cpu::kTile * shape.key_dim;
      for (size_t d = 0; d < shape.key_dim; ++d) all.keys.push_back(keys[d * ops::cpu::kTile + row]);
      for (size_t d = 0; d < shape.value_dim; ++d) all.values.push_back(values[row * shape.value_dim + d]);
    }
  }
  return all;
}

// The convolution's last inputs as [channels, taps - 1]; they are stored oldest first, [taps - 1, channels].
std::vector<float> read_history(const float* stored, const ops::DeltaShape& shape) {
  std::vector<float> history;
  for (size_t channel = 0; channel < shape.channels(); ++channel)
    for (size_t tap = 0; tap + 1 < shape.taps; ++tap) history.push_back(stored[tap * shape.channels() + channel]);
  return history;
}

// The delta net's state as [heads, value_dim, key_dim]; it is stored [heads, value_dim / 16, key_dim, 16].
std::vector<float> read_state(const float* stored, const ops::DeltaShape& shape) {
  constexpr size_t kColumns = ops::cpu::kColumns;
  std::vector<float> state;
  for (size_t head = 0; head < shape.n_value_heads; ++head)
    for (size_t v = 0; v < shape.value_dim; ++v)
      for (size_t k = 0; k < shape.key_dim; ++k)
        state.push_back(stored[head * shape.value_dim * shape.key_dim + (v / kColumns * shape.key_dim + k) * kColumns +
                               v % kColumns]);
  return state;
}

}  // namespace

void expect_inner_states_in_float32(const ReferenceModel& reference, TestEngine& engine) {
  const Model& model = engine.model;
  for (const int length : reference.prompts()) {
    const std::string place = reference.name() + ", " + std::to_string(length) + " tokens";
    const auto key = [&](uint32_t layer, const std::string& before, const std::string& after) {
      return reference.at(length, before + ".layer" + std::to_string(layer) + after);
    };
    if (!reference.has(reference.at(length, "hidden.embed"))) continue;
    const auto sequence = engine.sequence();
    Batch batch{{sequence.get()}, {}, {}, model.hp.n_experts > 0};
    for (const int32_t token : reference.prompt(length)) batch.rows.push_back({0, token, false, false});
    for (uint32_t i = 0; i < model.hp.n_layers; ++i) batch.taps.push_back(i);
    Pass pass(model, engine.context, engine.workspace, batch);
    pass.finish();

    for (uint32_t i = 0; i < model.hp.n_layers; ++i) {
      EXPECT_LE(max_difference(reference.floats(key(i, "hidden", "")), pass.tap(i)),
                reference.tolerance("hidden_float32"))
          << place << ", layer " << i;
      if (reference.has(key(i, "router", ".ids"))) {
        EXPECT_TRUE(std::ranges::equal(pass.routes(i), reference.ints(key(i, "router", ".ids"))))
            << place << ": experts of layer " << i;
      }
      if (reference.has(key(i, "kv", ".k"))) {
        const KeysAndValues stored = read_pages(*sequence, model.layout.attention(i));
        const double tolerance = reference.tolerance("kv_float32");
        EXPECT_LE(max_difference(reference.floats(key(i, "kv", ".k")), stored.keys), tolerance) << place;
        EXPECT_LE(max_difference(reference.floats(key(i, "kv", ".v")), stored.values), tolerance) << place;
      }
      if (reference.has(key(i, "state", ".ssm"))) {
        const float* memory = sequence->recurrent().data();
        const std::vector<float> history = read_history(memory + model.layout.history_offset(i), model.layout.delta());
        const std::vector<float> state = read_state(memory + model.layout.state_offset(i), model.layout.delta());
        const double tolerance = reference.tolerance("state_float32");
        EXPECT_LE(max_difference(reference.floats(key(i, "state", ".conv")), history), tolerance) << place;
        EXPECT_LE(max_difference(reference.floats(key(i, "state", ".ssm")), state), tolerance) << place;
      }
    }
  }
}

}  // namespace sluice::model
