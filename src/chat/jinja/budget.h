// What one render may still do. Everything that can grow with a template's wishes asks here first.
#pragma once

#include <cstdint>

#include "chat/jinja/jinja.h"

namespace sluice::jinja {

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  // Counts `steps` of work. Throws TemplateError(kLimit).
  void step(uint64_t steps = 1) {
    steps_ += steps;
    if (steps_ > limits_.max_steps) fail("steps", limits_.max_steps);
  }

  // Counts a search for `needle_bytes` in `text_bytes`, whose worst case is their product.
  void search(uint64_t text_bytes, uint64_t needle_bytes) {
    constexpr uint64_t kBytesPerStep = 64;
    step((text_bytes / kBytesPerStep) * (needle_bytes / kBytesPerStep + 1));
  }

  // Counts `bytes` about to be made. Throws TemplateError(kLimit).
  void make(uint64_t bytes) {
    if (bytes > limits_.max_bytes_made - bytes_) fail("bytes made", limits_.max_bytes_made);
    bytes_ += bytes;
  }

  // Counts a string of `count` pieces of `bytes` each; neither a product nor a string past the limit gets through.
  void make_text(uint64_t bytes, uint64_t count = 1) {
    if (count != 0 && bytes > limits_.max_output_bytes / count) fail("bytes in one string", limits_.max_output_bytes);
    make(bytes * count);
  }

  // Counts a list of `count` values.
  void make_items(uint64_t count) {
    constexpr uint64_t kItemBytes = 32;
    if (count > limits_.max_bytes_made / kItemBytes) fail("bytes made", limits_.max_bytes_made);
    make(count * kItemBytes);
    step(count);
  }

  void check_output(uint64_t bytes) const {
    if (bytes > limits_.max_output_bytes) fail("bytes of output", limits_.max_output_bytes);
  }

  const Limits& limits() const { return limits_; }

 private:
  [[noreturn]] static void fail(const char* what, uint64_t limit) {
    throw TemplateError(FailureKind::kLimit, fmt::format("the template needs more than {} {}", limit, what));
  }

  Limits limits_;
  uint64_t steps_ = 0, bytes_ = 0;
};

}  // namespace sluice::jinja
