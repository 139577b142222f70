// One connection of the HTTP server, and what all of them share. Not for includers of http.h: it shows Asio.
//
// Everything of a connection runs on its strand, so that it needs no lock; an Exchange, which any thread may use, posts
// to it. A read is on its way at nearly all times, while a request is answered too: that is how a client's leaving is
// noticed. What arrives early (the next request) waits in a buffer.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http.h"
#include "server/http_reader.h"
#include "server/http_text.h"

namespace sluice::server {

namespace net = boost::asio;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Strand = net::strand<net::io_context::executor_type>;
using Socket = net::basic_stream_socket<net::ip::tcp, Strand>;
using Timer = net::basic_waitable_timer<Clock, net::wait_traits<Clock>, Strand>;

class Connection;
class ConnectionExchange;

// What connections share. Held by each of them, and so by every Exchange: one may outlive the server.
struct ServerCore {
  ServerCore(HttpOptions the_options, HttpHandler the_handler)
      : options(std::move(the_options)), handler(std::move(the_handler)), io(options.threads) {}

  HttpOptions options;
  HttpHandler handler;
  net::io_context io;
  std::atomic<size_t> open_exchanges = 0;
  std::atomic<bool> draining = false;

  std::mutex mutex;                                             // of what follows
  std::map<const Connection*, std::weak_ptr<Connection>> open;  // connections
  bool stopped = false;                                         // no more may be added
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerCore> core, Socket socket);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Strand strand() const { return strand_; }

  // From here on: on the strand only.
  void start();
  // Says that there are too many connections, and closes.
  void turn_away();
  void drain();
  // At once, whatever is under way.
  void close();

  void send(HttpResponse response);
  void begin(HttpResponse head, std::string keep_alive, std::chrono::milliseconds keep_alive_every);
  void write(std::string piece);
  void end();
  void abandoned();  // nobody has the exchange any more, and it isn't over

  // Runs `action` as a completion handler: it keeps the connection alive meanwhile, and an exception closes it.
  template <typename Action>
  auto guarded(Action action) {
    return [self = shared_from_this(), action = std::move(action)](auto&&... arguments) mutable {
      try {
        action(std::forward<decltype(arguments)>(arguments)...);
      } catch (...) {
        self->close();
      }
    };
  }

 private:
  enum class State {
    kIdle,       // between requests
    kReading,    // a request has begun to arrive
    kAnswering,  // an exchange is open
    kFlushing,   // all of the answer is known; its last bytes are on their way
    kLingering,  // all is sent; the client may still be sending what nobody wants
    kClosed,
  };

  void unregister();

  void read_more();
  void on_read(error_code error, size_t bytes);
  void feed_reader();
  void hand_over();
  void refuse(int status, std::string_view message);

  void queue_head(const HttpResponse& response, Framing framing);
  void queue(std::string_view bytes);
  void start_write();
  void on_written(error_code error);
  void answer_complete();
  void answer_sent();
  void leave_exchange();
  void next_request();
  void linger();

  void set_deadline(Clock::duration after);
  void clear_deadline();
  void wait_for_deadline();
  void on_deadline();
  void arm_keep_alive();
  void on_keep_alive();

  std::shared_ptr<ServerCore> core_;
  Strand strand_;
  Socket socket_;
  std::string peer_;
  State state_ = State::kIdle;

  std::string in_;  // received, not used yet
  std::vector<char> read_buffer_;
  bool reading_ = false;
  bool client_ended_ = false;  // nothing more will come
  std::unique_ptr<RequestReader> reader_;

  std::weak_ptr<ConnectionExchange> exchange_;
  bool in_exchange_ = false;   // counted in open_exchanges
  bool head_request_ = false;  // HEAD: no body, whatever the handler says
  bool http_1_0_ = false;
  bool last_ = false;   // close after this answer
  bool begun_ = false;  // an answer in pieces
  Framing framing_ = Framing::kLength;

  std::string sending_, queued_;  // on their way; to go when those have gone
  bool writing_ = false;

  Timer deadline_timer_, keep_alive_timer_;
  std::optional<Clock::time_point> deadline_;
  bool deadline_waits_ = false;  // the timer is set
  std::string keep_alive_;
  Clock::duration keep_alive_every_{};
  Clock::time_point last_written_;
};

// The handler's end of a connection, for one request.
class ConnectionExchange : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, HttpRequest request)
      : connection_(std::move(connection)), request_(std::move(request)) {}
  ~ConnectionExchange() override;

  const HttpRequest& request() const override { return request_; }
  void send(HttpResponse response) override;
  void begin(HttpResponse head, std::string keep_alive, std::chrono::milliseconds keep_alive_every) override;
  void write(std::string piece) override;
  void end() override;
  void on_gone(std::function<void()> callback) override;

  // The connection is no more. Called on its strand.
  void gone();

 private:
  enum class State { kFresh, kBegun, kOver, kGone };

  // Posts `action` to the connection's strand, if the state is `from`, which becomes `to`. Under the lock: what is
  // posted is posted before gone(), and so before the server's threads may end.
  template <typename Action>
  void post(State from, State to, Action action);

  const std::shared_ptr<Connection> connection_;
  const HttpRequest request_;
  std::mutex mutex_;
  State state_ = State::kFresh;
  std::function<void()> on_gone_;
};

}  // namespace sluice::server
