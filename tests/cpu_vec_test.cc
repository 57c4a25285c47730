// The maps of src/cpu/vec on every instruction set of this processor against the fp64 definitions of the op table: all
// patterns of operands, sizes around vector widths, special values; and rows going to and from storage.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "coda/op.h"
#include "vec_blocks.h"

namespace {

using namespace coda;
using namespace coda::cpu;
using namespace coda::test;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const std::vector<Op> kMaps{Op::kNeg,      Op::kNot,  Op::kAbs,    Op::kExp,     Op::kLog,  Op::kSqrt,
                            Op::kRsqrt,    Op::kTanh, Op::kErf,    Op::kSigmoid, Op::kSilu, Op::kGelu,
                            Op::kGeluTanh, Op::kRelu, Op::kSquare, Op::kAdd,     Op::kSub,  Op::kMul,
                            Op::kDiv,      Op::kMin,  Op::kMax,    Op::kEq,      Op::kNe,   Op::kLt,
                            Op::kLe,       Op::kGt,   Op::kGe,     Op::kAnd,     Op::kOr,   Op::kWhere};

bool one_of(Op op, std::initializer_list<Op> ops) { return std::find(ops.begin(), ops.end(), op) != ops.end(); }
bool is_comparison(Op op) { return one_of(op, {Op::kEq, Op::kNe, Op::kLt, Op::kLe, Op::kGt, Op::kGe}); }
bool is_logical(Op op) { return one_of(op, {Op::kNot, Op::kAnd, Op::kOr}); }
bool float_only(Op op) {
  return one_of(op, {Op::kExp, Op::kLog, Op::kSqrt, Op::kRsqrt, Op::kTanh, Op::kErf, Op::kSigmoid, Op::kSilu, Op::kGelu,
                     Op::kGeluTanh, Op::kRelu, Op::kDiv});
}

// The maps that are not one correctly rounded operation, with the error they may have.
const std::map<Op, double> kBounds{{Op::kExp, 2},     {Op::kLog, 2},  {Op::kRsqrt, 2}, {Op::kTanh, 2},    {Op::kErf, 2},
                                   {Op::kSigmoid, 2}, {Op::kSilu, 4}, {Op::kGelu, 4},  {Op::kGeluTanh, 4}};
double bound(Op op) { return kBounds.contains(op) ? kBounds.at(op) : 0; }

double definition(Op op, const double* x) {
  // The table's form of gelu_tanh loses all digits to 1 + tanh in the lower tail; this is the same function.
  if (op == Op::kGeluTanh && x[0] < 0 && std::isfinite(x[0])) {
    double e = std::exp(2 * 0.79788456080286535588 * (x[0] + 0.044715 * x[0] * x[0] * x[0]));
    return x[0] * (e / (1 + e));
  }
  return row(op).map(x);
}

unsigned random_bits() {
  static std::minstd_rand engine(20);
  return static_cast<unsigned>(engine());
}
float draw_float() {
  static const float kSpecial[] = {0.0f, -0.0f,  1,       -1,    kInfinity, -kInfinity,
                                   kNaN, 1e-40f, -1e-40f, 3e38f, -3e38f,    0.5f};
  unsigned u = random_bits() >> 4;
  if (u % 5 == 0) return kSpecial[u / 5 % std::size(kSpecial)];
  return (static_cast<float>(u % 20011) / 20011 - 0.5f) * ((u & 1) != 0 ? 4.0f : 40.0f);
}
std::int32_t draw_int() { return static_cast<std::int32_t>(random_bits() % 92001) - 46000; }
std::int32_t draw_bool() { return (random_bits() >> 8 & 1) != 0 ? -1 : 0; }

// One way of addressing an operand.
struct Mode {
  const char* name;
  bool rows, cols;
};
constexpr Mode kModes[] = {{"tile", true, true}, {"row", true, false}, {"col", false, true}, {"scalar", false, false}};

struct Case {
  const VecOps* vec;
  Op op;
  Elem elem;
  int operands() const { return row(op).operands; }
  Elem operand_elem(int i) const { return op == Op::kWhere && i == 0 ? Elem::kBool : elem; }
  std::string name() const {
    return std::string(coda::cpu::name(vec->isa)) + " " + std::string(row(op).name) + " " +
           std::string(coda::name(elem));
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const VecOps* vec : vec_tables())
    for (Op op : kMaps)
      for (Elem elem : {Elem::kF32, Elem::kI32, Elem::kBool}) {
        bool exists = is_logical(op)
                          ? elem == Elem::kBool
                          : op == Op::kWhere || elem == Elem::kF32 || (elem == Elem::kI32 && !float_only(op));
        if (exists) all.push_back({vec, op, elem});
      }
  return all;
}

double as_double(Guarded& g, Elem elem, std::int64_t r, std::int64_t j) {
  return elem == Elem::kF32 ? static_cast<double>(g.f32(r, j)) : elem == Elem::kI32 ? g.i32(r, j) : -g.i32(r, j);
}

// Runs the case on one shape and compares every element; "" or the first difference.
std::string difference(const Case& c, std::int64_t rows, std::int64_t n, std::int64_t gap,
                       const Mode* const (&modes)[3]) {
  std::vector<Guarded> in;
  MapArgs args;
  for (int i = 0; i < c.operands(); ++i) {
    const Mode& mode = *modes[i];
    std::int64_t own_n = mode.cols ? n : 1, own_rows = mode.rows ? rows : 1;
    Guarded& g = in.emplace_back(own_rows, own_n, own_n + gap, i);
    Elem elem = c.operand_elem(i);
    if (elem == Elem::kF32) g.fill(draw_float);
    if (elem == Elem::kI32) g.fill(draw_int);
    if (elem == Elem::kBool) g.fill(draw_bool);
    args.in[i] = {g.data(), mode.rows ? g.pitch() : 0, mode.cols ? 1 : 0};
  }
  Guarded out(rows, n, n + gap, 3);
  args.dst = out.data(), args.dst_pitch = n + gap, args.rows = rows, args.n = n;
  c.vec->map(c.op, c.elem)(args);
  if (!out.intact()) return "writes outside of the block";
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < n; ++j) {
      double x[3] = {0, 0, 0};
      for (int i = 0; i < c.operands(); ++i)
        x[i] = as_double(in[static_cast<std::size_t>(i)], c.operand_elem(i), modes[i]->rows ? r : 0,
                         modes[i]->cols ? j : 0);
      double want = definition(c.op, x);
      Elem result = is_comparison(c.op) ? Elem::kBool : c.elem;
      bool right = result == Elem::kF32
                       ? ulps(want, out.f32(r, j)) <= bound(c.op)
                       : out.i32(r, j) == static_cast<std::int32_t>(result == Elem::kBool ? -want : want);
      if (!right)
        return "at (" + std::to_string(r) + ", " + std::to_string(j) + "): " + std::to_string(x[0]) + ", " +
               std::to_string(x[1]) + " -> " + std::to_string(as_double(out, result, r, j)) + ", not " +
               std::to_string(want);
    }
  return "";
}

