// Public bug reports as inputs with a right value (numbers C..: the project's list of cases), at the level of the
// interpreter; and the facts of the algebra (F1 to F3, the second form of P6) on random data.
#include <doctest/doctest.h>

#include "programs_data.h"
#include "references.h"

using namespace coda;
using programs::random;
using programs::scalar;

namespace {

Array matrix(std::int64_t rows, std::int64_t cols, std::vector<double> values) {
  Array a(rows, 1, cols);
  REQUIRE(values.size() == a.data.size());
  a.data = std::move(values);
  return a;
}
Array row(std::vector<double> values) {
  auto n = static_cast<std::int64_t>(values.size());
  return matrix(1, n, std::move(values));
}
Array filled(std::int64_t rows, std::int64_t cols, double x) { return Array(rows, 1, cols, x); }
Array identity(std::int64_t n) {
  return reference::make(n, n, [](auto i, auto j) { return i == j ? 1.0 : 0.0; });
}
// `count` rows e_0 of width k.
Array unit_rows(std::int64_t count, std::int64_t k) {
  return reference::make(count, k, [](auto, auto j) { return j == 0 ? 1.0 : 0.0; });
}
// One output row per value: W = value e_0.
Array along_first(const std::vector<double>& values, std::int64_t k) {
  return reference::make(static_cast<std::int64_t>(values.size()), k,
                         [&](auto i, auto j) { return j == 0 ? values[static_cast<std::size_t>(i)] : 0.0; });
}
Array one_to_eight() { return row({1, 2, 3, 4, 5, 6, 7, 8}); }

Arrays run(const std::string& name, const Arrays& inputs, Rounding rounding = Rounding::kExact,
           DType storage = DType::kBF16, const Sizes& sizes = {}) {
  InterpretOptions options;
  options.rounding = rounding;
  return interpret(with_storage(programs::load(name).graph(), DType::kBF16, storage), inputs, sizes, options);
}

double only(const Array& a) {
  REQUIRE(a.data.size() == 1);
  return a.data[0];
}
void check_row(const Array& a, std::int64_t i, const std::vector<double>& expected, double tolerance) {
  REQUIRE(a.width() == static_cast<std::int64_t>(expected.size()));
  for (std::int64_t j = 0; j < a.width(); ++j) {
    CAPTURE(j);
    CHECK(std::abs(a.at(i, j) - expected[static_cast<std::size_t>(j)]) <= tolerance);
  }
}
void check_rows(const Array& a, const std::vector<double>& expected, double tolerance) {
  for (std::int64_t i = 0; i < a.rows; ++i) check_row(a, i, expected, tolerance);
}

}  // namespace

TEST_CASE("C03, C05: the mean is over rows that are not ignored; all ignored gives 0/0") {
  Arrays in = {{"x", filled(4, 8, 1)},
               {"w", filled(8, 8, 0)},
               {"t", matrix(4, 1, {3, -100, 5, -100})},
               {"ignore", scalar(-100)}};
  Arrays out = run("cross_entropy_mean", in);
  CHECK(only(out["mean"]) == doctest::Approx(2.079442).epsilon(1e-6));
  CHECK(only(out["count"]) == 2);
  in["t"] = filled(4, 1, -100);
  out = run("cross_entropy_mean", in);
  CHECK(only(out["total"]) == 0);
  CHECK(std::isnan(only(out["mean"])));
}

