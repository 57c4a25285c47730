// The backward programs against central finite differences of the forward: whole chains of programs, run by the
// interpreter, beside a loss made of references (references.h). Every gradient of every leaf is compared, element by
// element.
#include <doctest/doctest.h>

#include <functional>

#include "programs_data.h"
#include "references.h"

using namespace coda;
using programs::random;
using programs::scalar;

namespace {

constexpr std::int64_t kM = 5, kN = 7, kK = 3, kF = 6, kV = 9, kHead = 6, kHeads = 2, kKv = 1, kPlaces = 8;
const Sizes kSizes = {{"hd", kHead}, {"H", kHeads}, {"G", kKv}, {"rd", 4}};

// Only the inputs that a program has: chains pass on everything they know.
Arrays pick(const Graph& g, const Arrays& from) {
  Arrays chosen;
  auto take = [&](const std::string& name) {
    auto it = from.find(name);
    if (it != from.end()) chosen[name] = it->second;
  };
  for (const Input& in : g.inputs()) take(in.name);
  for (const Output& o : g.outputs())
    if (o.accumulate) take(o.name);
  return chosen;
}

Arrays operator+(Arrays a, const Arrays& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

// One program by the interpreter.
Arrays run(const std::string& name, const Arrays& known) {
  const Graph& g = programs::load(name).graph();
  return interpret(g, pick(g, known), kSizes);
}

// One program by its reference. The forward of a loss.
Arrays ref(const std::string& name, const Arrays& known) {
  return reference::evaluate(name, pick(programs::load(name).graph(), known), kSizes);
}

double inner(const Array& a, const Array& b) {
  REQUIRE(a.data.size() == b.data.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) sum += a.data[i] * b.data[i];
  return sum;
}

Array zeros(std::int64_t rows, std::int64_t cols) { return Array(rows, 1, cols); }

using Loss = std::function<double(const Arrays&)>;

// `gradient` is ∂loss/∂leaf.
void check_gradient(const Loss& loss, const Arrays& leaves, const std::string& leaf, const Array& gradient) {
  CAPTURE(leaf);
  constexpr double kStep = 1e-5;
  Arrays moved = leaves;
  Array expected = leaves.at(leaf);
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    double& x = moved[leaf].data[i];
    double at = x;
    x = at + kStep;
    double above = loss(moved);
    x = at - kStep;
    double below = loss(moved);
    x = at;
    expected.data[i] = (above - below) / (2 * kStep);
  }
  CHECK(programs::difference(gradient, expected, 2e-7) == "");
}

// Row sums s = ⟨z, ∂loss/∂z⟩ are derivatives too: of the loss by a factor on row i of everything z holds.
void check_row_sums(const Loss& loss, const Arrays& leaves, const std::vector<std::string>& z, const Array& s) {
  constexpr double kStep = 1e-5;
  Array expected = s;
  for (std::int64_t i = 0; i < s.rows; ++i) {
    auto scaled = [&](double factor) {
      Arrays moved = leaves;
      for (const std::string& name : z)
        for (std::int64_t j = 0; j < moved[name].width(); ++j) moved[name].at(i, j) *= factor;
      return loss(moved);
    };
    expected.at(i, 0) = (scaled(1 + kStep) - scaled(1 - kStep)) / (2 * kStep);
  }
  CHECK(programs::difference(s, expected, 2e-7) == "");
}

Array targets() {
  Array t(kM, 1, 1);
  for (std::int64_t i = 0; i < kM; ++i) t.at(i, 0) = i == 2 ? -100 : static_cast<double>((4 * i + 1) % kV);
  return t;
}

const Arrays kConstants = {{"eps", scalar(0.01)},    {"cap", scalar(2.5)},    {"smoothing", scalar(0.2)},
                           {"z_loss", scalar(0.05)}, {"scale", scalar(0.75)}, {"keep", scalar(0.6)},
                           {"ignore", scalar(-100)}, {"seed", scalar(11)},    {"offset", scalar(4)}};

}  // namespace