// map(x[0..n)) on one row.
std::vector<float> mapped(const VecOps& vec, Op op, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  auto n = static_cast<std::int64_t>(x.size());
  vec.map(op, Elem::kF32)({y.data(), n, {{x.data(), n, 1}}, 1, n});
  return y;
}

TEST_CASE("every map on every pattern of operands and size equals its definition") {
  for (const Case& c : cases()) {
    CAPTURE(c.name());
    int patterns = c.operands() == 1 ? 4 : c.operands() == 2 ? 16 : 64;
    for (int pattern = 0; pattern < patterns; ++pattern) {
      const Mode* const modes[3] = {&kModes[pattern % 4], &kModes[pattern / 4 % 4], &kModes[pattern / 16]};
      CAPTURE(modes[0]->name);
      CAPTURE(modes[1]->name);
      for (std::int64_t n : kSizes)
        for (const auto& shape : {std::pair<std::int64_t, std::int64_t>{1, 0}, {3, 0}, {2, 5}, {0, 1}}) {
          const std::int64_t rows = shape.first, gap = shape.second;
          if (n > 40 && pattern % 5 != 0) continue;
          std::string wrong = difference(c, rows, n, gap, modes);
          CAPTURE(n);
          CAPTURE(rows);
          CAPTURE(gap);
          REQUIRE(wrong == "");
        }
    }
  }
}

