#include "state/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.h"
#include "ops/cpu/kernels.h"

namespace sluice::state {
namespace {

constexpr size_t kTile = ops::cpu::kTile;

// A sequence whose "keys" are its tokens, and whose recurrent state is a running hash of them: enough to see whether
// pages and recurrent state belong to the tokens that they should.
class TokenSequence {
 public:
  explicit TokenSequence(PagePool& pool) : sequence(pool, 1) {}

  void append(const std::vector<uint8_t>& tokens) {
    sequence.begin_step(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const size_t position = sequence.length() + i;
      sequence.page_of(position)[position % kTile] = std::byte{tokens[i]};
      sequence.recurrent()[0] = sequence.recurrent()[0] * 3 + tokens[i];
    }
    sequence.commit_step();
  }

  std::vector<uint8_t> tokens() {
    std::vector<uint8_t> all;
    for (size_t p = 0; p < sequence.length(); ++p)
      all.push_back(std::to_integer<uint8_t>(sequence.pages()[p / kTile][p % kTile]));
    return all;
  }

  Sequence sequence;
};

TEST(Sequence, SnapshotsSurviveWhateverTheSequenceDoesNext) {
  PagePool pool(kTile, 64);
  TokenSequence s(pool);
  s.append(std::vector<uint8_t>(70, 1));
  const float hash = s.sequence.recurrent()[0];
  const Snapshot at_70 = s.sequence.snapshot();
  s.append({2, 2, 2});
  s.sequence.restore(at_70);
  EXPECT_EQ(s.sequence.recurrent()[0], hash);
  s.append({3, 3});
  EXPECT_EQ(s.tokens().back(), 3);
  s.sequence.restore(at_70);
  EXPECT_EQ(s.tokens(), std::vector<uint8_t>(70, 1));
}

TEST(Sequence, FullPoolRefusesAndLeavesTheSequenceAsItWas) {
  PagePool pool(kTile, 2);
  TokenSequence s(pool);
  s.append(std::vector<uint8_t>(100, 7));
  EXPECT_THROW(s.sequence.begin_step(29), Error);
  EXPECT_EQ(s.tokens(), std::vector<uint8_t>(100, 7));
  const Snapshot shared = s.sequence.snapshot();
  EXPECT_THROW(s.sequence.begin_step(1), Error) << "the last page is shared and no page is free for its copy";
  EXPECT_EQ(s.tokens().size(), 100u);
}

TEST(Sequence, CancelledStepLeavesTheSequenceAsItWas) {
  PagePool pool(kTile, 4);
  TokenSequence s(pool);
  s.append(std::vector<uint8_t>(60, 9));
  s.sequence.begin_step(100);
  EXPECT_EQ(pool.free_pages(), 1u);
  s.sequence.cancel_step();
  EXPECT_EQ(pool.free_pages(), 3u);
  EXPECT_EQ(s.tokens(), std::vector<uint8_t>(60, 9));
}

TEST(Sequence, AbortedStepLeavesNothing) {
  PagePool pool(kTile, 4);
  TokenSequence s(pool);
  s.append({1, 2, 3});
  s.sequence.begin_step(5);
  s.sequence.abort_step();
  EXPECT_EQ(s.sequence.length(), 0u);
  EXPECT_EQ(s.sequence.recurrent()[0], 0.0f);
  EXPECT_EQ(pool.free_pages(), 4u);
}

// Random appends, snapshots, restores and drops over three sequences against plain vectors of tokens.
TEST(Sequence, RandomHistoriesMatchPlainVectors) {
  struct Saved {
    Snapshot snapshot;
    std::vector<uint8_t> tokens;
  };
  std::mt19937 random(7);
  PagePool pool(kTile, 300);
  {
    std::vector<std::unique_ptr<TokenSequence>> sequences;
    std::vector<std::vector<uint8_t>> model(3);
    std::vector<Saved> saved;
    for (int i = 0; i < 3; ++i) sequences.push_back(std::make_unique<TokenSequence>(pool));
    for (int round = 0; round < 3000; ++round) {
      const size_t i = random() % 3;
      switch (random() % 5) {
        case 0:
        case 1: {
          std::vector<uint8_t> more(1 + random() % 90);
          for (uint8_t& t : more) t = static_cast<uint8_t>(random());
          if (model[i].size() + more.size() > 900) break;
          sequences[i]->append(more);
          model[i].insert(model[i].end(), more.begin(), more.end());
          break;
        }
        case 2:
          if (saved.size() < 12) saved.push_back({sequences[i]->sequence.snapshot(), model[i]});
          break;
        case 3:
          if (!saved.empty()) {
            const Saved& from = saved[random() % saved.size()];  // of any sequence: they share pages across
            sequences[i]->sequence.restore(from.snapshot);
            model[i] = from.tokens;
          }
          break;
        default:
          if (saved.size() > 6) saved.erase(saved.begin() + static_cast<long>(random() % saved.size()));
      }
      ASSERT_EQ(sequences[i]->tokens(), model[i]) << "round " << round;
    }
  }
  EXPECT_EQ(pool.free_pages(), pool.size()) << "every page came back";
}

}  // namespace
}  // namespace sluice::state
