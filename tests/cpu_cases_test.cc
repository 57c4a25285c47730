// Public bug reports as inputs with a right value (numbers C..: the project's list of cases), on the CPU backend.
// tests/programs_cases_test.cc has them on the interpreter, which says what the programs mean; here the kernels run:
// outputs begin as NaN, memory around them is guarded.
#include <doctest/doctest.h>

#include "check_error.h"
#include "cpu_run.h"
#include "plan/program_library.h"
#include "programs_data.h"
#include "reference_math.h"

using namespace coda;
using programs::random;
using programs::scalar;

namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

Array row(std::vector<double> values) {
  Array a(1, 1, static_cast<std::int64_t>(values.size()));
  a.data = std::move(values);
  return a;
}
Array column(std::vector<double> values) {
  Array a(static_cast<std::int64_t>(values.size()), 1, 1);
  a.data = std::move(values);
  return a;
}
Array filled(std::int64_t rows, std::int64_t cols, double x) { return Array(rows, 1, cols, x); }
Array identity(std::int64_t n) {
  return reference::make(n, n, [](auto i, auto j) { return i == j ? 1.0 : 0.0; });
}
Array unit_rows(std::int64_t count, std::int64_t k) {
  return reference::make(count, k, [](auto, auto j) { return j == 0 ? 1.0 : 0.0; });
}
// One output column per value: W = value e_0.
Array along_first(const std::vector<double>& values, std::int64_t k) {
  return reference::make(static_cast<std::int64_t>(values.size()), k,
                         [&](auto i, auto j) { return j == 0 ? values[static_cast<std::size_t>(i)] : 0.0; });
}
Array one_to_eight() { return row({1, 2, 3, 4, 5, 6, 7, 8}); }

// The default tiles, and tiles so small that the case crosses their edges.
Arrays run(const std::string& name, const Arrays& inputs, DType storage = DType::kBF16, const Sizes& given = {}) {
  const Program& p = library_program(name, storage);
  Arrays out = cpu_run::run(p, inputs, given);
  Arrays small = cpu_run::run(p, inputs, given, cpu_run::small_tiles(2, 4, 2));
  for (const auto& entry : out) {  // no structured binding: clang 14 can't capture it
    const std::string& output = entry.first;
    const Array& a = entry.second;
    CAPTURE(output);
    // Sums in another order.
    CHECK(programs::difference(small.at(output), a, 1e-6) == "");
  }
  return out;
}

double only(const Array& a) {
  REQUIRE(a.data.size() == 1);
  return a.data[0];
}
void check_row(const Array& a, std::int64_t i, const std::vector<double>& expected, double tolerance) {
  REQUIRE(a.width() == static_cast<std::int64_t>(expected.size()));
  for (std::int64_t j = 0; j < a.width(); ++j) {
    CAPTURE(j);
    double found = a.at(i, j), right = expected[static_cast<std::size_t>(j)];
    CHECK((found == right || std::abs(found - right) <= tolerance));
  }
}
void check_rows(const Array& a, const std::vector<double>& expected, double tolerance) {
  for (std::int64_t i = 0; i < a.rows; ++i) check_row(a, i, expected, tolerance);
}
void check_finite(const Arrays& arrays) {
  for (const auto& entry : arrays) {  // no structured binding: clang 14 can't capture it
    const std::string& name = entry.first;
    const Array& a = entry.second;
    CAPTURE(name);
    CHECK(std::all_of(a.data.begin(), a.data.end(), [](double x) { return std::isfinite(x); }));
  }
}

}  // namespace

