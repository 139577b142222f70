// For tests: a model with everything that a pass needs, and its forward pass over whole prompts.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gguf/container.h"
#include "model/forward.h"

namespace sluice::model {

struct TestEngine {
  static constexpr size_t kMaxRows = 1200;

  explicit TestEngine(const std::string& path, int threads = 2, const std::string& isa = "", bool draft_head = false,
                      ops::cpu::CacheType cache = ops::cpu::CacheType::kF32)
      : file(gguf::Container::open(path)),
        model(Model::load(file, cache, {.draft_head = draft_head, .progress = {}})),
        pool(threads),
        context{pool, isa.empty() ? *ops::cpu::usable_kernels()[0] : ops::cpu::find_kernels(isa)},
        workspace(model.hp, kMaxRows, kMaxRows),
        pages(model.layout.page_bytes(), 120) {}

  std::unique_ptr<state::Sequence> sequence() {
    return std::make_unique<state::Sequence>(pages, model.layout.recurrent_floats());
  }

  // Logits of every token [n_tokens, n_vocab], the tokens given to `sequence` in pieces of `split`.
  std::vector<float> logits(state::Sequence& sequence, const std::vector<int32_t>& tokens, size_t split = kMaxRows) {
    std::vector<float> all;
    for (size_t at = 0; at < tokens.size(); at += split) {
      Batch batch{{&sequence}, {}, {}, false};
      for (size_t i = at; i < std::min(tokens.size(), at + split); ++i)
        batch.rows.push_back({0, tokens[i], true, false});
      Pass pass(model, context, workspace, batch);
      pass.finish();
      for (size_t i = 0; i < batch.rows.size(); ++i)
        all.insert(all.end(), pass.logits(i).begin(), pass.logits(i).end());
    }
    return all;
  }

  std::vector<float> logits(const std::vector<int32_t>& tokens, size_t split = kMaxRows) {
    const auto fresh = sequence();
    return logits(*fresh, tokens, split);
  }

  gguf::Container file;
  Model model;
  ThreadPool pool;
  ops::Context context;
  Workspace workspace;
  state::PagePool pages;
};

}  // namespace sluice::model
