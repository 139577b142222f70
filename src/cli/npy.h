// Arrays of f32 in NumPy's file format, version 1.0: written row by row, read row by row.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace sluice::cli {

class NpyWriter {
 public:
  // `shape` is known in advance, slowest dimension first. Throws Error(kIo).
  NpyWriter(const std::string& path, std::span<const uint64_t> shape);
  void write(std::span<const float> values);
  void commit() { file_.commit(); }

 private:
  AtomicFileWriter file_;
};

class NpyReader {
 public:
  // Throws Error(kIo), and Error(kFormat) when the file is not a C-ordered f32 array of two dimensions.
  explicit NpyReader(const std::string& path);
  uint64_t rows() const { return rows_; }
  uint64_t columns() const { return columns_; }
  void read_row(uint64_t row, std::span<float> out) const;

 private:
  std::unique_ptr<File> file_;
  uint64_t rows_ = 0, columns_ = 0, data_ = 0;
};

}  // namespace sluice::cli
