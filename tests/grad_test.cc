// Reverse mode: the interface, its costs and its refusals, formulas with known answers, and a whole decoder layer
// against central differences.
#include "coda/grad.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "coda/builder.h"
#include "coda/error.h"
#include "coda/interpret.h"
#include "coda/program.h"
#include "graph_check.h"

using namespace coda;

namespace {

Array array(std::int64_t rows, std::int64_t cols, std::vector<double> data) {
  Array a(rows, 1, cols);
  a.data = std::move(data);
  return a;
}

int count(const Graph& g, Op op) {
  int n = 0;
  for (const Node& node : g.nodes()) n += node.op == op;
  return n;
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Graph two_layers() {
  GraphBuilder b("two_layers");
  Val x = b.input("x", DType::kBF16, {"M", "K"}), w1 = b.input("w1", DType::kBF16, {"F", "K"}),
      w2 = b.input("w2", DType::kBF16, {"N", "F"});
  Val h = unary(Op::kGelu, matmul(x, w1));
  b.set_name(h, "h");
  b.output("y", DType::kBF16, matmul(h, w2));
  b.output("r", DType::kF32, sum(Axis::kN, h));
  b.output("index", DType::kI32, b.input("t", DType::kI32, {"M", 1}));
  return b.build_graph();
}

// One pre-norm decoder layer with grouped-query attention, and its loss.
Graph decoder() {
  GraphBuilder b("decoder");
  Dim heads(2), kv(1), head(4), d = Dim::symbol("D");
  auto in = [&](const std::string& name, const std::vector<DimArg>& dims, DType t = DType::kF32) {
    return b.input(name, t, dims);
  };
  Val eps = b.launch_const("eps", DType::kF32);
  Val x = gather(in("embedding", {"V", d}), in("token", {"M", 1}, DType::kI32));
  auto norm = [&](Val v, const std::string& name) { return b.apply1(Op::kRmsnorm, {v, in(name, {1, d}), eps}); };
  Val h = norm(x, "g1");
  Val pos = in("pos", {"M", 1}, DType::kI32);
  Val cos = gather(in("cos", {"S", 2}), pos), sin = gather(in("sin", {"S", 2}), pos);
  auto rotated = [&](const std::string& name, Dim n, const std::string& gamma) {
    Val z =
        b.apply1(Op::kQkNorm, {group(matmul(h, in(name, {n * head, d})), DimArg(head)), in(gamma, {1, 1, head}), eps});
    return flat(b.apply1(Op::kRope, {z, cos, sin}));
  };
  Attrs attention;
  attention.dims = {Dim(2), heads, kv};
  Val q = rotated("wq", heads, "gq"), k = rotated("wk", kv, "gk"), v = matmul(h, in("wv", {kv * head, d}));
  Val y = b.apply(Op::kAttention, {q, k, v}, attention)[0];
  Val x1 = x + matmul(y, in("wo", {d, heads * head}));
  Val h2 = norm(x1, "g2");
  Val o = binary(Op::kSwiglu, matmul(h2, in("wg", {"F", d})), matmul(h2, in("wu", {"F", d})));
  Val x2 = x1 + matmul(o, in("w2", {d, "F"}));
  Val z = matmul(norm(x2, "g3"), 1, in("head", {"V", d}), 1);
  b.output("loss", DType::kF32, b.apply1(Op::kCrossEntropy, {z, in("target", {"M", 1}, DType::kI32), b.integer(-100)}));
  return b.build_graph();
}

}  // namespace

TEST_CASE("gradient: names, shapes and dtypes of what goes in and out") {
  Graph g = two_layers();
  Graph d = gradient(g, {"w1", "x"});
  CHECK(d.name() == "two_layers_gradient");
  CHECK_FALSE(d.is_program());
  std::vector<std::string> inputs, outputs;
  for (const Input& i : d.inputs()) inputs.push_back(i.name);
  for (const Output& o : d.outputs()) outputs.push_back(o.name);
  CHECK(inputs == std::vector<std::string>{"x", "w1", "w2", "t", "d_y", "d_r"});
  CHECK(outputs == std::vector<std::string>{"d_w1", "d_x"});
  CHECK(d.find_input("d_y")->dtype == DType::kBF16);
  CHECK(d.find_input("d_r")->dtype == DType::kF32);
  CHECK(d.value(d.find_output("d_w1")->value).type == g.value(g.find_input("w1")->value).type);
  CHECK(d.find_output("d_x")->dtype == DType::kF32);
  Graph only_r = gradient(g, {"x"}, {"r"});
  CHECK(only_r.find_input("d_y") == nullptr);
  CHECK(test::gradient_error(g, {{"M", 3}, {"K", 2}, {"F", 4}, {"N", 5}}, 1) < 1e-7);
}

TEST_CASE("C14: what is not asked for costs nothing") {
  Graph g = two_layers();
  CHECK(count(gradient(g, {"x", "w1", "w2"}), Op::kMatmul) == 5);  // 1 recomputed, dh, dw2, dw1, dx
  CHECK(count(gradient(g, {"w2"}), Op::kMatmul) == 2);             // h and dw2
  CHECK(count(gradient(g, {"w1"}), Op::kMatmul) == 3);             // h, dh and dw1
  CHECK(count(gradient(g, {"x"}), Op::kMatmul) == 3);
  CHECK(count(gradient(g, {"x"}, {"r"}), Op::kMatmul) == 2);
  // And leaves the rest as it was.
  Arrays in = test::random_inputs(gradient(g, {"x"}), {{"M", 3}, {"K", 2}, {"F", 4}, {"N", 5}}, 4);
  CHECK(interpret(gradient(g, {"x"}), in).at("d_x").data ==
        interpret(gradient(g, {"x", "w1", "w2"}), in).at("d_x").data);
}

TEST_CASE("an input on which no output depends has gradient zero") {
  GraphBuilder b("unused");
  Val x = b.input("x", DType::kF32, {"M", "N"}), u = b.input("u", DType::kF32, {"M", "H", "hd"}),
      s = b.launch_const("s", DType::kF32);
  b.output("y", DType::kF32, x * 2.0);
  b.output("c", DType::kF32, cast(cast(u, DType::kI32), DType::kF32) + s * 0.0);
  Graph d = gradient(b.build_graph(), {"u", "s", "x"}, {"y"});
  Arrays y = interpret(
      d, {{"x", Array(2, 1, 3, 1)}, {"u", Array(2, 2, 2, 1)}, {"s", Array(1, 1, 1)}, {"d_y", Array(2, 1, 3, 1)}});
  CHECK(y.at("d_u").data == std::vector<double>(8, 0));
  CHECK(y.at("d_u").groups == 2);
  CHECK(y.at("d_s").data == std::vector<double>{0});
  CHECK(y.at("d_x").data == std::vector<double>(6, 2));
}

TEST_CASE("a value used many times, and an operand given twice to a composite") {
  GraphBuilder b("reuse");
  Val x = b.input("x", DType::kF32, {"M", "N"});
  b.output("y", DType::kF32, x * x * x + x / (x * x + 1.0) - sum(Axis::kN, x) * x);
  b.output("glu", DType::kF32, binary(Op::kGeglu, x, x));
  b.output("swi", DType::kF32, binary(Op::kSwiglu, x, x));
  b.output("twice", DType::kF32, x);
  b.output("again", DType::kF32, x);
  CHECK(test::gradient_error(b.build_graph(), {{"M", 2}, {"N", 3}}, 8) < 1e-7);
}

TEST_CASE("ties: a maximum gives to the lowest index, min and max to their first operand") {
  GraphBuilder b("ties");
  Val x = b.input("x", DType::kF32, {"M", "N"}), y = b.input("y", DType::kF32, {"M", "N"});
  b.output("most", DType::kF32, reduce(Op::kReduceMax, Axis::kN, x));
  b.output("column", DType::kF32, reduce(Op::kReduceMax, Axis::kM, x));
  b.output("all", DType::kF32, reduce(Op::kReduceMax, Axis::kMN, x));
  b.output("both", DType::kF32, binary(Op::kMax, x, y));
  Graph g = b.build_graph();
  Arrays in = {{"x", array(2, 3, {1, 2, 2, 2, 0, 2})}, {"y", array(2, 3, {1, 2, 5, 5, 5, 5})}};
  auto d = [&](const std::string& output, const std::string& input, const Array& weight) {
    Arrays all = in;
    all["d_" + output] = weight;
    return interpret(gradient(g, {input}, {output}), all).at("d_" + input).data;
  };
  CHECK(d("most", "x", Array(2, 1, 1, 1)) == std::vector<double>{0, 1, 0, 1, 0, 0});
  CHECK(d("column", "x", Array(1, 1, 3, 1)) == std::vector<double>{0, 1, 1, 1, 0, 0});
  CHECK(d("all", "x", Array(1, 1, 1, 1)) == std::vector<double>{0, 1, 0, 0, 0, 0});
  CHECK(d("both", "x", Array(2, 1, 3, 1)) == std::vector<double>{1, 1, 0, 0, 0, 0});
  CHECK(d("both", "y", Array(2, 1, 3, 1)) == std::vector<double>{0, 0, 1, 1, 1, 1});
}

TEST_CASE("ties inside groups and over groups") {
  GraphBuilder b("group_ties");
  Val x = b.input("x", DType::kF32, {"M", "H", "hd"});
  b.output("inside", DType::kF32, reduce(Op::kReduceMax, Axis::kC, x));
  b.output("over", DType::kF32, reduce(Op::kReduceMax, Axis::kG, x));
  Graph g = b.build_graph();
  Array a(1, 2, 3, 7), ones_c(1, 2, 1, 1), ones_g(1, 1, 3, 1);
  CHECK(interpret(gradient(g, {"x"}, {"inside"}), {{"x", a}, {"d_inside", ones_c}}).at("d_x").data ==
        std::vector<double>{1, 0, 0, 1, 0, 0});
  CHECK(interpret(gradient(g, {"x"}, {"over"}), {{"x", a}, {"d_over", ones_g}}).at("d_x").data ==
        std::vector<double>{1, 1, 1, 0, 0, 0});
}

TEST_CASE("a masked row and an ignored row give zeros, not NaN") {
  GraphBuilder b("masked");
  Val z = b.input("z", DType::kF32, {"M", "N"});
  Attrs n;
  n.axis = Axis::kN;
  std::vector<Val> ml = b.apply(Op::kLogsumexp, {z, z}, n);
  b.output("m", DType::kF32, ml[0]);
  b.output("lse", DType::kF32, ml[0] + ml[1]);
  b.output("l", DType::kF32, ml[1]);
  b.output("entropy", DType::kF32, ml[2]);
  b.output("loss", DType::kF32, b.apply1(Op::kCrossEntropy, {z, b.input("t", DType::kI32, {"M", 1}), b.integer(-100)}));
  Graph g = b.build_graph();
  const double inf = INFINITY;
  Arrays in = {{"z", array(3, 3, {-inf, -inf, -inf, 0, -inf, 0, NAN, NAN, NAN})}, {"t", array(3, 1, {-100, 0, -100})}};
  auto d = [&](const std::string& output) {
    Arrays all = in;
    all["d_" + output] = array(3, 1, {1, 1, output == "loss" ? 1.0 : 0.0});
    std::vector<double> data = interpret(gradient(g, {"z"}, {output}), all).at("d_z").data;
    if (output != "loss") data.resize(6);
    return data;
  };
  CHECK(d("m") == std::vector<double>{1, 0, 0, 1, 0, 0});
  CHECK(d("lse") == std::vector<double>{0, 0, 0, 0.5, 0, 0.5});
  CHECK(d("l") == std::vector<double>{-1, 0, 0, -0.5, 0, 0.5});
  CHECK(d("entropy") == std::vector<double>{0, 0, 0, 0.5, 0, 0.5});
  CHECK(d("loss") == std::vector<double>{0, 0, 0, -0.5, 0, 0.5, 0, 0, 0});
}

TEST_CASE("C15, C16: RMSNorm, and the gradient of the residual stream beside it") {
  GraphBuilder b("prenorm");
  Val x = b.input("x", DType::kF32, {"M", "N"}) + b.input("res", DType::kF32, {"M", "N"});
  b.output("out", DType::kF32, b.apply1(Op::kRmsnorm, {x, b.input("w", DType::kF32, {1, "N"}), b.literal(1e-6)}));
  b.output("res_out", DType::kF32, x);
  Graph g = b.build_graph();
  Array rows(2, 1, 8), w(1, 1, 8);
  for (std::int64_t c = 0; c < 8; ++c) {
    rows.at(0, c) = rows.at(1, c) = c % 2 == 0 ? 1 : -1;
    w.at(0, c) = static_cast<double>(c + 1);
  }
  Arrays in = {{"x", rows}, {"res", Array(2, 1, 8)}, {"w", w}, {"d_out", Array(2, 1, 8, 1)}};
  Arrays d = interpret(gradient(g, {"x", "w"}, {"out"}), in);
  const double dx[] = {1.5, 1.5, 3.5, 3.5, 5.5, 5.5, 7.5, 7.5};
  for (std::int64_t c = 0; c < 8; ++c) {
    CHECK(std::fabs(d.at("d_x").at(1, c) - dx[c]) < 1e-5);
    CHECK(std::fabs(d.at("d_w").at(0, c) - 2 * rows.at(0, c)) < 1e-5);
  }
  in["d_res_out"] = Array(2, 1, 8, 10);
  d = interpret(gradient(g, {"x", "res"}), in);
  for (std::int64_t c = 0; c < 8; ++c) CHECK(std::fabs(d.at("d_x").at(0, c) - 10 - dx[c]) < 1e-5);
  CHECK(d.at("d_x").data == d.at("d_res").data);
}

TEST_CASE("C06, C07: scale, smoothing and softcap in the gradient of the loss") {
  auto logits_gradient = [](const std::vector<double>& z, double target, const std::function<Val(Val, Val)>& loss) {
    GraphBuilder b("loss");
    b.output("loss", DType::kF32, loss(b.input("z", DType::kF32, {"M", "V"}), b.input("t", DType::kI32, {"M", 1})));
    Graph g = b.build_graph();
    Arrays in = {{"z", array(1, 8, z)}, {"t", array(1, 1, {target})}};
    double value = interpret(g, in).at("loss").at(0, 0);
    in["d_loss"] = Array(1, 1, 1, 1);
    return std::pair(value, interpret(gradient(g, {"z"}), in).at("d_z").data);
  };
  auto cross_entropy = [](Val z, Val t) {
    return z.builder->apply1(Op::kCrossEntropy, {z, t, z.builder->integer(-100)});
  };
  std::vector<double> z(8, 0);
  z[0] = 4;
  auto [loss, d] = logits_gradient(z, 0, [&](Val x, Val t) { return cross_entropy(x * 0.5, t); });
  CHECK(std::fabs(loss - 0.666468) < 1e-6);
  CHECK(std::fabs(d[0] + 0.243240) < 1e-6);
  CHECK(std::fabs(d[1] - 0.034749) < 1e-6);
  auto [smooth, ds] = logits_gradient(z, 0, [&](Val x, Val t) {
    Val s = x * 0.5;
    Attrs n;
    n.axis = Axis::kN;
    std::vector<Val> ml = x.builder->apply(Op::kLogsumexp, {s}, n);
    return 0.9 * cross_entropy(s, t) + 0.1 * (ml[0] + ml[1] - sum(Axis::kN, s) / x.builder->size("V"));
  });
  CHECK(std::fabs(smooth - 0.841468) < 1e-6);
  CHECK(std::fabs(ds[0] + 0.5 * 0.398981) < 1e-6);
  CHECK(std::fabs(ds[1] - 0.5 * 0.056997) < 1e-6);
  z[0] = 32;
  auto [capped, dc] =
      logits_gradient(z, 1, [&](Val x, Val t) { return cross_entropy(30.0 * unary(Op::kTanh, x / 30.0), t); });
  CHECK(std::fabs(capped - 23.646062) < 1e-6);
  CHECK(std::fabs(dc[0] - 0.378737) < 1e-6);
}

TEST_CASE("the backward of a rotation with scaled tables is its transpose") {
  GraphBuilder b("yarn");
  b.output("y", DType::kF32,
           b.apply1(Op::kRope, {b.input("z", DType::kF32, {"M", 1, 4}), b.input("c", DType::kF32, {"M", 2}),
                                b.input("s", DType::kF32, {"M", 2})}));
  Graph d = gradient(b.build_graph(), {"z"});
  CHECK(count(d, Op::kRope) == 1);  // stays a rotation
  Arrays y = interpret(d, {{"z", Array(1, 1, 4)},
                           {"c", array(1, 2, {2, 2})},
                           {"s", array(1, 2, {0, 3})},
                           {"d_y", array(1, 4, {1, 1, 1, 1})}});
  CHECK(y.at("d_z").data == std::vector<double>{2, 5, 2, -1});
}

TEST_CASE("a whole decoder layer against central differences") {
  Graph g = decoder();
  Sizes sizes = {{"D", 4}, {"F", 3}, {"M", 6}, {"V", 5}, {"S", 3}};
  test::Ranges ranges = {{"eps", {0.1, 0.2}}, {"target", {0, 4}}, {"token", {0, 4}}};
  CHECK(test::gradient_error(g, sizes, 31, ranges) < 1e-6);
  Graph whole = gradient(g, test::float_inputs(g)), expanded = gradient(expand_composites(g), test::float_inputs(g));
  Arrays in = test::random_inputs(whole, sizes, 2, ranges);
  CHECK(test::largest_difference(interpret(whole, in, sizes), interpret(expanded, in, sizes)) < 1e-10);
}

TEST_CASE("a Program is differentiated as the graph it is; an output that accumulates, in what it adds") {
  ProgramBuilder b("weight_gradient");
  b.where("N", Dim(2) * Dim::symbol("F"));
  Val dy = b.input("dy", DType::kBF16, {"M", "N"}), x = b.input("x", DType::kBF16, {"M", "K"});
  b.output("dw", DType::kF32, matmul(dy, 0, x, 0), true);
  Program p = b.build();
  CHECK(test::gradient_error(p.graph(), {{"M", 3}, {"F", 2}, {"K", 4}}, 6) < 1e-7);
  GraphBuilder noise("dropout");
  Val u = noise.apply1(Op::kUniform,
                       {noise.input("seed", DType::kI32, {1, 1}), noise.input("offset", DType::kI32, {1, 1})});
  Val kept = binary(Op::kGe, u, noise.literal(0.5));
  Val y = where(kept, noise.input("bias", DType::kF32, {1, "N"}), noise.literal(0));
  noise.output("y", DType::kF32, {"M", "N"}, y);
  noise.output("s", DType::kF32, sum(Axis::kM, y));
  Graph g = noise.build_graph();  // rows are known only from the declared output
  CHECK(test::gradient_error(g, {{"M", 5}, {"N", 3}}, 6) < 1e-7);
  Graph of_s = gradient(g, {"bias"}, {"s"});  // which is not in this one
  CHECK(test::gradient_error(g, of_s, test::random_inputs(g, {{"M", 5}, {"N", 3}}, 6), {{"M", 5}, {"N", 3}}, 6) < 1e-7);
}

TEST_CASE("backpropagate inside a builder") {
  GraphBuilder b("step");
  Val x = b.input("x", DType::kF32, {"M", "N"}), w = b.input("w", DType::kF32, {1, "N"}),
      other = b.input("other", DType::kF32, {1, 1});
  Val y = x * w, loss = sum(Axis::kMN, y * y);
  std::vector<std::optional<Val>> d = backpropagate(b, {{loss, b.literal(0.5)}}, {w, other, y});
  REQUIRE(d.size() == 3);
  CHECK_FALSE(d[1].has_value());
  b.output("dw", DType::kF32, *d[0]);
  b.output("dy", DType::kF32, *d[2]);
  Arrays r = interpret(b.build_graph(),
                       {{"x", array(2, 2, {1, 2, 3, 4})}, {"w", array(1, 2, {1, 10})}, {"other", Array(1, 1, 1)}});
  CHECK(r.at("dy").data == std::vector<double>{1, 20, 3, 40});
  CHECK(r.at("dw").data == std::vector<double>{10, 200});
}

TEST_CASE("what reverse mode refuses") {
  Graph g = two_layers();
  CHECK(contains(message([&] { gradient(g, {"w3"}); }), "input w3: no float input of that name; allowed: x, w1, w2"));
  CHECK(contains(message([&] { gradient(g, {"t"}); }), "input t"));
  CHECK(contains(message([&] { gradient(g, {"x", "x"}); }), "asked for twice"));
  CHECK(contains(message([&] { gradient(g, {}); }), "no inputs"));
  CHECK(contains(message([&] { gradient(g, {"x"}, {"z"}); }), "output z: no float output of that name; allowed: y, r"));
  CHECK(contains(message([&] { gradient(g, {"x"}, {"index"}); }), "output index"));
  GraphBuilder b("clash");
  b.output("x", DType::kF32, b.input("d_x", DType::kF32, {"M", "N"}) * 2.0);
  Graph clash = b.build_graph();
  CHECK(contains(message([&] { gradient(clash, {"d_x"}); }), "input d_x"));
  GraphBuilder i("integers");
  i.output("y", DType::kI32, cast(i.input("x", DType::kF32, {"M", "N"}), DType::kI32));
  Graph integers = i.build_graph();
  CHECK(contains(message([&] { gradient(integers, {"x"}); }), "no float outputs"));
  GraphBuilder a("attention");
  Attrs attrs;
  attrs.dims = {Dim(1), Dim(1), Dim(1)};
  std::vector<Val> qkv;
  for (const char* name : {"q", "k", "v", "d"}) qkv.push_back(a.input(name, DType::kF32, {"T", "N"}));
  a.output("dq", DType::kF32, a.apply(Op::kAttentionGrad, qkv, attrs)[0]);
  qkv.pop_back();
  a.output("lse", DType::kF32, a.apply(Op::kAttention, qkv, attrs)[1]);
  Graph attention = a.build_graph();
  CHECK(contains(message([&] { gradient(attention, {"q"}, {"dq"}); }), "attention_grad: a gradient through it"));
  CHECK(contains(message([&] { gradient(attention, {"q"}, {"lse"}); }), "lse"));
}
