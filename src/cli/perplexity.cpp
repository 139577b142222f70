// `sluice perplexity`: how well a model predicts a text, and how far its predictions are from saved ones.
//
// Method: llama.cpp's windows. The text is cut in windows of -c tokens, each read from an empty state; the second half
// of each is scored, so that every scored token has at least half a window before it.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "chat/vocabulary_metadata.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/engine_options.h"
#include "cli/npy.h"
#include "cli/progress.h"

namespace sluice::cli {
namespace {

struct PerplexityOptions {
  ModelOptions model;
  ComputeOptions compute;
  std::string file, save, base;
  uint32_t window = 512;
  bool json = false;

  void declare(OptionTable& table) {
    model.declare(table);
    table.group("Perplexity");
    table.option("-f, --file", "FILE", "the text; -: standard input", &file, {.required = true});
    table.option("-c, --ctx-size", "N",
                 "tokens of a window, of which the second half is scored; 0: one window over all of "
                 "the text, every token after the first scored",
                 &window);
    table.option("--save-logits", "FILE", "write the logits of all scored positions, .npy float32", &save);
    table.option("--kl-base", "FILE", "compare with logits saved by --save-logits from the same text", &base);
    table.flag("--json", "print one JSON object", &json);
    compute.declare(table, /*with_context=*/false);
  }
};

// What is known of the tokens scored so far.
struct Score {
  double nll = 0, nll_squared = 0;
  std::vector<double> divergences;
  uint64_t tokens = 0, same_top = 0;

  double mean() const { return nll / static_cast<double>(tokens); }
  double perplexity() const { return std::exp(mean()); }
  // Standard error of the perplexity, from that of the mean of the negative log-likelihoods.
  double standard_error() const {
    const auto n = static_cast<double>(tokens);
    const double variance = tokens < 2 ? 0.0 : (nll_squared / n - mean() * mean()) / (n - 1.0);
    return std::sqrt(std::max(variance, 0.0)) * perplexity();
  }
};

double log_of_sum(std::span<const float> logits) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  return top + std::log(sum);
}

// KL(base || other) in nats.
double divergence(std::span<const float> base, std::span<const float> other) {
  const double a = log_of_sum(base), b = log_of_sum(other);
  double kl = 0;
  for (size_t i = 0; i < base.size(); ++i) kl += std::exp(base[i] - a) * ((base[i] - a) - (other[i] - b));
  return kl;
}

size_t top_of(std::span<const float> logits) {
  return static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
}

class Scorer {
 public:
  Scorer(const PerplexityOptions& options, uint64_t positions, uint64_t n_vocab) {
    if (!options.save.empty()) save_.emplace(options.save, std::array{positions, n_vocab});
    if (options.base.empty()) return;
    base_.emplace(options.base);
    if (base_->rows() != positions || base_->columns() != n_vocab)
      fail(ErrorKind::kUsage,
           "{}: holds {} x {} logits, this run scores {} positions of {} tokens; save them from the same text, "
           "window and vocabulary",
           options.base, base_->rows(), base_->columns(), positions, n_vocab);
  }

  void add(std::span<const float> logits, int32_t next) {
    const double nll = log_of_sum(logits) - logits[static_cast<size_t>(next)];
    score_.nll += nll;
    score_.nll_squared += nll * nll;
    if (save_) save_->write(logits);
    if (base_) {
      std::vector<float> before(logits.size());
      base_->read_row(score_.tokens, before);
      score_.divergences.push_back(divergence(before, logits));
      score_.same_top += top_of(before) == top_of(logits);
    }
    ++score_.tokens;
  }

  Score finish() {
    if (save_) save_->commit();
    std::ranges::sort(score_.divergences);
    return score_;
  }
  const Score& score() const { return score_; }

