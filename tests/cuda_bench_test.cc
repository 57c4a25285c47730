// The GPU benchmark without a GPU: order and arithmetic of the harness, what cuBLAS is asked for, the cases and their
// data, the check of results, the report.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "check_error.h"
#include "coda/cpu.h"
#include "cuda/bench/cases.h"
#include "cuda/bench/cublas.h"
#include "cuda/bench/data.h"
#include "cuda/bench/gemm_shape.h"
#include "cuda/bench/harness.h"
#include "cuda/bench/library_search.h"
#include "cuda/bench/report.h"
#include "cuda/bench/sample.h"
#include "model/llama_plan.h"
#include "plan/program_library.h"
#include "temp_dir.h"

using namespace coda;
using namespace coda::cuda;

namespace {

// A clock that a candidate moves, and a record of what happened.
struct FakeTicker : Ticker {
  double clock = 0, started = 0;
  bool flushed = false;
  std::vector<double> pending;
  int collected = 0;

  void flush() override { flushed = true, clock += 0.5; }
  void start() override {
    CHECK(flushed);
    flushed = false;
    started = clock;
  }
  void stop() override { pending.push_back(clock - started); }
  std::vector<double> collect() override {
    ++collected;
    return std::exchange(pending, {});
  }
  double now() const override { return clock; }
};

Candidate candidate(const std::string& name, const std::function<void()>& run,
                    const std::function<void()>& verify = {}) {
  return {{name, run}, verify};
}

Candidate timed(const std::string& name, std::vector<double> seconds) {
  Candidate c = candidate(name, [] {});
  c.seconds = std::move(seconds);
  return c;
}

}  // namespace

TEST_CASE("harness: every candidate once a round, shuffled anew, by a seed") {
  auto orders = [](std::uint64_t seed) {
    FakeTicker ticker;
    std::vector<std::string> ran;
    std::vector<Candidate> c;
    for (int i = 0; i < 4; ++i)
      c.push_back(candidate(std::string(1, static_cast<char>('a' + i)), [&ran, &ticker, i] {
        ran.emplace_back(1, static_cast<char>('a' + i));
        ticker.clock += i + 1;
      }));
    measure(c, {.rounds = 20, .warm_up_s = 100, .seed = seed}, ticker);
    for (int i = 0; i < 4; ++i) {
      CHECK(c[static_cast<std::size_t>(i)].seconds == std::vector<double>(20, i + 1));
    }
    std::vector<std::string> rounds;  // the last 20, each behind one that does not count
    for (std::size_t first = ran.size() - 100; first < ran.size(); first += 5) {
      std::string order;
      for (std::size_t i = first + 1; i < first + 5; ++i) order += ran[i];
      CHECK(std::set<char>(order.begin(), order.end()).size() == 4);
      CHECK(ran[first] == order.substr(3));
      rounds.push_back(order);
    }
    CHECK(ran.size() >= 4 + 5 * (20 + 7));  // 7 rounds of at most 16.5 s make 100 s of warm-up
    return rounds;
  };
  std::vector<std::string> first = orders(1);
  CHECK(first == orders(1));
  CHECK(first != orders(2));
  CHECK(std::set<std::string>(first.begin(), first.end()).size() > 5);
}

TEST_CASE("harness: results are verified before anything is timed") {
  FakeTicker ticker;
  std::string happened;
  std::vector<Candidate> c;
  c.push_back(candidate(
      "right", [&] { happened += 'r'; }, [&] { happened += 'v'; }));
  c.push_back(candidate(
      "wrong", [&] { happened += 'w'; },
      [] {
        throw Error({"wrong", "off", "", ""});
      }));
  CHECK_THROWS_AS(measure(c, {.rounds = 3, .warm_up_s = 0}, ticker), Error);
  CHECK(happened == "rvw");
}