TEST_CASE("gated linear units") {
  for (auto [unit, act] : {std::pair{"swiglu", &reference::kSilu},
                           {"geglu", &reference::kGelu},
                           {"geglu_tanh", &reference::kGeluTanh},
                           {"reglu", &reference::kRelu}}) {
    std::string name = unit;
    CAPTURE(name);
    Arrays leaves = {{"g", random("g", kM, kF)}, {"u", random("u", kM, kF)}};
    Arrays fixed = {{"w", random("w", kN, kF)}, {"dy", random("dy", kM, kN)}};
    Loss loss = [&, a = act](const Arrays& v) {
      return inner(reference::linear(reference::gate(*a, v.at("g"), v.at("u"))["o"], fixed.at("w")), fixed.at("dy"));
    };
    Arrays back = run(name + "_backward", leaves + fixed);
    check_gradient(loss, leaves, "g", back["dg"]);
    check_gradient(loss, leaves, "u", back["du"]);
    check_row_sums(loss, leaves, {"g", "u"}, back["s"]);
  }
}

TEST_CASE("SwiGLU of packed weights, adjacent pairs") {
  Arrays leaves = {{"x", random("x", kM, kK)}, {"w", random("w", 2 * kF, kK)}};
  Array w2 = random("w2", kN, kF), dy = random("dy", kM, kN);
  Loss loss = [&](const Arrays& v) { return inner(reference::linear(ref("swiglu_pairs", v)["o"], w2), dy); };
  Arrays forward = run("swiglu_pairs", leaves);
  Arrays back = run("swiglu_pairs_backward", forward + Arrays{{"dy", dy}, {"w", w2}});
  CHECK(programs::difference(back["o"], forward["o"], 1e-14) == "");
  check_gradient(loss, leaves, "x", run("data_gradient", {{"dz", back["dz"]}, {"w", leaves["w"]}})["dx"]);
  Array dw = run("weight_gradient", {{"dz", back["dz"]}, {"x", leaves["x"]}, {"dw", zeros(2 * kF, kK)}})["dw"];
  check_gradient(loss, leaves, "w", dw);
}

TEST_CASE("bias and activation") {
  for (const char* act : {"", "_gelu", "_gelu_tanh", "_silu", "_relu"}) {
    CAPTURE(act);
    std::string name = std::string("bias") + act;
    Arrays leaves = {{"x", random("x", kM, kK)}, {"w", random("w", kF, kK)}, {"bias", random("bias", 1, kF)}};
    Array w2 = random("w2", kN, kF), dy = random("dy", kM, kN);
    Loss loss = [&](const Arrays& v) { return inner(reference::linear(ref(name, v)["y"], w2), dy); };
    Arrays forward = run(name, leaves);
    Arrays back = run(name + "_backward", forward + Arrays{{"dy", dy}, {"w", w2}});
    check_gradient(loss, leaves, "bias", back["dbias"]);
    check_gradient(loss, leaves, "x", run("data_gradient", {{"dz", back["dz"]}, {"w", leaves["w"]}})["dx"]);
    check_gradient(loss, leaves, "w", run("weight_gradient_store", {{"dz", back["dz"]}, {"x", leaves["x"]}})["dw"]);
    if (back.count("y")) CHECK(programs::difference(back["y"], forward["y"], 1e-14) == "");
  }
}

