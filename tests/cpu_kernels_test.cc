// The tile GEMM on every instruction set of this processor (and AMX in emulation), against fp64: all tails, layouts,
// dtypes and K splits. Operands lie in memory filled with NaN; packed buffers and results are guarded.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "coda/error.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/tile_gemm.h"

namespace {

using namespace coda;
using namespace coda::cpu;

struct Subject {
  std::string name;
  DType dtype;
  TileGemm gemm;
  bool native_bf16 = false;
};

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (Isa isa : supported_isas())
      all.push_back({std::string(name(isa)) + " " + std::string(name(t)), t, TileGemm::get(t, isa),
                     t == DType::kBF16 && isa >= Isa::kAvx512Bf16});
  }
  if (supported_isas().back() >= Isa::kAvx512)
    all.push_back({"amx (emulated) bf16", DType::kBF16, TileGemm(amx_emulated_kernels()), true});
  return all;
}

// Where an element of a view lies: rows in blocks of `rows`, columns in blocks of `cols` (0: one block), the columns of
// a block `step` elements apart. Blocks of columns are the outer of the two, as heads are in [B,H,S,D].
struct Layout {
  const char* name;
  bool k_is_rows;
  std::int64_t row_block, col_block, step;
};

constexpr Layout kLayouts[] = {
    {"K-major", false, 0, 0, 1},         {"MN-major", true, 0, 0, 1},           {"K-major, step 2", false, 0, 0, 2},
    {"MN-major, step 3", true, 0, 0, 3}, {"K in heads of 64", false, 5, 64, 1}, {"MN in heads of 64", true, 32, 64, 1},
    {"K in heads of 7", false, 3, 7, 1}, {"MN in heads of 7", true, 9, 7, 1},
};

// An operand of mn × k values, the memory around them NaN.
struct Operand {
  std::int64_t mn, k;
  std::vector<double> values;  // [mn][k]
  std::vector<std::uint32_t> memory;
  GemmOperand view;

  template <class F>
  Operand(std::int64_t mn_size, std::int64_t k_size, DType t, const Layout& layout, F&& value)
      : mn(mn_size), k(k_size) {
    std::int64_t rows = layout.k_is_rows ? k : mn, cols = layout.k_is_rows ? mn : k;
    TensorView v;
    v.dtype = t, v.rows = rows, v.cols = cols;
    v.row_block = layout.row_block > 0 ? layout.row_block : std::max<std::int64_t>(rows, 1);
    v.col_block = layout.col_block > 0 ? layout.col_block : std::max<std::int64_t>(cols, 1);
    std::int64_t col_blocks = (cols + v.col_block - 1) / v.col_block,
                 row_blocks = (rows + v.row_block - 1) / v.row_block;
    v.col_stride = layout.step;
    v.row_stride = v.col_block * layout.step + 3;
    v.col_outer = v.row_block * v.row_stride + 1;
    v.row_outer = col_blocks * v.col_outer;
    std::int64_t elements = row_blocks * v.row_outer + 8;
    memory.resize(static_cast<std::size_t>(elements));
    v.data = memory.data();
    for (std::int64_t i = 0; i < elements; ++i) store_element(v.data, i, t, std::numeric_limits<float>::quiet_NaN());
    values.resize(static_cast<std::size_t>(mn * k));
    for (std::int64_t i = 0; i < mn; ++i)
      for (std::int64_t j = 0; j < k; ++j) {
        double x = round_to(t, value(i, j));
        values[i * k + j] = x;
        store_element(v.data, layout.k_is_rows ? v.offset(j, i) : v.offset(i, j), t, static_cast<float>(x));
      }
    view = {v, layout.k_is_rows};
  }
};

// 64-byte aligned bytes with a guard behind them.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : bytes_(bytes), memory_(bytes + 64 + kGuard, kFill) {
    offset_ = (64 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64) % 64;
  }
  unsigned char* data() { return memory_.data() + offset_; }
  bool intact() const {
    for (std::size_t i = 0; i < offset_; ++i)
      if (memory_[i] != kFill) return false;
    for (std::size_t i = offset_ + bytes_; i < memory_.size(); ++i)
      if (memory_[i] != kFill) return false;
    return true;
  }

 private:
  static constexpr unsigned char kFill = 0xff;  // a NaN in every dtype: padding left unwritten shows in the result
  static constexpr std::size_t kGuard = 256;
  std::size_t bytes_, offset_ = 0;
  std::vector<unsigned char> memory_;
};

struct Run {
  std::int64_t first_row = 0, first_col = 0, m, n;
  std::int64_t k_step;      // length of K blocks
  bool accumulate = false;  // onto c = i - 2j
};

