// Loading a model: the same weights in other containers and spellings give the same bits, every byte is read once and
// to memory that was planned, and whatever goes wrong on the way is an error that leaves nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "model/test_edited_model.h"
#include "model/test_reference_model.h"
#include "support/reference.h"

namespace sluice::model {
namespace {

using Tensor = EditedModel::Tensor;
constexpr auto kF32 = ops::cpu::CacheType::kF32;

std::string micro_path() { return test::test_data_dir() + "/models/qwen35moe-micro/model.gguf"; }

const std::vector<int32_t> kPrompt = {17, 3, 333, 12, 599, 17, 44, 210, 8};

std::vector<float> logits_of(gguf::Container file, bool draft_head = false) {
  return TestEngine(std::move(file), draft_head).run(kPrompt).logits;
}

const std::vector<float>& micro_logits() {
  static const std::vector<float> logits = logits_of(gguf::Container::open(micro_path()));
  return logits;
}

// Equal bits, NaN included.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// ---- other spellings of the same weights ---------------------------------------------------------------------------

std::string blk(int layer, const std::string& name) { return "blk." + std::to_string(layer) + "." + name; }

// Per outermost entry (expert) of two tensors of the same row length and format: its rows of `a`, then those of `b`.
Tensor interleaved(const Tensor& a, const Tensor& b, size_t n_entries) {
  Tensor both{"", {a.extents[0], a.extents[1] + b.extents[1]}, a.format, {}};
  if (a.extents.size() == 3) both.extents.push_back(a.extents[2]);
  for (size_t e = 0; e < n_entries; ++e)
    for (const Tensor* part : {&a, &b}) {
      const size_t n = part->bytes.size() / n_entries;
      both.bytes.insert(both.bytes.end(), part->bytes.begin() + static_cast<long>(e * n),
                        part->bytes.begin() + static_cast<long>((e + 1) * n));
    }
  return both;
}

TEST(Loading, FusedGatesAndUpsGiveTheSameBits) {
  EditedModel model(gguf::Container::open(micro_path()));
  for (int layer = 0; layer < 4; ++layer) {
    const Tensor gate = model.take_tensor(blk(layer, "ffn_gate_exps.weight"));
    const Tensor up = model.take_tensor(blk(layer, "ffn_up_exps.weight"));
    Tensor both = interleaved(gate, up, 8);
    both.name = blk(layer, "ffn_gate_up_exps.weight");
    model.add_tensor(both);
  }
  EXPECT_TRUE(same_bits(micro_logits(), logits_of(model.open())));
}

TEST(Loading, FusedQueriesKeysAndValuesGiveTheSameBits) {
  EditedModel model(gguf::Container::open(micro_path()));
  for (const int layer : {1, 3}) {
    const Tensor q = model.take_tensor(blk(layer, "attn_q.weight")), k = model.take_tensor(blk(layer, "attn_k.weight"));
    const Tensor v = model.take_tensor(blk(layer, "attn_v.weight"));
    Tensor all = interleaved(interleaved(q, k, 1), v, 1);
    all.name = blk(layer, "attn_qkv.weight");
    model.add_tensor(all);
  }
  EXPECT_TRUE(same_bits(micro_logits(), logits_of(model.open())));
}

TEST(Loading, TheOrderOfTensorsAndTrailingExtentsOfOneChangeNothing) {
  EditedModel model(gguf::Container::open(micro_path()));
  std::ranges::reverse(model.tensors);
  for (int layer = 0; layer < 4; ++layer) model.tensor(blk(layer, "ffn_gate_inp_shexp.weight")).extents = {96, 1};
  EXPECT_TRUE(same_bits(micro_logits(), logits_of(model.open())));
}

TEST(Loading, TheHeadIsTheEmbeddingWhereThereIsNone) {
  EditedModel tied(gguf::Container::open(micro_path()));
  tied.take_tensor("output.weight");
  EditedModel copied = tied;
  Tensor head = copied.tensor("token_embd.weight");
  head.name = "output.weight";
  copied.add_tensor(head);
  const std::vector<float> logits = logits_of(tied.open());
  EXPECT_TRUE(same_bits(logits, logits_of(copied.open())));
  EXPECT_FALSE(same_bits(logits, micro_logits()));
}

// Three files, the first with metadata only: in memory, by the names that Container asks for.
TEST(Loading, ASplitModelGivesTheSameBits) {
  EditedModel whole(gguf::Container::open(micro_path()));
  std::map<std::string, std::vector<std::byte>> files;
  for (uint16_t part = 0; part < 3; ++part) {
    EditedModel shard = whole;
    if (part > 0) shard.metadata = gguf::Metadata();
    shard.set("split.no", part);
    shard.set("split.count", uint16_t{3});
    shard.set("split.tensors.count", static_cast<int32_t>(whole.tensors.size()));
    const auto middle = whole.tensors.begin() + 30;
    if (part == 0) shard.tensors.clear();
    if (part == 1) shard.tensors = {whole.tensors.begin(), middle};
    if (part == 2) shard.tensors = {middle, whole.tensors.end()};
    files[fmt::format("m-0000{}-of-00003.gguf", part + 1)] = shard.file();
  }
  gguf::OpenOptions options;
  options.opener = [&](const std::string& path) { return memory_file(path, files.at(path)); };
  EXPECT_TRUE(same_bits(micro_logits(), logits_of(gguf::Container::open("m-00001-of-00003.gguf", options))));
}

TEST(Loading, VariantsByAnotherToolGiveTheSameBits) {
  const auto root = test::reference_root();
  if (!root) GTEST_SKIP() << test::kNoReference;
  for (const char* variant : {"-fused/model.gguf", "-split/qwen35moe-micro-00001-of-00003.gguf",
                              "-split-meta/qwen35moe-micro-00001-of-00003.gguf"})
    EXPECT_TRUE(
        same_bits(micro_logits(), logits_of(gguf::Container::open(*root + "/models/qwen35moe-micro" + variant))))
        << variant;
}

// The side tensors of NVFP4 files multiply products. Powers of two, so that scaling the F32 weights instead is exact.
TEST(Loading, ScalesBesideTheWeightsScaleTheirProducts) {
  EditedModel beside(exact_twin(gguf::Container::open(micro_path())));
  EditedModel inside = beside;
  const auto scale_rows = [&](const std::string& name, const std::vector<float>& factors) {
    Tensor& tensor = inside.tensor(name + ".weight");
    const size_t n = tensor.bytes.size() / sizeof(float) / factors.size();
    auto* values = reinterpret_cast<float*>(tensor.bytes.data());
    for (size_t i = 0; i < factors.size() * n; ++i) values[i] *= factors[i / n];
    beside.add_tensor(f32_tensor(name + ".scale", {factors.size()}, factors));
  };
  scale_rows("blk.0.attn_qkv", {2.0f});
  scale_rows("blk.1.attn_output", {0.25f});
  scale_rows("output", {0.5f});
  const std::vector<float> by_expert = {1.0f, 2.0f, 0.5f, 4.0f, 1.0f, 0.25f, 2.0f, 0.5f};
  scale_rows("blk.0.ffn_gate_exps", by_expert);
  scale_rows("blk.2.ffn_up_exps", by_expert);
  scale_rows("blk.3.ffn_down_exps", by_expert);
  const std::vector<float> logits = logits_of(beside.open());
  EXPECT_TRUE(same_bits(logits_of(inside.open()), logits));
  EXPECT_FALSE(same_bits(logits_of(exact_twin(gguf::Container::open(micro_path()))), logits));
}

// The micro model's last block as a draft block: what is left is a trunk of three.
TEST(Loading, ADraftBlockIsNoPartOfTheTrunk) {
  EditedModel trunk(gguf::Container::open(micro_path()));
  EditedModel drafting = trunk;
  trunk.set("qwen35moe.block_count", uint32_t{3});
  std::erase_if(trunk.tensors, [](const Tensor& tensor) { return tensor.name.starts_with("blk.3."); });
  drafting.set("qwen35moe.nextn_predict_layers", uint32_t{1});
  for (const char* norm : {"enorm", "hnorm", "shared_head_norm"})
    drafting.add_tensor(f32_tensor("blk.3.nextn." + std::string(norm) + ".weight", {96}, std::vector<float>(96, 1.0f)));
  drafting.add_tensor(f32_tensor("blk.3.nextn.eh_proj.weight", {192, 96}, std::vector<float>(192 * 96, 0.01f)));
  const std::vector<float> logits = logits_of(trunk.open());
  EXPECT_TRUE(same_bits(logits, logits_of(drafting.open())));
  EXPECT_TRUE(same_bits(logits, logits_of(drafting.open(), /*draft_head=*/true)));
}

class WithDraftBlock : public ::testing::TestWithParam<std::string> {};

TEST_P(WithDraftBlock, LoadingItLeavesTheTrunkAsItIs) {
  const auto open = [] { return gguf::Container::open(GetParam() + "/model.gguf"); };
  const TestEngine with(open(), true), without(open());
  EXPECT_EQ(with.model.weights.layers.size(), without.model.weights.layers.size() + 1);
  EXPECT_TRUE(with.model.weights.draft_head.has_value());
  EXPECT_FALSE(without.model.weights.draft_head.has_value());
  EXPECT_TRUE(same_bits(logits_of(open(), true), logits_of(open())));
}

std::vector<std::string> folders_with_draft_block() {
  std::vector<std::string> some = reference_folders();
  std::erase_if(some, [](const std::string& folder) { return !folder.ends_with("-mtp"); });
  return some;
}

INSTANTIATE_TEST_SUITE_P(Reference, WithDraftBlock, ::testing::ValuesIn(folders_with_draft_block()), test_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WithDraftBlock);

// ---- bytes and memory ----------------------------------------------------------------------------------------------

struct ReadRange {
  uint64_t offset, length;
};

// Opens the micro model so that every read from then on is recorded.
gguf::Container open_recorded(const std::vector<std::byte>& bytes, std::vector<ReadRange>& reads) {
  gguf::Container file = open_memory("micro.gguf", bytes, [&reads](uint64_t, uint64_t offset, uint64_t length) {
    reads.push_back({offset, length});
    return static_cast<int64_t>(length);
  });
  reads.clear();
  return file;
}

TEST(Loading, EveryByteOfTheWeightsIsReadOnce) {
  EditedModel model(gguf::Container::open(micro_path()));
  model.add_tensor(f32_tensor("blk.0.ffn_gate_exps.scale", {8}, std::vector<float>(8, 1.0f)));
  std::vector<ReadRange> reads;
  const gguf::Container file = open_recorded(model.file(), reads);
  uint64_t done = 0, total = 0;
  const Hyperparameters hp = read_hyperparameters(file);
  Weights::plan(file, hp);
  EXPECT_TRUE(reads.empty()) << "planning reads the header alone";
  Weights::load(file, hp, {.draft_head = false, .progress = [&](uint64_t now, uint64_t all) {
                             EXPECT_GT(now, done);
                             done = now, total = all;
                           }});
  EXPECT_EQ(done, total);
  std::ranges::sort(reads, {}, &ReadRange::offset);
  uint64_t stored = 0, read = 0, end = 0;
  for (const gguf::TensorInfo& tensor : file.tensors()) stored += tensor.bytes;
  for (const ReadRange& range : reads) {
    EXPECT_GE(range.offset, end) << "read twice";
    end = range.offset + range.length;
    read += range.length;
  }
  EXPECT_EQ(read, stored);
}

class Plan : public ::testing::TestWithParam<std::string> {};

TEST_P(Plan, IsWhatLoadingAllocates) {
  const gguf::Container file = gguf::Container::open(GetParam() + "/model.gguf");
  const Hyperparameters hp = read_hyperparameters(file);
  for (const bool draft_head : {false, true}) {
    const WeightPlan plan = Weights::plan(file, hp, {.draft_head = draft_head});
    const uint64_t before = allocated_bytes();
    const Weights weights = Weights::load(file, hp, {.draft_head = draft_head});
    EXPECT_EQ(plan.dense + plan.slots({}).bytes(), allocated_bytes() - before);
    EXPECT_EQ(plan.experts.empty(), weights.bank == nullptr);
  }
  const uint64_t before = allocated_bytes();
  const Workspace workspace(hp, 37, 5);
  EXPECT_EQ(Workspace::bytes(hp, 37, 5), allocated_bytes() - before);
}

INSTANTIATE_TEST_SUITE_P(Reference, Plan, ::testing::ValuesIn(reference_folders()), test_name);

// ---- faults --------------------------------------------------------------------------------------------------------

std::vector<std::byte> micro_bytes() { return EditedModel(gguf::Container::open(micro_path())).file(); }

// Loads with the given fault; the kind of the error, which must name the file, or nothing when there was none.
std::optional<ErrorKind> load_with(const std::vector<std::byte>& bytes, const ReadFault& fault) {
  const uint64_t before = allocated_bytes();
  std::optional<ErrorKind> kind;
  try {
    const gguf::Container file = open_memory("micro.gguf", bytes, fault);
    Model::load(file, read_hyperparameters(file), kF32);
  } catch (const Error& error) {
    kind = error.kind();
    EXPECT_THAT(error.what(), ::testing::HasSubstr("micro.gguf"));
  }
  EXPECT_EQ(allocated_bytes(), before);
  return kind;
}

TEST(LoadingFaults, EveryFailedOrShortReadIsAnError) {
  const std::vector<std::byte> bytes = micro_bytes();
  uint64_t n_reads = 0;
  ASSERT_FALSE(load_with(bytes, [&](uint64_t, uint64_t, uint64_t length) {
    ++n_reads;
    return static_cast<int64_t>(length);
  }));
  ASSERT_GT(n_reads, gguf::Container::open(micro_path()).tensors().size());  // the header's, then one a tensor
  for (uint64_t at = 0; at < n_reads; ++at)
    for (const bool cut : {false, true})
      EXPECT_EQ(load_with(bytes,
                          [&](uint64_t index, uint64_t, uint64_t length) {
                            if (index != at) return static_cast<int64_t>(length);
                            return cut ? static_cast<int64_t>(length / 2) : int64_t{-EIO};
                          }),
                ErrorKind::kIo)
          << (cut ? "short read " : "failed read ") << at << " of " << n_reads;
}

TEST(LoadingFaults, EveryFailedAllocationIsAnError) {
  const gguf::Container file = gguf::Container::open(micro_path());
  const uint64_t before = allocated_bytes();
  int64_t failures = 0;
  for (bool failed = true; failed; failures += failed) {
    fail_allocation_after(failures);
    failed = false;
    try {
      const Model model = Model::load(file, read_hyperparameters(file), kF32);
      const Workspace workspace(model.hp, 4, 4);
      state::PagePool pages(model.layout.page_bytes(), 2);
      const state::Sequence sequence(pages, model.layout.recurrent_floats());
    } catch (const Error& error) {
      failed = true;
      EXPECT_EQ(error.kind(), ErrorKind::kLimit) << error.what();
    }
    EXPECT_EQ(allocated_bytes(), before);
  }
  fail_allocation_after(-1);
  EXPECT_GT(failures, 4 + 6);  // dense weights, 4 layers of experts, scratch and its activations, pages, state
}

TEST(LoadingFaults, AFailedAllocationLeavesSequencesAsTheyWere) {
  TestEngine engine(micro_path());
  const auto first = engine.sequence(), second = engine.sequence();
  const size_t vocab = engine.model.hp.n_vocab;
  std::vector<float> begun = engine.logits(*first, {kPrompt[0]});
  engine.logits(*second, {kPrompt[0]});
  Batch batch{{first.get(), second.get()}, {}, {}, false};
  for (const uint32_t s : {0u, 1u})
    for (size_t i = 1; i < kPrompt.size(); ++i) batch.rows.push_back({s, kPrompt[i], true, i % 2 == 0});
  int64_t failures = 0;
  for (bool failed = true; failed; failures += failed) {
    failed = false;
    fail_allocation_after(failures);
    try {
      Pass pass(engine.model, engine.context, engine.workspace, batch);
      pass.finish();
      TestEngine::append_logits(pass, kPrompt.size() - 1, begun);
    } catch (const Error& error) {
      failed = true;
      EXPECT_EQ(error.kind(), ErrorKind::kLimit) << error.what();
      EXPECT_EQ(first->length(), 1u);
      EXPECT_EQ(second->length(), 1u);
    }
  }
  fail_allocation_after(-1);
  EXPECT_EQ(failures, 8);  // one for each snapshot
  EXPECT_EQ(begun.size(), kPrompt.size() * vocab);
  EXPECT_TRUE(same_bits(begun, micro_logits()));
}

TEST(LoadingFaults, AFileThatShrinksAfterOpeningIsAnError) {
  const std::string path = std::filesystem::path(::testing::TempDir()) / "sluice_shrinking_model.gguf";
  std::filesystem::copy_file(micro_path(), path, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::permissions(path, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  const gguf::Container file = gguf::Container::open(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100000);
  try {
    Model::load(file, read_hyperparameters(file), kF32);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(path));
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace sluice::model