TEST_CASE("C01: a vocabulary that is no multiple of a tile") {
  struct Case {
    std::int64_t v;
    double loss;
  };
  for (const Case& c : {Case{130, 4.867534}, Case{50257, 10.824905}}) {
    Arrays in = {{"x", filled(1, 8, 1)},
                 {"w", filled(c.v, 8, -1.25)},  // every logit is -10
                 {"t", scalar(static_cast<double>(c.v - 1))},
                 {"ignore", scalar(-100)}};
    const Program& p = library_program("cross_entropy", DType::kBF16);
    Arrays out = cpu_run::run(p, in);
    CHECK(only(out["m"]) == -10);
    CHECK(std::abs(only(out["loss"]) - c.loss) < 1e-5);
    in["m"] = out["m"], in["l"] = out["l"], in["g"] = scalar(1);
    Array dz = cpu_run::run(library_program("linear_cross_entropy_backward", DType::kF32), in)["dz"];
    double sum = 0;
    for (double x : dz.data) sum += x;
    CHECK(std::abs(sum) < 1e-5);
  }
}

TEST_CASE("C08: a bias of the head is used once, forward and backward") {
  for (DType storage : kDTypes) {
    Arrays in = {{"x", filled(3, 8, 0)},
                 {"w", random("w", 8, 8)},
                 {"bias", row({0, 1, 2, 3, 4, 5, 6, 7})},
                 {"t", filled(3, 1, 0)},
                 {"ignore", scalar(-100)}};
    Arrays out = run("cross_entropy_bias", in, storage);
    for (std::int64_t i = 0; i < 3; ++i) CHECK(std::abs(out["loss"].at(i, 0) - 7.458340) < 2e-6);
    CHECK(std::abs(out["loss"].at(0, 0) + out["loss"].at(1, 0) + out["loss"].at(2, 0) - 22.375019) < 5e-6);
    in["m"] = out["m"], in["l"] = out["l"], in["g"] = filled(3, 1, 1);
    Arrays back = run("linear_cross_entropy_backward_bias", in, storage);
    std::vector<double> expected = {-0.999423, 0.001567, 0.004261, 0.011582, 0.031482, 0.085577, 0.232622, 0.632333};
    for (double& x : expected) x *= 3;
    check_row(back["dbias"], 0, expected, 3e-6);
    Array dw = run("weight_gradient_store", {{"dz", back["dz"]}, {"x", in["x"]}}, storage)["dw"];
    CHECK(programs::difference(dw, filled(8, 8, 0), 0) == "");
  }
}

TEST_CASE("C08: no loss is below zero") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Arrays in = {
        {"x", random("x", 5, 9, seed)}, {"w", random("w", 11, 9, seed)}, {"bias", random("bias", 1, 11, seed)}};
    in["t"] = column({0, 3, 10, 4, -100});
    in["ignore"] = scalar(-100);
    Array loss = run("cross_entropy_bias", in)["loss"];
    for (double x : loss.data) CHECK(x >= 0);
  }
}

TEST_CASE("C13: logits are not rounded before the log-sum-exp") {
  Array x = row({1, 1, 0, 0, 0, 0, 0, 0}), w(8, 1, 8);
  w.at(0, 0) = 10;
  w.at(0, 1) = 0.03125;
  Arrays in = {{"x", x}, {"w", w}, {"t", scalar(1)}, {"ignore", scalar(-100)}};
  for (DType storage : kDTypes)
    for (const char* name : {"cross_entropy", "cross_entropy_logits"})
      CHECK(std::abs(only(run(name, in, storage)["loss"]) - 10.031558) < 1e-6);
  CHECK(run("cross_entropy_logits", in)["z"].at(0, 0) == 10);  // stored, it is rounded: 10.03125 is no bf16 number
}

namespace {

// C15 and C16 share their input: rows ±1, γ = 1 … 8.
struct NormCase {
  Array x = reference::make(2, 8, [](auto, auto j) { return j % 2 == 0 ? 1.0 : -1.0; });
  Array gamma = one_to_eight();
  Array r = run("rmsnorm_statistic", {{"x", x}, {"eps", scalar(1e-6)}}, DType::kF32)["r"];