// P0 → P2 → residual; backward P7 → P6 with two terms, weight gradients; both forms of algebra 2.
TEST_CASE("a Llama MLP between residual streams, both forms of P6") {
  Arrays leaves = {{"y", random("y", kM, kK)},        {"w", random("w", kN, kK)},   {"x0", random("x0", kM, kN)},
                   {"gamma", random("gamma", 1, kN)}, {"wg", random("wg", kF, kN)}, {"wu", random("wu", kF, kN)},
                   {"w2", random("w2", kN, kF)}};
  Array dx2 = random("dx2", kM, kN);
  auto forward = [&](auto step, const Arrays& v) {
    Arrays p0 = step("residual_rmsnorm_partial", v + kConstants);
    Arrays p2 = step("rmsnorm_swiglu", v + p0 + Arrays{{"x", p0["h"]}});
    Arrays end = step("residual", {{"y", p2["o"]}, {"w", v.at("w2")}, {"x0", p0["x1"]}});
    return p0 + p2 + Arrays{{"x2", end["x1"]}};
  };
  Loss loss = [&](const Arrays& v) { return inner(forward(ref, v)["x2"], dx2); };
  Arrays known = leaves + forward(run, leaves);
  auto check = [&](const Arrays& p7, Arrays p6, const Array& h) {
    check_gradient(loss, leaves, "x0", p6["dx"]);
    check_gradient(loss, leaves, "gamma", p6["dgamma"]);
    check_gradient(loss, leaves, "y", run("data_gradient", {{"dz", p6["dx"]}, {"w", leaves["w"]}})["dx"]);
    Arrays dw = run("weight_gradient_glu", p7 + Arrays{{"x", h}, {"dwg", zeros(kF, kN)}, {"dwu", zeros(kF, kN)}});
    check_gradient(loss, leaves, "wg", dw["dwg"]);
    check_gradient(loss, leaves, "wu", dw["dwu"]);
    check_gradient(loss, leaves, "w2", run("weight_gradient_store", {{"dz", dx2}, {"x", p7.at("o")}})["dw"]);
  };
  Arrays p7 = run("swiglu_backward", known + Arrays{{"dy", dx2}, {"w", leaves["w2"]}});
  Arrays p6 = run("residual_rmsnorm_backward_glu", known + p7 + Arrays{{"dx_in", dx2}});
  check(p7, p6, p6["h"]);
  Arrays scaled = run("swiglu_backward_scaled", known + Arrays{{"dy", dx2}, {"w", leaves["w2"]}});
  check(scaled, run("residual_rmsnorm_backward_glu_scaled", known + scaled + Arrays{{"dx_in", dx2}}), known["h"]);
}

// One product behind the norm: P0 → P1; s by F2 from z and dz.
TEST_CASE("RMSNorm between two GEMMs, γ and 1 + γ, both forms") {
  for (bool offset : {false, true}) {
    CAPTURE(offset);
    std::string middle = offset ? "_offset" : "";
    Arrays leaves = {{"y", random("y", kM, kK)},
                     {"w", random("w", kN, kK)},
                     {"x0", random("x0", kM, kN)},
                     {"gamma", random("gamma", 1, kN)},
                     {"w1", random("w1", kF, kN)}};
    Array dz = random("dz", kM, kF), dx1 = random("dx1", kM, kN);
    auto forward = [&](auto step, const Arrays& v) {
      Arrays p0 = step("residual_rmsnorm" + middle + "_partial", v + kConstants);
      return p0 + step("rmsnorm_linear", {{"x", p0["h"]}, {"w", v.at("w1")}, {"r", p0["r"]}});
    };
    Loss loss = [&](const Arrays& v) {
      Arrays f = forward(ref, v);
      return inner(f["z"], dz) + inner(f["x1"], dx1);
    };
    Arrays known = leaves + forward(run, leaves);
    known["s"] = reference::row_sum(dz, [&](auto i, auto j) { return known["z"].at(i, j) * dz.at(i, j); });
    known = known + Arrays{{"dz", dz}, {"w", leaves["w1"]}, {"dx_in", dx1}};
    Arrays p6 = run("residual_rmsnorm" + middle + "_backward", known);
    check_gradient(loss, leaves, "x0", p6["dx"]);
    check_gradient(loss, leaves, "gamma", p6["dgamma"]);
    check_gradient(loss, leaves, "w1", run("weight_gradient_store", {{"dz", dz}, {"x", p6["h"]}})["dw"]);
    if (offset) continue;
    known["dz"] = reference::scale_rows(dz, known["r"]);
    Arrays second = run("residual_rmsnorm_backward_scaled", known);
    check_gradient(loss, leaves, "x0", second["dx"]);
    check_gradient(loss, leaves, "gamma", second["dgamma"]);
    check_gradient(loss, leaves, "w1", run("weight_gradient_store", {{"dz", known["dz"]}, {"x", known["h"]}})["dw"]);
  }
}

