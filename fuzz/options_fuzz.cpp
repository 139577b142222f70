// Command lines made of arbitrary bytes: every one is parsed, or refused with a usage error; nothing else happens.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/common_options.h"

namespace {

// Arguments are separated by zero bytes, as the kernel hands them over.
std::vector<std::string> split(const uint8_t* data, size_t size) {
  std::vector<std::string> arguments(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == 0) {
      arguments.emplace_back();
    } else {
      arguments.back() += static_cast<char>(data[i]);
    }
  }
  return arguments;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::cli;
  const std::vector<std::string> arguments = split(data, size);
  ModelOptions model;
  ComputeOptions compute;
  SamplingOptions sampling;
  uint64_t memory = 0;
  std::optional<std::string> file;
  OptionTable table;
  model.declare(table);
  compute.declare(table);
  sampling.declare(table);
  declare_accepted_options(table);
  table.size("--memory", "bytes", &memory);
  table.positional("FILE", "file", &file);
  try {
    // The last argument also stands in the environment, so that both ways to a value are walked.
    table.parse(arguments, [&](const std::string& name) {
      return name == "SLUICE_CTX_SIZE" ? std::optional<std::string>(arguments.back()) : std::nullopt;
    });
  } catch (const sluice::Error& error) {
    if (error.kind() != sluice::ErrorKind::kUsage) throw;
  }
  return 0;
}
