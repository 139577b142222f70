#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/json.h"
#include "ops/cpu/kernels.h"

namespace sluice::cli {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "Clang " __clang_version__;
#elif defined(__GNUC__)
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

struct VersionOptions {
  bool json = false;
  void declare(OptionTable& table) { table.flag("--json", "print one JSON object", &json); }
};

int print_version(const VersionOptions& options) {
  const auto compiled = ops::cpu::compiled_kernels();
  std::vector<std::string> usable;
  for (const ops::cpu::Kernels* kernels : ops::cpu::usable_kernels()) usable.emplace_back(kernels->name);
  if (options.json) {
    const Json out = {{"version", SLUICE_VERSION},
                      {"compiler", kCompiler},
                      {"build_type", SLUICE_BUILD_TYPE},
                      {"isa_compiled", compiled},
                      {"isa_usable", usable}};
    print_json(out);
  } else {
    fmt::print("sluice {} ({}, {})\ninstruction sets compiled: {}\nusable here, best first: {}\n", SLUICE_VERSION,
               SLUICE_BUILD_TYPE, kCompiler, fmt::join(compiled, " "), fmt::join(usable, " "));
  }
  return 0;
}

}  // namespace

Command version_command() {
  return make_command<VersionOptions>(
      {.name = "version", .summary = "print version, build and instruction sets", .usage = {"[--json]"}},
      print_version);
}

}  // namespace sluice::cli
