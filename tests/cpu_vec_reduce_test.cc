// The reductions, moves and generators of src/cpu/vec on every instruction set of this processor against plain fp64
// loops: sizes around vector widths, gaps and guards around blocks, NaN and infinities, results that do not depend on
// what else is in the block.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "ir/philox.h"
#include "vec_blocks.h"

namespace {

using namespace coda;
using namespace coda::cpu;
using namespace coda::test;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float draw() {
  static std::minstd_rand engine(7);
  return static_cast<float>(engine() % 20011) / 20011 * 6 - 2;
}
float draw_integer() { return std::floor(draw() * 50); }

// Bounds on each of a row's or column's results, relative to the sum of magnitudes that went into it.
void check_close(double want, double scale, float got) {
  double g = static_cast<double>(got);
  if (std::isnan(want) || std::isinf(want))
    CHECK(ulps(want, got) == 0);
  else
    CHECK(std::fabs(g - want) <= 4e-7 * scale);
}

// The definition of a whole run of numbers.
struct Reduced {
  double sum = 0, magnitude = 0, max = -INFINITY, s = 0, t = 0, t_magnitude = 0, mean = 0, m2 = 0, spread = 0;
  std::int32_t argmax = -1;

  Reduced(const std::vector<double>& x, const std::vector<double>& w) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      sum += x[i], magnitude += std::fabs(x[i]);
      if (argmax < 0 || (!std::isnan(max) && (x[i] > max || std::isnan(x[i]))))
        max = x[i], argmax = static_cast<std::int32_t>(i);
    }
    if (x.empty()) return;
    mean = sum / static_cast<double>(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      double e = max == -INFINITY ? 0 : std::exp(x[i] - max);
      s += e;
      if (e != 0) t += e * w[i], t_magnitude += std::fabs(e * w[i]);
      m2 += (x[i] - mean) * (x[i] - mean), spread += x[i] * x[i];
    }
  }
};

std::vector<double> row_of(Guarded& g, std::int64_t r, std::int64_t first, std::int64_t count) {
  std::vector<double> x;
  for (std::int64_t j = first; j < first + count; ++j) x.push_back(static_cast<double>(g.f32(r, j)));
  return x;
}
std::vector<double> column_of(Guarded& g, std::int64_t j) {
  std::vector<double> x;
  for (std::int64_t r = 0; r < g.rows(); ++r) x.push_back(static_cast<double>(g.f32(r, j)));
  return x;
}

struct Results {  // one element a row or a column, guarded
  Guarded value, index, s, t;
  explicit Results(std::int64_t n) : value(1, n, n + 1), index(1, n, n + 1), s(1, n, n + 1), t(1, n, n + 1) {}
  bool intact() const { return value.intact() && index.intact() && s.intact() && t.intact(); }
};

void check_rows(const VecOps& vec, Guarded& x, Guarded& w) {
  Results sum(x.rows()), top(x.rows()), arg(x.rows()), plain(x.rows()), weighted(x.rows()), moments(x.rows());
  vec.sum_n(x.block(), sum.value.floats());
  vec.max_n(x.block(), top.value.floats());
  vec.argmax_n(x.block(), arg.value.floats(), arg.index.ints());
  vec.logsumexp_n(x.block(), nullptr, 0, plain.value.floats(), plain.s.floats(), nullptr);
  vec.logsumexp_n(x.block(), w.floats(), w.pitch(), weighted.value.floats(), weighted.s.floats(), weighted.t.floats());
  vec.moments_n(x.block(), moments.value.floats(), moments.s.floats());
  for (Results* r : {&sum, &top, &arg, &plain, &weighted, &moments}) CHECK(r->intact());
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    Reduced want(row_of(x, r, 0, x.n()), row_of(w, r, 0, x.n()));
    CAPTURE(r);
    check_close(want.sum, want.magnitude, sum.value.f32(0, r));
    CHECK(ulps(want.max, top.value.f32(0, r)) == 0);
    CHECK(ulps(want.max, arg.value.f32(0, r)) == 0);
    CHECK(arg.index.i32(0, r) == want.argmax);
    for (Results* l : {&plain, &weighted}) {
      CHECK(ulps(want.max, l->value.f32(0, r)) == 0);
      check_close(want.s, want.s, l->s.f32(0, r));
    }
    check_close(want.t, want.t_magnitude, weighted.t.f32(0, r));
    check_close(want.mean, std::sqrt(want.spread / std::max<double>(1, static_cast<double>(x.n()))),
                moments.value.f32(0, r));
    check_close(want.m2, want.m2 + 1e-9 * want.spread, moments.s.f32(0, r));
  }
}

