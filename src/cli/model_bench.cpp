#include "cli/model_bench.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>

#include "base/system.h"
#include "cli/machine.h"

namespace sluice::cli {

namespace {

std::vector<int32_t> test_tokens(size_t n, uint32_t n_vocab) {
  std::vector<int32_t> ids(n);
  uint64_t x = 1;
  for (int32_t& id : ids) {
    x = x * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    id = static_cast<int32_t>((x >> 33) % n_vocab);
  }
  return ids;
}

// Memory for the probe: far beyond caches, but no more than half of what the model left.
size_t probe_bytes() {
  constexpr uint64_t kLeast = uint64_t{64} << 20, kMost = uint64_t{512} << 20;
  return std::clamp(available_memory() / 2, kLeast, kMost);
}

// Other experts at every look: what was read before, the disk or the host of a virtual machine may have kept.
double best_disk_gbps(experts::Bank& bank) {
  constexpr uint32_t kLooks = 4;
  std::random_device seed;
  double best = 0;
  for (uint32_t look = 0; look < kLooks; ++look) best = std::max(best, bank.measure_disk_gbps(seed()));
  return best;
}

}  // namespace

ModelBench::ModelBench(Engine& engine, uint32_t depth, uint32_t repetitions)
    : engine_(engine),
      depth_(depth),
      repetitions_(repetitions),
      tokens_(test_tokens(engine.context_size(), engine.model().hp.n_vocab)) {
  state::Sequence sequence(engine_.pages(), engine_.model().layout.recurrent_floats());
  read(sequence, std::span(tokens_).first(1), 1);  // touches what is used for the first time
}

double ModelBench::read(state::Sequence& sequence, std::span<const int32_t> tokens, size_t batch,
                        model::Profile* profile) {
  const double start = now_seconds();
  for (size_t at = 0; at < tokens.size(); at += batch) {
    model::Batch rows{{&sequence}, {}, {}, false};
    const size_t end = std::min(tokens.size(), at + batch);
    for (size_t i = at; i < end; ++i) rows.rows.push_back({0, tokens[i], i + 1 == end, false});
    engine_.begin_pass(std::move(rows), profile).finish();
  }
  return now_seconds() - start;
}

void ModelBench::begin(state::Sequence& sequence) {
  sequence.clear();
  if (depth_ > 0) read(sequence, std::span(tokens_).first(depth_), engine_.micro_batch());
}

ModelBench::Speed ModelBench::speed(uint32_t prompt, uint32_t generated) {
  state::Sequence sequence(engine_.pages(), engine_.model().layout.recurrent_floats());
  const auto after_depth = std::span(tokens_).subspan(depth_);
  ThreadPool& pool = engine_.context().pool;
  std::optional<MemoryProbe> probe;
  std::vector<double> prompt_tps, answer_tps, gbps, gops;
  experts::Bank* const bank = engine_.bank();
  const auto traffic = [&] { return bank == nullptr ? experts::Traffic{} : bank->traffic(); };
  Speed speed{};
  uint64_t peak = 0;
  for (uint32_t i = 0; i < repetitions_; ++i) {
    begin(sequence);
    experts::Traffic before = traffic();
    prompt_tps.push_back(prompt / read(sequence, after_depth.first(prompt), engine_.micro_batch()));
    speed.prompt_experts += traffic() - before;
    begin(sequence);
    before = traffic();
    answer_tps.push_back(generated / read(sequence, after_depth.first(generated), 1));
    speed.answer_experts += traffic() - before;
    if (!probe) {
      peak = peak_resident_bytes();
      probe.emplace(pool, probe_bytes());
    }
    if (bank != nullptr && bank->streams()) speed.disk_gbps = std::max(speed.disk_gbps, best_disk_gbps(*bank));
    // These take milliseconds, so that a single one says less than a run of the model.
    constexpr int kLooks = 5;
    pool.set_active(engine_.threads());
    for (int look = 0; look < kLooks; ++look) gbps.push_back(probe->measure_gbps());
    pool.set_active(engine_.threads_batch());
    for (int look = 0; look < kLooks; ++look) gops.push_back(measure_int8_gops(pool));
  }
  speed.prompt_tps = median(prompt_tps);
  speed.answer_tps = median(answer_tps);
  speed.machine_gbps = median(gbps);
  speed.machine_gops = median(gops);
  speed.peak_rss = peak;
  return speed;
}

std::vector<ModelBench::RowCost> ModelBench::rows(uint32_t most) {
  // Steps begin at a page's border, so that none of them copies a page that it shares with the snapshot.
  depth_ = static_cast<uint32_t>(std::max<size_t>(align_up(depth_, ops::cpu::kTile), ops::cpu::kTile));
  state::Sequence sequence(engine_.pages(), engine_.model().layout.recurrent_floats());
  begin(sequence);
  const state::Snapshot start = sequence.snapshot();
  const auto step = [&](uint32_t n, model::Profile* profile) {
    sequence.restore(start);
    model::Batch batch{{&sequence}, {}, {}, false};
    for (uint32_t i = 0; i < n; ++i) batch.rows.push_back({0, tokens_[depth_ + i], true, false});
    const double before = now_seconds();
    engine_.begin_pass(std::move(batch), profile).finish();
    return now_seconds() - before;
  };
  std::vector<RowCost> costs;
  for (uint32_t n = 1; n <= most; ++n) {
    model::Profile profile;
    step(n, &profile);
    costs.push_back({n, 0, profile.total().bytes, profile.total().operations});
  }
  std::vector<std::vector<double>> ms(most);
  for (uint32_t i = 0; i < repetitions_; ++i)
    for (uint32_t n = 1; n <= most; ++n) ms[n - 1].push_back(1000 * step(n, nullptr));
  for (RowCost& cost : costs) cost.ms = median(ms[cost.n - 1]);
  return costs;
}

double ModelBench::streams(uint32_t n, uint32_t generated) {
  std::vector<std::unique_ptr<state::Sequence>> sequences;
  model::Batch batch{{}, {}, {}, false};
  for (uint32_t s = 0; s < n; ++s) {
    sequences.push_back(std::make_unique<state::Sequence>(engine_.pages(), engine_.model().layout.recurrent_floats()));
    batch.sequences.push_back(sequences.back().get());
    batch.rows.push_back({s, 0, true, false});
  }
  std::vector<double> tps;
  for (uint32_t i = 0; i < repetitions_; ++i) {
    for (const auto& sequence : sequences) begin(*sequence);
    const double start = now_seconds();
    for (uint32_t t = 0; t < generated; ++t) {
      // Other tokens for each: sequences that go the same way would share their experts.
      for (uint32_t s = 0; s < n; ++s) batch.rows[s].token = tokens_[(depth_ + s * generated + t) % tokens_.size()];
      engine_.begin_pass(batch).finish();
    }
    tps.push_back(n * generated / (now_seconds() - start));
  }
  return median(tps);
}

ModelBench::Profiles ModelBench::profile(uint32_t prompt, uint32_t generated) {
  state::Sequence sequence(engine_.pages(), engine_.model().layout.recurrent_floats());
  const auto after_depth = std::span(tokens_).subspan(depth_);
  Profiles profiles;
  for (uint32_t i = 0; i < repetitions_; ++i) {
    begin(sequence);
    read(sequence, after_depth.first(prompt), engine_.micro_batch(), &profiles.prompt);
    begin(sequence);
    read(sequence, after_depth.first(generated), 1, &profiles.answer);
  }
  return profiles;
}

}  // namespace sluice::cli