TEST_CASE("C06: logit scale, label smoothing, z-loss") {
  Array logits = row({4, 0, 0, 0, 0, 0, 0, 0});
  Arrays in = {{"x", unit_rows(1, 8)},
               {"w", along_first(logits.data, 8)},
               {"t", scalar(0)},
               {"ignore", scalar(-100)},
               {"g", scalar(1)}};
  in["scale"] = scalar(0.5);
  auto without_g = [&] {
    Arrays forward = in;
    forward.erase("g");
    return forward;
  };
  Arrays out = run("cross_entropy_scale", without_g());
  CHECK(std::abs(only(out["loss"]) - 0.666468) < 1e-6);
  in["m"] = out["m"], in["l"] = out["l"];
  Array dz = run("linear_cross_entropy_backward_scale", in)["dz"];
  check_row(dz, 0, {-0.243240, 0.034749, 0.034749, 0.034749, 0.034749, 0.034749, 0.034749, 0.034749}, 1e-6);

  in.erase("m"), in.erase("l"), in.erase("scale");
  in["w"] = along_first({2, 0, 0, 0, 0, 0, 0, 0}, 8);
  in["smoothing"] = scalar(0.1);
  out = run("cross_entropy_smoothing", without_g());
  CHECK(std::abs(only(out["loss"]) - 0.841468) < 1e-6);
  in["m"] = out["m"], in["l"] = out["l"];
  dz = run("linear_cross_entropy_backward_smoothing", in)["dz"];
  check_row(dz, 0, {-0.398981, 0.056997, 0.056997, 0.056997, 0.056997, 0.056997, 0.056997, 0.056997}, 1e-6);

  Arrays flat = {{"x", unit_rows(1, 8)}, {"w", filled(8, 8, 0)}, {"t", scalar(0)}, {"ignore", scalar(-100)}};
  CHECK(only(run("cross_entropy", flat)["loss"]) == std::log(8.0));
  flat["z_loss"] = scalar(1e-4);
  CHECK(std::abs(only(run("cross_entropy_z_loss", flat)["loss"]) - std::log(8.0) - 0.00043241) < 1e-8);
}

TEST_CASE("C07: softcap is applied, as cap tanh(z/cap), and has a derivative") {
  struct Case {
    double logit, capped, loss, gradient;
  };
  for (Case c : {Case{32, 23.646062, 23.646062, 0.378737}, Case{124, 29.984588, 29.984588, 0.0010272}}) {
    Arrays in = {{"x", unit_rows(1, 8)},
                 {"w", along_first({c.logit, 0, 0, 0, 0, 0, 0, 0}, 8)},
                 {"t", scalar(1)},
                 {"ignore", scalar(-100)},
                 {"cap", scalar(30)}};
    Arrays out = run("cross_entropy_softcap", in);
    CHECK(std::abs(only(out["m"]) - c.capped) < 1e-6);
    CHECK(std::abs(only(out["loss"]) - c.loss) < 1e-6);
    in["m"] = out["m"], in["l"] = out["l"], in["g"] = scalar(1);
    CHECK(std::abs(run("linear_cross_entropy_backward_softcap", in)["dz"].at(0, 0) - c.gradient) < 1e-6);
  }
}

TEST_CASE("C08: a bias of the head is used once, forward and backward") {
  Arrays in = {{"x", filled(3, 8, 0)},
               {"w", random("w", 8, 8)},
               {"bias", row({0, 1, 2, 3, 4, 5, 6, 7})},
               {"t", filled(3, 1, 0)},
               {"ignore", scalar(-100)}};
  Arrays out = run("cross_entropy_bias", in);
  for (std::int64_t i = 0; i < 3; ++i) CHECK(std::abs(out["loss"].at(i, 0) - 7.458340) < 1e-6);
  CHECK(std::abs(out["loss"].at(0, 0) + out["loss"].at(1, 0) + out["loss"].at(2, 0) - 22.375019) < 2e-6);
  in["m"] = out["m"], in["l"] = out["l"], in["g"] = filled(3, 1, 1);
  Arrays back = run("linear_cross_entropy_backward_bias", in);
  std::vector<double> expected = {-0.999423, 0.001567, 0.004261, 0.011582, 0.031482, 0.085577, 0.232622, 0.632333};
  for (double& x : expected) x *= 3;
  check_row(back["dbias"], 0, expected, 3e-6);
  Array dw = run("weight_gradient_store", {{"dz", back["dz"]}, {"x", in["x"]}})["dw"];
  CHECK(programs::difference(dw, filled(8, 8, 0), 0) == "");
}

TEST_CASE("C12: an fp32 weight gradient keeps small parts and adds to what is there") {
  auto first_entry = [](double value) {
    Array a(1, 1, 8);
    a.at(0, 0) = value;
    return a;
  };
  Array dw(8, 1, 8);
  dw.at(0, 0) = 5;
  for (double dy : {256.0, 1.0})
    dw = run("weight_gradient", {{"dz", first_entry(dy)}, {"x", first_entry(1)}, {"dw", dw}}, Rounding::kStores)["dw"];
  CHECK(dw.at(0, 0) == 262);
}