TEST_CASE("harness: medians, quartiles, both ratios, the verdict") {
  Candidate base = timed("cublas", {1, 2, 4, 8, 16}), other = timed("coda", {3, 2, 2, 16, 8});
  Comparison c = compare(other, base);
  CHECK(c.median_s == 3);
  CHECK(c.q1_s == 2);
  CHECK(c.q3_s == 8);
  CHECK(c.ratio == doctest::Approx(3.0 / 4));
  CHECK(c.ratio_by_round == 1);  // of 3, 1, 0.5, 2, 0.5
  CHECK(agreement(timed("a", {1, 1, 1}), timed("b", {1.029, 5, 0.9})).counts);
  CHECK_FALSE(agreement(timed("a", {1, 1, 1}), timed("b", {1.031, 5, 0.9})).counts);
  CHECK_FALSE(agreement(timed("a", {1, 1, 1}), timed("b", {0.96, 0.96, 1})).counts);
}

TEST_CASE("gemm: what a library would compute for each program") {
  auto shape = [](const char* name, std::int64_t n) {
    const Program& p = library_program(name, DType::kBF16);
    return gemm_of(p, cube_sizes(p, n)).value();
  };
  for (const char* cube :
       {"residual_rmsnorm_partial", "rmsnorm_linear", "rmsnorm_swiglu", "rope", "rmsnorm_rope", "swiglu"}) {
    CAPTURE(cube);
    CHECK(shape(cube, 2048) == GemmShape{2048, 2048, 2048, 1, 1});
  }
  CHECK(shape("cross_entropy", 4096) == GemmShape{4096, 32768, 4096, 1, 1});
  CHECK(shape("rmsnorm_cross_entropy", 4096) == GemmShape{4096, 32768, 4096, 1, 1});
  CHECK(shape("residual_rmsnorm_backward", 2048) == GemmShape{2048, 2048, 2048, 1, 0});  // the data-gradient layout
  CHECK(shape("swiglu_backward", 2048) == GemmShape{2048, 2048, 2048, 1, 0});
  CHECK(shape("weight_gradient", 2048) == GemmShape{2048, 2048, 2048, 0, 0, DType::kBF16, DType::kF32, true});
  CHECK(shape("weight_gradient_store", 2048) == GemmShape{2048, 2048, 2048, 0, 0, DType::kBF16, DType::kBF16, false});
  CHECK_FALSE(gemm_of(library_program("rmsnorm_partial", DType::kBF16), {{"M", 8}, {"N", 8}}));
}

TEST_CASE("gemm: a layer is 4 and 8 calls") {
  LayerShape l = llama_shape(2048);
  CHECK(l.ff == 5632);
  CHECK(llama_shape(4096).ff == 11008);
  CHECK(llama_shape(8192).ff == 22016);
  check_error("--d", "100", [] { llama_shape(100); });
  Sizes sizes = llama_layer_sizes(512, l.d, l.ff, l.heads, l.heads);
  using V = std::vector<GemmShape>;
  CHECK(gemms_of(llama_layer_forward({}), sizes) ==
        V{{512, 2048, 2048}, {512, 11264, 2048}, {512, 2048, 5632}, {512, 6144, 2048}});
  auto wgrad = [](std::int64_t m, std::int64_t n) {
    return GemmShape{m, n, 512, 0, 0, DType::kBF16, DType::kF32, true};
  };
  CHECK(gemms_of(llama_layer_backward({}), sizes) == V{{512, 2048, 6144, 1, 0},
                                                       wgrad(6144, 2048),
                                                       {512, 5632, 2048, 1, 0},
                                                       wgrad(2048, 5632),
                                                       {512, 2048, 11264, 1, 0},
                                                       wgrad(11264, 2048),
                                                       {512, 2048, 2048, 1, 0},
                                                       wgrad(2048, 2048)});
  std::vector<GemmShape> shapes = layer_gemms(16384);
  CHECK(shapes.size() == 9);
  CHECK(shapes[0].str() == "16384x6144x2048");
  CHECK(shapes[4].str() == "16384x22016x4096");
  CHECK(shapes[8].str() == "16384x8192x22016");
}

