#include "cli/npy.h"

#include <regex>

#include "base/bytes.h"
#include "base/error.h"

namespace sluice::cli {

namespace {

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);

std::string header_of(std::span<const uint64_t> shape) {
  std::string dims;
  for (const uint64_t n : shape) dims += std::to_string(n) + ", ";
  std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", dims);
  // The data begin at a multiple of 64, after a newline.
  while ((kMagic.size() + 2 + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string header(kMagic);
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace

NpyWriter::NpyWriter(const std::string& path, std::span<const uint64_t> shape) : file_(path) {
  file_.write(header_of(shape));
}

void NpyWriter::write(std::span<const float> values) { file_.write(std::as_bytes(values)); }

NpyReader::NpyReader(const std::string& path) : file_(open_file(path)) {
  char start[10] = {};
  if (file_->size() >= sizeof start) file_->read_at(0, std::as_writable_bytes(std::span(start)));
  const size_t length = load<uint16_t>(start + 8);
  data_ = sizeof start + length;
  if (std::string_view(start, 8) != kMagic || data_ > file_->size())
    fail(ErrorKind::kFormat, "{}: is not a NumPy file of version 1.0", path);
  std::string header(length, '\0');
  file_->read_at(sizeof start, std::as_writable_bytes(std::span(header)));
  static const std::regex kShape(
      R"('descr': '<f4', 'fortran_order': False, 'shape': \((\d{1,15}), (\d{1,15})(?:, )?\))");
  std::smatch found;
  if (!std::regex_search(header, found, kShape))
    fail(ErrorKind::kFormat, "{}: holds no C-ordered float32 array of two dimensions", path);
  rows_ = std::stoull(found[1]);
  columns_ = std::stoull(found[2]);
  if (columns_ == 0 || rows_ > (file_->size() - data_) / sizeof(float) / columns_)
    fail(ErrorKind::kFormat, "{}: is shorter than its {} x {} values", path, rows_, columns_);
}

void NpyReader::read_row(uint64_t row, std::span<float> out) const {
  file_->read_at(data_ + row * columns_ * sizeof(float), std::as_writable_bytes(out));
}

}  // namespace sluice::cli