TEST_CASE("C13: logits are not rounded before the log-sum-exp") {
  Array x = row({1, 1, 0, 0, 0, 0, 0, 0}), w(8, 1, 8);
  w.at(0, 0) = 10;
  w.at(0, 1) = 0.03125;
  Arrays in = {{"x", x}, {"w", w}, {"t", scalar(1)}, {"ignore", scalar(-100)}};
  for (Rounding rounding : {Rounding::kExact, Rounding::kStores})
    for (const char* name : {"cross_entropy", "cross_entropy_logits"})
      CHECK(std::abs(only(run(name, in, rounding)["loss"]) - 10.031558) < 1e-6);
  CHECK(run("cross_entropy_logits", in, Rounding::kStores)["z"].at(0, 0) ==
        10);  // stored, it is: 10.03125 is no bf16 number
}

namespace {

// C15 and C16 share their input: rows ±1, γ = 1 … 8.
struct NormCase {
  Array x = reference::make(2, 8, [](auto, auto j) { return j % 2 == 0 ? 1.0 : -1.0; });
  Array gamma = one_to_eight();
  Array r = run("rmsnorm_statistic", {{"x", x}, {"eps", scalar(1e-6)}})["r"];

  // By the program that stands alone …
  Arrays alone(double dy, double dx_in) const {
    Arrays in = {{"dy", filled(2, 8, dy)}, {"x", x}, {"gamma", gamma}, {"r", r}};
    Array s = run("rmsnorm_row_sum", in)["s"];
    in["s"] = s;
    in["dx_in"] = filled(2, 8, dx_in);
    return run("rmsnorm_backward", in);
  }
  // … and riding on a GEMM by the identity.
  Arrays fused(double dy, double dx_in) const {
    Array h = reference::scale_rows(reference::weighted(x, gamma), r);
    Array s = reference::row_sum(h, [&](auto i, auto j) { return h.at(i, j) * dy; });
    return run("residual_rmsnorm_backward", {{"dz", filled(2, 8, dy)},
                                             {"w", identity(8)},
                                             {"x1", x},
                                             {"gamma", gamma},
                                             {"r", r},
                                             {"s", s},
                                             {"dx_in", filled(2, 8, dx_in)}});
  }
};

}  // namespace

TEST_CASE("C15: the gradient of an RMSNorm") {
  NormCase c;
  for (const Arrays& out : {c.alone(1, 0), c.fused(1, 0)}) {
    check_rows(out.at("dx"), {1.5, 1.5, 3.5, 3.5, 5.5, 5.5, 7.5, 7.5}, 1e-5);
    check_row(out.at("dgamma"), 0, {2, -2, 2, -2, 2, -2, 2, -2}, 1e-5);
  }
}

TEST_CASE("C16: the residual stream's gradient joins after the norm's derivative") {
  NormCase c;
  for (const Arrays& out : {c.alone(1, 10), c.fused(1, 10)})
    check_rows(out.at("dx"), {11.5, 11.5, 13.5, 13.5, 15.5, 15.5, 17.5, 17.5}, 1e-5);
  for (const Arrays& out : {c.alone(0, 10), c.fused(0, 10)}) check_rows(out.at("dx"), std::vector<double>(8, 10), 1e-5);
}

