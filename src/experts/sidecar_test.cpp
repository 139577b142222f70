#include "experts/sidecar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "gguf/container.h"
#include "support/reference.h"

namespace sluice::experts {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr uint32_t kLayers = 4, kExperts = 8;
constexpr std::array kFamilies = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};

// The model whose sidecars are tested: other weight formats in every layer.
const gguf::Container& plain_model() {
  static const auto model = gguf::Container::open(test::test_data_dir() + "/models/qwen35moe-micro/model.gguf");
  return model;
}

const gguf::TensorInfo& plain_tensor(uint32_t layer, std::string_view family) {
  return plain_model().get_tensor(fmt::format("blk.{}.{}.weight", layer, family));
}

Bytes plain_expert(uint32_t layer, std::string_view family, uint64_t expert) {
  const gguf::TensorInfo& tensor = plain_tensor(layer, family);
  Bytes out(tensor.bytes / kExperts);
  plain_model().read(tensor, expert * out.size(), out);
  return out;
}

// A sidecar in memory, with every field that the format's tools write.
struct TestSidecar {
  Json manifest;
  std::map<std::string, Bytes> files;

  Sidecar open(const ReadFault& fault = {}) const { return open_text(manifest.dump(), fault); }

  Sidecar open_text(std::string_view text, const ReadFault& fault = {}) const {
    return Sidecar::open("S/manifest.json", [&](const std::string& path) {
      std::unique_ptr<File> file;
      const auto bytes = std::as_bytes(std::span(text));
      if (path == "S/manifest.json") {
        file = memory_file(path, {bytes.begin(), bytes.end()});
      } else if (const auto found = files.find(path.substr(path.find('/') + 1)); found != files.end()) {
        file = memory_file(path, found->second);
      } else {
        fail(ErrorKind::kIo, "{}: can't open: No such file or directory", path);
      }
      return fault ? with_faults(std::move(file), fault) : std::move(file);
    });
  }
};

Json entry_of(uint32_t layer, const char* family, uint64_t offset) {
  const gguf::TensorInfo& tensor = plain_tensor(layer, family);
  return {{"layer", layer},
          {"tensor_family", family},
          {"tensor_name", tensor.name},
          {"original_gguf_tensor_name", tensor.name},
          {"expert_id", nullptr},
          {"quant_type", tensor.format->name},
          {"block_size", tensor.format->block_weights},
          {"exact_byte_length", tensor.bytes},
          {"source_shard", "model.gguf"},
          {"source_shard_index", 0},
          {"source_offset", tensor.offset},
          {"shape", tensor.extents},
          {"bytes_per_expert", tensor.bytes / kExperts},
          {"quant_tier", nullptr},
          {"projection_quant_kind", nullptr},
          {"alternate_bank_offsets", nullptr},
          {"dynamic_quant_policy_tag", nullptr},
          {"repacked_file", fmt::format("layer_{:03}.bin", layer)},
          {"repacked_offset", offset}};
}

Json manifest_of(const char* layout, Json entries) {
  return {{"schema_version", 1},
          {"sidecar_kind", "flashmoe_gguf"},
          {"layout", layout},
          {"generated_at", "2026-11-30T00:00:00Z"},
          {"include_shared", false},
          {"filters", {{"layers", nullptr}, {"families", nullptr}}},
          {"source", {{"model_files", Json::array({"model.gguf"})}}},
          {"model",
           {{"arch", "qwen35moe"},
            {"expert_count", kExperts},
            {"expert_used_count", 2},
            {"leading_dense_block_count", nullptr}}},
          {"entries", std::move(entries)}};
}

TestSidecar make_whole() {
  TestSidecar out;
  Json entries = Json::array();
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    Bytes& file = out.files[fmt::format("layer_{:03}.bin", layer)];
    for (const char* family : kFamilies) {
      entries.push_back(entry_of(layer, family, file.size()));
      for (uint64_t e = 0; e < kExperts; ++e) {
        const Bytes expert = plain_expert(layer, family, e);
        file.insert(file.end(), expert.begin(), expert.end());
      }
    }
  }
  out.manifest = manifest_of("layer_major_whole_tensor", std::move(entries));
  return out;
}