TEST_CASE("RMSNorm and LayerNorm that stand alone") {
  Arrays leaves = {{"x", random("x", kM, kN)}, {"gamma", random("gamma", 1, kN)}, {"beta", random("beta", 1, kN)}};
  Array dy = random("dy", kM, kN), dx_in = random("dx_in", kM, kN);
  auto loss_of = [&](const std::string& statistic, const std::string& apply) {
    return [&, statistic, apply](const Arrays& v) {
      Arrays s = ref(statistic, v + kConstants);
      return inner(ref(apply, v + s)["y"], dy) + inner(v.at("x"), dx_in);
    };
  };
  Loss rms = loss_of("rmsnorm_partial", "rmsnorm_apply");
  Arrays known = leaves + Arrays{{"dy", dy}, {"dx_in", dx_in}} + run("rmsnorm_statistic", leaves + kConstants);
  Arrays back = run("rmsnorm_backward", known + run("rmsnorm_row_sum", known));
  check_gradient(rms, leaves, "x", back["dx"]);
  check_gradient(rms, leaves, "gamma", back["dgamma"]);

  Loss layer = loss_of("layernorm_partial", "layernorm_apply");
  known = known + run("layernorm_partial", leaves + kConstants);
  back = run("layernorm_backward", known + run("layernorm_row_sums_alone", known));
  check_gradient(layer, leaves, "x", back["dx"]);
  check_gradient(layer, leaves, "gamma", back["dgamma"]);
  check_gradient(layer, leaves, "beta", back["dbeta"]);
}

// GPT-2's MLP: residual and LayerNorm → linear and GELU → linear; dropout on the branch below, on and off.
TEST_CASE("LayerNorm between two GEMMs, with and without dropout") {
  for (std::string act : {"gelu", "gelu_tanh"})
    for (std::string drop : {"", "dropout_"}) {
      CAPTURE(act);
      CAPTURE(drop);
      Arrays leaves = {{"y", random("y", kM, kK)},   {"w", random("w", kN, kK)},        {"bias", random("bias", 1, kN)},
                       {"x0", random("x0", kM, kN)}, {"gamma", random("gamma", 1, kN)}, {"beta", random("beta", 1, kN)},
                       {"w1", random("w1", kF, kN)}, {"bias1", random("bias1", 1, kF)}};
      Array w2 = random("w2", kN, kF), dy = random("dy2", kM, kN), dx1 = random("dx1", kM, kN);
      auto forward = [&](auto step, const Arrays& v) {
        Arrays p0 = step(drop + "residual_layernorm_partial", v + kConstants);
        Arrays over_weights =
            step("layernorm_weight_scale", {{"gamma", v.at("gamma")}, {"w", v.at("w1")}}) +
            step("layernorm_weight_shift", {{"beta", v.at("beta")}, {"w", v.at("w1")}, {"bias", v.at("bias1")}});
        Arrays next = p0 + over_weights;
        Arrays out = step("layernorm_linear_" + act, next + Arrays{{"x", p0["h"]}, {"w", v.at("w1")}});
        return next + Arrays{{"z", out["z"]}, {"activated", out["y"]}};
      };
      Loss loss = [&](const Arrays& v) {
        Arrays f = forward(ref, v);
        return inner(reference::linear(f["activated"], w2), dy) + inner(f["x1"], dx1);
      };
      Arrays known = leaves + forward(run, leaves) + kConstants;
      Arrays middle = run("layernorm_linear_" + act + "_backward", known + Arrays{{"dy", dy}, {"w", w2}});
      CHECK(programs::difference(middle["y"], known["activated"], 1e-14) == "");
      check_gradient(loss, leaves, "bias1", middle["dbias"]);
      Arrays back =
          run(drop + "residual_layernorm_backward", known + middle + Arrays{{"w", leaves["w1"]}, {"dx_in", dx1}});
      check_gradient(loss, leaves, "x0", back["dx"]);
      check_gradient(loss, leaves, "gamma", back["dgamma"]);
      check_gradient(loss, leaves, "beta", back["dbeta"]);
      check_gradient(loss, leaves, "w1", run("weight_gradient_store", {{"dz", middle["dz"]}, {"x", back["h"]}})["dw"]);
      Array branch = drop.empty() ? back["dx"] : back["dy"];
      check_gradient(loss, leaves, "y", run("data_gradient", {{"dz", branch}, {"w", leaves["w"]}})["dx"]);
      if (!drop.empty()) check_gradient(loss, leaves, "bias", back["dbias"]);
    }
}