TEST_CASE("there is a function for every map of the table, and for nothing else") {
  for (const VecOps* vec : vec_tables()) {
    for (Op op : {Op::kMatmul, Op::kReduceSum, Op::kPairs, Op::kRmsnorm, Op::kCast})
      for (Elem elem : {Elem::kF32, Elem::kI32, Elem::kBool}) CHECK((vec->map(op, elem) == nullptr));
    CHECK((vec->map(Op::kDiv, Elem::kI32) == nullptr));
    CHECK((vec->map(Op::kAdd, Elem::kBool) == nullptr));
    CHECK((vec->cast(Elem::kBool, DType::kF32) == nullptr));
    for (Op op : kMaps) {
      CAPTURE(row(op).name);
      CHECK((vec->map(op, is_logical(op) ? Elem::kBool : Elem::kF32) != nullptr));
    }
  }
}

TEST_CASE("transcendental functions keep their bound over all magnitudes") {
  for (const VecOps* vec : vec_tables())
    for (const auto& limit : kBounds) {
      const Op op = limit.first;
      std::vector<float> x;
      for (std::uint64_t u = 0; u < 1ull << 32; u += 9973)
        x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(u)));
      for (float v = -20; v < 20; v += 0.0007f) x.push_back(v);
      for (float v = 0.70710f; v < 0.70712f; v = std::nextafter(v, 1.0f)) x.push_back(v);
      std::vector<float> y = mapped(*vec, op, x);
      double worst = 0;
      float where = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        double exact[] = {static_cast<double>(x[i])};
        if (double apart = ulps(definition(op, exact), y[i]); apart > worst) worst = apart, where = x[i];
      }
      CAPTURE(name(vec->isa));
      CAPTURE(row(op).name);
      CAPTURE(where);
      CHECK(worst <= limit.second);
      CHECK(worst > 0.4);  // the sweep reached the roundings
    }
}