TestSidecar make_by_expert() {
  TestSidecar out;
  Json entries = Json::array();
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    Bytes& file = out.files[fmt::format("layer_{:03}.bin", layer)];
    uint64_t stride = 0;
    for (const char* family : kFamilies) {
      entries.push_back(entry_of(layer, family, stride));
      stride += plain_tensor(layer, family).bytes / kExperts;
    }
    for (size_t i = entries.size() - kFamilies.size(); i < entries.size(); ++i) {
      entries[i].update({{"expert_stride", stride}, {"expert_major", true}, {"expert_count", kExperts}});
    }
    for (uint64_t e = 0; e < kExperts; ++e) {
      for (const char* family : kFamilies) {
        const Bytes expert = plain_expert(layer, family, e);
        file.insert(file.end(), expert.begin(), expert.end());
      }
    }
  }
  out.manifest = manifest_of("layer_major_expert", std::move(entries));
  out.manifest["model"]["sidecar_layout"] = "expert-major";
  return out;
}

// Every expert of every family and layer has the bytes of the plain model's.
void expect_plain_experts(const Sidecar& sidecar) {
  EXPECT_EQ(sidecar.tensors().size(), kLayers * kFamilies.size());
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (const char* family : kFamilies) {
      SCOPED_TRACE(fmt::format("layer {}, {}", layer, family));
      const SidecarTensor* tensor = sidecar.find(layer, family);
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->layer, layer);
      EXPECT_EQ(tensor->family, family);
      EXPECT_EQ(tensor->format, plain_tensor(layer, family).format);
      EXPECT_EQ(tensor->shape, plain_tensor(layer, family).extents);
      for (uint64_t e = 0; e < kExperts; ++e) {
        Bytes read(tensor->bytes);
        tensor->file->read_at(tensor->offset_of(e), read);
        ASSERT_EQ(read, plain_expert(layer, family, e)) << "expert " << e;
      }
    }
  }
  EXPECT_EQ(sidecar.find(kLayers, "ffn_gate_exps"), nullptr);
  EXPECT_EQ(sidecar.find(0, "ffn_gate_up_exps"), nullptr);
  EXPECT_EQ(sidecar.find(0, "ffn_gate_exp"), nullptr);
}

// What open() throws; its kind and that its words hold every one of `words`.
template <typename Open>
void expect_error(const Open& open, ErrorKind kind, const std::vector<std::string>& words) {
  try {
    open();
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
  }
}

// A folder that goes away with its files.
struct TemporaryDirectory {
  std::filesystem::path path;

