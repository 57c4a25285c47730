// fp64 definitions: sources of values, the matrix product, casts, tables and shape operations. See eval.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "coda/error.h"
#include "ir/eval.h"
#include "ir/philox.h"

namespace coda {

std::string EvalFrame::called(std::size_t operand) const {
  const std::string& name = graph.value(node.operands[operand]).name;
  return name.empty() ? fmt::format("operand {} of {}", operand + 1, row(node.op).name) : name;
}

namespace eval {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// C[i,j] = Σ_k A(i,k) B(k,j), k ascending for each element; Real float is the eager mode.
template <class Real>
void multiply(const Array& a, int a_axis, const Array& b, int b_axis, Array& c) {
  std::int64_t depth = a_axis == 1 ? a.width() : a.rows;
  std::vector<Real> right(at(depth * c.cols)), row(at(c.cols));
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t j = 0; j < c.cols; ++j)
      right[at(k * c.cols + j)] = static_cast<Real>(b_axis == 0 ? b.at(k, j) : b.at(j, k));
  for (std::int64_t i = 0; i < c.rows; ++i) {
    std::fill(row.begin(), row.end(), Real(0));
    for (std::int64_t k = 0; k < depth; ++k) {
      Real left = static_cast<Real>(a_axis == 1 ? a.at(i, k) : a.at(k, i));
      for (std::int64_t j = 0; j < c.cols; ++j) row[at(j)] += left * right[at(k * c.cols + j)];
    }
    for (std::int64_t j = 0; j < c.cols; ++j) c.at(i, j) = static_cast<double>(row[at(j)]);
  }
}

// Copies `count` columns of every group: from `src_first` in src to `dst_first` in dst.
void copy_columns(const Array& src, std::int64_t src_first, Array& dst, std::int64_t dst_first, std::int64_t count) {
  for (std::int64_t r = 0; r < dst.rows; ++r)
    for (std::int64_t g = 0; g < dst.groups; ++g)
      for (std::int64_t c = 0; c < count; ++c)
        dst.at(r, g * dst.cols + dst_first + c) = src.at(r, g * src.cols + src_first + c);
}

}  // namespace

Array broadcast(const Array& x, std::int64_t rows, std::int64_t groups, std::int64_t cols) {
  Array y(rows, groups, cols);
  std::size_t next = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t g = 0; g < groups; ++g)
      for (std::int64_t c = 0; c < cols; ++c)
        y.data[next++] = x.at(x.rows == 1 ? 0 : r, (x.groups == 1 ? 0 : g) * x.cols + (x.cols == 1 ? 0 : c));
  return y;
}

std::int64_t checked_index(const EvalFrame& f, std::size_t operand, std::int64_t row, std::int64_t rows,
                           const std::string& of) {
  double index = f.in[operand]->at(row, 0);
  if (!(index >= 0 && index < static_cast<double>(rows)))
    throw Error({f.called(operand), fmt::format("{} in row {}", index, row), fmt::format("0 to {}", rows - 1),
                 fmt::format("It chooses a row of {}, which has {}.", of, rows)});
  return static_cast<std::int64_t>(index);
}

void literal(EvalFrame& f) {
  f.out[0].data[0] = f.options.rounding == Rounding::kExact ? f.attrs.number : round_to(f.attrs.dtype, f.attrs.number);
}

void size_value(EvalFrame& f) { f.out[0].data[0] = static_cast<double>(f.attrs.dims[0].eval(f.sizes)); }

void row_index(EvalFrame& f) {
  for (std::int64_t r = 0; r < f.out[0].rows; ++r) f.out[0].at(r, 0) = static_cast<double>(r);
}

void col_index(EvalFrame& f) {
  for (std::int64_t c = 0; c < f.out[0].cols; ++c) f.out[0].at(0, c) = static_cast<double>(c);
}

