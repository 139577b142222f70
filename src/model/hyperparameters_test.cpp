// Every number that a file claims of its model is checked against the others and against its tensors: a contradiction
// is an error that names file, place, value and limit, and never reaches the forward pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <ostream>

#include "base/error.h"
#include "model/forward.h"
#include "model/test_edited_model.h"
#include "support/reference.h"

namespace sluice::model {
namespace {

const gguf::Container& micro() {
  static const gguf::Container file =
      gguf::Container::open(test::test_data_dir() + "/models/qwen35moe-micro/model.gguf");
  return file;
}

Hyperparameters read_edited(const std::function<void(EditedModel&)>& edit) {
  EditedModel model(micro());
  edit(model);
  return read_hyperparameters(model.open());
}

TEST(Hyperparameters, OfTheMicroModel) {
  const Hyperparameters hp = read_hyperparameters(micro());
  EXPECT_STREQ(hp.architecture->name, "qwen35moe");
  EXPECT_EQ(hp.n_layers, 4u);
  EXPECT_EQ(hp.n_draft_layers, 0u);
  EXPECT_EQ(hp.n_embd, 96u);
  EXPECT_EQ(hp.n_vocab, 640u);
  EXPECT_EQ(hp.n_experts, 8u);
  EXPECT_EQ(hp.n_experts_used, 2u);
  EXPECT_EQ(hp.state_value_dim, 32u);
  EXPECT_EQ(hp.layers,
            (std::vector{LayerKind::kRecurrent, LayerKind::kAttention, LayerKind::kRecurrent, LayerKind::kAttention}));
}

TEST(Hyperparameters, RecurrentLayersWinOverTheInterval) {
  const auto hp = read_edited([](EditedModel& m) {
    m.set("qwen35moe.full_attention_interval", uint32_t{4});
    m.set("qwen35moe.attention.recurrent_layers", gguf::Array(std::vector<bool>{true, false, false, true}));
  });
  EXPECT_EQ(hp.layers,
            (std::vector{LayerKind::kRecurrent, LayerKind::kAttention, LayerKind::kAttention, LayerKind::kRecurrent}));
}

TEST(Hyperparameters, KvHeadsMayBeListedByLayerWithNoneWhereRecurrent) {
  const auto hp = read_edited([](EditedModel& m) {
    m.set("qwen35moe.attention.head_count_kv", gguf::Array(std::vector<uint32_t>{0, 2, 0, 2}));
  });
  EXPECT_EQ(hp.n_kv_heads, 2u);
}

TEST(Hyperparameters, TheDraftBlockIsNoTrunkLayer) {
  const auto hp = read_edited([](EditedModel& m) { m.set("qwen35moe.nextn_predict_layers", uint32_t{1}); });
  EXPECT_EQ(hp.n_layers, 3u);
  EXPECT_EQ(hp.n_draft_layers, 1u);
  EXPECT_EQ(hp.layers.size(), 4u);
}

struct Case {
  const char* name;
  std::function<void(EditedModel&)> edit;
  ErrorKind kind;
  std::vector<std::string> says;  // parts of the message, besides the file's name
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

std::function<void(EditedModel&)> set(const std::string& key, gguf::Value value) {
  return [=](EditedModel& m) { m.set("qwen35moe." + key, value); };
}
std::function<void(EditedModel&)> without(const std::string& key) {
  return [=](EditedModel& m) { m.remove_key("qwen35moe." + key); };
}
std::function<void(EditedModel&)> reshape(const std::string& tensor, std::vector<uint64_t> extents) {
  return [=](EditedModel& m) { m.tensor(tensor).extents = extents; };
}
gguf::Value u32(uint32_t value) { return value; }
gguf::Value f32(float value) { return value; }

constexpr auto kFormat = ErrorKind::kFormat;
constexpr auto kUnsupported = ErrorKind::kUnsupported;

std::vector<Case> cases() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  return {
      {"ArchitectureUnknown",
       [](EditedModel& m) { m.set("general.architecture", std::string("qwen99")); },
       kUnsupported,
       {"qwen99", "qwen35moe, qwen35, qwen3moe"}},
      {"ArchitectureMissing",
       [](EditedModel& m) { m.remove_key("general.architecture"); },
       kFormat,
       {"general.architecture"}},
      {"ArchitectureOfOtherKeys",
       [](EditedModel& m) { m.set("general.architecture", std::string("qwen3")); },
       kFormat,
       {"qwen3.block_count"}},

      {"NoBlocks", set("block_count", u32(0)), kFormat, {"qwen35moe.block_count = 0", "1..4096"}},
      {"BlocksHuge", set("block_count", u32(UINT32_MAX)), kFormat, {"qwen35moe.block_count = 4294967295", "1..4096"}},
      {"BlocksNegative", set("block_count", int32_t{-1}), kFormat, {"qwen35moe.block_count"}},
      {"BlocksOfWrongType", set("block_count", std::string("4")), kFormat, {"qwen35moe.block_count", "str"}},
      {"BlocksMissing", without("block_count"), kFormat, {"qwen35moe.block_count"}},
      {"MoreBlocksThanTensors", set("block_count", u32(5)), kFormat, {"blk.4.", "missing"}},
      {"FewerBlocksThanTensors", set("block_count", u32(3)), kUnsupported, {"blk.3."}},
      {"OnlyDraftBlocks", set("nextn_predict_layers", u32(4)), kFormat, {"nextn_predict_layers = 4", "4 blocks"}},
      {"SeveralDraftBlocks", set("nextn_predict_layers", u32(2)), kUnsupported, {"nextn_predict_layers = 2"}},

      {"ContextZero", set("context_length", u32(0)), kFormat, {"context_length = 0"}},
      {"WidthZero", set("embedding_length", u32(0)), kFormat, {"embedding_length = 0"}},
      {"WidthOther", set("embedding_length", u32(64)), kFormat, {"token_embd.weight is [96, 640]", "[64, 640]"}},
      {"EpsilonZero", set("attention.layer_norm_rms_epsilon", f32(0)), kFormat, {"rms_epsilon = 0", "between 0 and 1"}},
      {"EpsilonNegative", set("attention.layer_norm_rms_epsilon", f32(-1)), kFormat, {"rms_epsilon = -1"}},
      {"EpsilonNaN", set("attention.layer_norm_rms_epsilon", f32(nan)), kFormat, {"rms_epsilon"}},
      {"EpsilonHuge", set("attention.layer_norm_rms_epsilon", f32(1)), kFormat, {"rms_epsilon = 1"}},

      {"TokenListShorter",
       [](EditedModel& m) {
         m.set("tokenizer.ggml.tokens", gguf::Array(std::vector<std::string>{"a", "b"}));
       },
       kFormat,
       {"tokenizer.ggml.tokens lists 2", "640"}},
      {"TokenTableMissing",
       [](EditedModel& m) { m.take_tensor("token_embd.weight"); },
       kFormat,
       {"token_embd.weight is missing"}},

      {"HeadsZero", set("attention.head_count", u32(0)), kFormat, {"attention.head_count = 0"}},
      {"KvHeadsZero", set("attention.head_count_kv", u32(0)), kFormat, {"attention.head_count_kv = 0"}},
      {"HeadsNoMultipleOfKvHeads",
       set("attention.head_count_kv", u32(3)),
       kFormat,
       {"attention.head_count = 2", "multiple of the 3 KV heads"}},
      {"KvHeadsListTooShort",
       set("attention.head_count_kv", gguf::Array(std::vector<uint32_t>{0, 1})),
       kFormat,
       {"head_count_kv = 2 entries", "4 blocks"}},
      {"KvHeadsListMixed",
       set("attention.head_count_kv", gguf::Array(std::vector<uint32_t>{0, 1, 0, 2})),
       kFormat,
       {"head_count_kv = 2 at layer 3"}},
      {"KvHeadsListZeroAtAttention",
       set("attention.head_count_kv", gguf::Array(std::vector<uint32_t>{0, 0, 0, 1})),
       kFormat,
       {"head_count_kv = 0 at layer 1"}},
      {"KeyLengthZero", set("attention.key_length", u32(0)), kFormat, {"attention.key_length = 0"}},
      {"KeyLengthHuge", set("attention.key_length", u32(1024)), kFormat, {"attention.key_length = 1024", "512"}},
      {"KeyLengthOfWidthHuge",
       [](EditedModel& m) {
         m.remove_key("qwen35moe.attention.key_length");
         m.set("qwen35moe.embedding_length", uint32_t{4096});
       },
       kFormat,
       {"attention.key_length = 2048", "512"}},
      {"KeyLengthOfWidthZero",
       [](EditedModel& m) {
         m.remove_key("qwen35moe.attention.key_length");
         m.set("qwen35moe.embedding_length", uint32_t{1});
       },
       kFormat,
       {"attention.key_length = 0"}},
      {"ValueLengthNoMultiple", set("attention.value_length", u32(24)), kFormat, {"value_length = 24", "16"}},
      {"ScaleZero", set("attention.scale", f32(0)), kFormat, {"attention.scale = 0"}},

      {"RotatedDimensionsOdd", set("rope.dimension_count", u32(7)), kFormat, {"rope.dimension_count = 7", "even"}},
      {"RotatedDimensionsZero", set("rope.dimension_count", u32(0)), kFormat, {"rope.dimension_count = 0"}},
      {"RotatedDimensionsMoreThanHead",
       set("rope.dimension_count", u32(64)),
       kFormat,
       {"rope.dimension_count = 64", "2..32"}},
      {"RotaryBaseZero", set("rope.freq_base", f32(0)), kFormat, {"rope.freq_base = 0"}},
      {"RotaryBaseTiny", set("rope.freq_base", f32(1e-30f)), kFormat, {"rope.freq_base"}},
      {"RotaryBaseInfinite",
       set("rope.freq_base", f32(std::numeric_limits<float>::infinity())),
       kFormat,
       {"rope.freq_base"}},
      {"RotaryScalingUnknown",
       set("rope.scaling.type", std::string("longrope")),
       kUnsupported,
       {"rope.scaling.type = longrope", "linear", "yarn"}},
      {"RotaryScalingFactorTiny",
       [](EditedModel& m) {
         m.set("qwen35moe.rope.scaling.type", std::string("linear"));
         m.set("qwen35moe.rope.scaling.factor", 1e-30f);
       },
       kFormat,
       {"rope.scaling.factor"}},
      {"RotaryFactorsZero",
       [](EditedModel& m) {
         m.add_tensor(f32_tensor("rope_freqs.weight", {4}, {1, 1, 0, 1}));
       },
       kFormat,
       {"rope_freqs.weight"}},
      {"RotaryFactorsNaN",
       [nan](EditedModel& m) {
         m.add_tensor(f32_tensor("rope_freqs.weight", {4}, {1, 1, nan, 1}));
       },
       kFormat,
       {"rope_freqs.weight"}},

      {"ExpertsZero", set("expert_count", u32(0)), kFormat, {"expert_count = 0"}},
      {"ExpertsOther", set("expert_count", u32(9)), kFormat, {"blk.0.ffn_gate_inp.weight is [96, 8]", "[96, 9]"}},
      {"TopKZero", set("expert_used_count", u32(0)), kFormat, {"expert_used_count = 0"}},
      {"TopKMoreThanExperts", set("expert_used_count", u32(9)), kFormat, {"expert_used_count = 9", "8 experts"}},
      {"ExpertWidthMissing", without("expert_feed_forward_length"), kFormat, {"expert_feed_forward_length"}},
      {"ExpertWidthOther", set("expert_feed_forward_length", u32(32)), kFormat, {"blk.0.ffn_gate_exps.weight"}},
      {"SharedExpertNotAnnounced", without("expert_shared_feed_forward_length"), kUnsupported, {"shexp"}},

      {"TapsOne", set("ssm.conv_kernel", u32(1)), kFormat, {"ssm.conv_kernel = 1", "2..64"}},
      {"TapsOther", set("ssm.conv_kernel", u32(3)), kFormat, {"blk.0.ssm_conv1d.weight is [4, 256]", "[3, 256]"}},
      {"StateSizeMissing", without("ssm.state_size"), kFormat, {"ssm.state_size"}},
      {"StateSizeNoMultiple", set("ssm.state_size", u32(30)), kFormat, {"ssm.state_size = 30"}},
      {"ValueHeadsNoMultipleOfKeyHeads",
       set("ssm.group_count", u32(3)),
       kFormat,
       {"ssm.time_step_rank = 4", "ssm.group_count 3"}},
      {"InnerSizeNoMultiple", set("ssm.inner_size", u32(130)), kFormat, {"ssm.inner_size = 130"}},
      {"InnerSizeOfOddHeads", set("ssm.inner_size", u32(96)), kFormat, {"24 values", "16"}},
      {"IntervalZero", set("full_attention_interval", u32(0)), kFormat, {"full_attention_interval = 0"}},
      {"IntervalOther", set("full_attention_interval", u32(4)), kFormat, {"blk.1.attn_qkv.weight is missing"}},
      {"RecurrentLayersTooFew",
       set("attention.recurrent_layers", gguf::Array(std::vector<bool>{true, false})),
       kFormat,
       {"recurrent_layers = 2 entries", "4 blocks"}},
      {"RecurrentLayersOfWrongType",
       set("attention.recurrent_layers", std::string("all")),
       kFormat,
       {"recurrent_layers"}},

      {"TensorMissing", [](EditedModel& m) { m.take_tensor("blk.2.ssm_a"); }, kFormat, {"blk.2.ssm_a is missing"}},
      {"TensorOfAnotherModel",
       [](EditedModel& m) { m.add_tensor(f32_tensor("blk.1.attn_output.bias", {1}, {0.5f})); },
       kUnsupported,
       {"blk.1.attn_output.bias"}},
      {"NormTooShort",
       [](EditedModel& m) { m.tensor("output_norm.weight") = f32_tensor("output_norm.weight", {1}, {1}); },
       kFormat,
       {"output_norm.weight is [1]", "[96]"}},
      {"MatrixTransposed",
       reshape("blk.1.attn_output.weight", {96, 64}),
       kFormat,
       {"blk.1.attn_output.weight is [96, 64]", "[64, 96]"}},
      {"ExpertsTransposed",
       reshape("blk.0.ffn_down_exps.weight", {96, 64, 8}),
       kFormat,
       {"blk.0.ffn_down_exps.weight is [96, 64, 8]", "[64, 96, 8]"}},
      {"ExpertsFlat",
       reshape("blk.0.ffn_down_exps.weight", {64, 768}),
       kFormat,
       {"blk.0.ffn_down_exps.weight is [64, 768]"}},
  };
}

class Contradiction : public ::testing::TestWithParam<Case> {};

TEST_P(Contradiction, IsAnErrorOfItsOwn) {
  EditedModel model(micro());
  GetParam().edit(model);
  const gguf::Container file = model.open();
  try {
    Model::load(file, read_hyperparameters(file), ops::cpu::CacheType::kF32);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), GetParam().kind) << error.what();
    EXPECT_THAT(error.what(), ::testing::HasSubstr(file.path()));
    for (const std::string& part : GetParam().says) EXPECT_THAT(error.what(), ::testing::HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(Hyperparameters, Contradiction, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice::model