TEST_CASE("LayerNorm before q, k, v: row sums over attention's dq, dk, dv") {
  constexpr std::int64_t kQ = 4, kKey = 2, kAll = kQ + 2 * kKey;
  Arrays leaves = {{"x", random("x", kM, kN)},
                   {"gamma", random("gamma", 1, kN)},
                   {"beta", random("beta", 1, kN)},
                   {"w", random("w", kAll, kN)},
                   {"bias", random("bias", 1, kAll)}};
  Array dz = random("dz", kM, kAll), dx_in = random("dx_in", kM, kN);
  auto forward = [&](auto step, const Arrays& v) {
    Arrays next = step("layernorm_partial", v + kConstants) + step("layernorm_weight_scale", v) +
                  step("layernorm_weight_shift", v);
    return next + step("layernorm_linear", next + Arrays{{"x", next["h"]}, {"w", v.at("w")}});
  };
  Loss loss = [&](const Arrays& v) { return inner(forward(ref, v)["z"], dz) + inner(v.at("x"), dx_in); };
  Arrays known = leaves + forward(run, leaves);
  auto part = [&](const Array& a, std::int64_t first, std::int64_t count) {
    return reference::columns(a, first, count);
  };
  known =
      known +
      Arrays{
          {"q", part(known["z"], 0, kQ)}, {"k", part(known["z"], kQ, kKey)}, {"v", part(known["z"], kQ + kKey, kKey)},
          {"dq", part(dz, 0, kQ)},        {"dk", part(dz, kQ, kKey)},        {"dv", part(dz, kQ + kKey, kKey)}};
  Arrays sums = run("layernorm_row_sums", known);
  check_gradient(loss, leaves, "bias", sums["dbias"]);
  auto rows = [&](std::int64_t first, std::int64_t count) {
    return reference::make(count, kN, [&](auto i, auto j) { return leaves["w"].at(first + i, j); });
  };
  Arrays back = run("residual_layernorm_backward_qkv", known + sums +
                                                           Arrays{{"wq", rows(0, kQ)},
                                                                  {"wk", rows(kQ, kKey)},
                                                                  {"wv", rows(kQ + kKey, kKey)},
                                                                  {"x1", leaves["x"]},
                                                                  {"dx_in", dx_in}});
  check_gradient(loss, leaves, "x", back["dx"]);
  check_gradient(loss, leaves, "gamma", back["dgamma"]);
  check_gradient(loss, leaves, "beta", back["dbeta"]);
  check_gradient(loss, leaves, "w", run("weight_gradient_store", {{"dz", dz}, {"x", back["h"]}})["dw"]);
}

TEST_CASE("dropout: the backward keeps what the forward kept") {
  Arrays leaves = {{"x", random("x", kM, kK)},
                   {"w", random("w", kN, kK)},
                   {"bias", random("bias", 1, kN)},
                   {"x0", random("x0", kM, kN)}};
  Array w1 = random("w1", kF, kN), dz = random("dz", kM, kF), dx_in = random("dx_in", kM, kN);
  Loss loss = [&](const Arrays& v) {
    Array x1 = ref("dropout_residual", v + kConstants)["x1"];
    return inner(reference::linear(x1, w1), dz) + inner(x1, dx_in);
  };
  Arrays back = run("dropout_residual_backward", kConstants + Arrays{{"dz", dz}, {"w", w1}, {"dx_in", dx_in}});
  check_gradient(loss, leaves, "x0", back["dx"]);
  check_gradient(loss, leaves, "bias", back["dbias"]);
  check_gradient(loss, leaves, "x", run("data_gradient", {{"dz", back["dy"]}, {"w", leaves["w"]}})["dx"]);
}

