// The texts of HTTP that need no connection: targets of requests, heads and error bodies of answers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http.h"

namespace sluice::server {

// `text` with every %XX replaced by its byte, and '+' by a space where `plus_is_space` (queries of forms). Nothing if a
// '%' has no two hexadecimal digits behind it.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space);

// Takes a request's target apart ("/v1/models?a=b", or with "http://host" in front, as proxies are sent) into
// request.path and request.query. False if it is none: no '/' in front, a bad escape, a zero byte in the path.
bool parse_target(std::string_view target, HttpRequest& request);

// {"error":{"code":400,"message":"...","type":"invalid_request_error"}}, as clients of OpenAI's API expect it.
std::string error_body(int status, std::string_view message);

// An answer of the HTTP layer itself; its body is an error_body().
HttpResponse error_response(int status, std::string_view message);

enum class Framing {
  kLength,      // Content-Length says where the body ends
  kChunked,     // each piece says its length
  kUntilClose,  // the end of the connection is the end of the body
  kNoBody,      // there can be none (204, 304)
};

// Whether an answer of this status has a body at all.
bool has_body(int status);

// The head of an answer up to the empty line. `common`: headers that every answer has; one that the response names
// itself is left out. Control characters in values become spaces, so that no value can end the head or start a header.
std::string response_head(const HttpResponse& response, const std::vector<std::pair<std::string, std::string>>& common,
                          Framing framing, bool keep_alive);

// One piece of a chunked body. Empty for an empty piece, which would end the body.
std::string chunk(std::string_view piece);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// "127.0.0.1:80", "[::1]:80".
std::string host_and_port(const std::string& host, uint16_t port);

// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, section 5.6.7).
std::string http_date(int64_t unix_seconds);

}  // namespace sluice::server