  TemporaryDirectory() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path = std::filesystem::path(::testing::TempDir()) / fmt::format("sluice_{}_{}", test->name(), ::getpid());
    std::filesystem::create_directories(path);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }

  std::string write(const std::string& name, std::string_view text) const {
    std::ofstream(path / name, std::ios::binary) << text;
    return (path / name).string();
  }
  void write(const TestSidecar& sidecar) const {
    write("manifest.json", sidecar.manifest.dump(2));
    for (const auto& [name, bytes] : sidecar.files)
      write(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
};

TEST(Sidecar, BothLayoutsGiveTheExpertsOfThePlainModel) {
  const Sidecar whole = make_whole().open(), by_expert = make_by_expert().open();
  expect_plain_experts(whole);
  expect_plain_experts(by_expert);
  EXPECT_EQ(whole.layout(), "layer_major_whole_tensor");
  EXPECT_EQ(by_expert.layout(), "layer_major_expert");
  EXPECT_EQ(whole.find(1, "ffn_up_exps")->stride, whole.find(1, "ffn_up_exps")->bytes);
  EXPECT_GT(by_expert.find(1, "ffn_up_exps")->stride, by_expert.find(1, "ffn_up_exps")->bytes);
}

TEST(Sidecar, TheReferencesGiveTheExpertsOfThePlainModel) {
  const auto root = test::reference_root();
  if (!root) GTEST_SKIP() << test::kNoReference;
  for (const char* layout : {"whole", "expert_major"}) {
    SCOPED_TRACE(layout);
    const std::string directory = *root + "/models/qwen35moe-micro-sidecar/" + layout;
    const Sidecar sidecar = Sidecar::open(directory);
    EXPECT_EQ(sidecar.path(), directory + "/manifest.json");
    expect_plain_experts(sidecar);
  }
}

TEST(Sidecar, IsFoundByItsDirectoryAndByItsManifest) {
  const TemporaryDirectory directory;
  directory.write(make_by_expert());
  const std::string manifest = (directory.path / "manifest.json").string();
  for (const std::string& path : {directory.path.string(), directory.path.string() + "/", manifest}) {
    const Sidecar sidecar = Sidecar::open(path);
    EXPECT_TRUE(std::filesystem::equivalent(sidecar.path(), manifest));
    expect_plain_experts(sidecar);
  }
}

TEST(Sidecar, MovingItLeavesItsTensorsWhereTheyAre) {
  Sidecar first = make_whole().open();
  const Sidecar second = std::move(first);
  expect_plain_experts(second);
}

TEST(Sidecar, OpensAFileOnceHoweverManyTensorsItHolds) {
  const TestSidecar sidecar = make_whole();
  std::map<std::string, int> opened;
  const Sidecar open = Sidecar::open("S/manifest.json", [&](const std::string& path) {
    ++opened[path];
    const std::string text = sidecar.manifest.dump();
    const auto bytes = std::as_bytes(std::span(text));
    if (path == "S/manifest.json") return memory_file(path, {bytes.begin(), bytes.end()});
    return memory_file(path, sidecar.files.at(path.substr(2)));
  });
  EXPECT_EQ(opened.size(), 1 + kLayers);
  for (const auto& [path, times] : opened) EXPECT_EQ(times, 1) << path;
}

TEST(Sidecar, SaysWhatTheManifestSaysOfTheModel) {
  TestSidecar sidecar = make_whole();
  EXPECT_EQ(sidecar.open().architecture(), "qwen35moe");
  EXPECT_EQ(sidecar.open().expert_count(), kExperts);
  sidecar.manifest.erase("model");
  EXPECT_EQ(sidecar.open().architecture(), std::nullopt);
  EXPECT_EQ(sidecar.open().expert_count(), std::nullopt);
}

TEST(Sidecar, TensorsStandByLayerAndFamilyWhateverTheManifestsOrder) {
  TestSidecar sidecar = make_by_expert();
  std::ranges::reverse(sidecar.manifest["entries"]);
  const Sidecar reversed = sidecar.open();
  expect_plain_experts(reversed);
  EXPECT_TRUE(std::ranges::is_sorted(reversed.tensors(), {}, [](const SidecarTensor& tensor) {
    return std::pair(tensor.layer, std::string_view(tensor.family));
  }));
}

TEST(Sidecar, WhatSomeWritersLeaveOutIsNotNeeded) {
  for (TestSidecar sidecar : {make_whole(), make_by_expert()}) {
    for (const char* name : {"layout", "generated_at", "include_shared", "filters", "source", "model"})
      sidecar.manifest.erase(name);
    for (Json& entry : sidecar.manifest["entries"]) {
      for (const char* name : {"tensor_name", "original_gguf_tensor_name", "expert_id", "block_size", "source_shard",
                               "source_shard_index", "source_offset", "quant_tier", "projection_quant_kind",
                               "alternate_bank_offsets", "dynamic_quant_policy_tag", "expert_major", "expert_count"})
        entry.erase(name);
      std::string type = entry["quant_type"];
      std::ranges::transform(type, type.begin(), [](unsigned char c) { return std::tolower(c); });
      entry["quant_type"] = type;
    }
    expect_plain_experts(sidecar.open());
  }
}

TEST(Sidecar, KnowsEverySpellingOfTheLayouts) {
  TestSidecar whole = make_whole(), by_expert = make_by_expert();
  by_expert.manifest["model"].erase("sidecar_layout");
  for (const char* name : {"layer_major_whole_tensor", "layer_major", "layer-major"}) {
    whole.manifest["layout"] = name;
    EXPECT_EQ(whole.open().layout(), "layer_major_whole_tensor") << name;
    expect_error([&] { (by_expert.manifest["layout"] = name, by_expert.open()); }, ErrorKind::kFormat,
                 {"entries[0] (layer 0, ffn_gate_exps)", "expert_major is true"});
  }
  for (const char* name : {"layer_major_expert", "expert_major", "expert-major"}) {
    by_expert.manifest["layout"] = name;
    expect_plain_experts(by_expert.open());
    expect_error([&] { (whole.manifest["layout"] = name, whole.open()); }, ErrorKind::kFormat,
                 {"expert_stride is missing"});
  }
  by_expert.manifest.erase("layout");
  by_expert.manifest["model"]["sidecar_layout"] = "expert-major";
  EXPECT_EQ(by_expert.open().layout(), "layer_major_expert");
}

TEST(Sidecar, PartsOfAnExpertMayLieApart) {
  TestSidecar sidecar = make_by_expert();
  constexpr uint64_t kStride = 32768, kStart = 100, kGap = 64;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    Bytes spaced(kStart + kExperts * kStride);
    uint64_t offset = kStart;
    for (size_t f = 0; f < kFamilies.size(); ++f) {
      Json& entry = sidecar.manifest["entries"][layer * kFamilies.size() + f];
      entry.update({{"repacked_offset", offset}, {"expert_stride", kStride}});
      for (uint64_t e = 0; e < kExperts; ++e)
        std::ranges::copy(plain_expert(layer, kFamilies[f], e),
                          spaced.begin() + static_cast<ptrdiff_t>(offset + e * kStride));
      offset += entry["bytes_per_expert"].get<uint64_t>() + kGap;
    }
    sidecar.files[fmt::format("layer_{:03}.bin", layer)] = std::move(spaced);
  }
  expect_plain_experts(sidecar.open());
}