// Columns of x, given to the running reductions in blocks of `step` rows.
void check_columns(const VecOps& vec, Guarded& x, Guarded& w, std::int64_t step) {
  std::int64_t n = x.n();
  Results sum(n), top(n), arg(n), plain(n), weighted(n), moments(n);
  auto zero = [] { return 0.0f; };
  auto lowest = [] { return -kInfinity; };
  for (Results* r : {&sum, &top, &arg, &plain, &weighted, &moments})
    r->value.fill(lowest), r->s.fill(zero), r->t.fill(zero);
  sum.value.fill(zero), arg.index.fill([] { return -1; });
  moments.value.fill([] { return kNaN; });  // the first block replaces whatever was there
  for (std::int64_t r = 0; r < x.rows(); r += step) {
    Block b{x.floats() + r * x.pitch(), x.pitch(), std::min(step, x.rows() - r), n};
    vec.sum_m(b, sum.value.floats());
    vec.max_m(b, top.value.floats());
    vec.argmax_m(b, static_cast<std::int32_t>(r), arg.value.floats(), arg.index.ints());
    vec.logsumexp_m(b, nullptr, 0, plain.value.floats(), plain.s.floats(), nullptr);
    vec.logsumexp_m(b, w.floats() + r * w.pitch(), w.pitch(), weighted.value.floats(), weighted.s.floats(),
                    weighted.t.floats());
    vec.moments_m(b, r, moments.value.floats(), moments.s.floats());
  }
  for (Results* r : {&sum, &top, &arg, &plain, &weighted, &moments}) CHECK(r->intact());
  for (std::int64_t j = 0; j < n && x.rows() > 0; ++j) {
    Reduced want(column_of(x, j), column_of(w, j));
    CAPTURE(j);
    check_close(want.sum, want.magnitude, sum.value.f32(0, j));
    CHECK(ulps(want.max, top.value.f32(0, j)) == 0);
    CHECK(ulps(want.max, arg.value.f32(0, j)) == 0);
    CHECK(arg.index.i32(0, j) == want.argmax);
    for (Results* l : {&plain, &weighted}) {
      CHECK(ulps(want.max, l->value.f32(0, j)) == 0);
      check_close(want.s, want.s, l->s.f32(0, j));
    }
    check_close(want.t, want.t_magnitude, weighted.t.f32(0, j));
    check_close(want.mean, std::sqrt(want.spread / static_cast<double>(x.rows())), moments.value.f32(0, j));
    // Merging blocks works on rounded means: an error of an ulp of x times the deviation, for each row.
    check_close(want.m2, want.m2 + std::sqrt(want.m2 * want.spread), moments.s.f32(0, j));
  }
}

TEST_CASE("reductions along rows, columns and groups equal their definitions") {
  for (const VecOps* vec : vec_tables())
    for (std::int64_t n : kSizes)
      for (std::int64_t rows : {1, 3, 10}) {
        CAPTURE(name(vec->isa));
        CAPTURE(n);
        CAPTURE(rows);
        Guarded x(rows, n, n + rows - 1), w(rows, n, n + 2, 2);
        x.fill(draw), w.fill(draw);
        check_rows(*vec, x, w);
        for (std::int64_t step : {1, 4, 10}) check_columns(*vec, x, w, step);
        Guarded wide(rows, 3 * n, 3 * n + 1), sums(rows, 3, 4), tops(rows, 3, 4);
        wide.fill(draw);
        vec->sum_c(wide.block(), n, sums.floats(), 4);
        vec->max_c(wide.block(), n, tops.floats(), 4);
        for (std::int64_t r = 0; r < rows && n > 0; ++r)
          for (std::int64_t g = 0; g < 3; ++g) {
            Reduced want(row_of(wide, r, g * n, n), row_of(wide, r, g * n, n));
            check_close(want.sum, want.magnitude, sums.f32(r, g));
            CHECK(static_cast<float>(want.max) == tops.f32(r, g));
          }
        CHECK((sums.intact() && tops.intact()));
      }
}