double initial(std::int64_t i, std::int64_t j) { return static_cast<double>(i % 50 - 2 * (j % 50)); }

// c [m,n] of the rows and columns that `run` names; checks all guards.
std::vector<float> multiply(const TileGemm& gemm, const Operand& a, const Operand& b, const Run& run) {
  std::int64_t pitch = run.n + 3;
  std::size_t c_bytes = static_cast<std::size_t>(run.m * pitch) * 4;
  Guarded c_memory(c_bytes);
  float* c = reinterpret_cast<float*>(c_memory.data());
  float untouched;
  std::memset(&untouched, 0xff, 4);
  if (run.accumulate)
    for (std::int64_t i = 0; i < run.m; ++i)
      for (std::int64_t j = 0; j < run.n; ++j) c[i * pitch + j] = static_cast<float>(initial(i, j));
  std::int64_t k0 = 0;
  do {
    std::int64_t k = std::min(run.k_step, a.k - k0);
    Guarded packed_a(gemm.packed_a_bytes(run.m, k)), packed_b(gemm.packed_b_bytes(run.n, k));
    gemm.pack_a(a.view, run.first_row, run.m, k0, k, packed_a.data());
    gemm.pack_b(b.view, run.first_col, run.n, k0, k, packed_b.data());
    REQUIRE(packed_a.intact());
    REQUIRE(packed_b.intact());
    gemm.multiply(run.m, run.n, k, packed_a.data(), packed_b.data(), c, pitch, run.accumulate || k0 > 0);
    REQUIRE(packed_a.intact());
    REQUIRE(packed_b.intact());
    k0 += k;
  } while (k0 < a.k);
  REQUIRE(c_memory.intact());
  std::vector<float> result(static_cast<std::size_t>(run.m * run.n));
  bool gap_intact = true;
  for (std::int64_t i = 0; i < run.m; ++i) {
    for (std::int64_t j = 0; j < run.n; ++j) result[i * run.n + j] = c[i * pitch + j];
    for (std::int64_t j = run.n; j < pitch; ++j) gap_intact &= std::memcmp(&c[i * pitch + j], &untouched, 4) == 0;
  }
  REQUIRE(gap_intact);
  return result;
}

// The worst element against fp64; `bound` = 0 means exact, else in units of (2 + √K)·2⁻²³·Σ|a||b|.
void check(const std::vector<float>& c, const Operand& a, const Operand& b, const Run& run, double bound) {
  double worst = -1;
  std::int64_t worst_i = 0, worst_j = 0;
  for (std::int64_t i = 0; i < run.m; ++i)
    for (std::int64_t j = 0; j < run.n; ++j) {
      double sum = run.accumulate ? initial(i, j) : 0, size = std::fabs(sum);
      const double *x = a.values.data() + (i + run.first_row) * a.k, *y = b.values.data() + (j + run.first_col) * b.k;
      for (std::int64_t k = 0; k < a.k; ++k) sum += x[k] * y[k], size += std::fabs(x[k] * y[k]);
      double allowed = bound * (2 + std::sqrt(static_cast<double>(a.k))) * 0x1p-23 * size;
      double excess = std::fabs(c[i * run.n + j] - sum) - allowed;
      if (!(excess <= worst)) worst = excess, worst_i = i, worst_j = j;
    }
  CAPTURE(worst_i);
  CAPTURE(worst_j);
  CHECK(worst <= 0);
}

struct Integers {
  std::minstd_rand random;
  explicit Integers(unsigned seed) : random(seed) {}
  double operator()(std::int64_t, std::int64_t) { return static_cast<double>(random() % 7) - 3; }
};
struct Uniform {
  std::minstd_rand random;
  explicit Uniform(unsigned seed) : random(seed) {}
  double operator()(std::int64_t, std::int64_t) { return std::uniform_real_distribution<double>(-1, 1)(random); }
};

bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * 4) == 0);
}

}  // namespace