// --- what is refused ---

struct Edit {
  std::string at;     // a JSON pointer
  const char* value;  // JSON; null takes the member out
};

struct Refusal {
  std::vector<Edit> edits;
  ErrorKind kind;
  std::vector<std::string> words;
};

void expect_refusals(const TestSidecar& sidecar, const std::vector<Refusal>& refusals) {
  ASSERT_NO_THROW(sidecar.open());
  for (const Refusal& refusal : refusals) {
    TestSidecar edited = sidecar;
    std::string trace;
    for (const auto& [at, value] : refusal.edits) {
      trace += fmt::format("{} = {} ", at, value == nullptr ? "(absent)" : value);
      const Json::json_pointer pointer(at);
      if (value == nullptr)
        edited.manifest[pointer.parent_pointer()].erase(pointer.back());
      else
        edited.manifest[pointer] = Json::parse(value);
    }
    SCOPED_TRACE(trace);
    std::vector<std::string> words = refusal.words;
    words.emplace_back("S/manifest.json: ");
    expect_error([&] { edited.open(); }, refusal.kind, words);
  }
}

constexpr auto kFormat = ErrorKind::kFormat;
constexpr auto kUnsupported = ErrorKind::kUnsupported;

TEST(Sidecar, AManifestOfAnotherVersionKindOrLayoutIsRefused) {
  const char* slices = R"("expert_major_per_expert_slice")";
  expect_refusals(
      make_whole(),
      {
          {{{"/schema_version", nullptr}}, kFormat, {"schema_version is missing"}},
          {{{"/schema_version", "2"}}, kUnsupported, {"schema_version is 2", "reads version 1"}},
          {{{"/schema_version", "0"}}, kUnsupported, {"schema_version is 0"}},
          {{{"/schema_version", R"("1")"}}, kFormat, {R"(schema_version is "1", not an integer)"}},
          {{{"/schema_version", "1.0"}}, kFormat, {"schema_version is 1.0"}},
          {{{"/sidecar_kind", nullptr}}, kFormat, {"sidecar_kind is missing"}},
          {{{"/sidecar_kind", R"("affine_2bit")"}}, kUnsupported, {R"(kind is "affine_2bit")", R"("flashmoe_gguf")"}},
          {{{"/sidecar_kind", "7"}}, kUnsupported, {"sidecar_kind is 7"}},
          {{{"/layout", R"("token_major")"}},
           kUnsupported,
           {R"(layout is "token_major")", "layer_major_whole_tensor", "layer_major_expert"}},
          {{{"/layout", "[]"}}, kFormat, {"layout is [], not text"}},
          {{{"/layout", slices}}, kUnsupported, {"layout is", "expert_major_per_expert_slice (a file per expert)"}},
          {{{"/model/sidecar_layout", slices}}, kUnsupported, {": model: sidecar_layout is", "(a file per expert)"}},
          {{{"/layout", nullptr}, {"/entries/1/expert_id", "0"}},
           kUnsupported,
           {"entries[1] (layer 0, ffn_up_exps): expert_id is 0", "expert_major_per_expert_slice"}},
          {{{"/model/sidecar_layout", R"("expert-major")"}},
           kFormat,
           {R"(layout is "layer_major_whole_tensor", but model.sidecar_layout is "expert-major")"}},
          {{{"/model", "3"}}, kFormat, {": model: is 3, not an object"}},
          {{{"/model/arch", "3"}}, kFormat, {": model: arch is 3, not text"}},
          {{{"/model/expert_count", "0"}}, kFormat, {"expert_count is 0, not an integer from 1"}},
          {{{"/model/expert_count", "4294967296"}}, kFormat, {"expert_count is 4294967296"}},
          {{{"/model/expert_used_count", "9"}}, kFormat, {"expert_used_count is 9, not an integer from 1 to 8"}},
          {{{"/entries", nullptr}}, kFormat, {"entries is missing"}},
          {{{"/entries", "{}"}}, kFormat, {"entries is {}, not an array"}},
          {{{"/entries", "[]"}}, kFormat, {"entries is empty"}},
          {{{"/entries/2", "[1]"}}, kFormat, {"entries[2]: is [1], not an object"}},
      });
}

