// The HTTP server below the routes: connections, timeouts, limits, streams. Knows nothing of models or of JSON. One
// header hides the library (Boost.Beast over Asio), so that it could be replaced.
//
// A connection costs no thread: a thousand idle ones are a thousand sockets. Handlers run on one of a few threads and
// must not block; they answer at once, or keep the Exchange and answer later from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::server {

struct HttpRequest {
  std::string method;                          // "GET"
  std::string path;                            // "/v1/models": percent-decoded, without the query
  std::map<std::string, std::string> query;    // percent-decoded; of a name that occurs twice, the last
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::string peer;  // "127.0.0.1:51234"

  // The header's value, empty if there is none. `name` in lower case.
  std::string_view header(const std::string& name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json; charset=utf-8";
  std::vector<std::pair<std::string, std::string>> headers;
};

// One request and its answer. Every function may be called from any thread; what comes after the end, or after the
// client has gone, does nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  // Answers in one piece.
  virtual void send(HttpResponse response) = 0;
  // Answers in pieces (Transfer-Encoding: chunked): begin, write..., end. While nothing has been written for
  // `keep_alive_every`, `keep_alive` is: a comment of the stream, so that nobody on the way gives up.
  virtual void begin(HttpResponse head, std::string keep_alive = {},
                     std::chrono::milliseconds keep_alive_every = std::chrono::seconds(10)) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  // Called once, on any thread, if the client goes away, is too slow to take what is written, or the server stops
  // before the end; at once if that has happened already. Must not block.
  virtual void on_gone(std::function<void()> callback) = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<Exchange>)>;

struct HttpOptions {
  std::string host = "127.0.0.1";  // address or name to listen on
  uint16_t port = 8080;            // 0: any free one
  int threads = 2;
  size_t max_body = size_t{64} << 20;                        // bytes; more is answered with 413
  size_t max_header = size_t{64} << 10;                      // bytes; more is answered with 431
  size_t max_unsent = size_t{16} << 20;                      // bytes that wait for a slow client before it is dropped
  size_t max_connections = 4096;                             // more are answered with 503
  std::chrono::seconds idle_timeout{75};                     // between requests
  std::chrono::seconds read_timeout{60};                     // for a whole request to arrive once it has begun
  std::chrono::seconds write_timeout{600};                   // for a client to take what was written
  std::vector<std::pair<std::string, std::string>> headers;  // sent with every answer
};

// Listens from construction on; answers from start() on. Throws Error(kIo) naming host and port when they can't be
// listened on.
class HttpServer {
 public:
  HttpServer(HttpOptions options, HttpHandler handler);
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  void start();
  // No new connections, idle ones are closed, others after the answer that they are in.
  void drain();
  size_t open_exchanges() const;
  size_t open_connections() const;
  // Closes everything that is open and joins the threads.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::server