TEST_CASE("small integers are exact at every tail of m, n and k") {
  for (const Subject& s : subjects()) {
    CAPTURE(s.name);
    std::int64_t mr = s.gemm.mr(), nr = s.gemm.nr(), kb = s.gemm.k_block();
    unsigned seed = 0;
    auto one = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate) {
      const Layout &la = kLayouts[seed % 2], &lb = kLayouts[seed / 2 % 2];
      CAPTURE(m);
      CAPTURE(n);
      CAPTURE(k);
      CAPTURE(la.name);
      CAPTURE(lb.name);
      ++seed;
      Operand a(m + 1, k, s.dtype, la, Integers(seed)), b(n + 2, k, s.dtype, lb, Integers(seed + 1000));
      Run run{1, 2, m, n, kb, accumulate};
      check(multiply(s.gemm, a, b, run), a, b, run, 0);
    };
    for (std::int64_t m = 0; m <= mr + 1; ++m)
      for (std::int64_t n : {std::int64_t{1}, nr}) one(m, n, 5, m % 2 == 0);
    for (std::int64_t n = 0; n <= nr + 1; ++n)
      for (std::int64_t m : {std::int64_t{1}, mr}) one(m, n, 5, n % 2 == 0);
    for (std::int64_t m : {2 * mr - 1, 3 * mr + 2})
      for (std::int64_t n : {2 * nr - 1, 2 * nr, 3 * nr + 5})
        for (std::int64_t k : {0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65}) one(m, n, k, (m + n + k) % 2 == 0);
    for (std::int64_t k : {kb - 1, kb, kb + 1, 2 * kb + 7})
      for (bool accumulate : {false, true}) one(mr + 1, nr + 1, k, accumulate);
  }
}

TEST_CASE("every pair of layouts, with K blocks at odd places, within the bound of fp32 sums") {
  for (const Subject& s : subjects()) {
    CAPTURE(s.name);
    unsigned seed = 0;
    for (const Layout& la : kLayouts)
      for (const Layout& lb : kLayouts) {
        CAPTURE(la.name);
        CAPTURE(lb.name);
        std::int64_t k = 150 + seed % 5, step = seed % 3 == 0 ? 64 : seed % 3 == 1 ? 37 : s.gemm.k_block();
        std::int64_t m = 2 * s.gemm.mr() + seed % 4, n = 70 + seed % 30;
        CAPTURE(step);
        ++seed;
        Operand a(m + 4, k, s.dtype, la, Uniform(seed)), b(n + 3, k, s.dtype, lb, Uniform(seed + 1000));
        Run run{seed % 5, seed % 4, m, n, step, seed % 2 == 0};
        std::vector<float> c = multiply(s.gemm, a, b, run);
        check(c, a, b, run, 1);
        CHECK(same_bits(c, multiply(s.gemm, a, b, run)));
      }
  }
}

TEST_CASE("packed panels hold the operand's values and zeros, nothing from around it") {
  for (const Subject& s : subjects()) {
    CAPTURE(s.name);
    for (const Layout& layout : kLayouts)
      for (std::int64_t k : {1, 5, 33}) {
        CAPTURE(layout.name);
        CAPTURE(k);
        // 16 panels, so that the panels fill whole cache lines and every byte is defined; the last one has one lane.
        auto count_wrong = [&](std::int64_t lanes, auto pack, std::size_t bytes) {
          std::int64_t count = 15 * lanes + 1;
          Operand x(count, k, s.dtype, layout, [](std::int64_t, std::int64_t) { return 1.0; });
          Guarded packed(bytes);
          (s.gemm.*pack)(x.view, 0, count, 0, k, packed.data());
          REQUIRE(packed.intact());
          std::int64_t ones = 0, others = 0;
          DType t = s.native_bf16 ? DType::kBF16 : DType::kF32;
          for (std::int64_t i = 0; i < static_cast<std::int64_t>(bytes) / size_of(t); ++i) {
            float value = load_element(packed.data(), i, t);
            ones += value == 1, others += !(value == 0 || value == 1);
          }
          return std::abs(ones - count * k) + others;
        };
        CHECK(count_wrong(s.gemm.mr(), &TileGemm::pack_a, s.gemm.packed_a_bytes(16 * s.gemm.mr(), k)) == 0);
        CHECK(count_wrong(s.gemm.nr(), &TileGemm::pack_b, s.gemm.packed_b_bytes(16 * s.gemm.nr(), k)) == 0);
      }
  }
}

TEST_CASE("no K block writes zeros, or leaves what is accumulated onto") {
  for (const Subject& s : subjects()) {
    CAPTURE(s.name);
    Operand a(9, 0, s.dtype, kLayouts[0], Integers(1)), b(40, 0, s.dtype, kLayouts[1], Integers(2));
    for (float x : multiply(s.gemm, a, b, {0, 0, 9, 40, 1})) CHECK(x == 0);
    Run run{0, 0, 9, 40, 1, true};
    check(multiply(s.gemm, a, b, run), a, b, run, 0);
  }
}