TEST(Sidecar, AnEntryThatContradictsTheFormatOrItselfIsRefused) {
  const std::string place = "entries[1] (layer 0, ffn_up_exps): ";
  std::vector<Refusal> refusals = {
      {{{"/entries/1/layer", nullptr}}, kFormat, {"entries[1]: layer is missing"}},
      {{{"/entries/1/layer", "-1"}}, kFormat, {"entries[1]: layer is -1, not an integer from 0 to 4095"}},
      {{{"/entries/1/layer", "4096"}}, kFormat, {"entries[1]: layer is 4096"}},
      {{{"/entries/1/layer", "true"}}, kFormat, {"entries[1]: layer is true"}},
      {{{"/entries/1/tensor_family", R"("ffn_up_shexp")"}},
       kUnsupported,
       {R"(entries[1]: tensor_family is "ffn_up_shexp")", "ffn_gate_up_exps"}},
      {{{"/entries/1/quant_type", R"("Q7_K")"}}, kUnsupported, {place + R"(quant_type is "Q7_K")"}},
      {{{"/entries/1/quant_type", "2"}}, kFormat, {place + "quant_type is 2, not text"}},
      {{{"/entries/1/quant_type", R"("Q8_0")"}}, kFormat, {place + "bytes_per_expert is 3456", "in Q8_0 has 6528"}},
      {{{"/entries/1/block_size", "64"}}, kFormat, {place + "block_size is 64, but a block of Q4_0 has 32 weights"}},
      {{{"/entries/1/shape", "[96, 64]"}}, kFormat, {place + "shape is [96,64], not [n_in, n_out, n_experts]"}},
      {{{"/entries/1/shape", "[96, 64, 8, 1]"}}, kFormat, {place + "shape is [96,64,8,1]"}},
      {{{"/entries/1/shape", "96"}}, kFormat, {place + "shape is 96, not an array"}},
      {{{"/entries/1/shape", "[96, 0, 8]"}}, kFormat, {place + "an extent of shape is 0"}},
      {{{"/entries/1/shape", "[96, -64, 8]"}}, kFormat, {place + "an extent of shape is -64"}},
      {{{"/entries/1/shape", "[97, 64, 8]"}}, kFormat, {place + "shape has rows of 97 weights", "32 (Q4_0)"}},
      {{{"/entries/1/shape", "[128, 64, 8]"}}, kFormat, {place + "bytes_per_expert is 3456, but", "has 4608"}},
      {{{"/entries/1/shape", "[96, 64, 9]"}}, kFormat, {place + "exact_byte_length is 27648, but 9 experts", "31104"}},
      {{{"/entries/1/bytes_per_expert", "3455"}}, kFormat, {place + "bytes_per_expert is 3455", "has 3456"}},
      {{{"/entries/1/exact_byte_length", "27647"}}, kFormat, {place + "exact_byte_length is 27647", "have 27648"}},
      {{{"/entries/1/expert_count", "7"}}, kFormat, {place + "expert_count is 7, but shape has 8 experts"}},
      {{{"/model/expert_count", "9"}}, kFormat, {"shape has 8 experts, but model.expert_count is 9"}},
      {{{"/entries/1/expert_major", "1"}}, kFormat, {place + "expert_major is 1, not true or false"}},
      {{{"/entries/1/expert_stride", "13440"}}, kFormat, {place + "expert_stride is 13440", "3456 bytes apart"}},
      {{{"/entries/1/repacked_offset", "-1"}}, kFormat, {place + "repacked_offset is -1"}},
      {{{"/entries/1/layer", "1"}}, kFormat, {"entries[4] (layer 1, ffn_up_exps): is the same tensor as entries[1]"}},
      {{{"/entries/2/tensor_family", R"("ffn_gate_up_exps")"}},
       kFormat,
       {"entries[0] (layer 0, ffn_gate_exps): stands beside entries[2], which is ffn_gate_up_exps"}},
      // Products that don't fit in 64 bits.
      {{{"/entries/1/shape", "[4294967264, 4294967295, 8]"},
        {"/entries/1/quant_type", R"("F32")"},
        {"/entries/1/block_size", nullptr}},
       kFormat,
       {place + "bytes of an expert: 4294967295 x 17179869056 does not fit"}},
      {{{"/entries/1/shape", "[4294967264, 1073741824, 8]"},
        {"/entries/1/quant_type", R"("BF16")"},
        {"/entries/1/block_size", nullptr},
        {"/entries/1/bytes_per_expert", "9223371968135299072"}},
       kFormat,
       {place + "bytes of all experts: 9223371968135299072 x 8 does not fit"}},
  };
  for (const char* name : {"tensor_family", "quant_type", "shape", "bytes_per_expert", "exact_byte_length",
                           "repacked_file", "repacked_offset"}) {
    refusals.push_back(
        {{{fmt::format("/entries/1/{}", name), nullptr}}, kFormat, {fmt::format("{} is missing", name)}});
  }
  expect_refusals(make_whole(), refusals);
}

