// The error bound of the precision contract; see case.h and docs/precision.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "check/case.h"
#include "coda/error.h"

namespace coda::check {
namespace {

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

// Operations whose fp32 result on small integers is exact.
bool is_exact_op(Op op) {
  switch (op) {
    case Op::kInput:
    case Op::kLiteral:
    case Op::kSize:
    case Op::kRow:
    case Op::kCol:
    case Op::kGather:
    case Op::kMatmul:
    case Op::kNeg:
    case Op::kNot:
    case Op::kAbs:
    case Op::kRelu:
    case Op::kSquare:
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kMin:
    case Op::kMax:
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe:
    case Op::kGt:
    case Op::kGe:
    case Op::kAnd:
    case Op::kOr:
    case Op::kWhere:
    case Op::kPairs:
    case Op::kInterleave:
    case Op::kHalves:
    case Op::kConcat:
    case Op::kSplit:
    case Op::kGroup:
    case Op::kFlat:
    case Op::kReduceSum:
    case Op::kReduceMax:
    case Op::kArgmax: return true;
    default: return false;
  }
}

bool is_whole(const Array& a) {
  return std::all_of(a.data.begin(), a.data.end(), [](double x) { return x == std::nearbyint(x); });
}

double largest(const Array& a) {
  double m = 0;
  for (double x : a.data)
    if (std::isfinite(x)) m = std::max(m, std::fabs(x));
  return m;
}

// A bound on every partial sum of an operation: Σ |a| |b|, by magnitudes.
double sum_bound(const Node& n, const std::vector<Array>& values) {
  auto at = [&](std::size_t k) -> const Array& { return values[idx(n.operands[k])]; };
  if (n.op == Op::kMatmul) {
    double k = static_cast<double>(n.attrs.a_axis == 0 ? at(0).rows : at(0).cols);
    return k * largest(at(0)) * largest(at(1));
  }
  if (n.op == Op::kReduceSum) return largest(at(0)) * static_cast<double>(at(0).data.size());
  double m = 0;
  for (ValueId v : n.results) m = std::max(m, largest(values[idx(v)]));
  return m;
}

std::string show(double x) { return fmt::format("{:.9g}", x); }

}  // namespace

Reference make_reference(const Program& p, const Arrays& inputs, const Sizes& sizes, DType dtype) {
  const Graph& g = p.expanded();
  Reference ref;
  std::vector<Array> values = interpret_values(g, inputs, sizes, {});
  ref.exact = interpret(g, inputs, sizes, {});
  ref.rounded = interpret(g, inputs, sizes, {Rounding::kStores, dtype});
  ref.plain = interpret(g, inputs, sizes, {Rounding::kEager, dtype});
  // Per value: exact in fp32 whatever the order of sums, and the largest magnitude it is computed from.
  std::vector<bool> whole(values.size(), true);
  std::vector<double> scale(values.size(), 0);
  for (const Node& n : g.nodes()) {
    bool ok = is_exact_op(n.op);
    double s = 0;
    for (ValueId v : n.operands) {
      ok = ok && whole[idx(v)];
      s = std::max(s, scale[idx(v)]);
    }
    ok = ok && sum_bound(n, values) < 0x1p24;
    for (ValueId v : n.results) {
      whole[idx(v)] = ok && is_whole(values[idx(v)]);
      scale[idx(v)] = std::max(s, largest(values[idx(v)]));
    }
  }
  for (const Output& o : g.outputs()) {
    ref.whole[o.name] = whole[idx(o.value)] && (!o.accumulate || is_whole(inputs.at(o.name)));
    ref.scale[o.name] = scale[idx(o.value)];
  }
  return ref;
}

std::string judge(const Reference& ref, const Output& o, const Array& got) {
  const Array &exact = ref.exact.at(o.name), &rounded = ref.rounded.at(o.name), &plain = ref.plain.at(o.name);
  if (got.data.size() != exact.data.size()) return "another shape";
  // What fp32 arithmetic itself cannot promise: a few units in the last place of the largest value on the way, counted
  // as the plain computation's own transcendental functions are exact here.
  double floor = 8 * 0x1p-24 * ref.scale.at(o.name);
  double sum = 0, plain_sum = 0, worst = 0, plain_worst = 0;
  std::size_t at = 0;
  auto element = [&](std::size_t i) {
    std::int64_t width = std::max<std::int64_t>(exact.width(), 1), e = static_cast<std::int64_t>(i);
    return fmt::format("{}[{},{}] is {}, right is {}", o.name, e / width, e % width, show(got.data[i]),
                       show(rounded.data[i]));
  };
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    double g = got.data[i], r = rounded.data[i];
    if (ref.whole.at(o.name) || o.dtype == DType::kI32) {
      if (!(g == r) && !(std::isnan(g) && std::isnan(r))) return element(i) + " (exact)";
      continue;
    }
    if (!std::isfinite(r) || !std::isfinite(g) || !std::isfinite(exact.data[i])) {
      bool same = (std::isnan(g) && std::isnan(r)) || g == r;
      // Near the largest 16-bit number, rounding may tip either way.
      if (!same && !(std::isinf(g) != std::isinf(r) && std::fabs(exact.data[i]) > 6e4)) return element(i);
      continue;
    }
    double error = std::fabs(g - exact.data[i]), plain_error = std::fabs(plain.data[i] - exact.data[i]);
    if (!std::isfinite(plain_error)) plain_error = std::fabs(exact.data[i]);
    sum += error;
    plain_sum += plain_error;
    plain_worst = std::max(plain_worst, plain_error);
    if (error > worst) worst = error, at = i;
  }
  double n = std::max<double>(1, static_cast<double>(got.data.size()));
  // One rounding at the store is nobody's fault: where the plain computation rounds no more often it is the whole
  // error.
  double store = 0, store_worst = 0;
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    double e = std::fabs(rounded.data[i] - exact.data[i]);
    if (std::isfinite(e)) store += e, store_worst = std::max(store_worst, e);
  }
  if (worst > 2 * std::max(plain_worst, store_worst) + floor)
    return fmt::format("{}; error {:.3g}, the plain computation's worst is {:.3g}", element(at), worst, plain_worst);
  if (sum / n > std::max(plain_sum, store * 1.001) / n + floor)
    return fmt::format("{}; mean error {:.3g}, the plain computation's is {:.3g}", element(at), sum / n, plain_sum / n);
  return {};
}

}  // namespace coda::check