TEST_CASE("the bits of an element do not depend on the tile it is computed in") {
  for (const Subject& s : subjects()) {
    CAPTURE(s.name);
    std::int64_t m = 3 * s.gemm.mr() + 1, n = 2 * s.gemm.nr() + 3, k = 100;
    Operand a(m, k, s.dtype, kLayouts[0], Uniform(1)), b(n, k, s.dtype, kLayouts[0], Uniform(2));
    std::vector<float> whole = multiply(s.gemm, a, b, {0, 0, m, n, 64});
    for (std::int64_t i : {std::int64_t{0}, s.gemm.mr() - 1L, m - 1})
      for (std::int64_t j : {std::int64_t{0}, s.gemm.nr() - 1L, n - 1}) {
        std::vector<float> alone = multiply(s.gemm, a, b, {i, j, 1, 1, 64});
        CHECK(same_bits(alone, {whole[i * n + j]}));
      }
  }
}

TEST_CASE("NaN and infinity go to the rows and columns that depend on them, and nowhere else") {
  for (const Subject& s : subjects()) {
    CAPTURE(s.name);
    std::int64_t m = s.gemm.mr() + 3, n = s.gemm.nr() + 3, k = 35;
    std::int64_t bad_row = s.gemm.mr() - 1, inf_col = s.gemm.nr();
    auto nan_row = [&](std::int64_t i, std::int64_t j) {
      return i == bad_row && j == k - 1 ? std::numeric_limits<double>::quiet_NaN() : 1.0;
    };
    auto infinite_column = [&](std::int64_t i, std::int64_t j) {
      return i == inf_col && j == 0 ? std::numeric_limits<double>::infinity() : 2.0;
    };
    for (const Layout& layout : {kLayouts[0], kLayouts[1], kLayouts[2]}) {
      Operand a(m, k, s.dtype, layout, nan_row), b(n, k, s.dtype, layout, infinite_column);
      std::vector<float> c = multiply(s.gemm, a, b, {0, 0, m, n, 35});
      int wrong = 0;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          float x = c[i * n + j];
          wrong += !(i == bad_row ? std::isnan(x) : j == inf_col ? std::isinf(x) && x > 0 : x == 70);
        }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("values below the normal range: kept by fp32 arithmetic, at worst flushed by native bf16") {
  for (const Subject& s : subjects()) {
    CAPTURE(s.name);
    double tiny = s.dtype == DType::kF16 ? 0x1p-24 : 0x1p-130;  // denormal in its dtype
    auto one = [](std::int64_t, std::int64_t) { return 1.0; };
    Operand a(2, 4, s.dtype, kLayouts[0], [&](std::int64_t, std::int64_t) { return tiny; }),
        b(2, 4, s.dtype, kLayouts[0], one);
    for (float x : multiply(s.gemm, a, b, {0, 0, 2, 2, 4})) {
      bool right = x == 4 * tiny || (s.native_bf16 && x == 0);
      CHECK(right);
    }
  }
}

TEST_CASE("instruction sets: ordered, named, chosen by CODA_ISA") {
  std::span<const Isa> isas = supported_isas();
  CHECK(isas.front() == Isa::kBaseline);
  for (std::size_t i = 1; i < isas.size(); ++i) CHECK(isas[i - 1] < isas[i]);
  const char* old = std::getenv("CODA_ISA");
  std::string saved = old != nullptr ? old : "";
  unsetenv("CODA_ISA");
  CHECK(best_isa() == isas.back());
  for (Isa isa : isas) {
    setenv("CODA_ISA", std::string(name(isa)).c_str(), 1);
    CHECK(best_isa() == isa);
  }
  setenv("CODA_ISA", "sse9", 1);
  CHECK_THROWS_WITH_AS(best_isa(), doctest::Contains("baseline, avx2, avx512, avx512bf16, amx"), Error);
  if (isas.back() != Isa::kAmx) {
    setenv("CODA_ISA", "amx", 1);
    CHECK_THROWS_WITH_AS(best_isa(), doctest::Contains("which this processor lacks"), Error);
    CHECK_THROWS_AS(TileGemm::get(DType::kBF16, Isa::kAmx), InternalError);
  }
  CHECK_THROWS_AS(TileGemm::get(DType::kI32, Isa::kBaseline), InternalError);
  if (old != nullptr)
    setenv("CODA_ISA", saved.c_str(), 1);
  else
    unsetenv("CODA_ISA");
}

TEST_CASE("a K block longer than k_block() is refused before anything is written") {
  const TileGemm& gemm = TileGemm::get(DType::kF32, Isa::kBaseline);
  float c[1] = {7};
  CHECK_THROWS_AS(gemm.multiply(1, 1, gemm.k_block() + 1, nullptr, nullptr, c, 1, false), InternalError);
  CHECK(c[0] == 7);
}