  Arrays alone(double dy, double dx_in) const {
    Arrays in = {{"dy", filled(2, 8, dy)}, {"x", x}, {"gamma", gamma}, {"r", r}};
    Array s = run("rmsnorm_row_sum", in, DType::kF32)["s"];
    in["s"] = s;
    in["dx_in"] = filled(2, 8, dx_in);
    return run("rmsnorm_backward", in, DType::kF32);
  }
  // Riding on a GEMM by the identity.
  Arrays fused(double dy, double dx_in) const {
    Array h = run("rmsnorm_apply", {{"x", x}, {"gamma", gamma}, {"r", r}}, DType::kF32)["y"];
    Array s = reference::row_sum(h, [&](auto i, auto j) { return h.at(i, j) * dy; });
    return run("residual_rmsnorm_backward",
               {{"dz", filled(2, 8, dy)},
                {"w", identity(8)},
                {"x1", x},
                {"gamma", gamma},
                {"r", r},
                {"s", s},
                {"dx_in", filled(2, 8, dx_in)}},
               DType::kF32);
  }
};

const std::vector<double> kNormGradient = {1.5, 1.5, 3.5, 3.5, 5.5, 5.5, 7.5, 7.5};
const std::vector<double> kGammaGradient = {2, -2, 2, -2, 2, -2, 2, -2};

// Runs rmsnorm_row_sum and rmsnorm_backward on the f32 views that are given, into contiguous outputs.
struct NormBackward {
  std::vector<float> dx = std::vector<float>(16, NAN), dgamma = std::vector<float>(8, NAN);

  NormBackward(const NormCase& c, TensorView dy, TensorView x) {
    std::vector<float> gamma(c.gamma.data.begin(), c.gamma.data.end()), r(c.r.data.begin(), c.r.data.end());
    std::vector<float> s(2, NAN), zeros(16, 0.0f);
    auto view = [](std::vector<float>& v, std::int64_t rows, std::int64_t cols) {
      return TensorView::matrix(v.data(), DType::kF32, rows, cols);
    };
    auto backend = make_cpu_backend({2, "", 1, 3});
    Sizes sizes = {{"M", 2}, {"N", 8}};
    auto sums = backend->prepare(single_program_plan(library_program("rmsnorm_row_sum", DType::kF32), {}), sizes);
    sums->run({{"dy", dy}, {"x", x}, {"gamma", view(gamma, 1, 8)}, {"r", view(r, 2, 1)}, {"s", view(s, 2, 1)}});
    auto back = backend->prepare(single_program_plan(library_program("rmsnorm_backward", DType::kF32), {}), sizes);
    back->run({{"dy", dy},
               {"x", x},
               {"dx_in", view(zeros, 2, 8)},
               {"gamma", view(gamma, 1, 8)},
               {"r", view(r, 2, 1)},
               {"s", view(s, 2, 1)},
               {"dx", view(dx, 2, 8)},
               {"dgamma", view(dgamma, 1, 8)}});
  }

  void check() const {
    for (std::size_t i = 0; i < 16; ++i) CHECK(std::abs(double(dx[i]) - kNormGradient[i % 8]) <= 1e-5);
    for (std::size_t j = 0; j < 8; ++j) CHECK(std::abs(double(dgamma[j]) - kGammaGradient[j]) <= 1e-5);
  }
};

}  // namespace

TEST_CASE("C15: the gradient of an RMSNorm") {
  NormCase c;
  for (const Arrays& out : {c.alone(1, 0), c.fused(1, 0)}) {
    check_rows(out.at("dx"), kNormGradient, 1e-5);
    check_row(out.at("dgamma"), 0, kGammaGradient, 1e-5);
  }
}

