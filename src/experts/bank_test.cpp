#include "experts/bank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "base/error.h"

namespace sluice::experts {
namespace {

// A file of layers of experts of odd sizes, with recognisable bytes: layers 0 and 2 have parts of one size, layer 1 of
// another, layer 3 is stored expert after expert.
struct Model {
  static constexpr uint32_t kExperts = 24, kLayers = 4;
  std::string path;
  std::string content;
  std::unique_ptr<File> file;

  explicit Model(const ReadFault& fault = {}) {
    static std::atomic<int> counter{0};
    path = ::testing::TempDir() + "sluice_bank_test_" + std::to_string(::getpid()) + "_" + std::to_string(counter++);
    std::mt19937 random(3);
    for (uint64_t i = 0; i < 3 << 20; ++i) content += static_cast<char>(random());
    std::ofstream(path, std::ios::binary) << content;
    file = open_file(path);
    if (fault) file = with_faults(std::move(file), fault);
  }
  ~Model() { std::filesystem::remove(path); }

  std::vector<LayerSource> sources() const {
    const uint64_t sizes[3][3] = {{3400, 10002, 1700}, {3400, 20010, 1700}, {3400, 10002, 1700}};
    std::vector<LayerSource> layers;
    uint64_t offset = 33;
    for (const auto& layer : sizes) {
      std::vector<Part> parts;
      for (const uint64_t bytes : layer) {
        parts.push_back({file.get(), offset, bytes, bytes});
        offset += bytes * kExperts;
      }
      layers.emplace_back(kExperts, std::move(parts));
    }
    const uint64_t stride = 9000;
    layers.emplace_back(kExperts, std::vector<Part>{{file.get(), offset, 3000, stride},
                                                    {file.get(), offset + 3000, 5000, stride},
                                                    {file.get(), offset + 8000, 900, stride}});
    return layers;
  }

  // What lies at `parts` is that expert.
  ::testing::AssertionResult is_expert(const Bank& bank, uint32_t layer, uint32_t expert,
                                       std::span<const std::byte* const> parts) const {
    for (size_t p = 0; p < parts.size(); ++p) {
      const Part& part = bank.source(layer).parts()[p];
      const std::string_view found(reinterpret_cast<const char*>(parts[p]), part.bytes);
      if (found != std::string_view(content).substr(part.offset + expert * part.stride, part.bytes))
        return ::testing::AssertionFailure() << "layer " << layer << ", expert " << expert << ", part " << p;
    }
    return ::testing::AssertionSuccess();
  }

