// Bytes in, one request out: what stands between a socket and an HttpRequest, without a socket. Hides Boost.Beast.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/http.h"

namespace sluice::server {

class RequestReader {
 public:
  RequestReader(size_t max_header, size_t max_body);
  ~RequestReader();

  // Takes bytes of the request; returns how many were used. The others must be given again, with more behind them, or
  // belong to the next request when this one is done(). Uses none once done() or failed(). `bytes` is not empty.
  size_t feed(std::string_view bytes);

  bool in_body() const;  // the head is complete, the body is not
  bool done() const;
  // Why this can't become a request: 400 (malformed), 413 (body too large), 431 (head too large), or 0.
  int failed() const { return status_; }
  const std::string& reason() const { return reason_; }
  // The client waits for "100 Continue" before it sends the body. True once.
  bool take_expects_continue();

  // The request, but for `peer`. Only when done(); what it can't make sense of (the target) sets failed().
  HttpRequest take();
  // Whether the connection may be used for another request after this one; since the head has been read.
  bool keep_alive() const;
  bool http_1_0() const;

 private:
  struct Parser;
  void refuse(int status, std::string reason);

  std::unique_ptr<Parser> parser_;
  size_t max_header_, max_body_;
  size_t head_bytes_ = 0;
  bool continue_told_ = false;
  int status_ = 0;
  std::string reason_;
};

}  // namespace sluice::server