TEST_CASE("C15 a, b, c: of a gradient with stride 0, of every second column, of rows cut out of a larger tensor") {
  NormCase c;
  std::vector<float> x(c.x.data.begin(), c.x.data.end());
  TensorView x_view = TensorView::matrix(x.data(), DType::kF32, 2, 8);

  float one = 1;  // the gradient of y.sum(): one element for all
  TensorView expanded = TensorView::matrix(&one, DType::kF32, 2, 8);
  expanded.row_stride = expanded.col_stride = 0;
  NormBackward(c, expanded, x_view).check();

  std::vector<float> big(32, 1e4f);
  for (std::size_t i = 0; i < 32; i += 2) big[i] = 1;
  TensorView every_second = TensorView::matrix(big.data(), DType::kF32, 2, 8, 16);
  every_second.col_stride = 2;
  NormBackward(c, every_second, x_view).check();

  // Rows 1 and 3 of a [3, 2, 11] tensor's middle columns, both operands.
  std::vector<float> dy_3d(66, 1e4f), x_3d(66, 1e4f);
  TensorView dy_cut = TensorView::matrix(dy_3d.data() + 11 + 2, DType::kF32, 2, 8);
  dy_cut.row_block = 1;
  dy_cut.row_outer = 22;
  TensorView x_cut = dy_cut;
  x_cut.data = x_3d.data() + 11 + 2;
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < 8; ++j) {
      dy_3d[static_cast<std::size_t>(13 + dy_cut.offset(i, j))] = 1;
      x_3d[static_cast<std::size_t>(13 + x_cut.offset(i, j))] = static_cast<float>(c.x.at(i, j));
    }
  NormBackward(c, dy_cut, x_cut).check();
}

TEST_CASE("C16: the residual stream's gradient joins after the norm's derivative") {
  NormCase c;
  const std::vector<double> expected = {11.5, 11.5, 13.5, 13.5, 15.5, 15.5, 17.5, 17.5};
  for (const Arrays& out : {c.alone(1, 10), c.fused(1, 10)}) check_rows(out.at("dx"), expected, 1e-5);
  for (const Arrays& out : {c.alone(0, 10), c.fused(0, 10)}) check_rows(out.at("dx"), std::vector<double>(8, 10), 1e-5);
  for (const Arrays& out : {c.alone(1, 0), c.fused(1, 0)}) check_rows(out.at("dx"), kNormGradient, 1e-5);
}

TEST_CASE("C17: a LayerNorm's gradient of [2,3,8] is that of [6,8], bit for bit, and stays in its memory") {
  Array x = random("x", 6, 8), dy = random("dy", 6, 8), gamma = random("gamma", 1, 8);
  Arrays norm = run("layernorm_partial", {{"x", x}, {"gamma", gamma}, {"eps", scalar(1e-5)}});
  Arrays in = {{"dy", dy}, {"x", x}, {"gamma", gamma}, {"mean", norm["mean"]}, {"r", norm["r"]}};
  Arrays sums = run("layernorm_row_sums_alone", in);
  in["s1"] = sums["s1"], in["s2"] = sums["s2"];
  in["dx_in"] = filled(6, 8, 0);
  const Program& p = library_program("layernorm_backward", DType::kBF16);
  // The memory of kBlocked is [batch, head, position, element]; guards lie around every output.
  Sizes sizes = cpu_run::sizes_of(p, in);
  Arrays flat = cpu_run::Rig(p, in, sizes).run(in);
  Arrays blocked = cpu_run::Rig(p, in, sizes, {{1, "", 0, 0}, cpu_run::Layout::kBlocked}).run(in);
  CHECK(cpu_run::difference(flat, blocked) == "");
  Arrays right = interpret(p.graph(), in, sizes, {Rounding::kStores, DType::kBF16});
  for (const auto& entry : right) {  // no structured binding: clang 14 can't capture it
    const std::string& name = entry.first;
    const Array& a = entry.second;
    CAPTURE(name);
    CHECK(programs::difference(flat[name], a, 1e-2) == "");
  }
  CHECK(programs::difference(flat["dbeta"], right["dbeta"], 1e-6) == "");
}

TEST_CASE("C19: squares of fp16 values do not overflow") {
  auto normalise = [](const Array& x) {
    Array ones = filled(1, 64, 1), eps = scalar(1e-6);
    Arrays statistic = run("rmsnorm_statistic", {{"x", x}, {"eps", eps}}, DType::kF16);
    return run("rmsnorm_apply", {{"x", x}, {"gamma", ones}, {"r", statistic["r"]}}, DType::kF16)["y"];
  };
  check_rows(normalise(filled(2, 64, 1024)), std::vector<double>(64, 1), 0);
  Array spike = filled(2, 64, 0);
  spike.at(0, 5) = spike.at(1, 5) = 8000;
  std::vector<double> expected(64, 0);
  expected[5] = 8;
  check_rows(normalise(spike), expected, 0);
}

