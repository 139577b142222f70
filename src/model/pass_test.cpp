// What a pass refuses, and what becomes of sequences when one ends early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/test_engine.h"
#include "support/reference.h"

namespace sluice::model {
namespace {

class PassTest : public ::testing::Test {
 protected:
  std::vector<float> logits(state::Sequence& of, const std::vector<int32_t>& input) { return engine.logits(of, input); }
  Batch batch_of(const std::vector<int32_t>& input) {
    Batch batch{{sequence.get()}, {}, {}, false};
    for (const int32_t token : input) batch.rows.push_back({0, token, true, false});
    return batch;
  }
  void expect_refused(Workspace& workspace, const Batch& batch, ErrorKind kind, const std::string& says) {
    const size_t length = sequence->length(), free_pages = engine.pages.free_pages();
    try {
      Pass pass(engine.model, engine.context, workspace, batch);
      ADD_FAILURE() << "was accepted; an error with '" << says << "' was due";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr(says));
    }
    EXPECT_EQ(sequence->length(), length);
    EXPECT_EQ(engine.pages.free_pages(), free_pages);
  }

  TestEngine engine{test::test_data_dir() + "/models/qwen35moe-micro/model.gguf"};
  std::unique_ptr<state::Sequence> sequence = engine.sequence();
  const std::vector<int32_t> tokens = {4, 8, 15, 16, 23, 42};
};

TEST_F(PassTest, RefusesABatchItCantHoldAndLeavesSequencesAsTheyWere) {
  const std::vector<float> expected = logits(*engine.sequence(), tokens);
  std::vector<float> got = logits(*sequence, {4, 8});
  Workspace small(engine.model.hp, 4, 2);
  expect_refused(small, batch_of({}), ErrorKind::kLimit, "0 rows");
  expect_refused(small, batch_of({1, 2, 3, 4, 5}), ErrorKind::kLimit, "5 rows");
  expect_refused(small, batch_of({1, 2, 3}), ErrorKind::kLimit, "3 rows want logits");
  expect_refused(small, batch_of({640}), ErrorKind::kUsage, "token 640");
  expect_refused(small, batch_of({-1}), ErrorKind::kUsage, "token -1");
  const std::vector<float> rest = logits(*sequence, {15, 16, 23, 42});
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, expected);
}

TEST_F(PassTest, RunsOutOfPagesWithoutTouchingASequence) {
  state::PagePool pages(engine.model.layout.page_bytes(), 2);
  state::Sequence first(pages, engine.model.layout.recurrent_floats());
  state::Sequence second(pages, engine.model.layout.recurrent_floats());
  logits(first, {4, 8});
  // The first sequence's step gets its second page, the second one's page is not there.
  Batch batch{{&first, &second}, std::vector<Row>(64, {0, 15, false, false}), {}, false};
  batch.rows.push_back({1, 16, false, false});
  EXPECT_THROW(Pass(engine.model, engine.context, engine.workspace, batch), Error);
  EXPECT_EQ(pages.free_pages(), 1u);
  EXPECT_EQ(first.length(), 2u);
  std::vector<float> all = logits(*sequence, tokens);
  const std::vector<float> rest = logits(first, {15, 16, 23, 42});
  EXPECT_TRUE(std::ranges::equal(rest, std::span(all).last(rest.size())));
}

TEST_F(PassTest, ThatIsNotFinishedEmptiesItsSequences) {
  const std::vector<float> expected = logits(*engine.sequence(), tokens);
  logits(*sequence, {1, 2, 3});
  {
    Pass pass(engine.model, engine.context, engine.workspace, batch_of(tokens));
    pass.run_layers(2);
  }
  EXPECT_EQ(sequence->length(), 0u);
  EXPECT_EQ(engine.pages.free_pages(), engine.pages.size());
  EXPECT_EQ(logits(*sequence, tokens), expected);
}

}  // namespace
}  // namespace sluice::model
