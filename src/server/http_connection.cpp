#include "server/http_connection.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

namespace sluice::server {
namespace {

constexpr size_t kReadHead = size_t{4} << 10;      // bytes at once: an idle connection holds such a buffer
constexpr size_t kReadBody = size_t{64} << 10;     // while a body arrives
constexpr size_t kMostAhead = size_t{64} << 10;    // bytes taken of later requests while one is answered
constexpr auto kLinger = std::chrono::seconds(5);  // for a client to read the answer and stop sending

std::string name_of_peer(const Socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return "unknown";
  return host_and_port(endpoint.address().to_string(), endpoint.port());
}

}  // namespace

Connection::Connection(std::shared_ptr<ServerCore> core, Socket socket)
    : core_(std::move(core)),
      strand_(socket.get_executor()),
      socket_(std::move(socket)),
      peer_(name_of_peer(socket_)),
      deadline_timer_(strand_),
      keep_alive_timer_(strand_) {
  error_code ignored;  // slower without them, not wrong
  socket_.set_option(net::ip::tcp::no_delay(true), ignored);
  socket_.set_option(net::socket_base::keep_alive(true), ignored);
}

Connection::~Connection() { unregister(); }

void Connection::unregister() {
  const std::lock_guard lock(core_->mutex);
  core_->open.erase(this);
}

void Connection::start() { next_request(); }

void Connection::turn_away() { refuse(503, "too many connections; try again later"); }

void Connection::drain() {
  last_ = true;
  if (state_ == State::kIdle) close();
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  error_code ignored;
  socket_.close(ignored);
  deadline_timer_.cancel();
  keep_alive_timer_.cancel();
  unregister();  // an Exchange may keep the object for longer
  leave_exchange();
  if (const auto exchange = exchange_.lock()) exchange->gone();
}

// --- Requests
// ---------------------------------------------------------------------------------------------------------

void Connection::next_request() {
  if (core_->draining) return close();
  state_ = State::kIdle;
  reader_ = std::make_unique<RequestReader>(core_->options.max_header, core_->options.max_body);
  for (std::string* buffer : {&in_, &sending_, &queued_}) buffer->shrink_to_fit();  // an idle connection costs little
  set_deadline(core_->options.idle_timeout);
  feed_reader();
}

void Connection::read_more() {
  if (reading_ || client_ended_ || state_ == State::kClosed) return;
  if (in_.size() >= kMostAhead && (state_ == State::kAnswering || state_ == State::kFlushing)) return;
  reading_ = true;
  const size_t wanted = state_ == State::kReading && reader_->in_body() ? kReadBody : kReadHead;
  if (read_buffer_.size() != wanted) read_buffer_ = std::vector<char>(wanted);
  socket_.async_read_some(net::buffer(read_buffer_),
                          guarded([this](error_code error, size_t bytes) { on_read(error, bytes); }));
}

void Connection::on_read(error_code error, size_t bytes) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (error) {
    client_ended_ = true;
    // A client may end its side once it has asked, and still take the rest of an answer; one that nobody has finished
    // is not worth finishing.
    if (state_ != State::kFlushing) return close();
    last_ = true;
    return;
  }
  if (state_ != State::kLingering) in_.append(read_buffer_.data(), bytes);
  if (state_ == State::kIdle || state_ == State::kReading) return feed_reader();
  read_more();
}

void Connection::feed_reader() {
  if (!in_.empty()) {
    if (state_ == State::kIdle) {
      state_ = State::kReading;
      set_deadline(core_->options.read_timeout);
    }
    in_.erase(0, reader_->feed(in_));
    if (reader_->failed()) return refuse(reader_->failed(), reader_->reason());
    if (reader_->done()) return hand_over();
    if (reader_->take_expects_continue()) {
      queue("HTTP/1.1 100 Continue\r\n\r\n");
      start_write();
    }
  }
  read_more();
}

