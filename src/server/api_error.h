// What a client is told when its request can't be answered: an HTTP status, and llama-server's shape of an error, which
// the clients of OpenAI's API read too: {"error": {"code", "message", "type", "param"?, ...}}.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "server/http.h"

namespace sluice::server {

class ApiError : public std::runtime_error {
 public:
  // `param`: the field that is wrong; empty: none.
  ApiError(int status, std::string type, const std::string& message, std::string param = {})
      : std::runtime_error(message), status_(status), type_(std::move(type)), param_(std::move(param)) {}

  int status() const { return status_; }
  const std::string& type() const { return type_; }
  const std::string& param() const { return param_; }

  // Further members of the error.
  std::vector<std::pair<std::string, uint64_t>> numbers;
  // Sent as Retry-After.
  std::optional<int> retry_seconds;
  // Sent as Allow: the methods that a path does have.
  std::string allow;

 private:
  int status_;
  std::string type_, param_;
};

// 400 invalid_request_error naming the field.
[[noreturn]] void bad_field(std::string_view field, const std::string& message);
// 400 exceed_context_size_error, with llama-server's n_prompt_tokens and n_ctx.
ApiError too_long(uint64_t prompt_tokens, uint64_t context);
// 503 unavailable_error with Retry-After.
ApiError unavailable(const std::string& message, int retry_seconds);
// By the error's kind: what the request did wrong is 400, a full queue 503, the rest 500.
ApiError as_api_error(const Error& error);

// {"error": {...}} in one line.
std::string to_body(const ApiError& error);
HttpResponse to_response(const ApiError& error);

}  // namespace sluice::server
