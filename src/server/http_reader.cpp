#include "server/http_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <limits>

#include "server/http_text.h"

namespace sluice::server {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// Boost's views convert to std::string_view in some of its versions only.
std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

struct RequestReader::Parser : http::request_parser<http::string_body> {};

RequestReader::RequestReader(size_t max_header, size_t max_body)
    : parser_(std::make_unique<Parser>()), max_header_(max_header), max_body_(max_body) {
  // Beast counts only the part of a head that it can't use yet; feed() counts the whole.
  parser_->header_limit(static_cast<uint32_t>(std::min<size_t>(max_header, std::numeric_limits<uint32_t>::max())));
  parser_->body_limit(max_body);
}

RequestReader::~RequestReader() = default;

size_t RequestReader::feed(std::string_view bytes) {
  size_t used = 0;
  while (used < bytes.size() && !done() && status_ == 0) {
    const bool in_head = !parser_->is_header_done();
    error_code error;
    const size_t n = parser_->put(boost::asio::buffer(bytes.data() + used, bytes.size() - used), error);
    used += n;
    if (in_head) head_bytes_ += n;
    // In the head all that can't be used yet counts; behind it, that can only be a line of a chunk or the trailer.
    const size_t unused = bytes.size() - used;
    const size_t head = (in_head ? head_bytes_ : 0) + (parser_->is_header_done() && in_head ? 0 : unused);
    const bool waits = error == http::error::need_more;
    if ((waits || (in_head && !error)) && head > max_header_) {
      error = http::error::header_limit;
    } else if (waits) {
      return used;
    }
    if (error == http::error::body_limit || error == http::error::buffer_overflow) {
      refuse(413, fmt::format("the body is larger than {} bytes, the most that is taken", max_body_));
    } else if (error == http::error::header_limit) {
      refuse(431, fmt::format("the head is larger than {} bytes, the most that is taken", max_header_));
    } else if (error) {
      refuse(400, fmt::format("this is not an HTTP request: {}", error.message()));
    } else if (n == 0) {
      return used;
    }
  }
  return used;
}

bool RequestReader::in_body() const { return status_ == 0 && parser_->is_header_done() && !parser_->is_done(); }

bool RequestReader::done() const { return status_ == 0 && parser_->is_done(); }

bool RequestReader::take_expects_continue() {
  if (continue_told_ || !in_body()) return false;
  continue_told_ = true;
  return !http_1_0() && lower_case(view(parser_->get()[http::field::expect])) == "100-continue";
}

HttpRequest RequestReader::take() {
  auto message = parser_->release();
  HttpRequest request;
  request.method = view(message.method_string());
  for (const auto& field : message) {
    std::string& value = request.headers[lower_case(view(field.name_string()))];
    if (!value.empty()) value += ", ";  // a list in several lines (RFC 9110, section 5.3)
    value += view(field.value());
  }
  if (!parse_target(view(message.target()), request)) {
    refuse(400, fmt::format("the request's target '{}' is no path", view(message.target())));
  }
  request.body = std::move(message.body());
  return request;
}

bool RequestReader::keep_alive() const { return parser_->is_header_done() && parser_->keep_alive(); }

bool RequestReader::http_1_0() const { return parser_->is_header_done() && parser_->get().version() < 11; }

void RequestReader::refuse(int status, std::string reason) {
  status_ = status;
  reason_ = std::move(reason);
}

}  // namespace sluice::server
