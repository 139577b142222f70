// A plain blocking HTTP client for tests: bytes out, bytes in, and just enough understanding to cut out an answer.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::server {

struct Answer {
  int status = 0;  // 0: the connection ended first
  std::string head, body;
  bool complete = false;

  bool says(std::string_view header) const { return head.find(std::string(header) + "\r\n") != std::string::npos; }
};

class TestClient {
 public:
  // `receive_buffer`: bytes of the kernel that take what isn't read, 0 for as many as usual.
  explicit TestClient(uint16_t port, int receive_buffer = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    const timeval patience{60, 0};  // a test that would hang fails instead
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~TestClient() { disconnect(); }
  TestClient(TestClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_), in_(std::move(other.in_)) {}
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  bool connected() const { return connected_; }

  void disconnect() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  // The server's kernel is told that nobody is here any more.
  void reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    disconnect();
  }
  void end_sending() { shutdown(fd_, SHUT_WR); }

  // False if the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  Answer get(std::string_view path) {
    send("GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n\r\n");
    return read_answer();
  }

  // Up to and with `end`; what there was, if the connection ended first.
  std::string read_until(std::string_view end) {
    size_t at;
    while ((at = in_.find(end)) == std::string::npos) {
      if (!receive()) return std::exchange(in_, {});
    }
    return take(at + end.size());
  }

  std::string read_to_end() {
    while (receive()) {
    }
    return std::exchange(in_, {});
  }

  bool ended() { return in_.empty() && !receive(); }

  Answer read_answer(bool without_body = false) {
    Answer answer;
    answer.head = read_until("\r\n\r\n");
    if (answer.head.size() < 12 || answer.head.compare(0, 9, "HTTP/1.1 ") != 0) return answer;
    answer.status = std::atoi(answer.head.c_str() + 9);
    const size_t length_at = answer.head.find("Content-Length: ");
    if (without_body) {
      answer.complete = true;
    } else if (length_at != std::string::npos) {
      const size_t length = std::strtoul(answer.head.c_str() + length_at + 16, nullptr, 10);
      while (in_.size() < length && receive()) {
      }
      answer.complete = in_.size() >= length;
      answer.body = take(std::min(length, in_.size()));
    } else if (answer.says("Transfer-Encoding: chunked")) {
      read_chunks(answer);
    } else {
      answer.body = read_to_end();
      answer.complete = true;
    }
    return answer;
  }

 private:
  void read_chunks(Answer& answer) {
    for (;;) {
      const std::string line = read_until("\r\n");
      if (line.size() < 3) return;
      const size_t length = std::strtoul(line.c_str(), nullptr, 16);
      while (in_.size() < length + 2 && receive()) {
      }
      if (in_.size() < length + 2) return;
      answer.body += take(length);
      take(2);
      if (length == 0) {
        answer.complete = true;
        return;
      }
    }
  }

  bool receive() {
    char buffer[16384];
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EAGAIN) ADD_FAILURE() << "the server neither answers nor closes";
    if (n <= 0) return false;
    in_.append(buffer, static_cast<size_t>(n));
    return true;
  }

  std::string take(size_t n) {
    std::string out = in_.substr(0, n);
    in_.erase(0, n);
    return out;
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string in_;
};

}  // namespace sluice::server
