#include "server/http.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <set>
#include <thread>

#include "base/error.h"
#include "server/http_connection.h"

namespace sluice::server {
namespace {

using Acceptor = net::basic_socket_acceptor<net::ip::tcp, Strand>;
using Endpoint = net::ip::tcp::endpoint;

constexpr size_t kTurnedAway = 64;  // connections over the limit that are told so; others are just closed
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // after a failure, such as too many open files

struct Listener {
  explicit Listener(const Strand& strand) : acceptor(strand), pause(strand) {}

  Acceptor acceptor;
  Timer pause;
};

// Sockets are files, and the soft limit of open ones is often 1,024.
void allow_open_files(size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);  // if not: fewer connections
}

// All addresses that the name has: "localhost" is ::1 and 127.0.0.1, and clients try either first.
std::vector<Endpoint> resolve(net::io_context& io, const HttpOptions& options) {
  error_code error;
  const auto flags = net::ip::tcp::resolver::passive | net::ip::tcp::resolver::numeric_service;
  const auto found = net::ip::tcp::resolver(io).resolve(options.host, fmt::format("{}", options.port), flags, error);
  if (error) {
    fail(ErrorKind::kIo, "{}: no such address or name of a host ({}); give an address to --host, such as 127.0.0.1",
         host_and_port(options.host, options.port), error.message());
  }
  std::vector<Endpoint> endpoints;
  for (const auto& entry : found) {
    if (std::find(endpoints.begin(), endpoints.end(), entry.endpoint()) == endpoints.end()) {
      endpoints.push_back(entry.endpoint());
    }
  }
  return endpoints;
}

error_code try_listen(Acceptor& acceptor, const Endpoint& endpoint, bool both_families) {
  error_code error;
  const auto step = [&error](auto action) {
    if (!error) action();
  };
  step([&] { acceptor.open(endpoint.protocol(), error); });
  step([&] { acceptor.set_option(Acceptor::reuse_address(true), error); });
  if (endpoint.address().is_v6()) step([&] { acceptor.set_option(net::ip::v6_only(!both_families), error); });
  step([&] { acceptor.bind(endpoint, error); });
  step([&] { acceptor.listen(net::socket_base::max_listen_connections, error); });
  if (error) {
    error_code ignored;
    acceptor.close(ignored);
  }
  return error;
}

// A machine may know a name's address of a family that it doesn't have.
bool means_no_such_family(error_code error) {
  return error == net::error::address_family_not_supported || error == boost::system::errc::address_not_available;
}

[[noreturn]] void fail_to_listen(const HttpOptions& options, error_code error) {
  const std::string where = host_and_port(options.host, options.port);
  if (error == net::error::address_in_use) {
    fail(ErrorKind::kIo, "{}: address already in use; another program listens there: choose another --port", where);
  }
  if (error == net::error::access_denied) {
    fail(ErrorKind::kIo, "{}: permission denied; ports below 1024 need privileges: choose another --port", where);
  }
  if (error == boost::system::errc::address_not_available) {
    fail(ErrorKind::kIo, "{}: not an address of this machine; choose another --host", where);
  }
  fail(ErrorKind::kIo, "{}: can't listen there: {}", where, error.message());
}

// What throws outside of a connection's own guard (no memory, mostly) costs that action, not the program.
void run(net::io_context& io) {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception&) {
    }
  }
}

}  // namespace

struct HttpServer::Impl {
  Impl(HttpOptions options, HttpHandler handler)
      : core(std::make_shared<ServerCore>(std::move(options), std::move(handler))),
        strand(net::make_strand(core->io)),
        work(net::make_work_guard(core->io)) {}

  std::shared_ptr<ServerCore> core;
  Strand strand;  // of what follows, once the threads run
  std::vector<Listener> listeners;
  net::executor_work_guard<net::io_context::executor_type> work;
  std::vector<std::thread> threads;
  uint16_t port = 0;

  void listen();
  error_code listen_on(std::vector<Endpoint> endpoints);
  void accept(Listener& listener);
  void welcome(Socket socket);
  void stop_listening();
  std::vector<std::shared_ptr<Connection>> connections();
};

