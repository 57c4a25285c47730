#include "coda/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "coda/error.h"

namespace coda {

TensorView TensorView::matrix(void* data, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t pitch) {
  TensorView v;
  v.data = data;
  v.dtype = dtype;
  v.rows = rows;
  v.cols = cols;
  v.row_block = std::max<std::int64_t>(rows, 1);
  v.row_stride = pitch < 0 ? cols : pitch;
  v.col_block = std::max<std::int64_t>(cols, 1);
  return v;
}

namespace {

// One axis of a view: a range of `count` steps that starts `first` steps in. Updates the block if the range leaves it.
struct AxisRange {
  std::int64_t offset;  // elements
  std::int64_t block;
};

AxisRange axis_range(std::int64_t first, std::int64_t count, std::int64_t block, std::int64_t stride,
                     std::int64_t outer) {
  if (first % block == 0) return {first / block * outer, block};
  CODA_CHECK(first % block + count <= block, "a range of a view starts inside a block and leaves it");
  return {first / block * outer + first % block * stride, std::max<std::int64_t>(count, 1)};
}

}  // namespace

TensorView TensorView::row_range(std::int64_t first, std::int64_t count) const {
  TensorView v = *this;
  AxisRange r = axis_range(first, count, row_block, row_stride, row_outer);
  v.data = static_cast<char*>(data) + size_of(dtype) * r.offset;
  v.row_block = r.block;
  v.rows = count;
  return v;
}

TensorView TensorView::col_range(std::int64_t first, std::int64_t count) const {
  TensorView v = *this;
  AxisRange r = axis_range(first, count, col_block, col_stride, col_outer);
  v.data = static_cast<char*>(data) + size_of(dtype) * r.offset;
  v.col_block = r.block;
  v.cols = count;
  return v;
}

std::string TensorView::str() const {
  if (is_plain()) return fmt::format("{}[{},{}] strides ({},{})", name(dtype), rows, cols, row_stride, col_stride);
  return fmt::format("{}[{},{}] rows ({} by {}, then {}) columns ({} by {}, then {})", name(dtype), rows, cols,
                     row_block, row_stride, row_outer, col_block, col_stride, col_outer);
}

ByteRange byte_range(const TensorView& v) {
  const char* base = static_cast<const char*>(v.data);
  if (v.empty()) return {base, base};
  std::int64_t low = 0, high = 0;
  auto span = [&](std::int64_t count, std::int64_t stride) {
    if (count <= 1) return;
    std::int64_t d = (count - 1) * stride;
    (d < 0 ? low : high) += d;
  };
  span(std::min(v.rows, v.row_block), v.row_stride);
  span((v.rows + v.row_block - 1) / v.row_block, v.row_outer);
  span(std::min(v.cols, v.col_block), v.col_stride);
  span((v.cols + v.col_block - 1) / v.col_block, v.col_outer);
  return {base + low * size_of(v.dtype), base + (high + 1) * size_of(v.dtype)};
}

void check_view(const std::string& argument, const TensorView& v, bool writable) {
  if (v.rows < 0 || v.cols < 0) throw Error({argument, fmt::format("size [{},{}]", v.rows, v.cols), "sizes ≥ 0", ""});
  if (v.row_block <= 0 || v.col_block <= 0)
    throw Error({argument, fmt::format("blocks ({},{})", v.row_block, v.col_block), "blocks ≥ 1", ""});
  if (v.empty()) return;
  if (v.data == nullptr)
    throw Error({argument, "a null pointer", "memory for " + v.str(), "Allocate the tensor first."});
  if (reinterpret_cast<std::uintptr_t>(v.data) % size_of(v.dtype) != 0)
    throw Error({argument, fmt::format("address {}", v.data),
                 fmt::format("a multiple of {} bytes for {}", size_of(v.dtype), name(v.dtype)),
                 "Copy the data to an aligned buffer."});
  if (!writable) return;
  // Sort the axes that have more than one step by stride: each must clear the extent of the smaller ones.
  struct Axis {
    std::int64_t count, stride;
  };
  std::array<Axis, 4> axes{{{std::min(v.rows, v.row_block), v.row_stride},
                            {(v.rows + v.row_block - 1) / v.row_block, v.row_outer},
                            {std::min(v.cols, v.col_block), v.col_stride},
                            {(v.cols + v.col_block - 1) / v.col_block, v.col_outer}}};
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return std::abs(a.stride) < std::abs(b.stride); });
  std::int64_t extent = 1;
  for (const Axis& a : axes) {
    if (a.count <= 1) continue;
    if (std::abs(a.stride) < extent)
      throw Error({argument, "an output whose elements share memory: " + v.str(),
                   "strides that give each element its own place", "Pass a contiguous output."});
    extent += (a.count - 1) * std::abs(a.stride);
  }
}

}  // namespace coda