TEST(Sidecar, ExpertsThatPassTheFilesEndOrEachOtherAreRefused) {
  // layer 0 in a file of 107520 bytes: gates from 0, ups from 27648, downs from 55296 on
  expect_refusals(
      make_whole(),
      {
          {{{"/entries/2/repacked_offset", "55297"}},
           kFormat,
           {"entries[2] (layer 0, ffn_down_exps): 8 experts", "6528 apart", "S/layer_000.bin (107520 bytes)"}},
          {{{"/entries/2/repacked_offset", "18446744073709551615"}}, kFormat, {"pass the end of S/layer_000.bin"}},
          {{{"/entries/2/repacked_offset", "55295"}},
           kFormat,
           {"entries[2] (layer 0, ffn_down_exps): repacked_offset is 55295", "over those of entries[1]"}},
          {{{"/entries/0/repacked_offset", "27648"}},
           kFormat,
           {"entries[1] (layer 0, ffn_up_exps): repacked_offset is 27648", "over those of entries[0]"}},
          {{{"/entries/3/repacked_file", R"("layer_000.bin")"}}, kFormat, {"over those of entries["}},
      });
  // layer 0, of every 13440 bytes: gate from 0, up from 3456, down from 6912 on
  expect_refusals(
      make_by_expert(),
      {
          {{{"/entries/0/expert_stride", nullptr}}, kFormat, {"expert_stride is missing"}},
          {{{"/entries/0/expert_stride", "0"}}, kFormat, {"expert_stride is 0"}},
          {{{"/entries/0/expert_stride", "3455"}}, kFormat, {"expert_stride is 3455, but an expert has 3456 bytes"}},
          {{{"/entries/0/expert_major", "false"}}, kFormat, {"expert_major is false", "layer_major_expert"}},
          {{{"/layout", nullptr}, {"/model/sidecar_layout", nullptr}, {"/entries/4/expert_stride", nullptr}},
           kFormat,
           {"entries[4] (layer 1, ffn_up_exps): expert_stride is missing"}},
          {{{"/entries/2/repacked_offset", "6913"}}, kFormat, {"pass the end of S/layer_000.bin"}},
          {{{"/entries/2/expert_stride", "18446744073709551615"}}, kFormat, {"does not fit in 64 bits"}},
          {{{"/entries/2/expert_stride", "2635249153387078802"}}, kFormat, {"pass the end of S/layer_000.bin"}},
          {{{"/entries/2/repacked_offset", "6911"}}, kFormat, {"entries[2]", "over those of entries[1]"}},
          {{{"/entries/1/repacked_offset", "3455"}}, kFormat, {"entries[1]", "over those of entries[0]"}},
          {{{"/entries/0/expert_stride", "13439"}}, kFormat, {"entries[1]", "over those of entries[0]"}},
      });
}