// A column-major GEMM as a library would do it, of the arguments that cuBLAS is given.
TEST_CASE("cublas: row-major products in column-major arguments") {
  for (GemmLayout layout : {GemmLayout::kForward, GemmLayout::kDataGradient, GemmLayout::kWeightGradient}) {
    for (bool accumulate : {false, true}) {
      CAPTURE(name(layout));
      Program p = bare_program(layout, DType::kF32, DType::kF32, accumulate);
      const Sizes sizes = {{"M", 3}, {"N", 5}, {"K", 4}};
      GemmShape s = gemm_of(p, sizes).value();
      CHECK(s.accumulate == accumulate);
      std::vector<float> a(12), b(20), c(15, 1), wanted(15, 1);
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * i % 7);
      for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 3 % 11);
      Bindings bindings;
      bindings["a"] = layout == GemmLayout::kWeightGradient ? TensorView::matrix(a.data(), DType::kF32, 4, 3)
                                                            : TensorView::matrix(a.data(), DType::kF32, 3, 4);
      bindings["b"] = layout == GemmLayout::kForward ? TensorView::matrix(b.data(), DType::kF32, 5, 4)
                                                     : TensorView::matrix(b.data(), DType::kF32, 4, 5);
      bindings["c"] = TensorView::matrix(wanted.data(), DType::kF32, 3, 5);
      make_cpu_backend()->prepare(single_program_plan(p, {}), sizes)->run(bindings);
      ColumnMajorCall g = column_major(s);
      for (int col = 0; col < g.n; ++col)
        for (int row = 0; row < g.m; ++row) {
          float sum = 0;
          for (int k = 0; k < g.k; ++k)
            sum += b[static_cast<std::size_t>(g.first_transposed ? k + row * g.first_ld : row + k * g.first_ld)] *
                   a[static_cast<std::size_t>(g.second_transposed ? col + k * g.second_ld : k + col * g.second_ld)];
          float& out = c[static_cast<std::size_t>(row + col * g.c_ld)];
          out = sum + g.beta * (g.beta == 0 ? 0 : out);
        }
      CHECK(c == wanted);
    }
  }
  check_error("cuBLAS", "2147483648", [] { column_major({std::int64_t{1} << 31, 8, 8}); });
  check_error("--bare", "'backward'", [] { parse_layout("backward"); });
  CHECK(parse_layout("wgrad") == GemmLayout::kWeightGradient);
}

TEST_CASE("libraries: the variable alone, else the loader, CUDA_HOME, wheels; a missing one says what was tried") {
  TempDir dir;
  namespace fs = std::filesystem;
  const fs::path toolkit = dir / "toolkit/lib64", wheel = dir / "venv/lib/python3.11/site-packages/nvidia/x";
  for (const fs::path& folder : {toolkit, wheel}) {
    fs::create_directories(folder);
    std::ofstream(folder / "libcoda_absent.so.2") << "no library";
  }
  setenv("CUDA_HOME", (dir / "toolkit").c_str(), 1);
  setenv("VIRTUAL_ENV", (dir / "venv").c_str(), 1);
  const LibraryName name{"CODA_ABSENT", {"libcoda_absent.so.3", "libcoda_absent.so.2"}, {"nvidia/x"}};
  using Files = std::vector<std::string>;
  CHECK(library_files(name) == Files{"libcoda_absent.so.3", "libcoda_absent.so.2", toolkit / "libcoda_absent.so.2",
                                     wheel / "libcoda_absent.so.2"});
  check_error("libcoda_absent.so.3", wheel.string(), [&] { open_library(name, ""); });
  setenv("CODA_ABSENT", "elsewhere.so", 1);
  CHECK(library_files(name) == Files{"elsewhere.so"});
  for (const char* variable : {"CUDA_HOME", "VIRTUAL_ENV", "CODA_ABSENT"}) unsetenv(variable);
  check_error("libcoda_absent.so.3", "libcoda_absent.so.2", [&] { open_library(name, ""); });
}