void Connection::hand_over() {
  last_ = last_ || !reader_->keep_alive() || core_->draining;
  http_1_0_ = reader_->http_1_0();
  HttpRequest request = reader_->take();
  if (reader_->failed()) return refuse(reader_->failed(), reader_->reason());
  request.peer = peer_;
  head_request_ = request.method == "HEAD";
  begun_ = false;
  state_ = State::kAnswering;
  clear_deadline();
  in_exchange_ = true;
  ++core_->open_exchanges;

  const auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), std::move(request));
  exchange_ = exchange;
  try {
    core_->handler(exchange);
  } catch (const std::exception& error) {
    exchange->send(error_response(500, error.what()));
  } catch (...) {
    exchange->send(error_response(500, "the request's handler failed"));
  }
  // Not before the handler: what it answers at once is then ahead of the news that the client has ended its side.
  read_more();
}

void Connection::refuse(int status, std::string_view message) {
  HttpResponse response = error_response(status, message);
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  last_ = true;
  queue_head(response, Framing::kLength);
  if (!head_request_) queue(response.body);
  answer_complete();
}

// --- Answers
// ----------------------------------------------------------------------------------------------------------

void Connection::send(HttpResponse response) {
  if (state_ != State::kAnswering || begun_) return;
  const Framing framing = has_body(response.status) ? Framing::kLength : Framing::kNoBody;
  queue_head(response, framing);
  if (framing == Framing::kLength && !head_request_) queue(response.body);
  answer_complete();
}

void Connection::begin(HttpResponse head, std::string keep_alive, std::chrono::milliseconds keep_alive_every) {
  if (state_ != State::kAnswering || begun_) return;
  begun_ = true;
  framing_ = !has_body(head.status) ? Framing::kNoBody : http_1_0_ ? Framing::kUntilClose : Framing::kChunked;
  if (framing_ == Framing::kUntilClose) last_ = true;
  queue_head(head, framing_);
  start_write();
  last_written_ = Clock::now();
  keep_alive_ = std::move(keep_alive);
  keep_alive_every_ = keep_alive_every;
  arm_keep_alive();
  write(std::move(head.body));
}

void Connection::write(std::string piece) {
  if (state_ != State::kAnswering || !begun_ || piece.empty()) return;
  if (head_request_ || framing_ == Framing::kNoBody) return;
  const size_t unsent = sending_.size() + queued_.size();
  if (unsent > 0 && unsent + piece.size() > core_->options.max_unsent) return close();
  last_written_ = Clock::now();
  queue(framing_ == Framing::kChunked ? chunk(piece) : piece);
  start_write();
}

void Connection::end() {
  if (state_ != State::kAnswering || !begun_) return;
  if (framing_ == Framing::kChunked && !head_request_) queue(kLastChunk);
  answer_complete();
}

void Connection::abandoned() {
  if (state_ != State::kAnswering) return;
  if (begun_) return close();
  send(error_response(500, "this request got no answer"));
}

void Connection::answer_complete() {
  state_ = State::kFlushing;
  keep_alive_timer_.cancel();
  start_write();
  if (!writing_) answer_sent();
}

void Connection::answer_sent() {
  leave_exchange();
  exchange_.reset();
  if (last_) {
    linger();
  } else {
    next_request();
  }
}

void Connection::leave_exchange() {
  if (in_exchange_) --core_->open_exchanges;
  in_exchange_ = false;
}

// To close a socket that has unread bytes resets the connection, and the client may lose the answer with it. So only
// our side is ended, and what still comes is thrown away until the client ends its own.
void Connection::linger() {
  if (client_ended_) return close();
  state_ = State::kLingering;
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  in_ = {};
  set_deadline(kLinger);
  read_more();
}

// --- Bytes out
// --------------------------------------------------------------------------------------------------------

void Connection::queue_head(const HttpResponse& response, Framing framing) {
  queue(response_head(response, core_->options.headers, framing, !last_));
}

void Connection::queue(std::string_view bytes) { queued_ += bytes; }

void Connection::start_write() {
  if (writing_ || queued_.empty() || state_ == State::kClosed) return;
  writing_ = true;
  sending_.swap(queued_);
  if (state_ != State::kReading) set_deadline(core_->options.write_timeout);
  net::async_write(socket_, net::buffer(sending_), guarded([this](error_code error, size_t) { on_written(error); }));
}