TEST(Sidecar, AFileThatEndsOneByteEarlyIsRefused) {
  for (TestSidecar sidecar : {make_whole(), make_by_expert()}) {
    sidecar.files["layer_003.bin"].pop_back();
    expect_error([&] { sidecar.open(); }, ErrorKind::kFormat,
                 {"entries[11] (layer 3, ffn_down_exps): ", "S/layer_003.bin (79871 bytes)", "truncated"});
  }
}

TEST(Sidecar, FilesLieBesideTheManifestAndNowhereElse) {
  for (const char* name : {"", ".", "..", "/etc/passwd", "../layer_000.bin", "a/layer_000.bin", "layer_000.bin/",
                           "a\nb", "\x7F", "\x1B[2J"}) {
    TestSidecar sidecar = make_whole();
    sidecar.manifest["entries"][0]["repacked_file"] = name;
    expect_error([&] { sidecar.open(); }, ErrorKind::kFormat,
                 {"entries[0] (layer 0, ffn_gate_exps): repacked_file is \"", "not the plain name of a file"});
  }
  TestSidecar sidecar = make_whole();
  sidecar.manifest["entries"][0]["repacked_file"] = std::string("layer_000.bin\0", 14);
  expect_error([&] { sidecar.open(); }, ErrorKind::kFormat, {R"(repacked_file is "layer_000.bin\u0000")"});
  sidecar.manifest["entries"][0]["repacked_file"] = "layer..000.bin";
  expect_error([&] { sidecar.open(); }, ErrorKind::kIo,
               {"entries[0] (layer 0, ffn_gate_exps): repacked_file can't be opened: S/layer..000.bin: ",
                "beside its manifest"});
}

