// The forward pass against golden vectors of independent implementations (their README says which), within the
// tolerances given there: every reference model, every prompt length, in float32 and with rounded activations.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "model/test_engine.h"
#include "support/reference.h"
#include "support/safetensors.h"

namespace sluice::model {
namespace {

using Json = nlohmann::json;
using Tensors = std::map<std::string, test::Tensor>;

struct Reference {
  std::string name, folder;
  Json json;
  Tensors tensors;

  double tolerance(const char* key) const { return json.at("tolerance").at(key).get<double>(); }
  // Quantized products round their activations; files with only float weights don't.
  bool rounds() const {
    for (const auto& [type, count] : json.at("gguf").at("tensor_types").items())
      if (type != "F32" && type != "F16" && type != "BF16") return true;
    return false;
  }
  std::vector<int> prompts() const {
    std::vector<int> lengths;
    for (const auto& [key, tensor] : tensors)
      if (key.starts_with("prompt.") && key.ends_with(".tokens")) lengths.push_back(std::stoi(key.substr(7)));
    std::ranges::sort(lengths);
    return lengths;
  }
  std::string at(int length, const std::string& what) const { return "prompt." + std::to_string(length) + "." + what; }
};

Reference read_reference(const std::string& folder) {
  Reference r{
      std::filesystem::path(folder).filename(), folder, {}, test::read_safetensors(folder + "/reference.safetensors")};
  std::ifstream(folder + "/reference.json") >> r.json;
  return r;
}

std::vector<std::string> folders() {
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

double max_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    worst = difference > worst || std::isnan(difference) ? (std::isnan(difference) ? 1e30 : difference) : worst;
  }
  return worst;
}

// KL(reference || engine) of one distribution, in nats.
double divergence(std::span<const float> reference, std::span<const float> engine) {
  const auto log_sum = [](std::span<const float> x) {
    const double top = *std::ranges::max_element(x);
    double sum = 0;
    for (const float v : x) sum += std::exp(v - top);
    return top + std::log(sum);
  };
  const double a = log_sum(reference), b = log_sum(engine);
  double kl = 0;
  for (size_t i = 0; i < reference.size(); ++i)
    kl += std::exp(reference[i] - a) * ((reference[i] - a) - (engine[i] - b));
  return kl;
}

class Parity : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    reference = read_reference(GetParam());
    engine = std::make_unique<TestEngine>(GetParam() + "/model.gguf");
  }
  size_t vocab() const { return engine->model.hp.n_vocab; }

  Reference reference;
  std::unique_ptr<TestEngine> engine;
};

// One prompt through the engine, all rows in one batch.
struct PromptRun {
  std::vector<float> logits;                  // [n_tokens, n_vocab]
  std::vector<std::vector<uint32_t>> routes;  // by layer
};

PromptRun run_prompt(TestEngine& engine, const std::vector<int32_t>& tokens) {
  const auto sequence = engine.sequence();
  Batch batch{{sequence.get()}, {}, {}, engine.model.hp.n_experts > 0};
  for (const int32_t token : tokens) batch.rows.push_back({0, token, true, false});
  Pass pass(engine.model, engine.context, engine.workspace, batch);
  pass.finish();
  PromptRun run;
  for (size_t i = 0; i < tokens.size(); ++i)
    run.logits.insert(run.logits.end(), pass.logits(i).begin(), pass.logits(i).end());
  for (uint32_t i = 0; batch.routes && i < engine.model.hp.n_layers; ++i)
    run.routes.emplace_back(pass.routes(i).begin(), pass.routes(i).end());
  return run;
}