TEST_CASE("transcendental functions at their limits") {
  struct Limit {
    Op op;
    float x, want;
  };
  const float big = std::numeric_limits<float>::max();
  const Limit limits[] = {{Op::kExp, kInfinity, kInfinity},
                          {Op::kExp, -kInfinity, 0},
                          {Op::kExp, 88.8f, kInfinity},
                          {Op::kExp, 0, 1},
                          {Op::kExp, big, kInfinity},
                          {Op::kExp, -big, 0},
                          {Op::kExp, -103.9f, 1e-45f},
                          {Op::kLog, 0, -kInfinity},
                          {Op::kLog, -0.0f, -kInfinity},
                          {Op::kLog, -1, kNaN},
                          {Op::kLog, kInfinity, kInfinity},
                          {Op::kLog, 1, 0},
                          {Op::kLog, -kInfinity, kNaN},
                          {Op::kSqrt, -1, kNaN},
                          {Op::kRsqrt, 0, kInfinity},
                          {Op::kRsqrt, kInfinity, 0},
                          {Op::kTanh, kInfinity, 1},
                          {Op::kTanh, -kInfinity, -1},
                          {Op::kTanh, 30, 1},
                          {Op::kErf, kInfinity, 1},
                          {Op::kErf, -kInfinity, -1},
                          {Op::kErf, -6, -1},
                          {Op::kSigmoid, kInfinity, 1},
                          {Op::kSigmoid, -kInfinity, 0},
                          {Op::kSigmoid, -200, 0},
                          {Op::kSilu, -kInfinity, 0},
                          {Op::kSilu, kInfinity, kInfinity},
                          {Op::kSilu, 100, 100},
                          {Op::kSilu, -9984, 0},
                          {Op::kSilu, -big, 0},
                          {Op::kGelu, 11, 11},
                          {Op::kGelu, 40, 40},
                          {Op::kGelu, -40, 0},
                          {Op::kGelu, 9984, 9984},
                          {Op::kGelu, -9984, 0},
                          {Op::kGelu, kInfinity, kInfinity},
                          {Op::kGelu, -kInfinity, 0},
                          {Op::kGelu, 1, 0.8413447460685429f},
                          {Op::kGeluTanh, 1, 0.8411919906082768f},
                          {Op::kGeluTanh, 11, 11},
                          {Op::kGeluTanh, 9984, 9984},
                          {Op::kGeluTanh, -13.25f, 0},
                          {Op::kGeluTanh, -9984, 0},
                          {Op::kGeluTanh, -big, 0},
                          {Op::kGeluTanh, kInfinity, kInfinity},
                          {Op::kGeluTanh, -kInfinity, 0},
                          {Op::kRelu, -kInfinity, 0}};
  for (const VecOps* vec : vec_tables()) {
    for (const Limit& l : limits) {
      float got = mapped(*vec, l.op, {l.x})[0];
      CAPTURE(name(vec->isa));
      CAPTURE(row(l.op).name);
      CAPTURE(l.x);
      CHECK(ulps(static_cast<double>(l.want), got) <= 1);
    }
    for (Op op : kMaps)
      if (!is_logical(op) && !is_comparison(op) && row(op).operands == 1)
        CHECK(std::isnan(mapped(*vec, op, {kNaN})[0]));
  }
}

TEST_CASE("an element's result does not depend on its place") {
  std::vector<float> x(131);
  for (float& v : x) v = draw_float();
  for (const Case& c : cases()) {
    if (c.elem != Elem::kF32 || c.operands() != 1) continue;
    std::vector<float> all = mapped(*c.vec, c.op, x);
    for (std::size_t first = 0; first < x.size(); ++first)
      for (std::size_t count : {std::size_t{1}, std::size_t{5}, std::size_t{19}}) {
        count = std::min(count, x.size() - first);
        std::vector<float> some = mapped(*c.vec, c.op, std::vector<float>(x.data() + first, x.data() + first + count));
        CAPTURE(c.name());
        CAPTURE(first);
        REQUIRE(std::memcmp(some.data(), all.data() + first, count * 4) == 0);
      }
  }
}

TEST_CASE("a map may write over its operand") {
  for (const Case& c : cases()) {
    if (c.operands() > 2 || c.elem != Elem::kF32) continue;
    Guarded a(3, 37, 41), b(3, 37, 41), out(3, 37, 41);
    a.fill(draw_float), b.fill(draw_float);
    MapArgs args{out.data(), 41, {{a.data(), 41, 1}, {b.data(), 41, 1}}, 3, 37};
    c.vec->map(c.op, c.elem)(args);
    for (int i = 0; i < c.operands(); ++i) {
      Guarded a2 = a, b2 = b;
      args.in[0].base = a2.data(), args.in[1].base = b2.data();
      args.dst = i == 0 ? a2.data() : b2.data();
      c.vec->map(c.op, c.elem)(args);
      Guarded& over = i == 0 ? a2 : b2;
      bool same = true;
      for (std::int64_t r = 0; r < 3; ++r)
        for (std::int64_t j = 0; j < 37; ++j) same &= over.at(r, j) == out.at(r, j);
      CAPTURE(c.name());
      CHECK(same);
    }
  }
}