TEST_CASE("cases: names") {
  CHECK(program_cases({"all"}).size() == 10);
  CHECK(program_cases({"P5", "swiglu", "bias"}).at(0).str() == "P5 rmsnorm_cross_entropy");
  CHECK(program_cases({"P5", "swiglu", "bias"}).at(1).str() == "P8 swiglu");
  CHECK(program_cases({"P5", "swiglu", "bias"}).at(2).str() == "bias");
  check_error("--programs", "'P10'", [] { program_cases({"P10"}); });
  CHECK(cube_sizes(library_program("rope", DType::kBF16), 2048) ==
        Sizes{{"G", 4}, {"H", 8}, {"K", 2048}, {"M", 2048}, {"S", 2048}, {"hd", 128}});
}

TEST_CASE("data: in range, positive, of the size that products need") {
  const Program& p = library_program("rmsnorm_cross_entropy", DType::kBF16);
  Plan plan = single_program_plan(p, {{"ignore", -100}});
  Sizes sizes = {{"M", 300}, {"K", 64}, {"V", 70}};
  auto block = [&](const char* name) { return values_block(plan, plan.find(name), sizes, 1); };
  std::vector<std::byte> t = block("t");
  REQUIRE(t.size() == 300 * 4);
  std::set<int> targets;
  for (std::int64_t i = 0; i < 300; ++i) targets.insert(reinterpret_cast<const std::int32_t*>(t.data())[i]);
  CHECK(*targets.begin() >= 0);
  CHECK(*targets.rbegin() < 70);
  CHECK(targets.size() > 40);
  auto root_mean_square = [](const std::vector<std::byte>& bytes, DType dtype, std::int64_t n) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      double x = load_element(bytes.data(), i, dtype);
      sum += x * x;
    }
    return std::sqrt(sum / static_cast<double>(n));
  };
  CHECK(root_mean_square(block("x"), DType::kBF16, 300 * 64) == doctest::Approx(1).epsilon(0.03));
  CHECK(root_mean_square(block("w"), DType::kBF16, 70 * 64) == doctest::Approx(1.0 / 8).epsilon(0.05));
  std::vector<std::byte> r = block("r");
  for (std::int64_t i = 0; i < 300; ++i) CHECK(load_element(r.data(), i, DType::kF32) >= 0.5f);
  CHECK(block("x") != values_block(plan, plan.find("x"), sizes, 2));
  CHECK(normal_block(DType::kBF16, std::int64_t{1} << 24, 1, 1).size() == 2 * 8388593);

  const Program& rope = library_program("rope", DType::kBF16);
  Plan rotation = single_program_plan(rope, {});
  Sizes s = cube_sizes(rope, 512);
  std::vector<std::byte> cosine = values_block(rotation, rotation.find("cos"), s, 1),
                         sine = values_block(rotation, rotation.find("sin"), s, 1);
  float c = load_element(cosine.data(), 64 * 7 + 5, DType::kF32),
        d = load_element(sine.data(), 64 * 7 + 5, DType::kF32);
  CHECK(c * c + d * d == doctest::Approx(1));
  CHECK(load_element(sine.data(), 64 * 7, DType::kF32) == doctest::Approx(std::sin(7.0)));
}

