// Values and memory of conformance cases; see data.h.
#include "check/data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/hash.h"
#include "coda/error.h"
#include "ir/index_rules.h"

namespace coda::check {
namespace {

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

// A generator of our own distribution: std's differ between libraries, and a failing case must repeat anywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed) {}
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits_() % static_cast<std::uint64_t>(high - low + 1));
  }
  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(uniform() + 0x1p-54)) * std::cos(6.283185307179586 * uniform()); }

 private:
  std::mt19937_64 bits_;
};

// Launch constants by the meaning of their names in programs/.
double constant(const std::string& called, DType dtype) {
  if (dtype == DType::kI32) return -100;  // ignore_index
  if (called == "eps") return 1e-5;
  if (called.find("cap") != std::string::npos) return 5;
  if (called.find("smooth") != std::string::npos) return 0.125;
  return 0.5;
}

bool is_positive(const std::string& called) {  // statistics that a program takes for positive
  return called == "r" || called == "rstd";
}

}  // namespace

std::string name(Values v) { return v == Values::kIntegers ? "integers" : "random"; }

std::string name(Layout l) {
  switch (l) {
    case Layout::kPlain: return "plain";
    case Layout::kPitched: return "pitched";
    case Layout::kBlocked: return "blocked";
    case Layout::kStrided: return "strided";
  }
  return "?";
}

Tensor::Tensor(DType dtype, std::int64_t rows, std::int64_t cols, Layout layout) {
  constexpr std::int64_t kMargin = 64;
  std::int64_t start = kMargin, pitch = cols;
  view_ = TensorView::matrix(nullptr, dtype, rows, cols);
  if (layout == Layout::kPitched) {
    pitch = cols + 3;
    start += 1;
  }
  view_.row_stride = pitch;
  std::int64_t extent = rows * pitch;
  if (layout == Layout::kStrided) {
    view_.col_stride = 2;
    view_.row_stride = 2 * cols + 1;
    extent = rows * view_.row_stride;
  }
  auto factor = [](std::int64_t n) {  // a proper block where one divides, else one odd block with a ragged end
    for (std::int64_t b : {4, 3, 2, 5, 7})
      if (n > b && n % b == 0) return b;
    return std::max<std::int64_t>(n, 1);
  };
  if (layout == Layout::kBlocked && rows > 0 && cols > 0) {  // [batch, head, position, element]
    std::int64_t positions = factor(rows), elements = factor(cols);
    std::int64_t batches = (rows + positions - 1) / positions, heads = (cols + elements - 1) / elements;
    view_.row_block = positions;
    view_.col_block = elements;
    view_.row_stride = elements;
    view_.col_outer = positions * elements;
    view_.row_outer = heads * positions * elements;
    extent = batches * view_.row_outer;
  }
  std::int64_t count = start + extent + kMargin;
  guard_ = is_float(dtype) ? std::byte{0xff} : std::byte{0x7f};  // floats: NaN
  memory_.assign(idx(count * size_of(dtype)) + 64, guard_);
  std::uintptr_t base = reinterpret_cast<std::uintptr_t>(memory_.data());
  std::int64_t align = static_cast<std::int64_t>((64 - base % 64) % 64) / size_of(dtype);
  view_.data = memory_.data() + (start + align) * size_of(dtype);
  covered_.assign(memory_.size() / idx(size_of(dtype)), false);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) covered_[idx(start + align + view_.offset(r, c))] = true;
}

void Tensor::write(const Array& a) {
  CODA_CHECK(a.rows == view_.rows && a.width() == view_.cols, "an array of another shape");
  for (std::int64_t r = 0; r < view_.rows; ++r)
    for (std::int64_t c = 0; c < view_.cols; ++c) {
      double x = round_to(view_.dtype, a.at(r, c));
      if (view_.dtype == DType::kI32)
        static_cast<std::int32_t*>(view_.data)[view_.offset(r, c)] = static_cast<std::int32_t>(x);
      else
        store_element(view_.data, view_.offset(r, c), view_.dtype, static_cast<float>(x));
    }
}

