#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"

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
  if (options.json) {
    const nlohmann::ordered_json out = {
        {"version", SLUICE_VERSION}, {"compiler", kCompiler}, {"build_type", SLUICE_BUILD_TYPE}};
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("sluice {} ({}, {})\n", SLUICE_VERSION, SLUICE_BUILD_TYPE, kCompiler);
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