TEST_CASE("integers wrap") {
  constexpr std::int32_t low = std::numeric_limits<std::int32_t>::min(),
                         high = std::numeric_limits<std::int32_t>::max();
  struct Wrapped {
    Op op;
    std::int32_t a, b, want;
  };
  for (const VecOps* vec : vec_tables())
    for (const Wrapped& w : {Wrapped{Op::kAdd, high, 1, low},
                             {Op::kSub, low, 1, high},
                             {Op::kMul, 65536, 65537, 65536},
                             {Op::kMul, low, -1, low},
                             {Op::kNeg, low, 0, low},
                             {Op::kAbs, low, 0, low},
                             {Op::kSquare, 65537, 0, 131073},
                             {Op::kMin, low, high, low},
                             {Op::kMax, low, high, high},
                             {Op::kLt, low, high, -1},
                             {Op::kGt, low, high, 0}}) {
      std::vector<std::int32_t> a(19, w.a), b(19, w.b), out(19);
      vec->map(w.op, Elem::kI32)({out.data(), 19, {{a.data(), 19, 1}, {b.data(), 19, 1}}, 1, 19});
      CAPTURE(name(vec->isa));
      CAPTURE(row(w.op).name);
      CHECK(out == std::vector<std::int32_t>(19, w.want));
    }
}

TEST_CASE("where takes bits as they are") {
  for (const VecOps* vec : vec_tables()) {
    Guarded c(1, 21, 21), a(1, 21, 21), b(1, 21, 21), out(1, 21, 21);
    c.fill(draw_bool);
    a.fill([] { return 0x7f812345u; }), b.fill([] { return 0xffc54321u; });
    vec->map(Op::kWhere,
             Elem::kF32)({out.data(), 21, {{c.data(), 21, 1}, {a.data(), 21, 1}, {b.data(), 21, 1}}, 1, 21});
    for (std::int64_t j = 0; j < 21; ++j) CHECK(out.at(0, j) == (c.i32(0, j) != 0 ? 0x7f812345u : 0xffc54321u));
  }
}

// --- casts

TEST_CASE("casts round once, to nearest even") {
  std::vector<float> floats{65519.9f, 65520,   -65520,      1e30f,       kInfinity,     -kInfinity,     kNaN,
                            6e-8f,    2.9e-8f, 1 + 0x1p-8f, 1 + 0x3p-8f, 2147483648.0f, -2147483648.0f, 2147483520.0f,
                            -3e9f,    3.99f,   -3.99f,      0.0f,        -0.0f,         1e-41f};
  for (int i = 0; i < 500; ++i) floats.push_back(draw_float());
  // Just beside a tie of bf16, where rounding to fp32 first would make one.
  std::vector<std::int32_t> ints{0,          1,          -1,          0x7fffffff, -0x7fffffff - 1, 16777217,
                                 -16777217,  65519,      65520,       0x01010000, 0x01010001,      -0x01010001,
                                 0x01030000, 0x0102ffff, -0x0102ffff, 0x7f7fffff, 0x40400001};
  for (int i = 0; i < 3000; ++i) ints.push_back(static_cast<std::int32_t>(random_bits() * 2654435761u) >> (i % 20));
  auto n = static_cast<std::int64_t>(floats.size()), m = static_cast<std::int64_t>(ints.size());
  for (const VecOps* vec : vec_tables())
    for (DType to : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32}) {
      CAPTURE(name(vec->isa));
      CAPTURE(name(to));
      std::vector<float> out(floats.size()), from_ints(ints.size());
      vec->cast(Elem::kF32, to)({out.data(), n, {{floats.data(), n, 1}}, 1, n});
      vec->cast(Elem::kI32, to)({from_ints.data(), m, {{ints.data(), m, 1}}, 1, m});
      for (std::size_t i = 0; i < floats.size(); ++i) {
        CAPTURE(floats[i]);
        double x = static_cast<double>(floats[i]);
        if (to != DType::kI32) {
          CHECK(ulps(round_to(to, x), out[i]) == 0);
        } else {
          double want = std::isnan(x) ? 0 : std::clamp(std::trunc(x), -0x1p31, 0x1p31 - 1);
          CHECK(std::bit_cast<std::int32_t>(out[i]) == static_cast<std::int32_t>(want));
        }
      }
      for (std::size_t i = 0; i < ints.size(); ++i) {
        CAPTURE(ints[i]);
        if (to == DType::kI32)
          CHECK(std::bit_cast<std::int32_t>(from_ints[i]) == ints[i]);
        else
          CHECK(static_cast<double>(from_ints[i]) == round_to(to, ints[i]));
      }
    }
}