TEST_CASE("C20: an RMSNorm rounds once; the offset form has weight 1 + γ") {
  Array x = row({1, 3, 0.5, 2, 0.25, 1.5, 0.75, 1.25});
  Array r = run("rmsnorm_statistic", {{"x", x}, {"eps", scalar(1e-6)}})["r"];
  Arrays in = {{"x", x}, {"gamma", filled(1, 8, 1.5)}, {"r", r}};
  CHECK(run("rmsnorm_apply", in)["y"].at(0, 0) == 0.98046875);
  // Carried through a GEMM: h = x γ is exact here, and z = (h @ I) r rounds once as well.
  Arrays partial = run("rmsnorm_partial", {{"x", x}, {"gamma", filled(1, 8, 1.5)}, {"eps", scalar(1e-6)}});
  Arrays linear = {{"x", partial["h"]}, {"w", identity(8)}, {"r", partial["r"]}};
  CHECK(run("rmsnorm_linear", linear)["z"].at(0, 0) == 0.98046875);
  in["gamma"] = filled(1, 8, 0);
  Array plain = run("rmsnorm_apply", {{"x", x}, {"gamma", filled(1, 8, 1)}, {"r", r}})["y"];
  CHECK(programs::difference(run("rmsnorm_offset_apply", in)["y"], plain, 0) == "");
  CHECK(plain.at(0, 0) != 0);
}

TEST_CASE("C21: gate and up in every layout of the weights") {
  const std::int64_t n = 8, k = 8;
  for (bool by_column : {false, true}) {
    std::vector<double> gate(n), up(n), pairs(2 * n), halves(2 * n), expected(n);
    for (std::size_t j = 0; j < gate.size(); ++j) {
      gate[j] = by_column ? static_cast<double>(j) : 2;
      up[j] = 3;
      pairs[2 * j] = halves[j] = gate[j];
      pairs[2 * j + 1] = halves[j + gate.size()] = up[j];
      expected[j] = by_column ? 3 * gate[j] / (1 + std::exp(-gate[j])) : 5.284782;
    }
    Array x = unit_rows(1, k);
    Arrays two = {{"x", x}, {"wg", along_first(gate, k)}, {"wu", along_first(up, k)}}, normed = two;
    normed["r"] = scalar(1);
    Arrays one_by_one = {{"x", x}, {"w", along_first(pairs, k)}}, stacked = {{"x", x}, {"w", along_first(halves, k)}};
    auto check = [&](const std::string& name, const Arrays& in) {
      CAPTURE(name);
      check_row(run(name, in, DType::kF32)["o"], 0, expected, 4e-6);
      if (!by_column) check_row(run(name, in)["o"], 0, std::vector<double>(n, 5.28125), 0);
    };
    check("swiglu", two);
    check("rmsnorm_swiglu", normed);
    check("swiglu_pairs", one_by_one);
    check("swiglu_halves", stacked);
  }
}

