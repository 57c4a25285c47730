#include "cpu/attention/blocks.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace coda::cpu {

bool HeadView::is_one_run() const {
  std::int64_t first = head * context.sizes.head_dim, last = first + context.sizes.head_dim - 1;
  return first / tensor.col_block == last / tensor.col_block;
}

void HeadView::load(std::int64_t first, std::int64_t count, float* rows) const {
  std::int64_t dim = context.sizes.head_dim, column = head * dim, width = context.width();
  bool contiguous = is_one_run() && tensor.col_stride == 1;
  for (std::int64_t i = 0; i < count; ++i, rows += width) {
    if (contiguous) {
      const char* base = static_cast<const char*>(tensor.data);
      context.kernels.load(base + tensor.offset(row(first + i), column) * size_of(tensor.dtype), tensor.dtype, dim,
                           rows);
    } else {
      for (std::int64_t c = 0; c < dim; ++c)
        rows[c] = load_element(tensor.data, tensor.offset(row(first + i), column + c), tensor.dtype);
    }
    std::fill(rows + dim, rows + width, 0.0f);
  }
}

void HeadView::store(std::int64_t first, std::int64_t count, const float* rows) const {
  std::int64_t dim = context.sizes.head_dim, column = head * dim, width = context.width();
  bool contiguous = is_one_run() && tensor.col_stride == 1;
  for (std::int64_t i = 0; i < count; ++i, rows += width) {
    if (contiguous) {
      char* base = static_cast<char*>(tensor.data);
      context.kernels.store(rows, tensor.dtype, dim,
                            base + tensor.offset(row(first + i), column) * size_of(tensor.dtype));
    } else {
      for (std::int64_t c = 0; c < dim; ++c)
        store_element(tensor.data, tensor.offset(row(first + i), column + c), tensor.dtype, rows[c]);
    }
  }
}

void transpose(const AttentionContext& context, const float* rows, std::int64_t count, float* columns) {
  std::int64_t dim = context.sizes.head_dim, width = context.width();
  if (count < kBlock) std::fill(columns, columns + dim * kBlock, 0.0f);
  for (std::int64_t c0 = 0; c0 < dim; c0 += kPadding) {  // a strip of columns at a time stays in L1
    std::int64_t end = std::min<std::int64_t>(c0 + kPadding, dim);
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t c = c0; c < end; ++c) columns[c * kBlock + r] = rows[r * width + c];
  }
}

Scratch::Scratch(int workers, std::int64_t floats) : pitch_((floats + kPadding - 1) / kPadding * kPadding) {
  std::size_t bytes = static_cast<std::size_t>(workers) * static_cast<std::size_t>(pitch_) * sizeof(float);
  data_.reset(static_cast<float*>(std::aligned_alloc(64, std::max<std::size_t>(bytes, 64))));
  if (!data_) throw std::bad_alloc();
}

void Scratch::Free::operator()(float* p) const { std::free(p); }

void multiply(const AttentionKernels& kernels, SmallGemm g, Part part) {
  if (part == Part::kAll) return kernels.gemm(g);
  constexpr std::int64_t kGroup = 6;  // rows that share what they have in common; the rest one by one
  auto run = [&](std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t end, bool accumulate) {
    SmallGemm s = g;
    s.m = rows;
    s.k = std::max<std::int64_t>(end - first, 0);
    s.a += row * g.a_row + first * g.a_col;
    s.b += first * g.b_row;
    s.c += row * g.c_row;
    s.accumulate = accumulate;
    kernels.gemm(s);
  };
  for (std::int64_t i = 0; i < g.m; i += kGroup) {
    std::int64_t rows = std::min(kGroup, g.m - i), end = std::min(i + rows, g.k);
    if (part == Part::kLower)
      run(i, rows, 0, std::min(i, g.k), g.accumulate);
    else
      run(i, rows, end, g.k, g.accumulate);
    for (std::int64_t r = i; r < i + rows; ++r) {
      if (part == Part::kLower)
        run(r, 1, i, std::min(r + 1, g.k), true);
      else
        run(r, 1, r, end, true);
    }
  }
}

}  // namespace coda::cpu
