// The one error type of Sluice. What a user sends or points at is answered with an Error that names the place, the
// value, the limit and the remedy; nothing aborts. Asserts are for what the code itself guarantees.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace sluice {

enum class ErrorKind {
  kUsage,        // an option or argument is wrong: exit code 2
  kIo,           // the operating system refused or cut short a read, write or allocation of a file
  kFormat,       // a file's or request's content contradicts its format or itself
  kUnsupported,  // well-formed, but not something Sluice can run
  kLimit,        // would need more memory, context or depth than there is
  kInternal,     // a promise of the code itself was broken
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Throws Error(kind, formatted message).
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sluice