// Whether a position's experts, as sets, are the reference's in every layer; true where the reference keeps none.
bool same_experts(const Reference& reference, int length, const PromptRun& run, size_t position) {
  for (size_t layer = 0; layer < run.routes.size(); ++layer) {
    const std::string key = reference.at(length, "router.layer" + std::to_string(layer) + ".ids");
    if (!reference.tensors.contains(key)) return true;
    const auto ids = reference.tensors.at(key).as<int32_t>();
    const size_t k = reference.tensors.at(key).shape[1];
    std::vector<int32_t> want(ids.begin() + static_cast<long>(position * k),
                              ids.begin() + static_cast<long>((position + 1) * k));
    std::vector<int32_t> got(run.routes[layer].begin() + static_cast<long>(position * k),
                             run.routes[layer].begin() + static_cast<long>((position + 1) * k));
    std::ranges::sort(want);
    std::ranges::sort(got);
    if (want != got) return false;
  }
  return true;
}

// With rounded activations a near-tie of the router may fall to another expert and move one token's logits by 0.5 to 2
// in any engine, so the bound on single logits holds where the experts are the reference's, and the mean divergence
// over the kept positions of all prompts holds everywhere.
TEST_P(Parity, LogitsAtEveryPromptLength) {
  double kl = 0;
  size_t n = 0, elsewhere = 0;
  for (const int length : reference.prompts()) {
    const auto tokens = reference.tensors.at(reference.at(length, "tokens")).as<int32_t>();
    const auto positions = reference.tensors.at(reference.at(length, "positions")).as<int32_t>();
    const auto expected = reference.tensors.at(reference.at(length, "logits")).as<float>();
    const PromptRun run = run_prompt(*engine, tokens);
    double worst = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto position = static_cast<size_t>(positions[i]);
      const std::span<const float> got(run.logits.data() + position * vocab(), vocab());
      const std::span<const float> want(expected.data() + i * vocab(), vocab());
      kl += divergence(want, got);
      if (!reference.rounds() || same_experts(reference, length, run, position))
        worst = std::max(worst, max_difference(want, got));
      else
        ++elsewhere;
    }
    n += positions.size();
    EXPECT_LE(worst, reference.tolerance(reference.rounds() ? "rounded_activations_logits" : "logits_float32"))
        << reference.name << ", " << length << " tokens";
  }
  if (!reference.rounds()) return;
  EXPECT_LE(kl / static_cast<double>(n), reference.tolerance("rounded_activations_kl_mean")) << reference.name;
  EXPECT_LE(elsewhere * 20, n) << reference.name << ": positions with other experts than the reference";
}