  // Asks for the experts and checks each; returns how many were given at once at most.
  size_t ask(Bank& bank, uint32_t layer, const std::vector<uint32_t>& experts) const {
    const std::vector<uint32_t> uses(experts.size(), 1);
    Bank::Request request = bank.request(layer, experts, uses);
    std::vector<int> given(experts.size(), 0);
    size_t most = 0;
    for (auto ready = request.next(); !ready.empty(); ready = request.next()) {
      most = std::max(most, ready.size());
      for (const Bank::Ready& r : ready) {
        ++given[r.index];
        EXPECT_TRUE(is_expert(bank, layer, experts[r.index], r.parts));
      }
    }
    EXPECT_EQ(given, std::vector<int>(experts.size(), 1)) << "each once";
    return most;
  }
};

void fill_all(Bank& bank, const Bank::Progress& progress) {
  bank.reserve(bank.every_unit());
  bank.fill(progress);
}

BankOptions with(ReadEngine engine) { return {.policy = kDefaultPolicy, .engine = engine, .look_ahead = {}}; }

std::vector<uint32_t> some_experts(std::mt19937& random, size_t n) {
  std::vector<uint32_t> all(Model::kExperts);
  std::iota(all.begin(), all.end(), 0);
  std::ranges::shuffle(all, random);
  all.resize(n);
  return all;
}

TEST(SlotPlan, CountsSlotsForEveryLayerAndSharesThoseOfOneSize) {
  const Model model;
  const auto layers = model.sources();
  const SlotPlan all(layers, BankSize::all()), four(layers, BankSize::per_layer(4));
  EXPECT_TRUE(all.complete());
  EXPECT_EQ(all.n_slots(), Model::kLayers * Model::kExperts);
  EXPECT_FALSE(four.complete());
  EXPECT_EQ(four.n_slots(), 16u);
  EXPECT_EQ(four.slots_of_class().size(), 3u);
  EXPECT_EQ(four.slots_of_class()[0], 8u) << "layers 0 and 2";
  EXPECT_TRUE(SlotPlan(layers, BankSize::per_layer(1000)).complete());
}

TEST(SlotPlan, KeepsWithinBytes) {
  const Model model;
  const auto layers = model.sources();
  const uint64_t all = SlotPlan(layers, BankSize::all()).bytes(),
                 least = SlotPlan(layers, BankSize::per_layer(1)).bytes();
  for (uint64_t bytes = least; bytes <= all; bytes += 10007) {
    const SlotPlan plan(layers, BankSize::bytes(bytes));
    EXPECT_LE(plan.bytes(), bytes);
    EXPECT_GT(plan.bytes() + 3 * (uint64_t{1} << 16), bytes) << "less than a slot of each size is left";
    EXPECT_EQ(plan.complete(), plan.n_slots() == Model::kLayers * Model::kExperts);
  }
  EXPECT_TRUE(SlotPlan(layers, BankSize::bytes(all)).complete());
  EXPECT_THROW(SlotPlan(layers, BankSize::bytes(1000)), Error);
}

class BankReads : public ::testing::TestWithParam<ReadEngine> {};

TEST_P(BankReads, AFullBankHoldsEveryExpert) {
  const Model model;
  Bank bank(model.sources(), SlotPlan(model.sources(), BankSize::all()), with(GetParam()));
  uint64_t read = 0;
  fill_all(bank, [&](uint64_t bytes) { read += bytes; });
  EXPECT_EQ(read, bank.bytes_of(bank.every_unit())) << "every byte once";
  EXPECT_FALSE(bank.streams());
  std::vector<uint32_t> all(Model::kExperts);
  std::iota(all.begin(), all.end(), 0);
  for (uint32_t l = 0; l < Model::kLayers; ++l) EXPECT_EQ(model.ask(bank, l, all), Model::kExperts) << "all at once";
  EXPECT_EQ(bank.traffic().misses, 0u);
  EXPECT_EQ(bank.traffic().bytes_read, 0u);
}

// The master property: whatever is asked, expected, given up and asked at the same time, every expert that is given is
// the one that was asked for.
TEST_P(BankReads, EveryExpertGivenIsTheOneAskedForAtEverySize) {
  const Model model;
  for (const uint32_t slots : {1u, 2u, 3u, 4u, 5u, 12u, 23u, 24u}) {
    Bank bank(model.sources(), SlotPlan(model.sources(), BankSize::per_layer(slots)), with(GetParam()));
    std::mt19937 random(slots);
    if (slots % 2 == 0) fill_all(bank, [](uint64_t) {});
    for (int step = 0; step < 150; ++step) {
      bank.begin_step(1 + random() % 3);
      const uint32_t layer = random() % Model::kLayers;
      const auto experts = some_experts(random, 1 + random() % 8);
      if (random() % 4 == 0) {  // a request that is given up
        Bank::Request request = bank.request(layer, experts, std::vector<uint32_t>(experts.size(), 1));
        if (random() % 2) request.next();
      }
      if (random() % 2) bank.expect(layer, some_experts(random, 1 + random() % 6), random() % 2);
      if (random() % 8 == 0) {  // while another sequence's is open
        const auto others = some_experts(random, 2);
        Bank::Request open = bank.request((layer + 2) % Model::kLayers, others, std::vector<uint32_t>(2, 1));
        if (slots > 12) model.ask(bank, layer, experts);
      }
      model.ask(bank, layer, experts);
    }
    EXPECT_GT(bank.traffic().misses + bank.traffic().hits, 0u);
    if (slots == Model::kExperts) {
      EXPECT_EQ(bank.traffic().misses, 0u);
    }
  }
}

TEST_P(BankReads, WavesServeMoreExpertsThanThereAreSlots) {
  const Model model;
  Bank bank(model.sources(), SlotPlan(model.sources(), BankSize::per_layer(3)), with(GetParam()));
  std::vector<uint32_t> all(Model::kExperts);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_LE(model.ask(bank, 1, all), 3u);
  EXPECT_EQ(bank.traffic().misses, Model::kExperts);
}

TEST_P(BankReads, ExpectedExpertsAreReadOnceAndCounted) {
  const Model model;
  Bank bank(model.sources(), SlotPlan(model.sources(), BankSize::per_layer(12)), with(GetParam()));
  bank.expect(2, std::array<uint32_t, 3>{4, 5, 6}, true);
  model.ask(bank, 2, {5, 6, 7});
  EXPECT_EQ(bank.foresight().read, 3u);
  EXPECT_EQ(bank.foresight().used, 2u);
  EXPECT_EQ(bank.traffic().misses, 3u) << "they were not in memory, only read early";
  model.ask(bank, 2, {5, 6, 7});
  EXPECT_EQ(bank.traffic().hits, 3u);
  EXPECT_EQ(bank.traffic_by_layer()[2].hits, 3u);
}

TEST_P(BankReads, AFailedReadFailsItsRequestAndNoOther) {
  std::atomic<int64_t> broken{-1}, count{0};
  const Model model([&](uint64_t, uint64_t, uint64_t length) {
    return count++ == broken ? int64_t{-EIO} : static_cast<int64_t>(length);
  });
  for (int64_t at = 0; at < 30; ++at) {
    Bank bank(model.sources(), SlotPlan(model.sources(), BankSize::per_layer(2)), with(GetParam()));
    broken = count + at;
    int failures = 0;
    for (uint32_t step = 0; step < 12;) {
      const uint32_t layer = step % Model::kLayers;
      try {
        model.ask(bank, layer, {step % 7, 7 + step % 5, 20});
        ++step;
      } catch (const Error& error) {  // and once more: now it is right
        ++failures;
        EXPECT_EQ(error.kind(), ErrorKind::kIo);
        EXPECT_NE(std::string(error.what()).find(model.path), std::string::npos) << error.what();
      }
    }
    EXPECT_EQ(failures, 1) << at;
    broken = -1;
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, BankReads, ::testing::Values(ReadEngine::kAuto, ReadEngine::kThreads));

TEST(Bank, AFailedReadAtStartIsAnError) {
  std::atomic<uint64_t> broken{0};
  for (; broken < 9; ++broken) {
    const Model model([&](uint64_t index, uint64_t, uint64_t length) {
      return index == broken ? int64_t{-EIO} : static_cast<int64_t>(length);
    });
    Bank bank(model.sources(), SlotPlan(model.sources(), BankSize::all()), {});
    EXPECT_THROW(fill_all(bank, [](uint64_t) {}), Error) << broken;
  }
}

TEST(Bank, SlotsGoToTheFirstOfTheListWhateverTheirPlaceInTheFile) {
  const Model model;
  Bank bank(model.sources(), SlotPlan(model.sources(), BankSize::per_layer(2)), {});
  const std::vector<Bank::Unit> wanted{{3, 20}, {1, 4}, {0, 9}, {2, 1}, {1, 3}, {2, 0}, {3, 7}, {0, 2}, {0, 3}, {1, 0}};
  const std::vector<Bank::Unit> fit(wanted.begin(), wanted.begin() + 8);
  EXPECT_EQ(bank.reserve(wanted), bank.bytes_of(fit)) << "two each of layers 1 and 3, four of layers 0 and 2";
  bank.fill([](uint64_t) {});
  std::vector<Bank::Unit> resident = bank.resident();
  EXPECT_THAT(resident, ::testing::UnorderedElementsAreArray(fit));
  for (const Bank::Unit& unit : fit) model.ask(bank, unit.layer, {unit.expert});
  EXPECT_EQ(bank.traffic().misses, 0u);
  model.ask(bank, 2, {1});
  EXPECT_EQ(bank.resident()[0], (Bank::Unit{2, 1})) << "what was used last is worth most";
}

TEST(Bank, SaysWhenAFileWasChanged) {
  const Model model;
  Bank bank(model.sources(), SlotPlan(model.sources(), BankSize::per_layer(2)), {});
  model.ask(bank, 0, {1});
  EXPECT_NO_THROW(bank.check_files());
  std::filesystem::resize_file(model.path, 1 << 20);
  EXPECT_THROW(bank.check_files(), Error);
}

TEST(Bank, GivesMemoryBackAndGoesOn) {
  const Model model;
  Bank bank(model.sources(), SlotPlan(model.sources(), BankSize::all()), {});
  fill_all(bank, [](uint64_t) {});
  EXPECT_GE(bank.shrink(600000), 600000u);
  EXPECT_TRUE(bank.streams());
  EXPECT_LT(bank.resident().size(), Model::kLayers * Model::kExperts);
  std::vector<uint32_t> all(Model::kExperts);
  std::iota(all.begin(), all.end(), 0);
  for (uint32_t l = 0; l < Model::kLayers; ++l) model.ask(bank, l, all);
  EXPECT_LT(bank.shrink(UINT64_MAX), UINT64_MAX);
  for (uint32_t l = 0; l < Model::kLayers; ++l) model.ask(bank, l, all);  // one slot of each size is left
  EXPECT_EQ(bank.resident().size(), 3u);
}

TEST(LookAhead, MeasuresAndKeepsWhatPays) {
  for (const size_t best : {0, 4, 8}) {
    LookAhead look(LookAhead::Mode::kAuto);
    for (int step = 0; step < 72; ++step) {
      EXPECT_FALSE(look.verdict());
      look.step_took(1, look.wanted(1, 8) == best ? 0.1 : 0.2);
    }
    ASSERT_TRUE(look.verdict());
    EXPECT_EQ(look.verdict()->best(), best / 4);
    EXPECT_EQ(look.wanted(1, 8), best);
    EXPECT_EQ(look.wanted(64, 8), 0u) << "large batches use nearly all experts";
    for (int step = 0; step < 1024; ++step) look.step_took(1, 0.1);
    EXPECT_EQ(look.wanted(1, 8), 0u) << "asked again";
  }
  EXPECT_EQ(LookAhead(LookAhead::Mode::kOff).wanted(1, 8), 0u);
  EXPECT_EQ(LookAhead(LookAhead::Mode::kOn).wanted(1, 8), 8u);
}

}  // namespace
}  // namespace sluice::experts
