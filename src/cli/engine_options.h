// From a command's options to an engine: what the flags mean for loading, caches and sampling.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/common_options.h"
#include "cli/json.h"
#include "engine/engine.h"

namespace sluice::cli {

// Throws Error(kUnsupported) when keys and values are asked to be cached in different types.
EngineOptions engine_options(const ModelOptions& model, const ComputeOptions& compute);

// Loads the model with a line of progress on the terminal, and says what is in force where not all experts fit into
// memory. `loaded` is told the share of the file that has been read.
std::unique_ptr<Engine> load_engine(EngineOptions options, const std::function<void(double)>& loaded = {});

// What went through the experts' memory while this object lived.
class ExpertReport {
 public:
  explicit ExpertReport(const Engine& engine);
  Json json() const;  // of an engine whose model has experts, as text()
  std::string text() const;

 private:
  // What the bank had counted when this object was made.
  struct Counts {
    std::vector<experts::Traffic> layers;
    experts::Bank::Foresight foresight;
    double read_seconds = 0;
    experts::Bank::Verified verified;
  };
  Counts counts() const;  // since then

  const Engine& engine_;
  Counts before_;
};

// What the options say, over what the file says. Without a seed, one from the system's entropy.
decode::SamplingParameters sampling_parameters(const SamplingOptions& options, const Engine& engine);

// The text named by -p TEXT or -f FILE ("-": standard input). Throws Error(kUsage) when there is none or both.
std::string prompt_text(const std::string& text, const std::string& file);

}  // namespace sluice::cli
