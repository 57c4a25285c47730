// A matrix somewhere in memory, as a caller hands it over: no ownership, any strides, 64-bit offsets.
#pragma once

#include <cstdint>
#include <string>

#include "coda/dtype.h"

namespace coda {

// Element (r, c) lies at
//   data + size_of(dtype) * ((r / row_block) * row_outer + (r % row_block) * row_stride
//                          + (c / col_block) * col_outer + (c % col_block) * col_stride)
// Four strides, in elements: a row is (batch, position), a column is (head, element), so attention's [B,H,S,D] tensors
// are read and written in place (row_block = S, col_block = D). A plain matrix has row_block = rows, col_block = cols.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t rows = 0, cols = 0;
  std::int64_t row_block = 1, row_stride = 0, row_outer = 0;
  std::int64_t col_block = 1, col_stride = 1, col_outer = 0;

  // [rows, cols] row-major; `pitch` elements from row to row (default: cols).
  static TensorView matrix(void* data, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t pitch = -1);

  std::int64_t offset(std::int64_t r, std::int64_t c) const {
    return (r / row_block) * row_outer + (r % row_block) * row_stride + (c / col_block) * col_outer +
           (c % col_block) * col_stride;
  }
  bool empty() const { return rows == 0 || cols == 0; }
  bool is_plain() const { return row_block >= rows && col_block >= cols; }  // two strides suffice
  // Rows (columns) [first, first + count). A range that starts or ends inside a block must lie in one block.
  TensorView row_range(std::int64_t first, std::int64_t count) const;
  TensorView col_range(std::int64_t first, std::int64_t count) const;
  std::string str() const;  // "bf16[64,128] strides (128,1)"
};

// Lowest and one-past-highest byte that a view touches (equal if empty).
struct ByteRange {
  const char* begin;
  const char* end;
};
ByteRange byte_range(const TensorView& v);

// Throws Error naming `argument` if data is null (and the view not empty), misaligned for its dtype, has negative sizes
// or blocks that don't divide. Outputs must in addition address every element once (`writable`).
void check_view(const std::string& argument, const TensorView& v, bool writable);

}  // namespace coda
