// `sluice logits`: the forward pass over given token ids, for comparing engines.
#include <charconv>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/npy.h"

namespace sluice::cli {
namespace {

struct LogitsOptions {
  ModelOptions model;
  ComputeOptions compute;
  std::string tokens, out;
  uint32_t split = 0;
  bool last = false;

  void declare(OptionTable& table) {
    model.declare(table);
    table.group("Logits");
    table.option("--tokens", "IDS", "token ids, separated by commas", &tokens, {.required = true});
    table.option("--npy", "OUT", "file for the logits, float32 [n_tokens, n_vocab]", &out, {.required = true});
    table.option("--batch", "N", "give the model N tokens at a time; 0: as many as --ubatch-size", &split);
    table.flag("--last", "only those of the last token, [1, n_vocab]", &last);
    compute.declare(table);
  }
};

std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (next != end && *next != ','))
      fail(ErrorKind::kUsage, "--tokens {}: write ids separated by commas, such as 1,2,3", text);
    ids.push_back(id);
    if (next == end) return ids;
    at = next + 1;
  }
}

int print_logits(const LogitsOptions& options) {
  const std::vector<int32_t> ids = parse_ids(options.tokens);
  EngineOptions wanted = engine_options(options.model, options.compute);
  wanted.context = std::max<uint32_t>(wanted.context, static_cast<uint32_t>(ids.size()));
  wanted.beyond_training = true;
  if (options.split > 0) wanted.micro_batch = options.split;
  if (wanted.micro_batch == 0) wanted.micro_batch = wanted.most_micro_batch;
  wanted.micro_batch = std::min<uint32_t>(wanted.micro_batch, static_cast<uint32_t>(ids.size()));
  wanted.max_logits = options.last ? 1 : wanted.micro_batch;
  const auto engine = load_engine(wanted);
  state::Sequence sequence(engine->pages(), engine->model().layout.recurrent_floats());
  NpyWriter out(options.out, std::array<uint64_t, 2>{options.last ? 1 : ids.size(), engine->model().hp.n_vocab});
  for (size_t at = 0; at < ids.size(); at += engine->micro_batch()) {
    const size_t end = std::min<size_t>(ids.size(), at + engine->micro_batch());
    model::Batch batch{{&sequence}, {}, {}, false};
    for (size_t i = at; i < end; ++i) batch.rows.push_back({0, ids[i], !options.last || i + 1 == ids.size(), false});
    const size_t wanted_rows = options.last ? (end == ids.size() ? 1 : 0) : end - at;
    model::Pass pass = engine->begin_pass(std::move(batch));
    pass.finish();
    for (size_t i = 0; i < wanted_rows; ++i) out.write(pass.logits(i));
  }
  out.commit();
  return 0;
}

}  // namespace

Command logits_command() {
  return make_command<LogitsOptions>(
      {.name = "logits",
       .summary = "run the forward pass over token ids and write the logits",
       .usage = {"-m MODEL --tokens IDS --npy OUT [--batch N] [--last]"},
       .examples = {{"sluice logits -m model.gguf --tokens 1,2,3 --npy logits.npy", "float32 [3, n_vocab]"}}},
      print_logits);
}

}  // namespace sluice::cli