void uniform(EvalFrame& f) {
  auto seed = static_cast<std::int32_t>(f.in[0]->data[0]), offset = static_cast<std::int32_t>(f.in[1]->data[0]);
  for (std::size_t e = 0; e < f.out[0].data.size(); ++e)
    f.out[0].data[e] = static_cast<double>(philox::uniform(e, seed, offset));
}

void cis(EvalFrame& f) {
  for (std::int64_t r = 0; r < f.out[0].rows; ++r)
    for (std::int64_t c = 0; c < f.out[0].cols; ++c) {
      // 31 + 24 bits may exceed a double: the rounding error of the product is rotated in.
      double pos = f.in[0]->at(r, 0), freq = f.in[1]->at(0, c);
      double angle = pos * freq, rest = std::fma(pos, freq, -angle);
      double cosine = std::cos(angle), sine = std::sin(angle), more_c = std::cos(rest), more_s = std::sin(rest);
      f.out[0].at(r, c) = cosine * more_c - sine * more_s;
      f.out[1].at(r, c) = sine * more_c + cosine * more_s;
    }
}

void gather(EvalFrame& f) {
  Array& y = f.out[0];
  for (std::int64_t r = 0; r < y.rows; ++r) {
    std::int64_t source = checked_index(f, 1, r, f.in[0]->rows, f.called(0));
    for (std::int64_t c = 0; c < y.width(); ++c) y.at(r, c) = f.in[0]->at(source, c);
  }
}

void scatter_sum(EvalFrame& f) {
  const Array& g = *f.in[0];
  std::vector<Sum> sums(f.out[0].data.size(), Sum(f.eager()));
  for (std::int64_t r = 0; r < g.rows; ++r) {
    std::int64_t target = checked_index(f, 1, r, f.out[0].rows, "the result");
    for (std::int64_t c = 0; c < g.width(); ++c) sums[at(target * g.width() + c)].add(g.at(r, c));
  }
  for (std::size_t i = 0; i < sums.size(); ++i) f.out[0].data[i] = sums[i].total();
}

void matmul(EvalFrame& f) {
  auto run = f.eager() ? multiply<float> : multiply<double>;
  run(*f.in[0], f.attrs.a_axis, *f.in[1], f.attrs.b_axis, f.out[0]);
}

void cast(EvalFrame& f) {
  const Array& x = *f.in[0];
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    double v = x.data[i];
    if (f.attrs.dtype == DType::kI32) {
      v = std::trunc(v);
      if (!(v >= -2147483648.0 && v <= 2147483647.0))
        throw Error({f.called(0), fmt::format("{} cast to i32", x.data[i]), "numbers of 32 bits", ""});
    } else if (f.options.rounding != Rounding::kExact) {
      v = round_to(f.attrs.dtype, v);
    }
    f.out[0].data[i] = v;
  }
}

void pairs(EvalFrame& f) {
  for (std::size_t i = 0; i < f.out[0].data.size(); ++i) {
    f.out[0].data[i] = f.in[0]->data[2 * i];
    f.out[1].data[i] = f.in[0]->data[2 * i + 1];
  }
}

void interleave(EvalFrame& f) {
  Array& y = f.out[0];
  for (std::size_t k = 0; k < 2; ++k) {
    Array x = broadcast(*f.in[k], y.rows, y.groups, y.cols / 2);
    for (std::size_t i = 0; i < x.data.size(); ++i) y.data[2 * i + k] = x.data[i];
  }
}

void halves(EvalFrame& f) { split(f); }

void split(EvalFrame& f) {
  std::int64_t first = 0;
  for (Array& part : f.out) {
    copy_columns(*f.in[0], first, part, 0, part.cols);
    first += part.cols;
  }
}

void concat(EvalFrame& f) {
  std::int64_t first = 0;
  for (const Array* part : f.in) {
    copy_columns(broadcast(*part, f.out[0].rows, f.out[0].groups, part->cols), 0, f.out[0], first, part->cols);
    first += part->cols;
  }
}

void reshape(EvalFrame& f) { f.out[0].data = f.in[0]->data; }

}  // namespace eval
}  // namespace coda