// Gemma: linear → post-norm → residual → pre-norm → linear.
TEST_CASE("post-norm and pre-norm with weights 1 + γ") {
  Arrays leaves = {{"y", random("y", kM, kK)},
                   {"w", random("w", kN, kK)},
                   {"x0", random("x0", kM, kN)},
                   {"gamma_post", random("gamma_post", 1, kN)},
                   {"gamma", random("gamma", 1, kN)}};
  Array w1 = random("w1", kF, kN), dz1 = random("dz1", kM, kF), dx1 = random("dx1", kM, kN);
  auto forward = [&](auto step, const Arrays& v) {
    Arrays post = step("linear_rmsnorm_statistic", v + kConstants);
    Arrays pre = step("postnorm_residual_rmsnorm_partial", v + kConstants + post);
    Arrays next = step("rmsnorm_linear", {{"x", pre["h"]}, {"w", w1}, {"r", pre["r1"]}});
    return post + pre + Arrays{{"z1", next["z"]}};
  };
  Loss loss = [&](const Arrays& v) {
    Arrays f = forward(ref, v);
    return inner(f["z1"], dz1) + inner(f["x1"], dx1);
  };
  Arrays known = leaves + forward(run, leaves);
  Array s = reference::row_sum(dz1, [&](auto i, auto j) { return known["z1"].at(i, j) * dz1.at(i, j); });
  Arrays pre = run("residual_rmsnorm_offset_backward",
                   known + Arrays{{"dz", dz1}, {"w", w1}, {"r", known["r1"]}, {"s", s}, {"dx_in", dx1}});
  check_gradient(loss, leaves, "x0", pre["dx"]);
  check_gradient(loss, leaves, "gamma", pre["dgamma"]);
  Arrays post = known + Arrays{{"dx", pre["dx"]}, {"gamma", leaves["gamma_post"]}};
  Arrays back = run("postnorm_backward", post + run("postnorm_row_sum", post));
  check_gradient(loss, leaves, "gamma_post", back["dgamma"]);
  check_gradient(loss, leaves, "y", run("data_gradient", {{"dz", back["dz"]}, {"w", leaves["w"]}})["dx"]);
}

namespace {

// Positions out of order and repeated; with scaled tables (YaRN) a rotation is no rotation any more.
Arrays tables(std::int64_t half, double scale) {
  Array cos = random("cos", kPlaces, half), sin = cos, pos(kM, 1, 1);
  for (std::int64_t i = 0; i < kPlaces; ++i)
    for (std::int64_t j = 0; j < half; ++j) {
      double angle = static_cast<double>(i) * (0.3 + 0.2 * static_cast<double>(j));
      cos.at(i, j) = scale * std::cos(angle);
      sin.at(i, j) = scale * std::sin(angle);
    }
  for (std::int64_t i = 0; i < kM; ++i) pos.at(i, 0) = static_cast<double>((3 * i + 2) % kPlaces);
  return {{"cos", cos}, {"sin", sin}, {"pos", pos}};
}

Arrays qkv_leaves(std::int64_t k) {
  return {{"wq", random("wq", kHeads * kHead, k)},
          {"wk", random("wk", kKv * kHead, k)},
          {"wv", random("wv", kKv * kHead, k)}};
}

const Arrays kQkvGradient = {{"dq", random("dq", kM, kHeads* kHead)},
                             {"dk", random("dk", kM, kKv* kHead)},
                             {"dv", random("dv", kM, kKv* kHead)}};

double inner_qkv(const Arrays& out) {
  return inner(out.at("q"), kQkvGradient.at("dq")) + inner(out.at("k"), kQkvGradient.at("dk")) +
         inner(out.at("v"), kQkvGradient.at("dv"));
}

}  // namespace

