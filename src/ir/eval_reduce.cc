// fp64 definitions of the reductions. A reduction takes, for each element of its result, one evenly strided run of its
// operand: the columns of a group, the groups, a row, a column, or everything. See eval.h.
#include <cmath>

#include "coda/error.h"
#include "ir/eval.h"

namespace coda::eval {
namespace {

struct Strided {
  std::int64_t first, count, step;
};

// The elements that make element `o` of the result.
Strided run_of(const Array& x, Axis axis, std::int64_t o) {
  switch (axis) {
    case Axis::kC: return {o * x.cols, x.cols, 1};
    case Axis::kG: return {o / x.cols * x.width() + o % x.cols, x.groups, x.cols};
    case Axis::kN: return {o * x.width(), x.width(), 1};
    case Axis::kM: return {o, x.rows, x.width()};
    case Axis::kMN: return {0, x.rows * x.width(), 1};
  }
  CODA_CHECK(false, "an unknown axis");
}

// Calls visit(result index, number of elements, element i of the run) for every element of the result.
template <class Visit>
void for_each_run(const EvalFrame& f, const Array& x, Visit visit) {
  for (std::size_t o = 0; o < f.out[0].data.size(); ++o) {
    Strided run = run_of(x, f.attrs.axis, static_cast<std::int64_t>(o));
    visit(o, run.count, [run](std::int64_t i) { return static_cast<std::size_t>(run.first + i * run.step); });
  }
}

struct Maximum {
  double value = -INFINITY;
  std::int64_t index = -1;
};

// The lowest index of the largest element. As numpy and PyTorch do, the first NaN wins over every number.
template <class Element>
Maximum maximum(std::int64_t count, Element element) {
  Maximum best;
  for (std::int64_t i = 0; i < count; ++i) {
    double x = element(i);
    if (best.index < 0 || x > best.value || std::isnan(x)) best = {x, i};
    if (std::isnan(x)) break;
  }
  return best;
}

}  // namespace

void reduce_sum(EvalFrame& f) {
  const Array& x = *f.in[0];
  for_each_run(f, x, [&](std::size_t o, std::int64_t count, auto at) {
    Sum sum(f.eager());
    for (std::int64_t i = 0; i < count; ++i) sum.add(x.data[at(i)]);
    f.out[0].data[o] = sum.total();
  });
}

void reduce_max(EvalFrame& f) {
  const Array& x = *f.in[0];
  for_each_run(f, x, [&](std::size_t o, std::int64_t count, auto at) {
    f.out[0].data[o] = maximum(count, [&](std::int64_t i) { return x.data[at(i)]; }).value;
  });
}

void argmax(EvalFrame& f) {
  const Array& x = *f.in[0];
  for_each_run(f, x, [&](std::size_t o, std::int64_t count, auto at) {
    Maximum best = maximum(count, [&](std::int64_t i) { return x.data[at(i)]; });
    f.out[0].data[o] = best.value;
    f.out[1].data[o] = static_cast<double>(best.index);
  });
}

void logsumexp(EvalFrame& f) {
  bool payload = f.in.size() == 2;
  auto larger = [&](std::int64_t Array::*size) {
    std::int64_t a = f.in[0]->*size, b = payload ? f.in[1]->*size : a;
    return a == 1 ? b : a;  // not the maximum: 0 wins over 1
  };
  std::int64_t rows = larger(&Array::rows), groups = larger(&Array::groups), cols = larger(&Array::cols);
  Array z = broadcast(*f.in[0], rows, groups, cols), w;
  if (payload) w = broadcast(*f.in[1], rows, groups, cols);
  for_each_run(f, z, [&](std::size_t o, std::int64_t count, auto at) {
    double m = maximum(count, [&](std::int64_t i) { return z.data[at(i)]; }).value;
    f.out[0].data[o] = m;
    if (m == -INFINITY) {  // z − m would be NaN
      f.out[1].data[o] = -INFINITY;
      return;
    }
    Sum sum(f.eager()), weighted(f.eager());
    for (std::int64_t i = 0; i < count; ++i) {
      double e = std::exp(z.data[at(i)] - m);
      sum.add(e);
      if (payload && e != 0) weighted.add(e * w.data[at(i)]);
    }
    f.out[1].data[o] = std::log(sum.total());
    if (payload) f.out[2].data[o] = weighted.total() / sum.total();
  });
}

void moments(EvalFrame& f) {
  const Array& x = *f.in[0];
  for_each_run(f, x, [&](std::size_t o, std::int64_t count, auto at) {
    if (count == 0) return;
    Sum sum(f.eager()), squares(f.eager());
    for (std::int64_t i = 0; i < count; ++i) sum.add(x.data[at(i)]);
    double mean = sum.total() / static_cast<double>(count);
    if (f.eager()) mean = static_cast<double>(static_cast<float>(mean));
    for (std::int64_t i = 0; i < count; ++i) squares.add((x.data[at(i)] - mean) * (x.data[at(i)] - mean));
    f.out[0].data[o] = mean;
    f.out[1].data[o] = squares.total();
  });
}

}  // namespace coda::eval