TEST_CASE("C19: squares of fp16 values do not overflow") {
  auto normalise = [](const Array& x) {
    Array ones = filled(1, 64, 1), eps = scalar(1e-6);
    Arrays statistic = run("rmsnorm_statistic", {{"x", x}, {"eps", eps}}, Rounding::kStores, DType::kF16);
    return run("rmsnorm_apply", {{"x", x}, {"gamma", ones}, {"r", statistic["r"]}}, Rounding::kStores,
               DType::kF16)["y"];
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
  Array r = run("rmsnorm_statistic", {{"x", x}, {"eps", scalar(1e-6)}}, Rounding::kStores)["r"];
  Arrays in = {{"x", x}, {"gamma", filled(1, 8, 1.5)}, {"r", r}};
  CHECK(run("rmsnorm_apply", in, Rounding::kStores)["y"].at(0, 0) == 0.98046875);
  // Carried through a GEMM: h = x γ is exact here, and z = (h @ I) r rounds once as well.
  Arrays partial =
      run("rmsnorm_partial", {{"x", x}, {"gamma", filled(1, 8, 1.5)}, {"eps", scalar(1e-6)}}, Rounding::kStores);
  Arrays linear = {{"x", partial["h"]}, {"w", identity(8)}, {"r", partial["r"]}};
  CHECK(run("rmsnorm_linear", linear, Rounding::kStores)["z"].at(0, 0) == 0.98046875);
  in["gamma"] = filled(1, 8, 0);
  Array plain = run("rmsnorm_apply", {{"x", x}, {"gamma", filled(1, 8, 1)}, {"r", r}}, Rounding::kStores)["y"];
  CHECK(programs::difference(run("rmsnorm_offset_apply", in, Rounding::kStores)["y"], plain, 0) == "");
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
    Arrays two = {{"x", x}, {"wg", along_first(gate, k)}, {"wu", along_first(up, k)}};
    check_row(run("swiglu", two)["o"], 0, expected, 1e-6);
    check_row(run("swiglu_pairs", {{"x", x}, {"w", along_first(pairs, k)}})["o"], 0, expected, 1e-6);
    check_row(run("swiglu_halves", {{"x", x}, {"w", along_first(halves, k)}})["o"], 0, expected, 1e-6);
    two["r"] = scalar(1);
    check_row(run("rmsnorm_swiglu", two)["o"], 0, expected, 1e-6);
    if (!by_column) CHECK(run("rmsnorm_swiglu", two, Rounding::kStores)["o"].at(0, 0) == 5.28125);
  }
}

TEST_CASE("C22: activations and their derivatives at large arguments") {
  const std::vector<double> z = {1, 11, 40, -13.25, -40, 100, -100, 9984, -9984};
  auto n = static_cast<std::int64_t>(z.size());
  Array no_bias = filled(1, n, 0), stored = row(z);
  auto forward = [&](const std::string& name) {
    return run(name, {{"x", unit_rows(1, 4)}, {"w", along_first(z, 4)}, {"bias", no_bias}})["y"];
  };
  auto slope = [&](const std::string& name) {  // dy = 1 in every column of the activation's output
    return run(name + "_backward", {{"dy", filled(1, n, 1)}, {"w", identity(n)}, {"z", stored}})["dz"];
  };
  check_row(forward("bias_gelu"), 0, {0.841345, 11, 40, 0, 0, 100, 0, 9984, 0}, 1e-6);
  check_row(forward("bias_gelu_tanh"), 0, {0.841192, 11, 40, 0, 0, 100, 0, 9984, 0}, 1e-6);
  check_row(slope("bias_gelu"), 0, {1.083315, 1, 1, 0, 0, 1, 0, 1, 0}, 1e-6);
  check_row(slope("bias_gelu_tanh"), 0, {1.082964, 1, 1, 0, 0, 1, 0, 1, 0}, 1e-6);
  Array silu = forward("bias_silu"), dsilu = slope("bias_silu");
  CHECK(silu.at(0, 5) == 100);
  CHECK(std::abs(silu.at(0, 6)) < 1e-40);
  CHECK(dsilu.at(0, 5) == 1);
  CHECK(std::abs(dsilu.at(0, 6)) < 1e-40);
  for (const Array* a : {&silu, &dsilu})
    for (double x : a->data) CHECK(std::isfinite(x));
  for (const char* unit : {"swiglu", "geglu", "geglu_tanh", "reglu"}) {
    CAPTURE(unit);
    Array ones = filled(1, n, 1);
    Array o = run(unit, {{"x", unit_rows(1, 4)}, {"wg", along_first(z, 4)}, {"wu", along_first(ones.data, 4)}})["o"];
    Arrays back = run(std::string(unit) + "_backward", {{"dy", ones}, {"w", identity(n)}, {"g", stored}, {"u", ones}});
    for (const Array& a : {o, back["dg"], back["du"], back["s"]})
      for (double x : a.data) CHECK(std::isfinite(x));
    for (std::size_t i : {std::size_t{2}, std::size_t{5}, std::size_t{7}}) CHECK(o.data[i] == z[i]);
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
        Case{"rope_partial", 4, {-3, -4, 1, 2, 5, 6, 7, 8}}}) {
    CAPTURE(c.name);
    std::vector<double> two = head, turned_two = c.turned;
    two.insert(two.end(), head.begin(), head.end());
    turned_two.insert(turned_two.end(), c.turned.begin(), c.turned.end());
    std::int64_t half = c.rotary / 2;
    auto table = [&](double at_0, double at_1) {
      return reference::make(2, half, [=](auto i, auto) { return i == 0 ? at_0 : at_1; });
    };
    Arrays angle = {{"pos", matrix(2, 1, {0, 1})}, {"cos", table(1, 0)}, {"sin", table(0, 1)}};
    Arrays in = angle;
    in["x"] = filled(2, 1, 1);
    in["wq"] = along_first(two, 1);
    in["wk"] = in["wv"] = along_first(head, 1);
    Sizes sizes = {{"hd", 8}, {"rd", c.rotary}};
    Arrays out = run(c.name, in, Rounding::kStores, DType::kBF16, sizes);
    check_row(out["q"], 0, two, 0);
    check_row(out["q"], 1, turned_two, 0);
    check_row(out["k"], 0, head, 0);
    check_row(out["k"], 1, c.turned, 0);
    check_rows(out["v"], head, 0);
    Arrays back = angle;
    for (const char* name : {"q", "k", "v"}) back[name] = back[std::string("d") + name] = out[name];
    back = run(c.name + "_backward", back, Rounding::kStores, DType::kBF16, sizes);
    check_rows(back["dzq"], two, 0);
    check_rows(back["dzk"], head, 0);
    check_rows(back["s"], {4 * 204}, 0);  // ⟨y, y⟩ of two heads of q, one of k and one of v
  }
}

