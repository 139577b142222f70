// What the server tells of itself.
#pragma once

#include <string>

#include "decode/sampler.h"
#include "engine/service.h"

namespace sluice::server {

struct ServerFacts {
  std::string alias;
  std::string path;  // of the model's file
  std::string version;
  const std::string* chat_template = nullptr;  // null: none
  decode::SamplingParameters sampling;
  bool slots = true, metrics = true;  // whether these endpoints are there
};

// Bodies of /v1/models (`engine` null: still loading), /props, /slots, and of /metrics.
std::string models_body(const ServerFacts& facts, const Engine* engine);
std::string props_body(const ServerFacts& facts, const Engine& engine, const ServiceStatus& status);
std::string slots_body(const Engine& engine, const ServiceStatus& status);
std::string metrics_text(const Engine& engine, const ServiceStatus& status);

}  // namespace sluice::server