TEST_CASE("NaN and infinities go where IEEE sends them, and to their own row or column alone") {
  const float kinds[] = {kNaN, kInfinity, -kInfinity};
  for (const VecOps* vec : vec_tables())
    for (std::int64_t n : {1, 5, 16, 37, 70})
      for (float special : kinds)
        for (std::int64_t place = 0; place < n; place += 4) {
          CAPTURE(name(vec->isa));
          CAPTURE(n);
          CAPTURE(special);
          CAPTURE(place);
          Guarded x(3, n, n + 1), w(3, n, n + 1);
          x.fill(draw), w.fill(draw);
          x.at(1, place) = std::bit_cast<std::uint32_t>(special);
          if (special == -kInfinity) w.at(1, place) = x.at(1, place);  // adds nothing: its weight is 0
          check_rows(*vec, x, w);
          check_columns(*vec, x, w, 2);
          check_columns(*vec, x, w, 1);
        }
}

TEST_CASE("rows and columns of nothing but -inf") {
  for (const VecOps* vec : vec_tables())
    for (std::int64_t n : {1, 16, 21}) {
      CAPTURE(name(vec->isa));
      Guarded x(3, n, n), w(3, n, n);
      x.fill([] { return -kInfinity; }), w.fill([] { return -kInfinity; });
      std::vector<float> m(static_cast<std::size_t>(n) + 3, 5), s = m, t = m;
      std::vector<std::int32_t> index(m.size(), 9);
      vec->logsumexp_n(x.block(), w.floats(), n, m.data(), s.data(), t.data());
      CHECK((m[2] == -kInfinity && s[2] == 0 && t[2] == 0));
      vec->argmax_n(x.block(), m.data(), index.data());
      CHECK((m[2] == -kInfinity && index[2] == 0));
      std::fill(m.begin(), m.end(), -kInfinity), std::fill(s.begin(), s.end(), 0.0f),
          std::fill(t.begin(), t.end(), 0.0f);
      vec->logsumexp_m(x.block(), w.floats(), n, m.data(), s.data(), t.data());
      auto last = static_cast<std::size_t>(n - 1);
      CHECK((m[last] == -kInfinity && s[last] == 0 && t[last] == 0));
      std::fill(index.begin(), index.end(), -1);
      vec->argmax_m(x.block(), 4, m.data(), index.data());
      CHECK((m[last] == -kInfinity && index[last] == 4));
    }
}

TEST_CASE("of equal values, and of NaNs, the lowest index wins") {
  for (const VecOps* vec : vec_tables())
    for (float value : {3.0f, kNaN})
      for (std::int64_t first = 0; first < 40; ++first) {
        Guarded x(1, 41, 41), y(41, 1, 1);
        x.fill([] { return 1.0f; });
        for (std::int64_t j = first; j < 41; j += 1 + first % 7) x.at(0, j) = std::bit_cast<std::uint32_t>(value);
        for (std::int64_t j = 0; j < 41; ++j) y.at(j, 0) = x.at(0, j);
        float top = -kInfinity;
        std::int32_t index = -1;
        vec->argmax_n(x.block(), &top, &index);
        CAPTURE(name(vec->isa));
        CHECK(index == first);
        CHECK(ulps(static_cast<double>(value), top) == 0);
        top = -kInfinity, index = -1;
        vec->argmax_m(y.block(), 100, &top, &index);
        CHECK(index == 100 + first);
      }
}

