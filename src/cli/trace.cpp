// `sluice trace`: records which experts a text uses, for `sluice simulate`.
#include <algorithm>

#include "base/error.h"
#include "chat/vocabulary_metadata.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/progress.h"
#include "experts/trace.h"

namespace sluice::cli {
namespace {

struct TraceOptions {
  ModelOptions model;
  ComputeOptions compute;
  std::string file, out;
  uint32_t generate = 0;
  experts::TraceForm form = experts::TraceForm::kLines;

  void declare(OptionTable& table) {
    model.declare(table);
    table.group("Trace");
    table.option("-f, --file", "FILE", "the text, with special tokens as they are written; -: standard input", &file,
                 {.required = true});
    table.option("-o, --output", "TRACE", "file to write", &out, {.required = true});
    table.option("-n, --predict", "N", "then let the model go on for N tokens, always with the likeliest", &generate);
    table.choice("--form", "FORM", "lines of JSON, or after the first one only bytes", &form,
                 {{"lines", experts::TraceForm::kLines}, {"binary", experts::TraceForm::kBinary}});
    compute.declare(table, /*with_context=*/false);
  }
};

// Reads tokens in and keeps what each of them chose.
class Recorder {
 public:
  explicit Recorder(Engine& engine)
      : engine_(engine), sequence_(engine.pages(), engine.model().layout.recurrent_floats()) {
    const model::Hyperparameters& hp = engine.model().hp;
    trace_.architecture = hp.architecture->name;
    trace_.n_layers = hp.n_layers;
    trace_.n_experts = hp.n_experts;
    trace_.top_k = hp.n_experts_used;
    for (uint32_t layer = 0; layer < hp.n_layers; ++layer)
      trace_.expert_bytes.push_back(engine.model().weights.bank->source(layer).expert_bytes());
  }

  // Returns the likeliest token to follow.
  int32_t read(std::span<const int32_t> tokens) {
    model::Batch batch{{&sequence_}, {}, {}, /*routes=*/true};
    for (const int32_t token : tokens) batch.rows.push_back({0, token, false, false});
    batch.rows.back().logits = true;
    model::Pass pass = engine_.begin_pass(std::move(batch));
    pass.finish();
    for (size_t row = 0; row < tokens.size(); ++row)
      for (uint32_t layer = 0; layer < trace_.n_layers; ++layer)
        for (const uint32_t expert : pass.routes(layer).subspan(row * trace_.top_k, trace_.top_k))
          trace_.experts.push_back(static_cast<uint16_t>(expert));
    decode::SamplingParameters likeliest;
    likeliest.temperature = 0;
    return engine_.sampler(likeliest).sample(pass.logits(0), {}, sequence_.length());
  }
  const experts::Trace& trace() const { return trace_; }

 private:
  Engine& engine_;
  state::Sequence sequence_;
  experts::Trace trace_;
};

int record_trace(const TraceOptions& options) {
  const std::string text = prompt_text("", options.file);
  EngineOptions wanted = engine_options(options.model, options.compute);
  const ModelFile file = ModelFile::open(wanted);
  if (file.hp.n_experts == 0)
    fail(ErrorKind::kUnsupported, "{}: architecture {} without experts has no routing to record", wanted.path,
         file.hp.architecture->name);
  const chat::Tokenizer tokenizer(chat::read_vocabulary(file.container.metadata()));
  const std::vector<int32_t> tokens = tokenizer.encode(text, /*parse_special=*/true);
  if (tokens.empty()) fail(ErrorKind::kUsage, "{}: the text is empty", options.file);
  wanted.context = static_cast<uint32_t>(std::min<uint64_t>(tokens.size() + uint64_t{options.generate}, UINT32_MAX));
  wanted.beyond_training = true;
  AtomicFileWriter out(options.out);  // a path that can't be written is told before the work
  const auto engine = load_engine(wanted);

  Recorder recorder(*engine);
  {
    Progress progress("tracing", wanted.context, ProgressUnit::kTokens);
    int32_t next = 0;
    for (size_t at = 0; at < tokens.size(); at += engine->micro_batch()) {
      const size_t n = std::min<size_t>(engine->micro_batch(), tokens.size() - at);
      next = recorder.read(std::span(tokens).subspan(at, n));
      progress.update(at + n);
    }
    const std::vector<int32_t>& ends = tokenizer.ends_of_generation();
    for (uint32_t i = 0; i < options.generate && !std::ranges::binary_search(ends, next); ++i) {
      next = recorder.read(std::vector{next});
      progress.update(tokens.size() + i + 1);
    }
  }
  experts::write_trace(out, recorder.trace(), options.form);
  fmt::print(stderr, "{}: {} tokens\n", options.out, recorder.trace().tokens());
  return 0;
}

}  // namespace

Command trace_command() {
  return make_command<TraceOptions>(
      {.name = "trace",
       .summary = "record which experts a text uses",
       .description = "Writes the experts that each token of the text chose in each layer, for `sluice simulate`. They "
                      "do not depend on batches, threads or how many experts are in memory.",
       .usage = {"-m MODEL -f TEXT -o TRACE [-n N] [--form lines|binary]"},
       .examples = {{"sluice trace -m model.gguf -f text.txt -o text.trace", "the experts of a text"},
                    {"sluice trace -m model.gguf -f question.txt -n 500 -o answer.trace", "and of what follows it"}}},
      record_trace);
}

}  // namespace sluice::cli
