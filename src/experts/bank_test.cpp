#include "experts/bank.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <random>

#include "base/error.h"

namespace sluice::experts {
namespace {

// A file of 2 layers x 300 experts x 3 parts of odd sizes, with recognisable bytes.
struct Fixture {
  static constexpr uint32_t kExperts = 300;
  static constexpr uint64_t kSizes[3] = {34, 100, 17};
  std::string path = ::testing::TempDir() + "sluice_bank_test";
  std::string content;

  Fixture() {
    std::mt19937 random(3);
    for (uint64_t i = 0; i < 2 * kExperts * (34 + 100 + 17); ++i) content += static_cast<char>(random());
    std::ofstream(path, std::ios::binary) << content;
  }
  std::vector<LayerSource> sources(const File& file) const {
    std::vector<LayerSource> layers(2);
    uint64_t offset = 0;
    for (LayerSource& layer : layers) {
      layer.n_experts = kExperts;
      for (const uint64_t bytes : kSizes) {
        layer.parts.push_back({&file, offset, bytes});
        offset += bytes * kExperts;
      }
    }
    return layers;
  }
};

TEST(Bank, EverySlotHoldsItsExpertsBytes) {
  const Fixture fixture;
  const auto file = open_file(fixture.path);
  Bank bank(fixture.sources(*file));
  uint64_t read = 0;
  bank.fill([&](uint64_t bytes) { read += bytes; });
  EXPECT_EQ(read, fixture.content.size()) << "every byte once";
  std::vector<const std::byte*> slots;
  for (uint32_t l = 0; l < 2; ++l) {
    const LayerSource& source = bank.source(l);
    for (uint32_t e = 0; e < Fixture::kExperts; ++e) {
      bank.acquire(l, std::array{e}, slots);
      for (size_t p = 0; p < 3; ++p) {
        const std::byte* at = slots[0] + source.part_offset(p);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % kAlignment, 0u);
        const Part& part = source.parts[p];
        ASSERT_EQ(std::string(reinterpret_cast<const char*>(at), part.bytes),
                  fixture.content.substr(part.offset + e * part.bytes, part.bytes));
      }
    }
  }
}

TEST(Bank, AFailedReadIsAnError) {
  const Fixture fixture;
  for (uint64_t broken = 0; broken < 12; ++broken) {
    const auto file = with_faults(open_file(fixture.path), [&](uint64_t index, uint64_t, uint64_t length) {
      return index == broken ? int64_t{-EIO} : static_cast<int64_t>(length);
    });
    Bank bank(fixture.sources(*file));
    EXPECT_THROW(bank.fill([](uint64_t) {}), Error) << broken;
  }
}

TEST(SlotMap, RandomPlacementsMatchANaiveMap) {
  std::mt19937 random(11);
  for (uint32_t n_slots : {1u, 2u, 7u, 16u}) {
    SlotMap map(16, n_slots);
    std::map<uint32_t, uint32_t> naive;  // slot -> expert
    for (int i = 0; i < 2000; ++i) {
      const uint32_t expert = random() % 16, slot = random() % n_slots;
      map.place(expert, slot);
      std::erase_if(naive, [&](const auto& entry) { return entry.second == expert; });
      naive[slot] = expert;
      for (uint32_t e = 0; e < 16; ++e) {
        std::optional<uint32_t> expected;
        for (const auto& [s, in] : naive)
          if (in == e) expected = s;
        ASSERT_EQ(map.find(e), expected);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::experts
