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

// The text as windows of tokens.
struct Windows {
  std::vector<int32_t> tokens;
  std::optional<int32_t> bos;  // stands in place of each window's first token
  size_t length, first;        // of a window; its tokens are scored from `first` on

  size_t count() const { return tokens.size() / length; }
  uint64_t positions() const { return count() * (length - first); }
  std::vector<int32_t> window(size_t w) const {
    std::vector<int32_t> piece(tokens.begin() + static_cast<ptrdiff_t>(w * length),
                               tokens.begin() + static_cast<ptrdiff_t>((w + 1) * length));
    if (bos) piece[0] = *bos;
    return piece;
  }
};

Windows cut_text(const PerplexityOptions& options, const ModelFile& file) {
  const chat::Tokenizer tokenizer(chat::read_vocabulary(file.container.metadata()));
  Windows windows;
  windows.tokens = tokenizer.encode(prompt_text("", options.file), false);
  if (options.window != 0 && tokenizer.add_bos()) windows.bos = tokenizer.bos();
  if (windows.bos) windows.tokens.insert(windows.tokens.begin(), *windows.bos);
  windows.length = options.window == 0 ? windows.tokens.size() : options.window;
  windows.first = options.window == 0 ? 1 : windows.length / 2 + 1;
  if (windows.first >= windows.length)
    fail(ErrorKind::kUsage, "a window of {} tokens has none to score; it takes at least {} (-c 0: all of the text)",
         windows.length, options.window == 0 ? 2 : 3);
  if (windows.tokens.size() < windows.length)
    fail(ErrorKind::kUsage, "the text has {} tokens, less than one window of {}; choose a smaller -c",
         windows.tokens.size(), windows.length);
  return windows;
}

// Scores all windows with an engine of these options.
void score_text(const EngineOptions& wanted, const Windows& windows, bool show, Scorer& scorer) {
  const auto engine = load_engine(wanted);
  {
    Progress progress("scoring", windows.count() * (windows.length - 1), ProgressUnit::kTokens);
    uint64_t done = 0;
    for (size_t w = 0; w < windows.count(); ++w) {
      score_window(*engine, windows.window(w), windows.first, scorer, [&](size_t n) { progress.update(done += n); });
      if (show)
        fmt::print(stderr, "\rwindow {} of {}: perplexity {:.4f}   ", w + 1, windows.count(),
                   scorer.score().perplexity());
    }
  }
  if (show) fmt::print(stderr, "\n");
}

int print_perplexity(const PerplexityOptions& options) {
  EngineOptions wanted = engine_options(options.model, options.compute);
  // Logits of every row are wanted: fewer rows at a time keep them small, and change no bit.
  wanted.micro_batch = wanted.micro_batch > 0 ? std::min<uint32_t>(wanted.micro_batch, 64) : 64;
  wanted.max_logits = wanted.micro_batch;
  const ModelFile file = ModelFile::open(wanted);
  const Windows windows = cut_text(options, file);
  wanted.context = static_cast<uint32_t>(windows.length);
  wanted.beyond_training = true;
  const bool show = !options.json && is_terminal(stderr);
  Scorer scorer(options, windows.positions(), file.hp.n_vocab);
  score_text(wanted, windows, show, scorer);
  nlohmann::ordered_json out = to_json(scorer.finish());
  if (wanted.experts.used > 0 && file.hp.n_experts > 0) {  // and with as many experts a token as the model has it
    wanted.experts.used = 0;
    Scorer own({}, windows.positions(), file.hp.n_vocab);
    score_text(wanted, windows, show, own);
    out["own_perplexity"] = own.finish().perplexity();
  }
  if (options.json) {
    fmt::print("{}\n", out.dump());
    return 0;
  }
  const auto value = [&](const char* key) { return out[key].get<double>(); };
  fmt::print("perplexity {:.4f} +/- {:.4f} over {} tokens\n", value("perplexity"), value("stderr"),
             out["tokens"].get<uint64_t>());
  if (out.contains("own_perplexity"))
    fmt::print("with the model's own number of experts a token: {:.4f}; fewer cost {:+.2f} %\n",
               value("own_perplexity"), 100 * (value("perplexity") / value("own_perplexity") - 1));
  if (out.contains("kl_mean"))
    fmt::print("KL divergence {:.6f} mean, {:.6f} 99th percentile; same top token {:.2f} %\n", value("kl_mean"),
               value("kl_p99"), 100 * value("top1"));
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