// The residual stream after each block, the router's choices, keys, values and recurrent state.
TEST_P(Parity, InnerStatesInFloat32) {
  if (reference.rounds()) GTEST_SKIP() << "activations are rounded: only logits are held to a tolerance";
  const Model& model = engine->model;
  for (const int length : reference.prompts()) {
    if (!reference.tensors.contains(reference.at(length, "hidden.embed"))) continue;
    const auto tokens = reference.tensors.at(reference.at(length, "tokens")).as<int32_t>();
    const auto sequence = engine->sequence();
    Batch batch{{sequence.get()}, {}, {}, model.hp.n_experts > 0};
    for (const int32_t token : tokens) batch.rows.push_back({0, token, false, false});
    for (uint32_t i = 0; i < model.hp.n_layers; ++i) batch.taps.push_back(i);
    Pass pass(model, engine->context, engine->workspace, batch);
    pass.finish();
    for (uint32_t i = 0; i < model.hp.n_layers; ++i) {
      const auto expected = reference.tensors.at(reference.at(length, "hidden.layer" + std::to_string(i))).as<float>();
      EXPECT_LE(max_difference(expected, pass.tap(i)), reference.tolerance("hidden_float32"))
          << reference.name << ", " << length << " tokens, layer " << i;
      if (!batch.routes) continue;
      const auto ids =
          reference.tensors.at(reference.at(length, "router.layer" + std::to_string(i) + ".ids")).as<int32_t>();
      EXPECT_TRUE(std::ranges::equal(pass.routes(i), ids)) << reference.name << ": experts chosen in layer " << i;
    }
    for (uint32_t i = 0; i < model.hp.n_layers; ++i) {
      const std::string key = reference.at(length, "kv.layer" + std::to_string(i) + ".k");
      if (!reference.tensors.contains(key)) continue;
      const ops::AttentionShape shape = model.layout.attention(i);
      std::vector<float> k, v;
      for (size_t p = 0; p < tokens.size(); ++p)
        for (size_t h = 0; h < shape.n_kv_heads; ++h) {
          const auto* keys = reinterpret_cast<const float*>(sequence->pages()[p / ops::cpu::kTile] +
                                                            shape.layer_offset + h * shape.head_bytes());
          const float* values = keys + ops::cpu::kTile * shape.key_dim;
          for (size_t d = 0; d < shape.key_dim; ++d) k.push_back(keys[d * ops::cpu::kTile + p % ops::cpu::kTile]);
          for (size_t d = 0; d < shape.value_dim; ++d) v.push_back(values[p % ops::cpu::kTile * shape.value_dim + d]);
        }
      EXPECT_LE(max_difference(reference.tensors.at(key).as<float>(), k), reference.tolerance("kv_float32"));
      const std::string value_key = reference.at(length, "kv.layer" + std::to_string(i) + ".v");
      EXPECT_LE(max_difference(reference.tensors.at(value_key).as<float>(), v), reference.tolerance("kv_float32"));
    }
    if (!reference.tensors.contains(reference.at(length, "state.layer0.ssm"))) continue;
    const ops::DeltaShape& delta = model.layout.delta();
    const std::span<const float> memory = sequence->recurrent();
    std::vector<float> conv, ssm;
    for (size_t c = 0; c < delta.channels(); ++c)
      for (size_t t = 0; t + 1 < delta.taps; ++t)
        conv.push_back(memory[model.layout.history_offset(0) + t * delta.channels() + c]);
    for (size_t h = 0; h < delta.n_value_heads; ++h)
      for (size_t j = 0; j < delta.value_dim; ++j)
        for (size_t k = 0; k < delta.key_dim; ++k)
          ssm.push_back(memory[model.layout.state_offset(0) +
                               ((h * (delta.value_dim / 16) + j / 16) * delta.key_dim + k) * 16 + j % 16]);
    const double tolerance = reference.tolerance("state_float32");
    EXPECT_LE(max_difference(reference.tensors.at(reference.at(length, "state.layer0.conv")).as<float>(), conv),
              tolerance);
    EXPECT_LE(max_difference(reference.tensors.at(reference.at(length, "state.layer0.ssm")).as<float>(), ssm),
              tolerance);
  }
}

TEST_P(Parity, GreedyTokensWhereTheMarginAllows) {
  for (const int length : {5, 65}) {
    const std::string key = "greedy." + std::to_string(length) + ".";
    if (!reference.tensors.contains(key + "tokens")) continue;
    const double allowed =
        reference.rounds() ? reference.tolerance("rounded_activations_logits") : reference.tolerance("logits_float32");
    const auto prompt = reference.tensors.at(key + "prompt").as<int32_t>();
    const auto expected = reference.tensors.at(key + "tokens").as<int32_t>();
    const auto margins = reference.tensors.at(key + "margins").as<float>();
    const auto sequence = engine->sequence();
    std::vector<float> logits = engine->logits(*sequence, prompt);
    for (size_t step = 0; step < expected.size() && margins[step] > 2 * allowed; ++step) {
      const std::span<const float> last(logits.data() + logits.size() - vocab(), vocab());
      ASSERT_EQ(std::ranges::max_element(last) - last.begin(), expected[step]) << reference.name << ", step " << step;
      logits = engine->logits(*sequence, {expected[step]});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Parity, ::testing::ValuesIn(folders()), [](const auto& test) {
  std::string name = std::filesystem::path(test.param).filename();
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace sluice::model