// --- storage

TEST_CASE("all 16-bit patterns load as they are defined and store back") {
  for (const VecOps* vec : vec_tables())
    for (DType t : {DType::kBF16, DType::kF16}) {
      std::vector<std::uint16_t> bits(65536), back(65536);
      std::vector<float> wide(65536);
      for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
      vec->load_row(wide.data(), bits.data(), t, 65536, 1);
      vec->store_row(back.data(), wide.data(), t, 65536, 1);
      CAPTURE(name(vec->isa));
      CAPTURE(name(t));
      for (std::int64_t i = 0; i < 65536; ++i) {
        auto at = static_cast<std::size_t>(i);
        float want = load_element(bits.data(), i, t);
        REQUIRE(ulps(static_cast<double>(want), wide[at]) == 0);
        REQUIRE(std::signbit(want) == std::signbit(wide[at]));
        if (std::isnan(want))
          REQUIRE(std::isnan(load_element(back.data(), i, t)));
        else
          REQUIRE(back[at] == bits[at]);
      }
    }
}

TEST_CASE("stores round to nearest even and keep NaN") {
  std::vector<float> x{kNaN, std::bit_cast<float>(0x7f800001u), std::bit_cast<float>(0xffffffffu)};
  for (std::uint64_t u = 0; u < 1ull << 32; u += 30011)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(u)));
  for (std::uint32_t high = 0; high < 0x10000; high += 37)
    for (std::uint32_t low : {0x7fffu, 0x8000u, 0x8001u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u})
      x.push_back(std::bit_cast<float>(high << 16 | low));
  auto n = static_cast<std::int64_t>(x.size());
  for (const VecOps* vec : vec_tables())
    for (DType t : {DType::kBF16, DType::kF16}) {
      std::vector<std::uint16_t> got(x.size()), want(x.size());
      vec->store_row(got.data(), x.data(), t, n, 1);
      CAPTURE(name(vec->isa));
      CAPTURE(name(t));
      for (std::int64_t i = 0; i < n; ++i) {
        auto at = static_cast<std::size_t>(i);
        store_element(want.data(), i, t, x[at]);
        CAPTURE(std::bit_cast<std::uint32_t>(x[at]));
        if (std::isnan(x[at]))
          REQUIRE(std::isnan(load_element(got.data(), i, t)));
        else
          REQUIRE(got[at] == want[at]);
      }
    }
}

TEST_CASE("rows load and store at any stride and length, and touch nothing else") {
  for (const VecOps* vec : vec_tables())
    for (DType t : {DType::kF32, DType::kI32, DType::kBF16, DType::kF16})
      for (std::int64_t stride : {1, 2, 7, -1, -3, 0})
        for (std::int64_t n : kSizes) {
          CAPTURE(name(vec->isa));
          CAPTURE(name(t));
          CAPTURE(stride);
          CAPTURE(n);
          const std::int64_t reach = std::max<std::int64_t>(n - 1, 0) * std::abs(stride),
                             first = (stride < 0 ? reach : 0) + 9;
          std::vector<std::uint16_t> memory(static_cast<std::size_t>(2 * (reach + 20)), 0xffc1), before;
          auto* base =
              reinterpret_cast<char*>(memory.data()) + 4 * 9 - 9 * size_of(t);  // odd elements, not aligned vectors
          auto address = [&](std::int64_t j) { return base + (first + j * stride) * size_of(t); };
          for (std::int64_t j = 0; j < n; ++j) {
            float small = static_cast<float>(j % 200);
            if (t == DType::kI32) small = std::bit_cast<float>(static_cast<std::int32_t>(j - 3));
            store_element(address(j), 0, t == DType::kI32 ? DType::kF32 : t, small);
          }
          Guarded row(1, n, n + 3);
          vec->load_row(row.data(), address(0), t, n, stride);
          CHECK(row.intact());
          for (std::int64_t j = 0; j < n; ++j) {
            std::int64_t last = stride == 0 ? n - 1 : j;  // of the writes to the same place
            if (t == DType::kI32)
              REQUIRE(row.i32(0, j) == last - 3);
            else
              REQUIRE(row.f32(0, j) == static_cast<float>(last % 200));
          }
          before = memory;
          for (std::int64_t j = 0; j < n; ++j) std::memset(address(j), 0, static_cast<std::size_t>(size_of(t)));
          vec->store_row(address(0), row.data(), t, n, stride);
          CHECK(memory == before);
        }
}

