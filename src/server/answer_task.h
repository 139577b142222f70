// One request's answers while they are computed: asks the engine for each, gathers what it tells, sends it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/answer_writer.h"
#include "server/api_error.h"
#include "server/generator.h"
#include "server/http.h"

namespace sluice::server {

// What became of a request, for the log.
struct AnswerSummary {
  int status = 200;
  std::string error;  // its type; empty: none
  size_t answers = 0;
  std::vector<GenerationStats> stats;  // of those that are over
  const char* stop = "";               // of the last one
};

struct AnswerTaskOptions {
  bool stream = false;
  std::chrono::milliseconds keep_alive{10000};  // 0: never
  std::vector<std::pair<std::string, std::string>> headers;
  std::function<void(const AnswerSummary&)> finished;  // called once; must not block
};

// Submits `requests` and answers `exchange` by `writer`, whatever happens: a full queue is a 503, a client that goes
// away ends them all. Returns at once; what is needed lives on until the last is over. `generator` must outlive that.
void answer(std::shared_ptr<Exchange> exchange, Generator& generator, std::vector<GenerationRequest> requests,
            std::unique_ptr<AnswerWriter> writer, AnswerTaskOptions options);

}  // namespace sluice::server