TEST_CASE("C22: activations and their derivatives at large arguments") {
  const std::vector<double> z = {1, 11, 40, -13.25, -40, 100, -100, 9984, -9984};
  auto n = static_cast<std::int64_t>(z.size());
  Array no_bias = filled(1, n, 0), stored = row(z);
  for (DType storage : kDTypes) {
    double tolerance = storage == DType::kF32 ? 1e-6 : 4e-3;
    auto forward = [&](const std::string& name) {
      Arrays out = run(name, {{"x", unit_rows(1, 4)}, {"w", along_first(z, 4)}, {"bias", no_bias}}, storage);
      check_finite(out);
      return out["y"];
    };
    auto slope = [&](const std::string& name) {  // dy = 1 in every column of the activation's output
      Arrays out = run(name + "_backward", {{"dy", filled(1, n, 1)}, {"w", identity(n)}, {"z", stored}}, storage);
      check_finite(out);
      return out["dz"];
    };
    check_row(forward("bias_gelu"), 0, {0.841345, 11, 40, 0, 0, 100, 0, 9984, 0}, tolerance);
    check_row(forward("bias_gelu_tanh"), 0, {0.841192, 11, 40, 0, 0, 100, 0, 9984, 0}, tolerance);
    check_row(slope("bias_gelu"), 0, {1.083315, 1, 1, 0, 0, 1, 0, 1, 0}, tolerance);
    check_row(slope("bias_gelu_tanh"), 0, {1.082964, 1, 1, 0, 0, 1, 0, 1, 0}, tolerance);
    Array silu = forward("bias_silu"), dsilu = slope("bias_silu");
    CHECK(silu.at(0, 5) == 100);
    CHECK(std::abs(silu.at(0, 6)) < 1e-40);
    CHECK(dsilu.at(0, 5) == 1);
    CHECK(std::abs(dsilu.at(0, 6)) < 1e-40);
    for (const char* unit : {"swiglu", "geglu", "geglu_tanh", "reglu"}) {
      CAPTURE(unit);
      Array ones = filled(1, n, 1);
      Arrays o =
          run(unit, {{"x", unit_rows(1, 4)}, {"wg", along_first(z, 4)}, {"wu", along_first(ones.data, 4)}}, storage);
      check_finite(o);
      check_finite(run(std::string(unit) + "_backward", {{"dy", ones}, {"w", identity(n)}, {"g", stored}, {"u", ones}},
                       storage));
      for (std::size_t i : {std::size_t{2}, std::size_t{5}, std::size_t{7}}) CHECK(o["o"].data[i] == z[i]);
    }
  }
}

TEST_CASE("C23: every head is rotated, each row by its own angles, in both pairings, and back") {
  struct Case {
    std::string name;
    std::int64_t rotary;
    std::vector<double> turned;
  };
  const std::vector<double> head = {1, 2, 3, 4, 5, 6, 7, 8};
  for (const Case& c :
       {Case{"rope", 8, {-5, -6, -7, -8, 1, 2, 3, 4}}, Case{"rope_pairs", 8, {-2, 1, -4, 3, -6, 5, -8, 7}},
        Case{"rope_partial", 4, {-3, -4, 1, 2, 5, 6, 7, 8}},
        Case{"rope_pairs_partial", 4, {-2, 1, -4, 3, 5, 6, 7, 8}}}) {
    CAPTURE(c.name);
    std::vector<double> two = head, turned_two = c.turned;
    two.insert(two.end(), head.begin(), head.end());
    turned_two.insert(turned_two.end(), c.turned.begin(), c.turned.end());
    auto table = [&](double at_0, double at_1) {
      return reference::make(2, c.rotary / 2, [=](auto i, auto) { return i == 0 ? at_0 : at_1; });
    };
    Arrays angle = {{"pos", column({0, 1})}, {"cos", table(1, 0)}, {"sin", table(0, 1)}};
    Arrays in = angle;
    in["x"] = filled(2, 1, 1);
    in["wq"] = along_first(two, 1);
    in["wk"] = in["wv"] = along_first(head, 1);
    Sizes sizes = {{"hd", 8}, {"rd", c.rotary}};
    for (DType storage : kDTypes) {
      Arrays out = run(c.name, in, storage, sizes);
      check_row(out["q"], 0, two, 0);
      check_row(out["q"], 1, turned_two, 0);
      check_row(out["k"], 0, head, 0);
      check_row(out["k"], 1, c.turned, 0);
      check_rows(out["v"], head, 0);
      Arrays back = angle;
      for (const char* name : {"q", "k", "v"}) back[name] = back[std::string("d") + name] = out[name];
      back = run(c.name + "_backward", back, storage, sizes);
      check_rows(back["dzq"], two, 0);
      check_rows(back["dzk"], head, 0);
      check_rows(back["s"], {4 * 204}, 0);  // ⟨y, y⟩ of two heads of q, one of k and one of v
    }
  }
}