TEST_CASE("a row's result is the same bits whatever the rows beside it and wherever it lies") {
  for (const VecOps* vec : vec_tables())
    for (std::int64_t n : kSizes) {
      if (n == 0) continue;
      Guarded row(1, n, n), many(4, n, n + 3, 2);
      row.fill(draw), many.fill(draw);
      for (std::int64_t j = 0; j < n; ++j) many.at(2, j) = row.at(0, j);
      float one[4], all[3][4];
      vec->sum_n(row.block(), one), vec->sum_n(many.block(), all[0]);
      CHECK(one[0] == all[0][2]);
      vec->logsumexp_n(row.block(), row.floats(), n, one, one + 1, one + 2);
      vec->logsumexp_n(many.block(), many.floats(), n + 3, all[0], all[1], all[2]);
      CHECK((one[1] == all[1][2] && one[2] == all[2][2]));
      vec->moments_n(row.block(), one, one + 1), vec->moments_n(many.block(), all[0], all[1]);
      CHECK((one[0] == all[0][2] && one[1] == all[1][2]));
    }
}

TEST_CASE("sums of small integers are exact, and moments lose nothing to a large mean") {
  for (const VecOps* vec : vec_tables()) {
    Guarded x(7, 509, 512);
    x.fill(draw_integer);
    std::vector<float> rows(7), columns(509, 0), mean(7), m2(7);
    vec->sum_n(x.block(), rows.data()), vec->sum_m(x.block(), columns.data());
    for (std::int64_t r = 0; r < 7; ++r) {
      double want = 0;
      for (double v : row_of(x, r, 0, 509)) want += v;
      CHECK(static_cast<double>(rows[static_cast<std::size_t>(r)]) == want);
    }
    for (std::int64_t j = 0; j < 509; ++j) {
      double want = 0;
      for (double v : column_of(x, j)) want += v;
      CHECK(static_cast<double>(columns[static_cast<std::size_t>(j)]) == want);
    }
    x.fill([] { return 1e6f + std::floor(draw()) / 16; });  // the mean itself is rounded by as much as x varies
    vec->moments_n(x.block(), mean.data(), m2.data());
    for (std::int64_t r = 0; r < 7; ++r) {
      std::vector<double> v = row_of(x, r, 0, 509);
      Reduced want(v, v);
      CHECK(ulps(want.mean, mean[static_cast<std::size_t>(r)]) <= 1);
      CHECK(std::fabs(static_cast<double>(m2[static_cast<std::size_t>(r)]) / want.m2 - 1) < 1e-5);
    }
    Guarded turned(509, 7, 7);
    for (std::int64_t r = 0; r < 509; ++r)
      for (std::int64_t j = 0; j < 7; ++j) turned.at(r, j) = x.at(j, r);
    std::vector<float> column_mean(7), column_m2(7);
    vec->moments_m(turned.block(), 0, column_mean.data(), column_m2.data());
    for (std::size_t j = 0; j < 7; ++j) {
      CHECK(std::fabs(column_mean[j] - mean[j]) <= 0.0625f);
      CHECK(std::fabs(column_m2[j] / m2[j] - 1) < 1e-5f);
    }
    x.fill([] { return 0.1f; });
    vec->moments_n(x.block(), mean.data(), m2.data());
    CHECK(mean[0] == 0.1f);
    CHECK(m2[0] < 1e-12f);
    CHECK(m2[0] >= 0);
  }
}

// --- moves of columns

TEST_CASE("pairs and interleave undo each other and keep to their blocks") {
  for (const VecOps* vec : vec_tables())
    for (std::int64_t n : kSizes) {
      CAPTURE(name(vec->isa));
      CAPTURE(n);
      Guarded x(3, 2 * n, 2 * n + 1), even(3, n, n + 3), odd(3, n, n + 3), back(3, 2 * n, 2 * n + 5, 2);
      x.fill(draw);
      vec->pairs(x.data(), x.pitch(), even.data(), odd.data(), n + 3, 3, n);
      vec->interleave(even.data(), odd.data(), n + 3, back.data(), back.pitch(), 3, n);
      CHECK((even.intact() && odd.intact() && back.intact()));
      bool right = true;
      for (std::int64_t r = 0; r < 3; ++r)
        for (std::int64_t j = 0; j < n; ++j) {
          right &= even.at(r, j) == x.at(r, 2 * j) && odd.at(r, j) == x.at(r, 2 * j + 1);
          right &= back.at(r, 2 * j) == x.at(r, 2 * j) && back.at(r, 2 * j + 1) == x.at(r, 2 * j + 1);
        }
      CHECK(right);
    }
}

