#include "gguf/tensor_info.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"
#include "gguf/value.h"

namespace sluice::gguf {

namespace {

constexpr uint64_t kMaxExtent = std::numeric_limits<int64_t>::max();  // GGUF's extents are signed in practice

void check_text(std::string_view text, size_t max_bytes, const char* what, const std::string& where) {
  if (text.empty()) fail(ErrorKind::kFormat, "{}: the {} is empty; the file is damaged, get it again", where, what);
  if (text.size() > max_bytes)
    fail(ErrorKind::kFormat, "{}: the {} \"{}\" has {} bytes, more than the limit of {}", where, what, printable(text),
         text.size(), max_bytes);
  if (!utf8::is_valid(text))
    fail(ErrorKind::kFormat, "{}: the {} \"{}\" is not UTF-8; the file is damaged, get it again", where, what,
         printable(text));
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }))
    fail(ErrorKind::kFormat, "{}: the {} \"{}\" holds a control character", where, what, printable(text));
}

// a x b, or 0 when that passes kMaxExtent. A factor of 0 is such a product already.
uint64_t bounded_product(uint64_t a, uint64_t b) { return b == 0 || a > kMaxExtent / b ? 0 : a * b; }

std::string join(const std::vector<uint64_t>& extents) {
  std::string out;
  for (const uint64_t extent : extents) out += fmt::format("{}{}", out.empty() ? "" : " x ", extent);
  return out;
}

}  // namespace

void compute_sizes(TensorInfo& tensor, const std::string& where) {
  if (tensor.extents.empty() || tensor.extents.size() > kMaxExtents)
    fail(ErrorKind::kFormat, "{}: has {} dimensions; 1 to {} are allowed", where, tensor.extents.size(), kMaxExtents);
  for (size_t i = 0; i < tensor.extents.size(); ++i) {
    if (tensor.extents[i] == 0 || tensor.extents[i] > kMaxExtent)
      fail(ErrorKind::kFormat, "{}: dimension {} is {}; 1 to {} are allowed", where, i,
           static_cast<int64_t>(tensor.extents[i]), kMaxExtent);
  }
  const quant::Format& format = *tensor.format;
  if (tensor.extents[0] % format.block_weights != 0)
    fail(ErrorKind::kFormat, "{}: rows of {} weights are no whole number of {} blocks of {}", where, tensor.extents[0],
         format.name, format.block_weights);

  uint64_t rows = 1;
  for (size_t i = 1; i < tensor.extents.size(); ++i) rows = bounded_product(rows, tensor.extents[i]);
  const uint64_t row_bytes = bounded_product(tensor.extents[0] / format.block_weights, format.block_bytes);
  const uint64_t bytes = bounded_product(rows, row_bytes);
  if (bytes == 0 || bounded_product(rows, tensor.extents[0]) == 0)
    fail(ErrorKind::kFormat, "{}: {} weights of {} do not fit in 63 bits; the file is damaged, get it again", where,
         join(tensor.extents), format.name);
  tensor.rows = rows;
  tensor.row_bytes = row_bytes;
  tensor.bytes = bytes;
}

void check_key(std::string_view key, const std::string& where) { check_text(key, kMaxKeyBytes, "key", where); }

void check_tensor_name(std::string_view name, const std::string& where) {
  check_text(name, kMaxNameBytes, "tensor name", where);
}

void check_alignment(uint64_t alignment, const std::string& where) {
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignment)
    fail(ErrorKind::kFormat, "{}: general.alignment is {}; a power of two up to {} is needed", where, alignment,
         kMaxAlignment);
}

}  // namespace sluice::gguf