TEST_CASE("C26: a bias goes along the columns, once") {
  for (std::int64_t m : {8, 3})
    for (double x0 : {0.0, 100.0}) {
      Arrays in = {{"w", random("w", 8, 4)}, {"bias", one_to_eight()}};
      std::vector<double> expected = one_to_eight().data;
      for (double& x : expected) x += x0;
      if (x0 == 0) {
        in["x"] = filled(m, 4, 0);
        check_rows(run("bias", in, Rounding::kStores)["y"], expected, 0);
        check_rows(run("bias_relu", in, Rounding::kStores)["y"], expected, 0);
      } else {
        in["y"] = filled(m, 4, 0);
        in["x0"] = filled(m, 8, x0);
        check_rows(run("bias_residual", in, Rounding::kStores)["x1"], expected, 0);
      }
      Arrays back = run("bias_backward", {{"dy", filled(m, 8, 1)}, {"w", identity(8)}});
      check_row(back["dbias"], 0, std::vector<double>(8, static_cast<double>(m)), 0);
    }
}

TEST_CASE("C29: no rows and no products") {
  Array bias = one_to_eight();
  CHECK(run("bias", {{"x", filled(0, 4, 0)}, {"w", random("w", 8, 4)}, {"bias", bias}})["y"].rows == 0);
  check_rows(run("bias", {{"x", filled(3, 0, 0)}, {"w", filled(8, 0, 0)}, {"bias", bias}})["y"], bias.data, 0);
  Arrays back = run("bias_backward", {{"dy", filled(0, 8, 0)}, {"w", identity(8)}});
  check_row(back["dbias"], 0, std::vector<double>(8, 0), 0);
}

TEST_CASE("C30: the product is not rounded before the epilogue") {
  Array x = row({1, 0x1p-9}), w = row({1, 1}), x0 = scalar(-1);
  CHECK(only(run("residual", {{"y", x}, {"w", w}, {"x0", x0}}, Rounding::kStores)["x1"]) == 0.001953125);
  Arrays in = {{"y", x}, {"w", w}, {"x0", x0}, {"gamma", scalar(1)}, {"eps", scalar(0)}};
  Arrays out = run("residual_rmsnorm_partial", in, Rounding::kStores);
  CHECK(only(out["x1"]) == 0.001953125);
  CHECK(only(out["r"]) == 512);  // the statistic reads the unrounded value too
}