TEST_CASE("C24: what an output held before does not matter") {
  struct Shape {
    std::int64_t m, n, k;
  };
  for (const std::string name : {"bias_gelu", "swiglu", "residual_rmsnorm_partial", "swiglu_backward", "cross_entropy"})
    for (Shape s : {Shape{65, 136, 72}, Shape{3, 8, 8192}}) {
      CAPTURE(name);
      const Program& p = library_program(name, DType::kBF16);
      Sizes sizes;
      for (const std::string& size : p.graph().free_sizes()) sizes[size] = size == "M" ? s.m : size == "K" ? s.k : s.n;
      if (name == "swiglu_backward") sizes["N"] = s.k, sizes["F"] = s.n;
      Arrays in = programs::inputs(p.graph(), sizes);
      cpu_run::Rig rig(p, in, sizes, {{2, "", 0, 0}, cpu_run::Layout::kPlain});
      Arrays fresh = rig.run(in);  // begins with NaN in every output
      check_finite(fresh);
      for (const Output& o : p.graph().outputs()) rig.tensor(o.name).fill(-999);
      rig.executable().run(rig.bindings());
      for (const Output& o : p.graph().outputs()) {
        CAPTURE(o.name);
        CHECK(cpu_run::difference(rig.tensor(o.name).read(), fresh.at(o.name)) == "");
      }
    }
}

TEST_CASE("C25: every column is written, for every width, and nothing beside them") {
  std::vector<std::int64_t> widths = {104};
  for (std::int64_t n = 8; n <= 264; n += 8)
    if (n != 104) widths.push_back(n);
  for (std::int64_t m : {1, 16, 63, 64, 65, 127, 129})
    for (std::int64_t n : widths) {
      CAPTURE(m);
      CAPTURE(n);
      auto sweep = [&](const std::string& name, const std::string& output, Arrays in, double right) {
        CAPTURE(name);
        in["x"] = filled(m, 16, 1);
        const Program& p = library_program(name, DType::kBF16);
        // Rows further apart than they are wide: what lies between must keep its bits.
        cpu_run::Rig rig(p, in, cpu_run::sizes_of(p, in), {{1, "", 0, 0}, cpu_run::Layout::kPitched});
        Array a = rig.run(in).at(output);
        CHECK(std::all_of(a.data.begin(), a.data.end(), [&](double x) { return x == right; }));
      };
      Array w = filled(n, 16, 1), zeros = filled(1, n, 0);
      sweep("bias", "y", {{"w", w}, {"bias", zeros}}, 16);
      sweep("bias_gelu", "z", {{"w", w}, {"bias", zeros}}, 16);
      sweep("swiglu", "u", {{"wg", w}, {"wu", w}}, 16);
      sweep("swiglu", "o", {{"wg", w}, {"wu", w}}, 256);
    }
}

TEST_CASE("C26: a bias goes along the columns, once") {
  for (DType storage : kDTypes)
    for (std::int64_t m : {8, 3}) {
      Arrays in = {{"x", filled(m, 8, 0)}, {"w", random("w", 8, 8)}, {"bias", one_to_eight()}};
      check_rows(run("bias", in, storage)["y"], one_to_eight().data, 0);
      check_rows(run("bias_relu", in, storage)["y"], one_to_eight().data, 0);
      std::vector<double> expected = one_to_eight().data;
      for (double& x : expected) x += 100;
      check_rows(run("bias_residual", {{"y", in["x"]}, {"w", in["w"]}, {"bias", in["bias"]}, {"x0", filled(m, 8, 100)}},
                     storage)["x1"],
                 expected, 0);
      Arrays back = run("bias_backward", {{"dy", filled(m, 8, 1)}, {"w", identity(8)}}, storage);
      check_row(back["dbias"], 0, std::vector<double>(8, static_cast<double>(m)), 0);
    }
}

