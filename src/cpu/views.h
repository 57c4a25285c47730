// Walking four-stride views row by row. Used by the tile machine and the finish; invariant: never touches an element
// outside of the view.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "coda/tensor.h"

namespace coda::cpu {

// Everything one run of a program reads and writes, by index in Graph::inputs / Graph::outputs.
struct RunArgs {
  std::vector<TensorView> inputs;   // launch constants: unused entries
  std::vector<double> consts;       // by input index
  std::vector<TensorView> outputs;  // data == nullptr: nobody wants it
};

// Calls f(address, first, count) for the runs of equal stride in columns [col, col+n) of row r.
template <class F>
void for_each_run(const TensorView& v, std::int64_t r, std::int64_t col, std::int64_t n, F&& f) {
  char* base = static_cast<char*>(v.data);
  for (std::int64_t done = 0; done < n;) {
    std::int64_t inside = (col + done) % v.col_block;
    std::int64_t count = std::min(n - done, v.col_block - inside);
    f(base + size_of(v.dtype) * v.offset(r, col + done), done, count);
    done += count;
  }
}

// Calls f(address, first, count, stride) for the runs of equal stride in rows [row, row+n) of column 0.
template <class F>
void for_each_row_run(const TensorView& v, std::int64_t row, std::int64_t n, F&& f) {
  char* base = static_cast<char*>(v.data);
  for (std::int64_t done = 0; done < n;) {
    std::int64_t inside = (row + done) % v.row_block;
    std::int64_t count = std::min(n - done, v.row_block - inside);
    f(base + size_of(v.dtype) * v.offset(row + done, 0), done, count, v.row_stride);
    done += count;
  }
}

}  // namespace coda::cpu