void HttpServer::Impl::listen() {
  allow_open_files(core->options.max_connections + kTurnedAway + 256);
  const std::vector<Endpoint> endpoints = resolve(core->io, core->options);
  // Any free port of the first address may be taken at the second.
  int tries = core->options.port == 0 && endpoints.size() > 1 ? 16 : 1;
  error_code error;
  do {
    listeners.clear();
    error = listen_on(endpoints);
  } while (error == net::error::address_in_use && --tries > 0);
  if (error) fail_to_listen(core->options, error);
}

error_code HttpServer::Impl::listen_on(std::vector<Endpoint> endpoints) {
  error_code error, no_such_family;
  for (Endpoint& endpoint : endpoints) {
    if (!listeners.empty()) endpoint.port(port);
    Listener listener(strand);
    error = try_listen(listener.acceptor, endpoint, endpoints.size() == 1);
    if (means_no_such_family(error)) {
      no_such_family = error;
      continue;
    }
    if (error) return error;
    port = listener.acceptor.local_endpoint().port();
    listeners.push_back(std::move(listener));
  }
  return listeners.empty() ? no_such_family : error_code();
}

void HttpServer::Impl::accept(Listener& listener) {
  listener.acceptor.async_accept(net::make_strand(core->io), [this, &listener](error_code error, Socket socket) {
    if (!listener.acceptor.is_open()) return;
    if (!error) {
      welcome(std::move(socket));
      return accept(listener);
    }
    // The connection waits in the queue, and would be offered again at once.
    listener.pause.expires_after(kAcceptPause);
    listener.pause.async_wait([this, &listener](error_code) {
      if (listener.acceptor.is_open()) accept(listener);
    });
  });
}

void HttpServer::Impl::welcome(Socket socket) {
  try {
    const auto connection = std::make_shared<Connection>(core, std::move(socket));
    size_t others = 0;
    {
      const std::lock_guard lock(core->mutex);
      others = core->open.size();
      if (core->stopped || others >= core->options.max_connections + kTurnedAway) return;
      core->open.emplace(connection.get(), connection);
    }
    const bool too_many = others >= core->options.max_connections;
    net::post(connection->strand(), connection->guarded([c = connection.get(), too_many] {
      if (too_many) {
        c->turn_away();
      } else {
        c->start();
      }
    }));
  } catch (const std::exception&) {
    // No memory for this one; its socket is closed by now.
  }
}

void HttpServer::Impl::stop_listening() {
  net::post(strand, [this] {
    error_code ignored;
    for (Listener& listener : listeners) {
      listener.acceptor.close(ignored);
      listener.pause.cancel();
    }
  });
}

std::vector<std::shared_ptr<Connection>> HttpServer::Impl::connections() {
  std::vector<std::shared_ptr<Connection>> all;
  const std::lock_guard lock(core->mutex);
  for (const auto& [address, weak] : core->open) {
    if (auto connection = weak.lock()) all.push_back(std::move(connection));
  }
  return all;
}

HttpServer::HttpServer(HttpOptions options, HttpHandler handler)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler))) {
  impl_->listen();
}

HttpServer::~HttpServer() { stop(); }

uint16_t HttpServer::port() const { return impl_->port; }

void HttpServer::start() {
  if (!impl_->threads.empty()) return;
  for (Listener& listener : impl_->listeners) impl_->accept(listener);
  for (int i = 0; i < std::max(1, impl_->core->options.threads); ++i) {
    impl_->threads.emplace_back([core = impl_->core] { run(core->io); });
  }
}

void HttpServer::drain() {
  impl_->core->draining = true;
  impl_->stop_listening();
  for (const auto& connection : impl_->connections()) {
    net::post(connection->strand(), connection->guarded([c = connection.get()] { c->drain(); }));
  }
}

size_t HttpServer::open_exchanges() const { return impl_->core->open_exchanges; }

size_t HttpServer::open_connections() const {
  const std::lock_guard lock(impl_->core->mutex);
  return impl_->core->open.size();
}

void HttpServer::stop() {
  {
    const std::lock_guard lock(impl_->core->mutex);
    if (std::exchange(impl_->core->stopped, true)) return;
  }
  impl_->stop_listening();
  for (const auto& connection : impl_->connections()) {
    net::post(connection->strand(), connection->guarded([c = connection.get()] { c->close(); }));
  }
  // With every socket and timer closed the threads run out of work.
  impl_->work.reset();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->core->handler = nullptr;
}

}  // namespace sluice::server