TEST_CASE("C26: a bias that starts one element into its buffer; one that starts at half an element is refused") {
  for (DType storage : kDTypes) {
    const Program& p = library_program("bias", storage);
    Arrays in = {{"x", filled(3, 8, 0)}, {"w", random("w", 8, 8)}, {"bias", one_to_eight()}};
    cpu_run::Rig rig(p, in, cpu_run::sizes_of(p, in));
    rig.run(in);
    std::vector<std::byte> buffer(80, std::byte{0x7f});
    for (int i = 0; i < 9; ++i) store_element(buffer.data(), i, storage, static_cast<float>(i));
    Bindings b = rig.bindings();
    rig.tensor("y").fill(-1);
    b["bias"] = TensorView::matrix(buffer.data() + size_of(storage), storage, 1, 8);
    rig.executable().run(b);
    check_rows(rig.tensor("y").read(), one_to_eight().data, 0);
    rig.tensor("y").fill(-1);
    b["bias"] = TensorView::matrix(buffer.data() + 1, storage, 1, 8);
    check_error("bias", "address", [&] { rig.executable().run(b); });
    check_rows(rig.tensor("y").read(), std::vector<double>(8, -1), 0);
  }
}

TEST_CASE("C29: no rows, forward and backward, in every program; then one with rows") {
  for (const std::string& name : library_names()) {
    CAPTURE(name);
    const Program& p = library_program(name, DType::kBF16);
    const Graph& g = p.graph();
    Sizes sizes;
    for (const std::string& size : g.free_sizes())
      sizes[size] = size == "M" || size == "T" ? 0 : size == "hd" ? 8 : size == "rd" ? 4 : size == "S" ? 3 : 24;
    Arrays in = programs::inputs(g, sizes);
    Arrays right = interpret(g, in, sizes, {Rounding::kStores, DType::kBF16});
    Arrays out = cpu_run::Rig(p, in, sizes, cpu_run::small_tiles()).run(in);
    CHECK(cpu_run::difference(out, right) == "");
    for (const Output& o : g.outputs())  // a gradient over no rows is exactly 0, or what it was
      if (o.name.starts_with("dw") || o.name.starts_with("db") || o.name.starts_with("dg"))
        CHECK(programs::difference(
                  out.at(o.name),
                  o.accumulate ? in.at(o.name) : filled(right.at(o.name).rows, right.at(o.name).width(), 0), 0) == "");
  }
  Arrays in = {{"x", filled(2, 4, 1)}, {"w", filled(8, 4, 1)}, {"bias", one_to_eight()}};
  check_rows(run("bias", in)["y"], {5, 6, 7, 8, 9, 10, 11, 12}, 0);
}

TEST_CASE("C29: no products: the epilogue of zero") {
  Arrays in = {{"x", filled(3, 0, 0)}, {"w", filled(8, 0, 0)}, {"bias", one_to_eight()}};
  for (DType storage : kDTypes) check_rows(run("bias", in, storage)["y"], one_to_eight().data, 0);
  Arrays head = {{"x", filled(3, 0, 0)}, {"w", filled(8, 0, 0)}, {"t", filled(3, 1, 2)}, {"ignore", scalar(-100)}};
  Array loss = run("cross_entropy", head)["loss"];
  for (double x : loss.data) CHECK(std::abs(x - std::log(8.0)) < 1e-6);
}

TEST_CASE("C30: the product is not rounded before the epilogue") {
  Array x = row({1, 0x1p-9}), w = row({1, 1}), x0 = scalar(-1);
  for (DType storage : kDTypes) {
    CHECK(only(run("residual", {{"y", x}, {"w", w}, {"x0", x0}}, storage)["x1"]) == 0.001953125);
    Arrays in = {{"y", x}, {"w", w}, {"x0", x0}, {"gamma", scalar(1)}, {"eps", scalar(0)}};
    Arrays out = run("residual_rmsnorm_partial", in, storage);
    CHECK(only(out["x1"]) == 0.001953125);
    CHECK(only(out["r"]) == 512);  // the statistic reads the unrounded value too
  }
}
