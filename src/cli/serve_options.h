// What `sluice serve` was asked for; serve.cpp does it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/common_options.h"

namespace sluice::cli {

struct ServeOptions {
  ModelOptions model;
  ComputeOptions compute;
  SamplingOptions sampling;  // of requests that don't say

  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  uint32_t http_threads = 2;
  uint32_t timeout = 600;  // seconds for a client to send a request or to take what was written
  std::vector<std::string> api_keys;
  std::string api_key_file, cors, alias, config;
  bool metrics = false, slots_endpoint = true;

  uint32_t parallel = 4;  // answers side by side
  uint32_t queue = 256;   // requests that may wait
  std::optional<int64_t>
      cache_mib;              // not given: an eighth of the available memory, at most 8 GiB; -1: no limit but memory
  uint32_t checkpoints = 32;  // states kept of one prompt
  uint32_t step_ms = 50;      // that a running answer may be kept waiting by prompts
  std::string slot_folder;
  double drain_seconds = 30, request_seconds = 0;
  std::optional<int64_t> max_tokens;  // of requests that don't say; not given or negative: no limit

  std::string template_source, template_file;
  enum class Reasoning { kApart, kInContent };
  Reasoning reasoning = Reasoning::kApart;
  int64_t reasoning_budget = -1;  // tokens; -1: no limit, 0: no thinking

  bool json_log = false, log_prompts = false, quiet_log = false, verbose_log = false;

  void declare(OptionTable& table);
};

}  // namespace sluice::cli