TEST_CASE("copies and spreads of groups") {
  for (const VecOps* vec : vec_tables())
    for (std::int64_t count : kSizes)
      for (std::int64_t src_step : {std::int64_t{0}, count + 2}) {
        CAPTURE(name(vec->isa));
        CAPTURE(count);
        CAPTURE(src_step);
        const std::int64_t groups = 3, dst_step = count + 4;
        Guarded src(2, groups * (count + 2), groups * (count + 2) + 1), dst(2, groups * dst_step, groups * dst_step);
        src.fill(draw), dst.fill([] { return 0.0f; });
        vec->copy_groups(dst.data() + 1, dst.pitch(), dst_step, src.data() + 2, src.pitch(), src_step, 2, groups,
                         count);
        bool right = dst.intact();
        for (std::int64_t r = 0; r < 2; ++r)
          for (std::int64_t j = 0; j < dst.n(); ++j) {
            std::int64_t g = j / dst_step, c = j % dst_step - 1;
            right &= dst.at(r, j) == (c >= 0 && c < count ? src.at(r, 2 + g * src_step + c) : 0u);
          }
        CHECK(right);
        Guarded spread(2, groups * count, groups * count + 1);
        vec->spread_groups(spread.data(), spread.pitch(), src.data(), src.pitch(), 2, count > 0 ? groups : 0, count);
        right = spread.intact();
        for (std::int64_t r = 0; r < 2; ++r)
          for (std::int64_t j = 0; j < groups * count; ++j) right &= spread.at(r, j) == src.at(r, j / count);
        CHECK(right);
      }
}

// --- generators

TEST_CASE("uniform numbers are those of the definition, from any element on") {
  for (const VecOps* vec : vec_tables())
    for (std::int64_t first :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{4} * 0xffffffff - 9, std::int64_t{1} << 40})
      for (std::int64_t n : kSizes) {
        CAPTURE(name(vec->isa));
        CAPTURE(first);
        CAPTURE(n);
        Guarded out(3, n, n + 2);
        vec->uniform(out.floats(), n + 2, 3, n, first, n + 10, -5, 77);
        CHECK(out.intact());
        bool right = true;
        for (std::int64_t r = 0; r < 3; ++r)
          for (std::int64_t j = 0; j < n; ++j)
            right &= out.f32(r, j) == philox::uniform(static_cast<std::uint64_t>(first + r * (n + 10) + j), -5, 77);
        CHECK(right);
      }
}

TEST_CASE("cis is the cosine and sine of the exact product") {
  for (const VecOps* vec : vec_tables())
    for (std::int64_t n : kSizes) {
      CAPTURE(name(vec->isa));
      CAPTURE(n);
      const std::int32_t positions[] = {0, 1, -3, 4097, 1000003, 2147483647, -2147483647 - 1};
      Guarded freq(1, n, n), cos(7, n, n + 1), sin(7, n, n + 1);
      freq.fill([] { return std::exp2(-3 * (draw() + 2)); });
      if (n > 3) {
        freq.floats()[0] = 1;
        freq.floats()[1] = 1e30f;  // beyond the vectorised range reduction
        freq.floats()[2] = kInfinity;
        freq.floats()[3] = kNaN;
      }
      vec->cis(cos.floats(), sin.floats(), n + 1, positions, freq.floats(), 7, n);
      CHECK((cos.intact() && sin.intact()));
      for (std::int64_t r = 0; r < 7; ++r)
        for (std::int64_t j = 0; j < n; ++j) {
          double x = static_cast<double>(positions[r]) * static_cast<double>(freq.f32(0, j));
          CAPTURE(x);
          REQUIRE(ulps(std::cos(x), cos.f32(r, j)) <= 0.502);
          REQUIRE(ulps(std::sin(x), sin.f32(r, j)) <= 0.502);
        }
    }
}

}  // namespace