void Connection::on_written(error_code error) {
  writing_ = false;
  if (state_ == State::kClosed) return;
  if (error) return close();
  sending_.clear();
  if (state_ == State::kAnswering) clear_deadline();
  start_write();
  if (!writing_ && state_ == State::kFlushing) answer_sent();
}

// --- Time
// -------------------------------------------------------------------------------------------------------------

// The timer is left to run when a deadline moves back, as it does with every write, and set again when it goes off
// early.
void Connection::set_deadline(Clock::duration after) {
  deadline_ = Clock::now() + after;
  if (!deadline_waits_ || deadline_timer_.expiry() > *deadline_) wait_for_deadline();
}

void Connection::clear_deadline() { deadline_.reset(); }

void Connection::wait_for_deadline() {
  deadline_waits_ = true;
  deadline_timer_.expires_at(*deadline_);
  deadline_timer_.async_wait(guarded([this](error_code error) {
    if (error || state_ == State::kClosed) return;  // set to another time, or never mind
    deadline_waits_ = false;
    if (!deadline_) return;
    if (Clock::now() < *deadline_) return wait_for_deadline();
    deadline_.reset();
    on_deadline();
  }));
}

void Connection::on_deadline() {
  if (state_ != State::kReading) return close();
  refuse(408, fmt::format("the request did not arrive within {} seconds", core_->options.read_timeout.count()));
}

void Connection::arm_keep_alive() {
  if (keep_alive_.empty() || keep_alive_every_ <= Clock::duration::zero()) return;
  keep_alive_timer_.expires_at(last_written_ + keep_alive_every_);
  keep_alive_timer_.async_wait(guarded([this](error_code error) {
    if (!error && state_ == State::kAnswering && begun_) on_keep_alive();
  }));
}

void Connection::on_keep_alive() {
  if (Clock::now() >= last_written_ + keep_alive_every_) {
    if (writing_) {
      last_written_ = Clock::now();  // a client that doesn't take what there is needs no more
    } else {
      write(keep_alive_);
    }
  }
  arm_keep_alive();
}

// --- ConnectionExchange
// -----------------------------------------------------------------------------------------------

template <typename Action>
void ConnectionExchange::post(State from, State to, Action action) {
  std::function<void()> forgotten;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  if (state_ != from) return;
  state_ = to;
  if (to == State::kOver) forgotten = std::exchange(on_gone_, nullptr);
  net::post(connection_->strand(), connection_->guarded(std::move(action)));
}

ConnectionExchange::~ConnectionExchange() {
  const auto abandon = [connection = connection_.get()] { connection->abandoned(); };
  post(State::kFresh, State::kOver, abandon);
  post(State::kBegun, State::kOver, abandon);
}

void ConnectionExchange::send(HttpResponse response) {
  post(State::kFresh, State::kOver, [connection = connection_.get(), response = std::move(response)]() mutable {
    connection->send(std::move(response));
  });
}

void ConnectionExchange::begin(HttpResponse head, std::string keep_alive, std::chrono::milliseconds keep_alive_every) {
  post(State::kFresh, State::kBegun,
       [connection = connection_.get(), head = std::move(head), keep_alive = std::move(keep_alive),
        keep_alive_every]() mutable { connection->begin(std::move(head), std::move(keep_alive), keep_alive_every); });
}

void ConnectionExchange::write(std::string piece) {
  post(State::kBegun, State::kBegun,
       [connection = connection_.get(), piece = std::move(piece)]() mutable { connection->write(std::move(piece)); });
}

void ConnectionExchange::end() {
  post(State::kBegun, State::kOver, [connection = connection_.get()] { connection->end(); });
}

void ConnectionExchange::on_gone(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kOver) return;
    if (state_ != State::kGone) {
      on_gone_ = std::move(callback);
      return;
    }
  }
  callback();
}

void ConnectionExchange::gone() {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kOver || state_ == State::kGone) return;
    state_ = State::kGone;
    callback = std::exchange(on_gone_, nullptr);
  }
  if (callback) callback();
}

}  // namespace sluice::server