Array Tensor::read() const {
  Array a(view_.rows, 1, view_.cols);
  for (std::int64_t r = 0; r < view_.rows; ++r)
    for (std::int64_t c = 0; c < view_.cols; ++c) {
      std::int64_t at = view_.offset(r, c);
      a.at(r, c) = view_.dtype == DType::kI32 ? static_cast<const std::int32_t*>(view_.data)[at]
                                              : static_cast<double>(load_element(view_.data, at, view_.dtype));
    }
  return a;
}

void Tensor::fill(double x) {
  for (std::int64_t r = 0; r < view_.rows; ++r)
    for (std::int64_t c = 0; c < view_.cols; ++c) {
      if (view_.dtype == DType::kI32)
        static_cast<std::int32_t*>(view_.data)[view_.offset(r, c)] =
            std::isnan(x) ? 0x7f7f7f7f : static_cast<std::int32_t>(x);
      else
        store_element(view_.data, view_.offset(r, c), view_.dtype, static_cast<float>(x));
    }
}

bool Tensor::guards_intact() const {
  std::size_t size = idx(size_of(view_.dtype));
  for (std::size_t e = 0; e < covered_.size(); ++e)
    for (std::size_t b = 0; b < size && !covered_[e]; ++b)
      if (memory_[e * size + b] != guard_) return false;
  return true;
}

Arrays make_values(const Graph& g, const Sizes& sizes, Values kind, std::uint64_t seed) {
  Arrays values;
  std::vector<IndexRule> rules = index_rules(g);
  auto depth_of = [&](const std::string& called) {
    for (const Node& n : g.nodes())
      if (n.op == Op::kMatmul && g.value(n.operands[1]).name == called) {
        const Type& t = g.value(n.operands[1]).type;
        std::int64_t k = (n.attrs.b_axis == 0 ? t.rows : t.cols).eval(sizes);
        return 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(k, 1)));
      }
    return 1.0;
  };
  auto fill = [&](const std::string& called, DType dtype, const Type& t, std::int64_t bound, bool ignorable) {
    Random random(seed_of(called, seed));
    Array a(t.rows.eval(sizes), t.groups.eval(sizes), t.cols.eval(sizes));
    // Products come out of unit size: the right operand of a GEMM is scaled by its depth. A kept maximum lies above
    // them.
    double scale = depth_of(called);
    auto row_maximum = [](double n) { return 4 + 0.5 * n; };
    bool vector = t.rows.is_one() || t.width().is_one();
    std::int64_t i = 0;
    for (double& x : a.data) {
      ++i;
      if (bound >= 0) {
        bool ignored = ignorable && random.integer(0, 3) == 0;
        x = ignored || bound == 0 ? -100 : static_cast<double>(random.integer(0, bound - 1));
      } else if (dtype == DType::kI32) {
        x = static_cast<double>(random.integer(0, 1000));
      } else if (kind == Values::kIntegers) {
        x = vector ? static_cast<double>(1 + (i - 1) % 127) : static_cast<double>(random.integer(-2, 2));
      } else {
        double n = random.normal();
        x = is_positive(called) ? 0.25 + std::fabs(n) : called == "m" ? row_maximum(n) : n * scale;
        x = round_to(dtype, x);
      }
    }
    values[called] = std::move(a);
  };
  for (std::size_t i = 0; i < g.inputs().size(); ++i) {
    const Input& in = g.inputs()[i];
    if (in.is_const) {
      values[in.name] = Array(1, 1, 1, round_to(in.dtype, constant(in.name, in.dtype)));
      continue;
    }
    std::int64_t bound = -1;
    bool ignorable = false;
    for (const IndexRule& r : rules)
      if (r.input == static_cast<int>(i)) {
        std::int64_t b = r.bound.eval(sizes);
        bound = bound < 0 ? b : std::min(bound, b);
        ignorable = ignorable || !r.ignore_inputs.empty();
      }
    fill(in.name, in.dtype, g.value(in.value).type, bound, ignorable);
  }
  for (const Output& o : g.outputs())
    if (o.accumulate) fill(o.name, o.dtype, g.value(o.value).type, -1, false);
  return values;
}

}  // namespace coda::check
