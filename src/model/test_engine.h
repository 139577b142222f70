// For tests: a model with everything that a pass needs, and its forward pass over whole prompts.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gguf/container.h"
#include "model/forward.h"

namespace sluice::model {

struct TestEngine {
  static constexpr size_t kMaxRows = 1200;

  explicit TestEngine(gguf::Container opened, bool draft_head = false,
                      ops::cpu::CacheType cache = ops::cpu::CacheType::kF32)
      : TestEngine(std::move(opened), LoadOptions{.draft_head = draft_head}, cache) {}
  TestEngine(gguf::Container opened, const LoadOptions& options, ops::cpu::CacheType cache = ops::cpu::CacheType::kF32,
             uint32_t experts_used = 0)
      : file(std::move(opened)),
        model(Model::load(file, read_hyperparameters(file, experts_used), cache, options)),
        pool(1),  // test programs run side by side, and threads change no bit (determinism_test.cpp)
        context{pool, *ops::cpu::usable_kernels()[0]},
        workspace(model.hp, kMaxRows, kMaxRows),
        pages(model.layout.page_bytes(), 120) {}
  explicit TestEngine(const std::string& path, bool draft_head = false,
                      ops::cpu::CacheType cache = ops::cpu::CacheType::kF32)
      : TestEngine(gguf::Container::open(path), draft_head, cache) {}

  std::unique_ptr<state::Sequence> sequence() {
    return std::make_unique<state::Sequence>(pages, model.layout.recurrent_floats());
  }

  // What a prompt gives.
  struct Run {
    std::vector<float> logits;                  // [n_tokens, n_vocab]
    std::vector<std::vector<uint32_t>> routes;  // by layer: [n_tokens, n_experts_used]
  };

  // The tokens, all in one batch, from an empty sequence.
  Run run(const std::vector<int32_t>& tokens) {
    const auto fresh = sequence();
    Batch batch{{fresh.get()}, {}, {}, model.hp.n_experts > 0};
    for (const int32_t token : tokens) batch.rows.push_back({0, token, true, false});
    Pass pass(model, context, workspace, batch);
    pass.finish();
    Run result;
    append_logits(pass, tokens.size(), result.logits);
    for (uint32_t i = 0; batch.routes && i < model.hp.n_layers; ++i)
      result.routes.emplace_back(pass.routes(i).begin(), pass.routes(i).end());
    return result;
  }

  // Logits of every token [n_tokens, n_vocab], the tokens given to `sequence` in pieces of `split`.
  std::vector<float> logits(state::Sequence& sequence, const std::vector<int32_t>& tokens, size_t split = kMaxRows) {
    return logits(context, sequence, tokens, split);
  }
  std::vector<float> logits(const ops::Context& with, state::Sequence& sequence, const std::vector<int32_t>& tokens,
                            size_t split = kMaxRows) {
    std::vector<float> all;
    for (size_t at = 0; at < tokens.size(); at += split) {
      Batch batch{{&sequence}, {}, {}, false};
      for (size_t i = at; i < std::min(tokens.size(), at + split); ++i)
        batch.rows.push_back({0, tokens[i], true, false});
      Pass pass(model, with, workspace, batch);
      pass.finish();
      append_logits(pass, batch.rows.size(), all);
    }
    return all;
  }

  static void append_logits(const Pass& pass, size_t n, std::vector<float>& to) {
    for (size_t i = 0; i < n; ++i) to.insert(to.end(), pass.logits(i).begin(), pass.logits(i).end());
  }

  gguf::Container file;
  Model model;
  ThreadPool pool;
  ops::Context context;
  Workspace workspace;
  state::PagePool pages;
};

}  // namespace sluice::model
