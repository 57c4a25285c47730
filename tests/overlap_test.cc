// views_overlap against the definition: two views overlap if and only if some byte belongs to an element of each.
#include "base/overlap.h"

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <vector>

#include "coda/tensor.h"

using coda::DType;
using coda::TensorView;

namespace {

std::set<std::int64_t> bytes_of(const TensorView& v, const char* base) {
  std::set<std::int64_t> bytes;
  for (std::int64_t r = 0; r < v.rows; ++r)
    for (std::int64_t c = 0; c < v.cols; ++c)
      for (int b = 0; b < size_of(v.dtype); ++b)
        bytes.insert(static_cast<const char*>(v.data) - base + v.offset(r, c) * size_of(v.dtype) + b);
  return bytes;
}

}  // namespace

TEST_CASE("random pairs of views agree with the definition") {
  std::vector<char> memory(1 << 14);
  std::mt19937 random(7);
  auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  auto random_view = [&](const TensorView* like) {
    TensorView v;
    v.dtype = pick(0, 1) == 0 ? DType::kF32 : DType::kBF16;
    v.rows = pick(0, 4);
    v.cols = pick(0, 5);
    v.row_block = pick(1, 4);
    v.col_block = pick(1, 5);
    v.row_stride = pick(-12, 12);
    v.row_outer = pick(-40, 40);
    v.col_stride = pick(0, 3) == 0 ? pick(-3, 3) : 1;
    v.col_outer = pick(-10, 10);
    if (like != nullptr && pick(0, 2) != 0) {  // often two parts of one matrix
      v.dtype = like->dtype;
      v.rows = like->rows;
      v.row_block = like->row_block;
      v.row_stride = like->row_stride;
      v.row_outer = like->row_outer;
    }
    v.data = memory.data() + memory.size() / 2 + size_of(v.dtype) * pick(-20, 20);
    return v;
  };
  int overlapping = 0, meeting = 0;
  for (int i = 0; i < 20000; ++i) {
    TensorView a = random_view(nullptr), b = random_view(&a);
    std::set<std::int64_t> x = bytes_of(a, memory.data()), y = bytes_of(b, memory.data());
    bool expected = false;
    for (std::int64_t byte : x) expected = expected || y.count(byte) != 0;
    coda::ByteRange ra = byte_range(a), rb = byte_range(b);
    overlapping += expected;
    meeting += !expected && !x.empty() && !y.empty() && ra.begin < rb.end && rb.begin < ra.end;
    CHECK(coda::views_overlap(a, b) == expected);
    CHECK(coda::views_overlap(b, a) == expected);
  }
  CHECK(overlapping > 1000);  // the cases must exercise both answers, the hard ones too
  CHECK(meeting > 1000);
}

TEST_CASE("column ranges of one packed matrix are apart, and one column more is not") {
  std::vector<float> memory(1000 * 96);
  TensorView q = TensorView::matrix(memory.data(), DType::kF32, 1000, 64, 96);
  CHECK_FALSE(coda::views_overlap(q, TensorView::matrix(memory.data() + 64, DType::kF32, 1000, 32, 96)));
  CHECK(coda::views_overlap(q, TensorView::matrix(memory.data() + 63, DType::kF32, 1000, 32, 96)));
}