 private:
  std::optional<NpyWriter> save_;
  std::optional<NpyReader> base_;
  Score score_;
};

// Reads one window from an empty state and scores its tokens from `first` on.
template <typename Report>
void score_window(Engine& engine, std::span<const int32_t> tokens, size_t first, Scorer& scorer, const Report& report) {
  state::Sequence sequence(engine.pages(), engine.model().layout.recurrent_floats());
  for (size_t at = 0; at + 1 < tokens.size(); at += engine.micro_batch()) {
    const size_t end = std::min<size_t>(tokens.size() - 1, at + engine.micro_batch());
    model::Batch batch{{&sequence}, {}, {}, false};
    for (size_t i = at; i < end; ++i) batch.rows.push_back({0, tokens[i], i + 1 >= first, false});
    model::Pass pass = engine.begin_pass(std::move(batch));
    pass.finish();
    size_t row = 0;
    for (size_t i = at; i < end; ++i)
      if (i + 1 >= first) scorer.add(pass.logits(row++), tokens[i + 1]);
    report(end - at);
  }
}

nlohmann::ordered_json to_json(const Score& score) {
  nlohmann::ordered_json out = {{"perplexity", score.perplexity()},
                                {"nll_mean", score.mean()},
                                {"tokens", score.tokens},
                                {"stderr", score.standard_error()}};
  if (score.divergences.empty()) return out;
  double sum = 0;
  for (const double kl : score.divergences) sum += kl;
  const auto n = static_cast<double>(score.divergences.size());
  out["kl_mean"] = sum / n;
  out["kl_p99"] = score.divergences[static_cast<size_t>(0.99 * (n - 1))];
  out["top1"] = static_cast<double>(score.same_top) / n;
  return out;
}

int print_perplexity(const PerplexityOptions& options) {
  const std::string text = prompt_text("", options.file);
  EngineOptions wanted = engine_options(options.model, options.compute);
  // Logits of every row are wanted: fewer rows at a time keep them small, and change no bit.
  wanted.micro_batch = wanted.micro_batch > 0 ? std::min<uint32_t>(wanted.micro_batch, 64) : 64;
  wanted.max_logits = wanted.micro_batch;
  ModelFile file = ModelFile::open(wanted);
  const chat::Tokenizer tokenizer(chat::read_vocabulary(file.container.metadata()));
  std::vector<int32_t> tokens = tokenizer.encode(text, false);
  const bool begin_with_bos = options.window != 0 && tokenizer.add_bos() && tokenizer.bos();
  if (begin_with_bos) tokens.insert(tokens.begin(), *tokenizer.bos());
  const size_t window = options.window == 0 ? tokens.size() : options.window;
  const size_t first = options.window == 0 ? 1 : window / 2 + 1;
  if (first >= window)
    fail(ErrorKind::kUsage, "a window of {} tokens has none to score; it takes at least {} (-c 0: all of the text)",
         window, options.window == 0 ? 2 : 3);
  if (tokens.size() < window)
    fail(ErrorKind::kUsage, "the text has {} tokens, less than one window of {}; choose a smaller -c", tokens.size(),
         window);
  wanted.context = static_cast<uint32_t>(window);
  wanted.beyond_training = true;
  const auto engine = load_engine(wanted);

  const size_t windows = tokens.size() / window;
  Scorer scorer(options, windows * (window - first), engine->model().hp.n_vocab);
  {
    Progress progress("scoring", windows * (window - 1), ProgressUnit::kTokens);
    uint64_t done = 0;
    for (size_t w = 0; w < windows; ++w) {
      std::vector<int32_t> piece(tokens.begin() + static_cast<ptrdiff_t>(w * window),
                                 tokens.begin() + static_cast<ptrdiff_t>((w + 1) * window));
      if (begin_with_bos) piece[0] = *tokenizer.bos();
      score_window(*engine, piece, first, scorer, [&](size_t n) { progress.update(done += n); });
      if (!options.json && is_terminal(stderr))
        fmt::print(stderr, "\rwindow {} of {}: perplexity {:.4f}   ", w + 1, windows, scorer.score().perplexity());
    }
  }
  if (!options.json && is_terminal(stderr)) fmt::print(stderr, "\n");
  const nlohmann::ordered_json out = to_json(scorer.finish());
  if (options.json) {
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("perplexity {:.4f} +/- {:.4f} over {} tokens\n", out["perplexity"].get<double>(),
             out["stderr"].get<double>(), out["tokens"].get<uint64_t>());
  if (out.contains("kl_mean"))
    fmt::print("KL divergence {:.6f} mean, {:.6f} 99th percentile; same top token {:.2f} %\n",
               out["kl_mean"].get<double>(), out["kl_p99"].get<double>(), 100 * out["top1"].get<double>());
  return 0;
}

}  // namespace

Command perplexity_command() {
  return make_command<PerplexityOptions>(
      {.name = "perplexity",
       .summary = "measure how well a model predicts a text",
       .usage = {"-m MODEL -f TEXT [-c N] [--save-logits FILE] [--kl-base FILE] [--json]"},
       .examples = {{"sluice perplexity -m model.gguf -f text.txt", "windows of 512 tokens, as llama.cpp scores them"},
                    {"sluice perplexity -m small.gguf -f text.txt --kl-base base.npy", "distance to a better model"}}},
      print_perplexity);
}

}  // namespace sluice::cli
