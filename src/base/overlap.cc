#include "base/overlap.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace coda {
namespace {

// Byte range of row 0's elements, relative to the view's data.
struct Span {
  std::int64_t begin, end;
};

Span row_span(const TensorView& v) {
  TensorView row = v;
  row.rows = 1;
  ByteRange r = byte_range(row);
  const char* base = static_cast<const char*>(v.data);
  return {r.begin - base, r.end - base};
}

// Rows of both lie at the same distances from their first rows, each inside a slot that no other row's slot meets, and
// within a slot the two use separate bytes: column ranges of one matrix.
bool are_separate_columns(const TensorView& a, const TensorView& b) {
  if (a.rows != b.rows || size_of(a.dtype) != size_of(b.dtype)) return false;
  bool one_block = a.row_block >= a.rows && b.row_block >= b.rows;
  if (a.row_stride != b.row_stride || (!one_block && (a.row_block != b.row_block || a.row_outer != b.row_outer)))
    return false;
  std::int64_t shift = static_cast<const char*>(b.data) - static_cast<const char*>(a.data);
  Span x = row_span(a), y = row_span(b);
  y = {y.begin + shift, y.end + shift};
  if (x.begin < y.end && y.begin < x.end) return false;
  std::int64_t slot = std::max(x.end, y.end) - std::min(x.begin, y.begin), bytes = size_of(a.dtype);
  std::int64_t inner = std::abs(a.row_stride) * bytes, inner_count = std::min(a.rows, a.row_block);
  if (inner_count > 1 && inner < slot) return false;
  return one_block || std::abs(a.row_outer) * bytes >= (inner_count - 1) * inner + slot;
}

struct Run {
  const char *begin, *end;
};

std::vector<Run> runs_of(const TensorView& v) {
  std::vector<Run> runs;
  std::int64_t bytes = size_of(v.dtype), run = v.col_stride == 1 ? std::min(v.cols, v.col_block) : 1;
  for (std::int64_t r = 0; r < v.rows; ++r) {
    for (std::int64_t c = 0; c < v.cols; c += run) {
      const char* at = static_cast<const char*>(v.data) + v.offset(r, c) * bytes;
      runs.push_back({at, at + std::min(run, v.cols - c) * bytes});
    }
  }
  std::sort(runs.begin(), runs.end(), [](const Run& x, const Run& y) { return x.begin < y.begin; });
  return runs;
}

}  // namespace

bool views_overlap(const TensorView& a, const TensorView& b) {
  ByteRange x = byte_range(a), y = byte_range(b);
  if (x.begin == x.end || y.begin == y.end || x.end <= y.begin || y.end <= x.begin) return false;
  if (are_separate_columns(a, b)) return false;
  std::vector<Run> left = runs_of(a), right = runs_of(b);
  // Runs of an input may overlap each other (stride 0), so one pass over both must not stop at the first that ends.
  std::size_t j = 0;
  const char* left_end = nullptr;
  const char* right_end = nullptr;
  for (const Run& run : left) {
    for (; j < right.size() && right[j].begin <= run.begin; ++j) {
      if (left_end != nullptr && right[j].begin < left_end) return true;
      right_end = right_end == nullptr ? right[j].end : std::max(right_end, right[j].end);
    }
    if (right_end != nullptr && run.begin < right_end) return true;
    left_end = left_end == nullptr ? run.end : std::max(left_end, run.end);
  }
  return j < right.size() && left_end != nullptr && right[j].begin < left_end;
}

}  // namespace coda