TEST(Sidecar, WhatIsNoManifestIsRefused) {
  const TestSidecar sidecar = make_whole();
  const std::string text = sidecar.manifest.dump();
  for (size_t length = 0; length < text.size(); length += 7)
    expect_error([&] { sidecar.open_text(std::string_view(text).substr(0, length)); }, kFormat,
                 {"S/manifest.json: is not JSON: syntax error at byte"});
  expect_error([&] { sidecar.open_text("\xFF\x1B{"); }, kFormat, {"is not JSON"});
  expect_error([&] { sidecar.open_text(R"({"a": 1e999})"); }, kFormat, {"a number that is too large"});
  expect_error([&] { sidecar.open_text("[1]"); }, kFormat, {"S/manifest.json: is [1], not an object"});
  expect_error([&] { sidecar.open_text("GGUF\x03"); }, ErrorKind::kUsage, {"is a GGUF file other than the model"});

  const std::string deep(100'000, '[');
  expect_error([&] { sidecar.open_text(R"({"a": )" + deep); }, ErrorKind::kLimit, {"more than 16 levels deep"});
  std::string many = R"({"a": [0)";
  for (int i = 0; i < 4'000'000; ++i) many += ",0";
  expect_error([&] { sidecar.open_text(many + "]}"); }, ErrorKind::kLimit, {"more than 4000000 values"});
  const std::string long_text = text + std::string((uint64_t{64} << 20) - text.size(), ' ');
  EXPECT_NO_THROW(sidecar.open_text(long_text)) << "64 MiB";
  expect_error([&] { sidecar.open_text(long_text + " "); }, ErrorKind::kLimit, {"67108865 bytes", "67108864"});
}

TEST(Sidecar, AMissingManifestSaysWhatASidecarIs) {
  const TemporaryDirectory directory;
  for (const std::string& path : {directory.path.string(), (directory.path / "manifest.json").string()})
    expect_error([&] { Sidecar::open(path); }, ErrorKind::kIo,
                 {"manifest.json: can't open: No such file", "a sidecar is a directory with a manifest.json"});
}

TEST(Sidecar, AFailedOrShortReadIsAnErrorThatNamesTheFile) {
  const TestSidecar sidecar = make_by_expert();
  uint64_t reads = 0;
  const auto count = [&](uint64_t, uint64_t, uint64_t length) { return ++reads, static_cast<int64_t>(length); };
  const Sidecar open = sidecar.open(count);
  EXPECT_EQ(reads, 2u) << "the manifest's first bytes, then the manifest; layers are not read";
  for (uint64_t broken = 0; broken < reads; ++broken) {
    for (const int64_t delivered : {int64_t{-EIO}, int64_t{0}, int64_t{3}}) {
      const auto fault = [&](uint64_t index, uint64_t, uint64_t length) {
        return index == broken ? delivered : static_cast<int64_t>(length);
      };
      expect_error([&] { sidecar.open(fault); }, ErrorKind::kIo, {"S/manifest.json"});
    }
  }

  bool failing = false;
  const Sidecar later = sidecar.open(
      [&](uint64_t, uint64_t, uint64_t length) { return failing ? int64_t{-EIO} : static_cast<int64_t>(length); });
  const SidecarTensor* tensor = later.find(2, "ffn_down_exps");
  Bytes bytes(tensor->bytes);
  failing = true;
  expect_error([&] { tensor->file->read_at(tensor->offset_of(5), bytes); }, ErrorKind::kIo, {"S/layer_002.bin"});
  failing = false;
  tensor->file->read_at(tensor->offset_of(5), bytes);
  EXPECT_EQ(bytes, plain_expert(2, "ffn_down_exps", 5)) << "the next read is a new one";
}

}  // namespace
}  // namespace sluice::experts