TEST_CASE("rotary embeddings in both pairings, whole and partial, with scaled tables") {
  for (auto [rotation, half] : {std::pair{"rope", kHead / 2},
                                {"rope_pairs", kHead / 2},
                                {"rope_partial", std::int64_t{2}},
                                {"rope_pairs_partial", std::int64_t{2}}})
    for (double scale : {1.0, 1.25}) {
      std::string called = rotation;
      CAPTURE(called);
      CAPTURE(scale);
      Arrays leaves = qkv_leaves(kK) + Arrays{{"x", random("x", kM, kK)}}, table = tables(half, scale);
      Loss loss = [&](const Arrays& v) { return inner_qkv(ref(called, v + table)); };
      Arrays known = leaves + table + kQkvGradient + run(called, leaves + table);
      Arrays back = run(called + "_backward", known);
      Arrays zeroed = {
          {"dwq", zeros(kHeads * kHead, kK)}, {"dwk", zeros(kKv * kHead, kK)}, {"dwv", zeros(kKv * kHead, kK)}};
      Arrays dz = {{"dq", back["dzq"]}, {"dk", back["dzk"]}, {"dv", kQkvGradient.at("dv")}};
      Arrays dw = run("weight_gradient_qkv", dz + zeroed + Arrays{{"x", leaves["x"]}});
      check_gradient(loss, leaves, "wq", dw["dwq"]);
      check_gradient(loss, leaves, "wk", dw["dwk"]);
      check_gradient(loss, leaves, "wv", dw["dwv"]);
      check_row_sums(loss, leaves, {"x"}, back["s"]);
    }
}

// The attention half of a layer without attention: norm → q, k, v (per-head norms) → rotation.
TEST_CASE("RMSNorm, q, k, v and rotation, with and without per-head norms") {
  for (bool per_head : {false, true}) {
    CAPTURE(per_head);
    Arrays leaves = qkv_leaves(kN) + Arrays{{"x", random("x", kM, kN)}, {"gamma", random("gamma", 1, kN)}};
    if (per_head) leaves = leaves + Arrays{{"gq", random("gq", 1, kHead)}, {"gk", random("gk", 1, kHead)}};
    Arrays table = tables(kHead / 2, 1);
    auto forward = [&](auto step, const Arrays& v) {
      Arrays norm = step("rmsnorm_partial", v + kConstants);
      Arrays known = v + table + kConstants + Arrays{{"x", norm["h"]}, {"r", norm["r"]}};
      return norm + step(per_head ? "qknorm_rope_gqa" : "rmsnorm_rope", known);
    };
    Array dx_in = random("dx_in", kM, kN);
    Loss loss = [&](const Arrays& v) { return inner_qkv(forward(ref, v)) + inner(v.at("x"), dx_in); };
    Arrays known = leaves + table + kConstants + kQkvGradient + forward(run, leaves);
    Arrays back = run(per_head ? "qknorm_rope_backward" : "rope_backward", known);
    Arrays dz = {{"dq", back["dzq"]}, {"dk", back["dzk"]}, {"dv", kQkvGradient.at("dv")}};
    Arrays p6 = run("residual_rmsnorm_backward_qkv",
                    known + dz + Arrays{{"s", back["s"]}, {"x1", leaves["x"]}, {"dx_in", dx_in}});
    check_gradient(loss, leaves, "x", p6["dx"]);
    check_gradient(loss, leaves, "gamma", p6["dgamma"]);
    check_gradient(loss, leaves, "wq", run("weight_gradient_store", {{"dz", dz["dq"]}, {"x", p6["h"]}})["dw"]);
    check_gradient(loss, leaves, "wk", run("weight_gradient_store", {{"dz", dz["dk"]}, {"x", p6["h"]}})["dw"]);
    if (!per_head) continue;
    check_gradient(loss, leaves, "gq", back["dgq"]);
    check_gradient(loss, leaves, "gk", back["dgk"]);
  }
}

TEST_CASE("linear and cross-entropy with each option, logits recomputed") {
  for (const char* option : {"", "_smoothing", "_z_loss", "_softcap", "_scale", "_bias"}) {
    CAPTURE(option);
    Arrays leaves = {{"x", random("x", kM, kK)}, {"w", random("w", kV, kK)}, {"bias", random("bias", 1, kV)}};
    Arrays fixed = kConstants + Arrays{{"t", targets()}};
    Array g = random("g", kM, 1);
    std::string name = std::string("cross_entropy") + option;
    Loss loss = [&](const Arrays& v) { return inner(ref(name, v + fixed)["loss"], g); };
    Arrays known = leaves + fixed + run(name, leaves + fixed) + Arrays{{"g", g}};
    Arrays back = run("linear_cross_entropy_backward" + std::string(option), known);
    check_gradient(loss, leaves, "x", run("data_gradient", {{"dz", back["dz"]}, {"w", leaves["w"]}})["dx"]);
    check_gradient(loss, leaves, "w", run("weight_gradient_store", {{"dz", back["dz"]}, {"x", leaves["x"]}})["dw"]);
    if (back.count("dbias")) check_gradient(loss, leaves, "bias", back["dbias"]);
    for (std::int64_t j = 0; j < kV; ++j) CHECK(back["dz"].at(2, j) == 0);  // the ignored row
  }
}

