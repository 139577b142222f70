#include "server/api_error.h"

#include <fmt/core.h>

#include "server/json.h"

namespace sluice::server {

void bad_field(std::string_view field, const std::string& message) {
  throw ApiError(400, "invalid_request_error", fmt::format("{}: {}", field, message), std::string(field));
}

ApiError too_long(uint64_t prompt_tokens, uint64_t context) {
  ApiError error(400, "exceed_context_size_error",
                 fmt::format("the prompt has {} tokens, the context holds {} with at least one of the answer: shorten "
                             "the prompt, or start the server with a larger --ctx-size",
                             prompt_tokens, context));
  error.numbers = {{"n_prompt_tokens", prompt_tokens}, {"n_ctx", context}};
  return error;
}

ApiError unavailable(const std::string& message, int retry_seconds) {
  ApiError error(503, "unavailable_error", message);
  error.retry_seconds = retry_seconds;
  return error;
}

ApiError as_api_error(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::kUsage:
    case ErrorKind::kFormat:
      return ApiError(400, "invalid_request_error", error.what());
    case ErrorKind::kUnsupported:
      return ApiError(501, "not_supported_error", error.what());
    case ErrorKind::kLimit:
      return unavailable(error.what(), 1);
    case ErrorKind::kIo:
    case ErrorKind::kInternal:
      break;
  }
  return ApiError(500, "server_error", error.what());
}

std::string to_body(const ApiError& error) {
  Json inner = {{"code", error.status()}, {"message", error.what()}, {"type", error.type()}};
  if (!error.param().empty()) inner["param"] = error.param();
  for (const auto& [name, number] : error.numbers) inner[name] = number;
  return to_text({{"error", std::move(inner)}});
}

HttpResponse to_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status();
  response.body = to_body(error);
  if (error.retry_seconds) response.headers.emplace_back("Retry-After", std::to_string(*error.retry_seconds));
  if (!error.allow.empty()) response.headers.emplace_back("Allow", error.allow);
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace sluice::server
