// Products with quantized weights, plainly: the definition that every instruction set's panels (panel.h) must equal.
// Included by kernels.inl for the scalar kernels only.

// One block's integers times one activation row's: exact.
inline int32_t integer_dot(const quant::UnpackedBlock& block, const int8_t* q, size_t first, size_t n) {
  int32_t total = 0;
  for (size_t i = first; i < first + n; ++i)
    total += int32_t{block.scales[i / 16]} * int32_t{block.weights[i]} * int32_t{q[i]};
  return total;
}

inline int32_t minimum_dot(const quant::UnpackedBlock& block, const int16_t* sums, size_t n_groups) {
  int32_t total = 0;
  for (size_t g = 0; g < n_groups; ++g) total += int32_t{block.minimums[g]} * int32_t{sums[g]};
  return total;
}

// A block's part of the product of a weight row and activation row `row`, added to acc: a fused multiply-add a segment,
// and one for the minimum.
inline float add_block(const quant::Format& format, const quant::UnpackedBlock& block, const Rows& x, size_t row,
                       size_t first, float acc) {
  const size_t weights = format.block_weights, segment = weights / format.segments;
  const int8_t* q = x.q + row * x.n + first;
  const float* scale = x.scale + row * (x.n / x.block);
  for (size_t s = 0; s < format.segments; ++s) {
    const int32_t dot = integer_dot(block, q, s * segment, segment);
    acc = fma_f32(block.scale[s] * scale[(first + s * segment) / x.block], static_cast<float>(dot), acc);
  }
  if (!format.has_minimum) return acc;
  const int32_t sum = minimum_dot(block, x.sums + (row * x.n + first) / 16, weights / 16);
  return fma_f32(block.minimum * scale[first / x.block], static_cast<float>(sum), acc);
}

// Each block is unpacked once for all activation rows. Blocks go in order along the row.
inline void matmul_int8(const quant::Format& format, const std::byte* weights, size_t n_out, const Rows& x, float* y,
                        size_t y_stride, const std::byte*) {
  const size_t n_blocks = x.n / format.block_weights;
  quant::UnpackedBlock block;
  for (size_t o = 0; o < n_out; ++o) {
    for (size_t r = 0; r < x.n_rows; ++r) y[x.to(r) * y_stride + o] = 0.0f;
    for (size_t b = 0; b < n_blocks; ++b) {
      format.unpack(weights + (o * n_blocks + b) * format.block_bytes, block);
      for (size_t r = 0; r < x.n_rows; ++r) {
        float& acc = y[x.to(r) * y_stride + o];
        acc = add_block(format, block, x, x.at(r), b * format.block_weights, acc);
      }
    }
  }
}