TEST_CASE("sample: a wrong row, a missing output and a right result are told apart") {
  const Program& p = library_program("residual_rmsnorm_partial", DType::kBF16);
  Plan plan = single_program_plan(p, {{"eps", 1e-5}});
  Sizes sizes = {{"M", 200}, {"N", 96}, {"K", 64}};
  std::map<std::string, std::vector<std::byte>> memory;
  Bindings bindings;
  for (BufferId b = 0; b < static_cast<BufferId>(plan.buffers().size()); ++b) {
    const Buffer& buffer = plan.at(b);
    std::int64_t rows = buffer.rows.eval(sizes), cols = buffer.cols.eval(sizes);
    std::vector<std::byte>& m = memory[buffer.name];
    m = values_block(plan, b, sizes, static_cast<std::uint64_t>(b));
    bindings[buffer.name] = TensorView::matrix(m.data(), buffer.dtype, rows, cols);
  }
  make_cpu_backend()->prepare(plan, sizes)->run(bindings);
  auto read = [&](const std::string& name, std::int64_t first, std::int64_t count, void* to) {
    const TensorView& v = bindings.at(name);
    std::int64_t pitch = v.cols * size_of(v.dtype);
    std::memcpy(to, static_cast<const std::byte*>(v.data) + first * pitch, static_cast<std::size_t>(count * pitch));
  };
  verify_rows("coda", plan, sizes, read);
  auto spoiled = [&](const char* name, std::int64_t row, float value) {
    std::vector<std::byte> kept = memory[name];
    const TensorView& v = bindings.at(name);
    for (std::int64_t c = 0; c < v.cols; ++c) store_element(v.data, row * v.cols + c, v.dtype, value);
    check_error("coda x", "output " + std::string(name) + " is off by",
                [&] { verify_rows("coda x", plan, sizes, read); });
    std::copy(kept.begin(), kept.end(), memory[name].begin());
  };
  spoiled("x1", 0, 0);
  spoiled("x1", 199, NAN);
  spoiled("h", 170, 3);
  spoiled("r", 31, 2);
  verify_rows("coda", plan, sizes, read);
  sizes["M"] = 1;  // fewer rows than a sample takes
  bindings["x1"].rows = 1;
  verify_rows("coda", plan, sizes, read);

  const float found[] = {1, 2, 3, 4}, wanted[] = {1, 2, 3, 5};
  CHECK(distance(found, found, DType::kF32, 4) == 0);
  CHECK(distance(found, wanted, DType::kF32, 4) == doctest::Approx(1 / std::sqrt(39.0)));
  const float zeros[] = {0, 0};
  CHECK(distance(zeros, zeros, DType::kF32, 2) == 0);
}

TEST_CASE("report: table and JSON") {
  std::vector<Candidate> c = {timed("cublas", {1e-3, 1e-3, 2e-3}), timed("cublas again", {1e-3, 1.01e-3, 1e-3}),
                              timed("coda pp128x128", {0.9e-3, 1e-3, 0.9e-3})};
  Group g;
  g.name = "P2 rmsnorm_swiglu";
  g.shape = "64x64x64";
  g.dtype = "bf16";
  g.baseline = "bare GEMM of cuBLAS";
  g.flops = 1e9;
  g.chip = median_state({1300, 1400, 1350}, {690, 700, 650});
  std::vector<Row> rows = rows_of(g, c);
  REQUIRE(rows.size() == 3);
  CHECK(rows[2].timing.ratio == doctest::Approx(0.9));
  CHECK(rows[2].group.rounds == 3);
  std::string line = table_line(rows[2]);
  for (const char* part : {"P2 rmsnorm_swiglu", "coda pp128x128", "0.9000", "0.900", "1350", "690", "counts"})
    CHECK_MESSAGE(line.find(part) != std::string::npos, part);
  nlohmann::json json = to_json({"H200", "580", "13.1.0", "abc", "coda bench", 2}, rows);
  CHECK(json["machine"] == "H200");
  CHECK(json["rows"].size() == 3);
  CHECK(json["rows"][2]["ratio"].get<double>() == doctest::Approx(0.9));
  CHECK(json["rows"][2]["counts"] == true);
  CHECK(json["rows"][2]["sm_mhz"] == 1350);
  c[1] = timed("cublas again", {1.1e-3, 1.1e-3, 1.1e-3});
  CHECK(table_line(rows_of(g, c)[2]).find("does not count") != std::string::npos);
  CHECK(median_state({}, {}).samples == 0);
}
