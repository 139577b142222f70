#include "gguf/cursor.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/checked.h"

namespace sluice::gguf {

Cursor::Cursor(const File& file, size_t chunk_bytes, uint64_t limit) : file_(file), end_(std::min(file.size(), limit)) {
  buffer_.resize(std::min<uint64_t>(std::max<size_t>(chunk_bytes, 1), end_));
}

std::string Cursor::where() const { return file_.path() + ": " + place_; }

void Cursor::need(uint64_t count, uint64_t each, const char* what) const {
  const auto bytes = try_mul(count, each);
  if (bytes && *bytes <= remaining()) return;
  const std::string wanted = count == 1 ? fmt::format("{} of {} bytes", what, each)
                                        : fmt::format("{} x {} of at least {} bytes", count, what, each);
  if (end_ == file_.size())
    fail_here(ErrorKind::kFormat,
              "{} at offset {} passes the end of the file ({}); the file is truncated or damaged, download it again",
              wanted, position_, end_);
  fail_here(ErrorKind::kFormat, "{} at offset {} passes the limit of {} bytes for metadata; the file is damaged",
            wanted, position_, end_);
}

void Cursor::read(void* out, uint64_t bytes, const char* what) {
  need(1, bytes, what);
  auto* to = static_cast<std::byte*>(out);
  while (bytes > 0) {
    if (next_ == filled_) {
      next_ = 0;
      filled_ = std::min<uint64_t>(buffer_.size(), remaining());
      file_.read_at(position_, std::span(buffer_).first(filled_));
    }
    const size_t n = std::min<uint64_t>(bytes, filled_ - next_);
    std::memcpy(to, buffer_.data() + next_, n);
    to += n;
    next_ += n;
    position_ += n;
    bytes -= n;
  }
}

std::string Cursor::take_string(const char* what) {
  const auto length = take<uint64_t>(what);
  need(1, length, what);
  std::string out(length, '\0');
  read(out.data(), length, what);
  return out;
}

}  // namespace sluice::gguf