TEST_CASE("add_row adds in place") {
  for (const VecOps* vec : vec_tables())
    for (std::int64_t stride : {1, 3, 0, -2})
      for (std::int64_t n : kSizes) {
        Guarded src(1, n, n + 1), dst(1, 3 * n + 1, 3 * n + 1);
        for (std::int64_t j = 0; j < n; ++j) src.floats()[j] = static_cast<float>(j + 1);
        dst.fill([] { return 0.5f; });
        std::int64_t first = stride < 0 ? 2 * n : 0;
        std::vector<float> want(static_cast<std::size_t>(3 * n + 1), 0.5f);
        for (std::int64_t j = 0; j < n; ++j)
          want[static_cast<std::size_t>(first + j * stride)] += static_cast<float>(j + 1);
        vec->add_row(dst.floats() + first, src.floats(), n, stride);
        CAPTURE(name(vec->isa));
        CAPTURE(stride);
        CAPTURE(n);
        CHECK(std::equal(want.begin(), want.end(), dst.floats()));
        CHECK(dst.intact());
      }
}

}  // namespace

TEST_CASE("two maps in one pass give the bits of two passes, whichever side the first is on") {
  constexpr std::int64_t kRows = 3, kPitch = 40;
  std::vector<float> x(kRows * kPitch), y(kRows * kPitch), z(kRows * kPitch), mid(kRows * kPitch), once(kRows * kPitch),
      twice(kRows * kPitch);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = 1.0f + 1e-7f * static_cast<float>(i * 37 % 101);
    y[i] = -0.3f + 0.017f * static_cast<float>(i * 53 % 97);
    z[i] = -1.0f / (1.0f + static_cast<float>(i % 29));
  }
  for (Isa isa : supported_isas()) {
    const VecOps& ops = vec_ops(isa);
    for (Op first : {Op::kAdd, Op::kSub, Op::kMul})
      for (Op second : {Op::kAdd, Op::kSub, Op::kMul})
        for (bool right : {false, true})
          for (std::int64_t n : {1, 16, 37}) {
            BlockOperand a{x.data(), kPitch, 1}, b{y.data(), 1, 0}, c{z.data(), 0, 1}, m{mid.data(), kPitch, 1};
            ops.fused(first, second, right)({once.data(), kPitch, {a, b, c}, kRows, n});
            ops.map(first, Elem::kF32)({mid.data(), kPitch, {a, b, {}}, kRows, n});
            ops.map(second, Elem::kF32)({twice.data(), kPitch, {right ? c : m, right ? m : c, {}}, kRows, n});
            for (std::int64_t r = 0; r < kRows; ++r)
              for (std::int64_t j = 0; j < n; ++j) {
                auto at = static_cast<std::size_t>(r * kPitch + j);
                CHECK(std::bit_cast<std::uint32_t>(once[at]) == std::bit_cast<std::uint32_t>(twice[at]));
              }
          }
    CHECK_FALSE(static_cast<bool>(ops.fused(Op::kDiv, Op::kAdd, false)));
    CHECK_FALSE(static_cast<bool>(ops.fused(Op::kAdd, Op::kMax, false)));
  }
}