TEST_CASE("the last norm, the head and cross-entropy, without and with all options") {
  for (std::string full : {"", "_full"}) {
    CAPTURE(full);
    Arrays leaves = {{"x1", random("x1", kM, kN)},
                     {"gamma", random("gamma", 1, kN)},
                     {"w", random("w", kV, kN)},
                     {"bias", random("bias", 1, kV)}};
    Arrays fixed = kConstants + Arrays{{"t", targets()}};
    Array g = random("g", kM, 1);
    auto forward = [&](auto step, const Arrays& v) {
      Arrays norm = step("rmsnorm_partial", v + fixed + Arrays{{"x", v.at("x1")}});
      return norm + step("rmsnorm_cross_entropy" + full, v + fixed + Arrays{{"x", norm["h"]}, {"r", norm["r"]}});
    };
    Loss loss = [&](const Arrays& v) { return inner(forward(ref, v)["loss"], g); };
    Arrays known = leaves + fixed + forward(run, leaves) + Arrays{{"g", g}};
    Arrays head = run("rmsnorm_linear_cross_entropy_backward" + full, known + Arrays{{"x", known["h"]}});
    Arrays p6 = run("rmsnorm_backward_head", known + head);
    check_gradient(loss, leaves, "x1", p6["dx"]);
    check_gradient(loss, leaves, "gamma", p6["dgamma"]);
    check_gradient(loss, leaves, "w", run("weight_gradient_store", {{"dz", head["dz"]}, {"x", p6["h"]}})["dw"]);
    if (head.count("dbias")) check_gradient(loss, leaves, "bias", head["dbias"]);
  }
}

TEST_CASE("cross-entropy over stored logits") {
  Arrays leaves = {{"x", random("x", kM, kK)}, {"w", random("w", kV, kK)}};
  Arrays fixed = kConstants + Arrays{{"t", targets()}};
  Array g = random("g", kM, 1);
  Loss loss = [&](const Arrays& v) { return inner(ref("cross_entropy", v + fixed)["loss"], g); };
  Arrays back =
      run("cross_entropy_backward_stored", fixed + run("cross_entropy_logits", leaves + fixed) + Arrays{{"g", g}});
  check_gradient(loss, leaves, "w", run("weight_gradient_store", {{"dz", back["dz"]}, {"x", leaves["x"]}})["dw"]);
}

TEST_CASE("a LoRA adapter") {
  constexpr std::int64_t kRank = 2;
  Arrays leaves = {{"x", random("x", kM, kK)},
                   {"w", random("w", kN, kK)},
                   {"wa", random("wa", kRank, kK)},
                   {"wb", random("wb", kN, kRank)}};
  Array dz = random("dz", kM, kN);
  auto forward = [&](auto step, const Arrays& v) {
    Arrays down = step("lora_down", v + kConstants);
    return down + step("lora_linear", v + down);
  };
  Loss loss = [&](const Arrays& v) { return inner(forward(ref, v)["z"], dz); };
  Arrays known = leaves + forward(run, leaves) + Arrays{{"dz", dz}};
  Array dxa = run("data_gradient", {{"dz", dz}, {"w", leaves["wb"]}})["dx"];
  for (double& x : dxa.data) x *= kConstants.at("scale").data[0];
  check_gradient(loss, leaves, "x", run("lora_data_gradient", known + Arrays{{"dxa", dxa}})["dx"]);
  check_gradient(loss, leaves, "wa", run("weight_gradient_store", {{"dz", dxa}, {"x", leaves["x"]}})["dw"]);
  check_gradient(loss, leaves, "wb", run("weight_gradient_store", {{"dz", dz}, {"x", known["xa"]}})["dw"]);
}
