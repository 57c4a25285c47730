// Tiles that are worked on in several blocks of rows (a tile of more than kBlockElements, src/cpu/tile.cc): every way
// in which a value enters, is reduced or is stored must know its block. Sizes are no multiples of a vector or a block.
#include <doctest/doctest.h>

#include "cpu_run.h"

using namespace coda;

namespace {

constexpr const char* kText = R"(program blocks
in x: f32[M,K]
in w: f32[N,K]
in r: f32[M,1]
in c: f32[M,N]
z = (x @ w) * r + c
high, at = argmax_n(z)
mean, m2 = moments_m(z)
out z: f32[M,N], s: f32[M,1] = sum_n(z), q: f32[1,N] = sum_m(z), high: f32[M,1], at: i32[M,1]
out top: f32[1,N] = max_m(z), widest: f32[M,1] = max_n(z), mean: f32[1,N], m2: f32[1,N]
)";

// Whole numbers; every z is far below 0, and row 0 holds the largest of each column.
Arrays inputs(std::int64_t m, std::int64_t n, std::int64_t k) {
  Arrays in{{"x", cpu_run::integers("x", m, k)},
            {"w", cpu_run::integers("w", n, k)},
            {"r", cpu_run::integers("r", m, 1)},
            {"c", cpu_run::integers("c", m, n)}};
  for (double& x : in["c"].data) x -= 1000;
  for (std::int64_t j = 0; j < n; ++j) in["c"].at(0, j) += 500;
  return in;
}

void compare(const Arrays& found, const Arrays& right) {
  for (const auto& entry : right) {
    const std::string& name = entry.first;
    const Array& a = entry.second;
    CAPTURE(name);
    if (name != "mean" && name != "m2") {
      CHECK(cpu_run::difference(found.at(name), a) == "");
      continue;
    }
    for (std::int64_t j = 0; j < a.width(); ++j)
      CHECK(found.at(name).at(0, j) == doctest::Approx(a.at(0, j)).epsilon(1e-5));
  }
}

}  // namespace

TEST_CASE("one tile of many blocks, and several tiles of several blocks") {
  const Program& p = cpu_run::parsed(kText);
  Arrays in = inputs(203, 130, 5);
  Sizes sizes = cpu_run::sizes_of(p, in);
  Arrays right = cpu_run::expected(p, in, sizes);
  compare(cpu_run::run(p, in, {}, cpu_run::small_tiles(208, 144)), right);
  compare(cpu_run::run(p, in, {}, cpu_run::small_tiles(112, 64)), right);
  compare(cpu_run::run(p, in, {}, cpu_run::small_tiles(112, 64, 2)), right);
}

TEST_CASE("NaN in a later tile, in the first, and in a later block reaches its row's and its column's reductions") {
  const Program& p = cpu_run::parsed(kText);
  const std::int64_t places[][2] = {{7, 100}, {150, 3}, {0, 129}};
  for (const auto& place : places) {
    Arrays in = inputs(203, 130, 5);
    in["c"].at(place[0], place[1]) = std::numeric_limits<double>::quiet_NaN();
    Arrays found = cpu_run::run(p, in, {}, cpu_run::small_tiles(112, 64));
    for (std::int64_t i = 0; i < 203; ++i) CHECK(std::isnan(found.at("widest").at(i, 0)) == (i == place[0]));
    for (std::int64_t j = 0; j < 130; ++j) CHECK(std::isnan(found.at("top").at(0, j)) == (j == place[1]));
    CHECK(found.at("at").at(place[0], 0) == static_cast<double>(place[1]));
  }
}
