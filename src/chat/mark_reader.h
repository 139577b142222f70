// Recognizes marks at the front of a text that may go on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

enum class Match : uint8_t {
  kNo,
  kPartial,  // not yet, but what follows may make it one
  kYes,
};

// Reads one part after another; the first that doesn't match decides about all. Time is bounded by what it looks for.
class MarkReader {
 public:
  static constexpr size_t kMostSpace = 64, kMostName = 256;  // bytes

  // `at_end`: nothing follows the text.
  MarkReader(std::string_view text, bool at_end) : text_(text), at_end_(at_end) {}

  MarkReader& literal(std::string_view mark) {
    if (match_ != Match::kYes) return *this;
    if (rest().starts_with(mark)) {
      at_ += mark.size();
    } else {
      fail(mark.starts_with(rest()));
    }
    return *this;
  }
  MarkReader& space() {
    if (match_ != Match::kYes) return *this;
    const size_t size = std::min(rest().find_first_not_of(" \t\r\n"), rest().size());
    if (size > kMostSpace) match_ = Match::kNo;
    at_ += size;
    return *this;
  }
  // A name without line ends and "<", up to `stop`, which is read too.
  MarkReader& name(char stop, std::string& out) {
    if (match_ != Match::kYes) return *this;
    const std::string_view front = rest().substr(0, kMostName + 1);
    const size_t size = std::min(front.find(stop), front.size());
    const bool fits = size <= kMostName && front.substr(0, size).find_first_of("<\n") == std::string_view::npos;
    if (!fits || size == front.size()) {
      fail(fits);
    } else {
      out = front.substr(0, size);
      at_ += size + 1;
    }
    return *this;
  }
  MarkReader& end() {
    if (match_ == Match::kYes && !(rest().empty() && at_end_)) fail(rest().empty());
    return *this;
  }

  Match match() const { return match_; }
  bool yes() const { return match_ == Match::kYes; }
  size_t size() const { return at_; }  // bytes read
  std::string_view rest() const { return text_.substr(at_); }

 private:
  void fail(bool may_come) { match_ = may_come && !at_end_ ? Match::kPartial : Match::kNo; }

  std::string_view text_;
  bool at_end_;
  size_t at_ = 0;
  Match match_ = Match::kYes;
};

}  // namespace sluice
