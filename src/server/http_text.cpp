#include "server/http_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "base/utf8.h"

namespace sluice::server {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

bool parse_query(std::string_view text, std::map<std::string, std::string>& query) {
  while (!text.empty()) {
    const std::string_view field = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), field.size() + 1));
    if (field.empty()) continue;
    const size_t equals = field.find('=');
    auto name = percent_decoded(field.substr(0, equals), true);
    auto value = percent_decoded(equals == std::string_view::npos ? "" : field.substr(equals + 1), true);
    if (!name || !value) return false;
    query[std::move(*name)] = std::move(*value);
  }
  return true;
}

const char* reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "";  // the phrase may be empty (RFC 9112, section 4)
  }
}

std::string_view error_type(int status) {
  if (status == 503) return "unavailable_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

void append_header(std::string& head, std::string_view name, std::string_view value) {
  const auto append_safe = [&head](std::string_view text) {
    for (const char c : text) head += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  };
  append_safe(name);
  head += ": ";
  append_safe(value);
  head += "\r\n";
}

std::string json_escaped(std::string_view text) {
  std::string out;
  for (const char c : utf8::sanitize(text)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string_view HttpRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      out += ' ';
    } else if (text[i] == '%') {
      const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool parse_target(std::string_view target, HttpRequest& request) {
  if (request.method == "OPTIONS" && target == "*") {  // about the server as a whole (RFC 9112, section 3.2.4)
    request.path = target;
    return true;
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!same_name(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.size(), target.find_first_of("/?")));
    if (target.empty()) target = "/";
    break;
  }
  target = target.substr(0, target.find('#'));
  const size_t question = target.find('?');
  auto path = percent_decoded(target.substr(0, question), false);
  if (!path || path->find('\0') != std::string::npos) return false;
  if (path->empty() || path->front() != '/') return false;
  request.path = std::move(*path);
  return question == std::string_view::npos || parse_query(target.substr(question + 1), request.query);
}

std::string error_body(int status, std::string_view message) {
  return fmt::format(R"({{"error":{{"code":{},"message":"{}","type":"{}"}}}})", status, json_escaped(message),
                     error_type(status));
}

HttpResponse error_response(int status, std::string_view message) {
  HttpResponse response;
  response.status = status;
  response.body = error_body(status, message);
  return response;
}

bool has_body(int status) { return status >= 200 && status != 204 && status != 304; }

std::string response_head(const HttpResponse& response, const std::vector<std::pair<std::string, std::string>>& common,
                          Framing framing, bool keep_alive) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  append_header(head, "Date", http_date(std::time(nullptr)));
  for (const auto& [name, value] : common) {
    const bool named = std::any_of(response.headers.begin(), response.headers.end(),
                                   [&n = name](const auto& header) { return same_name(header.first, n); });
    if (!named) append_header(head, name, value);
  }
  for (const auto& [name, value] : response.headers) append_header(head, name, value);
  if (framing != Framing::kNoBody && !response.content_type.empty()) {
    append_header(head, "Content-Type", response.content_type);
  }
  if (framing == Framing::kLength) append_header(head, "Content-Length", fmt::format("{}", response.body.size()));
  if (framing == Framing::kChunked) append_header(head, "Transfer-Encoding", "chunked");
  append_header(head, "Connection", keep_alive ? "keep-alive" : "close");
  head += "\r\n";
  return head;
}

std::string chunk(std::string_view piece) {
  if (piece.empty()) return {};
  return fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
}

std::string host_and_port(const std::string& host, uint16_t port) {
  if (host.find(':') == std::string::npos) return fmt::format("{}:{}", host, port);
  return fmt::format("[{}]:{}", host, port);
}

std::string http_date(int64_t unix_seconds) {
  // Not strftime: its names of days follow the locale.
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t time = unix_seconds;
  std::tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", kDays[static_cast<size_t>(utc.tm_wday)], utc.tm_mday,
                     kMonths[static_cast<size_t>(utc.tm_mon)], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace sluice::server