TEST_CASE("equal logits of 2^26 give ln V: logsumexp is a pair") {
  Arrays in = {{"x", scalar(8192)}, {"w", filled(1000, 1, 8192)}, {"t", scalar(3)}, {"ignore", scalar(-100)}};
  CHECK(only(run("cross_entropy", in, Rounding::kStores)["loss"]) == doctest::Approx(std::log(1000.0)).epsilon(1e-7));
}

TEST_CASE("a head that predicts takes the lowest of equal logits") {
  Arrays in = {{"x", scalar(1)}, {"w", matrix(5, 1, {1, 3, 2, 3, 0})}, {"r", scalar(1)}};
  CHECK(only(run("rmsnorm_argmax", in)["token"]) == 1);
}

TEST_CASE("LayerNorm's statistics survive a mean far above the deviation") {
  Array x = row({10000, 10001, 10002, 10003});
  Arrays out = run("layernorm_partial", {{"x", x}, {"gamma", filled(1, 4, 1)}, {"eps", scalar(0)}});
  CHECK(only(out["mean"]) == 10001.5);
  CHECK(only(out["r"]) == doctest::Approx(1 / std::sqrt(1.25)).epsilon(1e-12));
}

// The algebra on random data
// --------------------------------------------------------------------------------------------

namespace {

constexpr std::int64_t kM = 5, kN = 9, kF = 7;

struct Chain {
  Array x1 = random("x1", kM, kN), gamma = random("gamma", 1, kN), w = random("w", kF, kN), dz = random("dz", kM, kF);
  Arrays norm = run("rmsnorm_partial", {{"x", x1}, {"gamma", gamma}, {"eps", scalar(1e-5)}});
  Array h = run("rmsnorm_apply", {{"x", x1}, {"gamma", gamma}, {"r", norm.at("r")}})["y"];
  Array z = run("rmsnorm_linear", {{"x", norm.at("h")}, {"w", w}, {"r", norm.at("r")}})["z"];
  Array d = run("data_gradient", {{"dz", dz}, {"w", w}})["dx"];
  Array s = row_dot(z, dz);

  static Array row_dot(const Array& a, const Array& b) {
    return reference::row_sum(a, [&](auto i, auto j) { return a.at(i, j) * b.at(i, j); });
  }
};

}  // namespace

TEST_CASE("F1: a row scale applied after the GEMM is the norm before it") {
  Chain c;
  CHECK(programs::difference(c.z, reference::linear(c.h, c.w), 1e-13) == "");
}

TEST_CASE("F2: an inner product crosses a GEMM; with a bias, z is the raw product") {
  Chain c;
  CHECK(programs::difference(c.s, Chain::row_dot(c.h, c.d), 1e-13) == "");
  Array biased = reference::add_bias(c.z, random("bias", 1, kF));
  CHECK(programs::difference(Chain::row_dot(biased, c.dz), Chain::row_dot(c.h, c.d), 1e-3) != "");
}

TEST_CASE("F2 for LayerNorm: s1 and s2 are the sums over the wide side") {
  Array x = random("x", kM, kN), gamma = random("gamma", 1, kN), beta = random("beta", 1, kN), w = random("w", kF, kN);
  Array bias = random("bias", 1, kF), dz = random("dz", kM, kF);
  Arrays norm = run("layernorm_partial", {{"x", x}, {"gamma", gamma}, {"eps", scalar(1e-5)}});
  Array c = run("layernorm_weight_scale", {{"gamma", gamma}, {"w", w}})["c"];
  Array e = run("layernorm_weight_shift", {{"beta", beta}, {"w", w}, {"bias", bias}})["e"];
  Arrays in = {{"x", norm["h"]}, {"w", w}, {"mean", norm["mean"]}, {"r", norm["r"]}, {"c", c}, {"e", e}};
  Array z = run("layernorm_linear", in)["z"];
  Array h = run("layernorm_apply",
                {{"x", x}, {"gamma", gamma}, {"beta", beta}, {"mean", norm["mean"]}, {"r", norm["r"]}})["y"];
  CHECK(programs::difference(z, reference::add_bias(reference::linear(h, w), bias), 1e-12) == "");
  Array d = reference::data_gradient(dz, w);
  Arrays wide = run("layernorm_row_sums_alone",
                    {{"dy", d}, {"x", x}, {"gamma", gamma}, {"mean", norm["mean"]}, {"r", norm["r"]}});
  Array s1 = reference::row_sum(z, [&](auto i, auto j) { return c.at(0, j) * dz.at(i, j); });
  Array s2 = reference::row_sum(z, [&](auto i, auto j) { return (z.at(i, j) - e.at(0, j)) * dz.at(i, j); });
  CHECK(programs::difference(s1, wide["s1"], 1e-12) == "");
  CHECK(programs::difference(s2, wide["s2"], 1e-12) == "");
}

TEST_CASE("F3: with y = rot(z), ⟨z, dz⟩ = ⟨y, dy⟩, for scaled tables too; a per-head norm breaks it") {
  const std::int64_t hd = 6, heads = 3;
  for (double scale : {1.0, 1.25}) {
    Array cos =
        reference::make(kM, hd / 2, [=](auto i, auto j) { return scale * std::cos(0.4 * double(i) + double(j)); });
    Array sin =
        reference::make(kM, hd / 2, [=](auto i, auto j) { return scale * std::sin(0.4 * double(i) + double(j)); });
    Arrays angle = {{"pos", matrix(kM, 1, {4, 0, 2, 1, 3})}, {"cos", cos}, {"sin", sin}};
    Arrays in = angle;
    in["x"] = random("x", kM, 4), in["wq"] = random("wq", heads * hd, 4);
    in["wk"] = in["wv"] = random("wk", hd, 4);
    Arrays y = run("rope", in, Rounding::kExact, DType::kBF16, {{"hd", hd}});
    Array zq = reference::linear(in["x"], in["wq"]), zk = reference::linear(in["x"], in["wk"]);
    Arrays back = angle;
    for (const char* name : {"q", "k", "v"}) back[name] = y[name];
    back["dq"] = random("dq", kM, heads * hd), back["dk"] = random("dk", kM, hd), back["dv"] = random("dv", kM, hd);
    Arrays dz = run("rope_backward", back, Rounding::kExact, DType::kBF16, {{"hd", hd}});
    Array qk = reference::add(Chain::row_dot(zq, dz["dzq"]), Chain::row_dot(zk, dz["dzk"]));
    CHECK(programs::difference(dz["s"], reference::add(qk, Chain::row_dot(y["v"], back["dv"])), 1e-12) == "");

    Arrays normed = back;
    normed.erase("q"), normed.erase("k");
    normed["zq"] = zq, normed["zk"] = zk, normed["eps"] = scalar(0);
    normed["gq"] = normed["gk"] = filled(1, hd, 1);
    Array s = run("qknorm_rope_backward", normed, Rounding::kExact, DType::kBF16, {{"hd", hd}})["s"];
    // Without eps a norm of zq and zk takes all of their scale away: only v's share is left.
    CHECK(programs::difference(s, Chain::row_dot(y["v"], back["dv"]), 1e-12) == "");
    CHECK(programs::difference(s, dz["s"], 1e-3) != "");
  }
}

TEST_CASE("both forms of P6 give the same dx, dγ and dW") {
  Chain c;
  Arrays in = {{"dz", c.dz},
               {"w", c.w},
               {"x1", c.x1},
               {"gamma", c.gamma},
               {"r", c.norm["r"]},
               {"s", c.s},
               {"dx_in", random("dx_in", kM, kN)}};
  Arrays first = run("residual_rmsnorm_backward", in);
  in["dz"] = reference::scale_rows(c.dz, c.norm["r"]);
  Arrays second = run("residual_rmsnorm_backward_scaled", in);
  CHECK(programs::difference(first["dx"], second["dx"], 1e-12) == "");
  CHECK(programs::difference(first["dgamma"], second["dgamma"], 1e-12) == "");
  Array dw = run("weight_gradient_store", {{"dz", c.dz}, {"x", first["h"]}})["dw"];
  CHECK(programs::difference(run("weight_gradient_store", {{"dz", in["dz"]}, {"x", c.norm["h"]}})["dw"], dw, 1e-12) ==
        "");
  // ⟨D ⊙ γ, x̂⟩ = s, the check of algebra 2.
  CHECK(programs::difference(Chain::row_dot(c.d, c.h), c.s, 1e-12) == "");
}
