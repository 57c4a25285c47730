// The interpreter: values at the edges (empty, infinite, ties, NaN), the three roundings, the public bug reports that
// apply (by their numbers, C13 …), and what it refuses.
#include "coda/interpret.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "coda/builder.h"
#include "coda/error.h"
#include "graph_check.h"
#include "ir/philox.h"

using namespace coda;

namespace {

constexpr double kInf = INFINITY;

Array array(std::int64_t rows, std::int64_t cols, std::vector<double> data) {
  Array a(rows, 1, cols);
  a.data = std::move(data);
  return a;
}

InterpretOptions rounding(Rounding r, DType eager = DType::kBF16) {
  InterpretOptions o;
  o.rounding = r;
  o.eager_dtype = eager;
  return o;
}

std::vector<Val> reduced(GraphBuilder& b, Op op, const std::vector<Val>& operands, Axis axis) {
  Attrs a;
  a.axis = axis;
  return b.apply(op, operands, a);
}

// y = op(x) for x [M,N]; several results are y0, y1, …
Graph of_x(const std::function<std::vector<Val>(Val)>& op, DType dtype = DType::kF32) {
  GraphBuilder b("of_x");
  std::vector<Val> results = op(b.input("x", dtype, {"M", "N"}));
  for (std::size_t i = 0; i < results.size(); ++i)
    b.output("y" + std::to_string(i), results[i].type().elem == Elem::kI32 ? DType::kI32 : DType::kF32, results[i]);
  return b.build_graph();
}

Graph reduction(Op op, Axis axis) {
  return of_x([=](Val x) { return reduced(*x.builder, op, {x}, axis); });
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

}  // namespace

TEST_CASE("Philox 4x32-10: the published known answers") {
  using philox::Block;
  CHECK(philox::generate({0, 0, 0, 0}, {0, 0}) == Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t kOnes = 0xffffffff;
  CHECK(philox::generate({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
        Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox::generate({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform: by element index over the whole row") {
  GraphBuilder b("noise");
  Val u = b.apply1(Op::kUniform, {b.input("seed", DType::kI32, {1, 1}), b.input("offset", DType::kI32, {1, 1})});
  b.output("y", DType::kF32, u * b.input("x", DType::kF32, {"M", "N"}));
  Graph g = b.build_graph();
  Array ones(40, 1, 51, 1);
  auto draw = [&](double seed, double offset) {
    return interpret(g, {{"x", ones}, {"seed", array(1, 1, {seed})}, {"offset", array(1, 1, {offset})}}).at("y");
  };
  Array y = draw(-7, 3);
  double mean = 0;
  for (std::int64_t r = 0; r < 40; ++r)
    for (std::int64_t c = 0; c < 51; ++c) {
      auto e = static_cast<std::uint32_t>(r * 51 + c);
      auto word = philox::generate({e / 4, 0, 3, 0}, {static_cast<std::uint32_t>(-7), 0})[e % 4];
      CHECK(y.at(r, c) == static_cast<double>(word >> 8) / 16777216.0);
      mean += y.at(r, c) / (40 * 51);
    }
  CHECK(std::fabs(mean - 0.5) < 0.02);
  CHECK(draw(-7, 3).data == y.data);
  CHECK(draw(-7, 4).data != y.data);
  CHECK(draw(-6, 3).data != y.data);
}

TEST_CASE("reductions of nothing") {
  Arrays none = {{"x", Array(2, 1, 0)}};
  CHECK(interpret(reduction(Op::kReduceSum, Axis::kN), none).at("y0").data == std::vector<double>{0, 0});
  CHECK(interpret(reduction(Op::kReduceMax, Axis::kN), none).at("y0").data == std::vector<double>{-kInf, -kInf});
  Arrays best = interpret(reduction(Op::kArgmax, Axis::kN), none);
  CHECK(best.at("y0").data == std::vector<double>{-kInf, -kInf});
  CHECK(best.at("y1").data == std::vector<double>{-1, -1});
  CHECK(interpret(reduction(Op::kLogsumexp, Axis::kN), none).at("y1").data == std::vector<double>{-kInf, -kInf});
  CHECK(interpret(reduction(Op::kMoments, Axis::kN), none).at("y1").data == std::vector<double>{0, 0});
  CHECK(interpret(reduction(Op::kReduceSum, Axis::kM), none).at("y0").data.empty());
  Arrays no_rows = {{"x", Array(0, 1, 3)}};
  CHECK(interpret(reduction(Op::kReduceSum, Axis::kM), no_rows).at("y0").data == std::vector<double>{0, 0, 0});
  CHECK(interpret(reduction(Op::kReduceMax, Axis::kMN), no_rows).at("y0").data == std::vector<double>{-kInf});
}

TEST_CASE("argmax: the lowest index; the first NaN wins") {
  Arrays y = interpret(reduction(Op::kArgmax, Axis::kN),
                       {{"x", array(4, 3, {1, 5, 5, -kInf, -kInf, -kInf, 2, NAN, NAN, kInf, 1, kInf})}});
  CHECK(y.at("y1").data == std::vector<double>{1, 0, 1, 0});
  CHECK(y.at("y0").at(0, 0) == 5);
  CHECK(std::isnan(y.at("y0").at(2, 0)));
  y = interpret(reduction(Op::kArgmax, Axis::kM), {{"x", array(3, 2, {1, 7, 4, 7, 4, 3})}});
  CHECK(y.at("y1").data == std::vector<double>{1, 0});
}

TEST_CASE("logsumexp: masked rows, large equal logits, payloads") {
  Graph g = reduction(Op::kLogsumexp, Axis::kN);
  Arrays y = interpret(g, {{"x", array(3, 2, {-kInf, -kInf, 3, -kInf, 0, 0})}});
  CHECK(y.at("y0").data == std::vector<double>{-kInf, 3, 0});
  CHECK(y.at("y1").data == std::vector<double>{-kInf, 0, std::log(2.0)});
  // 2^26 everywhere: one fp32 number for the whole would lose ln V.
  Array large(1, 1, 128256, 67108864.0);
  y = interpret(g, {{"x", large}}, {}, rounding(Rounding::kStores));
  CHECK(y.at("y0").at(0, 0) == 67108864.0);
  CHECK(std::fabs(y.at("y1").at(0, 0) - 11.76178) < 1e-5);
  // An entry without probability takes no part, not even with an infinite payload.
  GraphBuilder b("payload");
  std::vector<Val> p = reduced(
      b, Op::kLogsumexp, {b.input("z", DType::kF32, {"M", "N"}), b.input("w", DType::kF32, {"M", "N"})}, Axis::kN);
  b.output("p", DType::kF32, p[2]);
  Arrays e = interpret(b.build_graph(), {{"z", array(2, 3, {0, -kInf, 0, -kInf, -kInf, -kInf})},
                                         {"w", array(2, 3, {1, kInf, 3, 1, 2, 3})}});
  CHECK(e.at("p").data == std::vector<double>{2, 0});
}

TEST_CASE("moments in two passes keep a small variance beside a large mean") {
  Arrays y = interpret(reduction(Op::kMoments, Axis::kN), {{"x", array(1, 4, {1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3})}});
  CHECK(y.at("y0").at(0, 0) == 1e9 + 1.5);
  CHECK(y.at("y1").at(0, 0) == 5.0);
}

TEST_CASE("reductions of groups, by hand") {
  GraphBuilder b("groups");
  Val x = b.input("x", DType::kF32, {"M", "H", "hd"});
  for (Axis axis : {Axis::kC, Axis::kG, Axis::kN, Axis::kM, Axis::kMN})
    b.output("s_" + std::string(suffix(axis)), DType::kF32, sum(axis, x));
  Array a(2, 2, 3);
  for (std::size_t i = 0; i < 12; ++i) a.data[i] = static_cast<double>(i + 1);
  Arrays y = interpret(b.build_graph(), {{"x", a}});
  CHECK(y.at("s_c").data == std::vector<double>{6, 15, 24, 33});
  CHECK(y.at("s_g").data == std::vector<double>{5, 7, 9, 17, 19, 21});
  CHECK(y.at("s_n").data == std::vector<double>{21, 57});
  CHECK(y.at("s_m").data == std::vector<double>{8, 10, 12, 14, 16, 18});
  CHECK(y.at("s_mn").data == std::vector<double>{78});
}

TEST_CASE("shape operations act inside groups") {
  GraphBuilder b("shapes");
  Val x = b.input("x", DType::kF32, {"M", "H", "hd"});
  std::vector<Val> ab = pairs(x), h = halves(x), s = split(x, {1, Dim::symbol("hd") - Dim(1)});
  b.output("even", DType::kF32, ab[0]);
  b.output("high", DType::kF32, h[1]);
  b.output("tail", DType::kF32, s[1]);
  b.output("swapped", DType::kF32, flat(interleave(ab[1], ab[0])));
  b.output("joined", DType::kF32, concat({h[1], h[0]}));
  b.output("again", DType::kF32, group(flat(x), "hd"));
  b.output("col", DType::kF32, cast(b.apply1(Op::kCol, {}), DType::kF32) + x * 0.0);
  Array a(1, 2, 4);
  for (std::size_t i = 0; i < 8; ++i) a.data[i] = static_cast<double>(i);
  Arrays y = interpret(b.build_graph(), {{"x", a}});
  CHECK(y.at("even").data == std::vector<double>{0, 2, 4, 6});
  CHECK(y.at("high").data == std::vector<double>{2, 3, 6, 7});
  CHECK(y.at("tail").data == std::vector<double>{1, 2, 3, 5, 6, 7});
  CHECK(y.at("swapped").data == std::vector<double>{1, 0, 3, 2, 5, 4, 7, 6});
  CHECK(y.at("swapped").groups == 1);
  CHECK(y.at("joined").data == std::vector<double>{2, 3, 0, 1, 6, 7, 4, 5});
  CHECK(y.at("again").data == a.data);
  CHECK(y.at("col").data == std::vector<double>{0, 1, 2, 3, 0, 1, 2, 3});
}

TEST_CASE("cis reduces the exact product") {
  GraphBuilder b("table");
  std::vector<Val> cs =
      b.apply(Op::kCis, {b.input("pos", DType::kI32, {"M", 1}), b.input("freq", DType::kF32, {1, "N"})});
  b.output("c", DType::kF32, cs[0]);
  b.output("s", DType::kF32, cs[1]);
  double freq = static_cast<double>(0.7548777f), pos = 2147483647;
  Arrays y = interpret(b.build_graph(), {{"pos", array(1, 1, {pos})}, {"freq", array(1, 1, {freq})}});
  long double angle = static_cast<long double>(pos) * static_cast<long double>(freq);  // 64 bits hold it
  CHECK(std::fabs(y.at("c").at(0, 0) - static_cast<double>(std::cos(angle))) < 1e-15);
  CHECK(std::fabs(y.at("s").at(0, 0) - static_cast<double>(std::sin(angle))) < 1e-15);
}

TEST_CASE("gather, scatter_sum, and an index out of range") {
  GraphBuilder b("tables");
  Val index = b.input("index", DType::kI32, {"M", 1});
  Val rows = gather(b.input("table", DType::kF32, {"S", "N"}), index);
  b.output("rows", DType::kF32, rows);
  Attrs a;
  a.dims = {Dim::symbol("S")};
  b.output("sums", DType::kF32, b.apply1(Op::kScatterSum, {rows, index}, a));
  Graph g = b.build_graph();
  Array table = array(3, 2, {1, 2, 3, 4, 5, 6});
  Arrays y = interpret(g, {{"table", table}, {"index", array(3, 1, {2, 0, 2})}});
  CHECK(y.at("rows").data == std::vector<double>{5, 6, 1, 2, 5, 6});
  CHECK(y.at("sums").data == std::vector<double>{1, 2, 0, 0, 10, 12});
  for (double bad : {3.0, -1.0}) {
    std::string text = message([&] { interpret(g, {{"table", table}, {"index", array(2, 1, {0, bad})}}); });
    CHECK(contains(text, "index"));
    CHECK(contains(text, "in row 1"));
    CHECK(contains(text, "0 to 2"));
    CHECK(contains(text, "table"));
  }
}

TEST_CASE("attention: GQA, batches and causality against softmax written out") {
  const std::int64_t batch = 2, positions = 3, heads = 4, kv_heads = 2, dim = 2;
  GraphBuilder b("attention");
  Attrs a;
  a.dims = {Dim(batch), Dim(heads), Dim(kv_heads)};
  std::vector<Val> r = b.apply(
      Op::kAttention,
      {b.input("q", DType::kF32, {"T", 8}), b.input("k", DType::kF32, {"T", 4}), b.input("v", DType::kF32, {"T", 4})},
      a);
  b.output("o", DType::kF32, r[0]);
  b.output("lse", DType::kF32, r[1]);
  Graph g = b.build_graph();
  Arrays x = test::random_inputs(g, {{"T", batch * positions}}, 3);
  Arrays y = interpret(g, x);
  double worst = 0;
  for (std::int64_t row = 0; row < batch * positions; ++row)
    for (std::int64_t h = 0; h < heads; ++h) {
      std::int64_t first = row / positions * positions;
      double total = 0, o[dim] = {};
      for (std::int64_t j = first; j <= row; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < dim; ++d) score += x["q"].at(row, h * dim + d) * x["k"].at(j, h / 2 * dim + d);
        double e = std::exp(score / std::sqrt(2.0));
        total += e;
        for (std::int64_t d = 0; d < dim; ++d) o[d] += e * x["v"].at(j, h / 2 * dim + d);
      }
      for (std::int64_t d = 0; d < dim; ++d)
        worst = std::max(worst, std::fabs(y["o"].at(row, h * dim + d) - o[d] / total));
      worst = std::max(worst, std::fabs(y["lse"].at(row, h) - std::log(total)));
    }
  CHECK(worst < 1e-14);
  Arrays odd = test::random_inputs(g, {{"T", 5}}, 3);
  CHECK(contains(message([&] { interpret(g, odd); }), "5 rows for a batch of 2"));
}

TEST_CASE("kStores: exact until the store, which rounds once") {
  GraphBuilder b("stores");
  Val x = b.input("x", DType::kBF16, {"M", "N"}), w = b.input("w", DType::kBF16, {"K", "N"});
  Val y = matmul(x, w);
  b.output("y", DType::kBF16, y);
  b.output("h", DType::kF16, y);
  b.output("total", DType::kF32, sum(Axis::kMN, y));
  b.output("sum", DType::kF32, y, true);
  Graph g = b.build_graph();
  // 1 + 2^-8 + 2^-20 is above the middle of two bf16; through fp32 or fp16 first it would be the middle, and fall.
  Arrays in = {{"x", array(1, 3, {1, 0x1p-4, 0x1p-10})},
               {"w", array(1, 3, {1, 0x1p-4, 0x1p-10})},
               {"sum", array(1, 1, {0x1p-30})}};
  Arrays exact = interpret(g, in), stored = interpret(g, in, {}, rounding(Rounding::kStores));
  double value = 1 + 0x1p-8 + 0x1p-20;
  CHECK(exact.at("y").at(0, 0) == value);
  CHECK(exact.at("sum").at(0, 0) == value + 0x1p-30);
  CHECK(stored.at("y").at(0, 0) == 1 + 0x1p-7);
  CHECK(stored.at("h").at(0, 0) == 1 + 0x1p-8);
  CHECK(stored.at("total").at(0, 0) == value);  // reads the unrounded value
  CHECK(stored.at("sum").at(0, 0) == value);
  in["x"].at(0, 0) = 1 + 0x1p-9;  // no bf16 number: memory holds 1
  CHECK(interpret(g, in, {}, rounding(Rounding::kStores)).at("total").at(0, 0) == value);
  // The old contents are fp32 numbers too: 2^-24 makes a tie with 1, a little more would not.
  in["x"] = array(1, 3, {1, 0, 0});
  in["sum"].at(0, 0) = 0x1p-24 + 0x1p-50;
  CHECK(interpret(g, in, {}, rounding(Rounding::kStores)).at("sum").at(0, 0) == 1);
}

TEST_CASE("casts and literals round except under kExact") {
  Graph g = of_x([](Val x) {
    return std::vector<Val>{cast(x, DType::kBF16) * x.builder->literal(0.1), cast(x, DType::kI32)};
  });
  Arrays in = {{"x", array(1, 2, {1 + 0x1p-9, -1.75})}};
  CHECK(interpret(g, in).at("y0").at(0, 0) == (1 + 0x1p-9) * 0.1);
  CHECK(interpret(g, in, {}, rounding(Rounding::kStores)).at("y0").at(0, 0) == static_cast<double>(0.1f));
  CHECK(interpret(g, in).at("y1").data == std::vector<double>{1, -1});
  CHECK(contains(message([&] { interpret(g, {{"x", array(1, 1, {NAN})}}); }), "cast to i32"));
  CHECK(contains(message([&] { interpret(g, {{"x", array(1, 1, {2147483648.0})}}); }), "32 bits"));
}

TEST_CASE("kEager: tiles in low precision, narrower values and sums in fp32") {
  GraphBuilder b("eager");
  Val x = b.input("x", DType::kBF16, {"M", "N"});
  Val third = x / 3.0;
  b.output("tile", DType::kF32, third);
  b.output("row", DType::kF32, sum(Axis::kN, third));
  Graph g = b.build_graph();
  Arrays in = {{"x", Array(2, 1, 3, 1.0)}};
  Arrays bf16 = interpret(g, in, {}, rounding(Rounding::kEager)),
         f32 = interpret(g, in, {}, rounding(Rounding::kEager, DType::kF32));
  double third16 = 0.333984375;
  CHECK(bf16.at("tile").at(0, 0) == third16);
  CHECK(bf16.at("row").at(0, 0) == 3 * third16);  // 1.001953125 is no bf16 number
  CHECK(f32.at("tile").at(0, 0) == static_cast<double>(1.0f / 3.0f));
  // Sums run one after another in fp32: 2^24 + 1 + 1 stays 2^24.
  Graph s = reduction(Op::kReduceSum, Axis::kN);
  Arrays large = {{"x", array(1, 3, {16777216, 1, 1})}};
  CHECK(interpret(s, large, {}, rounding(Rounding::kEager, DType::kF32)).at("y0").at(0, 0) == 16777216);
  CHECK(interpret(s, large).at("y0").at(0, 0) == 16777218);
  GraphBuilder p("product");
  p.output("y", DType::kF32, matmul(p.input("a", DType::kF32, {"M", "K"}), p.input("b", DType::kF32, {"N", "K"})));
  Graph product = p.build_graph();
  Arrays ab = {{"a", array(1, 3, {16777216, 1, 1})}, {"b", array(1, 3, {1, 1, 1})}};
  CHECK(interpret(product, ab, {}, rounding(Rounding::kEager, DType::kF32)).at("y").at(0, 0) == 16777216);
  CHECK(interpret(product, ab).at("y").at(0, 0) == 16777218);
}

TEST_CASE("C13: logits are not rounded before the log-sum-exp") {
  GraphBuilder b("linear_cross_entropy");
  Val z = matmul(b.input("x", DType::kBF16, {"M", "K"}), b.input("w", DType::kBF16, {"V", "K"}));
  b.output(
      "loss", DType::kF32,
      b.apply1(Op::kCrossEntropy, {z, b.input("t", DType::kI32, {"M", 1}), b.launch_const("ignore", DType::kI32)}));
  Graph g = b.build_graph();
  Array x(1, 1, 8), w(8, 1, 8);
  x.at(0, 0) = x.at(0, 1) = 1;
  w.at(0, 0) = 10;
  w.at(0, 1) = 0.03125;
  Arrays in = {{"x", x}, {"w", w}, {"t", array(1, 1, {1})}, {"ignore", array(1, 1, {-100})}};
  CHECK(std::fabs(interpret(g, in, {}, rounding(Rounding::kStores)).at("loss").at(0, 0) - 10.031558) < 1e-5);
  CHECK(std::fabs(interpret(g, in, {}, rounding(Rounding::kEager)).at("loss").at(0, 0) - 10.000318) < 1e-5);
  in["t"].at(0, 0) = -100;
  CHECK(interpret(g, in).at("loss").at(0, 0) == 0);
  in["t"].at(0, 0) = 8;
  std::string text = message([&] { interpret(g, in); });
  CHECK(contains(text, "t: class 8 in row 0"));
  CHECK(contains(text, "0 to 7, or ignore_index -100"));
}

TEST_CASE("C30: one rounding at the end, unlike eager bf16") {
  GraphBuilder b("residual");
  Val acc = matmul(b.input("x", DType::kBF16, {"M", "K"}), b.input("w", DType::kBF16, {"N", "K"}));
  b.output("y", DType::kBF16, acc + b.input("x0", DType::kBF16, {"M", "N"}));
  Graph g = b.build_graph();
  Arrays in = {{"x", array(1, 2, {1, 0x1p-9})}, {"w", array(1, 2, {1, 1})}, {"x0", array(1, 1, {-1})}};
  CHECK(interpret(g, in, {}, rounding(Rounding::kStores)).at("y").at(0, 0) == 0.001953125);
  CHECK(interpret(g, in, {}, rounding(Rounding::kEager)).at("y").at(0, 0) == 0);
}

TEST_CASE("C22: activations and their derivatives far out") {
  const std::vector<double> points = {1, 11, 40, -13.25, -40, 100, -100, 9984, -9984, kInf, -kInf};
  Arrays in = {{"x", array(1, static_cast<std::int64_t>(points.size()), points)},
               {"d_y0", Array(1, 1, static_cast<std::int64_t>(points.size()), 1)}};
  auto check = [&](Op op, double at_one, double slope_at_one) {
    INFO(row(op).name);
    Graph g = of_x([=](Val x) {
      // The gated forms with up = 1.
      return std::vector{row(op).operands == 2 ? binary(op, x, x.builder->literal(1)) : unary(op, x)};
    });
    Array y = interpret(g, {{"x", in["x"]}}).at("y0"), d = interpret(gradient(g, {"x"}), in).at("d_x");
    CHECK(std::fabs(y.at(0, 0) - at_one) < 1e-6);
    CHECK(std::fabs(d.at(0, 0) - slope_at_one) < 1e-6);
    for (std::size_t i = 1; i < points.size(); ++i) {
      INFO("at ", points[i]);
      double limit = points[i] > 0 ? points[i] : 0;
      CHECK((y.data[i] == limit || std::fabs(y.data[i] - limit) < 4e-4));  // silu(11) = 11 − 1.8e-4
      CHECK(std::fabs(d.data[i] - (points[i] > 0)) < 4e-4);
    }
  };
  check(Op::kGelu, 0.841345, 1.083315);
  check(Op::kGeluTanh, 0.841192, 1.082964);
  check(Op::kSilu, 0.731059, 0.927671);
  check(Op::kSwiglu, 0.731059, 0.927671);
  check(Op::kGeglu, 0.841345, 1.083315);
  check(Op::kGegluTanh, 0.841192, 1.082964);
  check(Op::kRelu, 1, 1);
  check(Op::kReglu, 1, 1);
}

TEST_CASE("C23: rotary embedding of every head, both pairings, partial") {
  struct {
    Op op;
    std::int64_t rotary;
    std::vector<double> turned;
  } cases[] = {{Op::kRope, 8, {-5, -6, -7, -8, 1, 2, 3, 4}},
               {Op::kRopePairs, 8, {-2, 1, -4, 3, -6, 5, -8, 7}},
               {Op::kRope, 4, {-3, -4, 1, 2, 5, 6, 7, 8}}};
  for (const auto& c : cases) {
    GraphBuilder b("rope");
    Val cos = b.input("cos", DType::kF32, {"M", static_cast<int>(c.rotary / 2)}),
        sin = b.input("sin", DType::kF32, {"M", static_cast<int>(c.rotary / 2)});
    b.output("q", DType::kBF16, b.apply1(c.op, {b.input("zq", DType::kBF16, {"M", 2, 8}), cos, sin}));
    b.output("k", DType::kBF16, b.apply1(c.op, {b.input("zk", DType::kBF16, {"M", 1, 8}), cos, sin}));
    Graph g = b.build_graph();
    Array q(2, 2, 8), k(2, 1, 8), cos_table(2, 1, c.rotary / 2), sin_table(2, 1, c.rotary / 2);
    for (std::size_t i = 0; i < q.data.size(); ++i) q.data[i] = static_cast<double>(i % 8 + 1);
    for (std::size_t i = 0; i < k.data.size(); ++i) k.data[i] = static_cast<double>(i % 8 + 1);
    for (std::int64_t j = 0; j < c.rotary / 2; ++j) cos_table.at(0, j) = sin_table.at(1, j) = 1;
    Arrays in = {{"zq", q}, {"zk", k}, {"cos", cos_table}, {"sin", sin_table}};
    Arrays y = interpret(g, in, {}, rounding(Rounding::kStores));
    auto head = [](const Array& a, std::int64_t r, std::int64_t h) {
      return std::vector<double>(a.data.begin() + r * a.width() + h * 8, a.data.begin() + r * a.width() + h * 8 + 8);
    };
    const std::vector<double> kept = {1, 2, 3, 4, 5, 6, 7, 8};
    for (std::int64_t h : {0, 1}) {
      CHECK(head(y["q"], 0, h) == kept);
      CHECK(head(y["q"], 1, h) == c.turned);
    }
    CHECK(head(y["k"], 0, 0) == kept);
    CHECK(head(y["k"], 1, 0) == c.turned);
    // Backward of the rotated vector turns it back.
    Arrays back = in;
    back["d_q"] = y["q"];
    back["d_k"] = y["k"];
    Arrays d = interpret(gradient(g, {"zq", "zk"}), back);
    CHECK(d.at("d_zq").data == q.data);
    CHECK(d.at("d_zk").data == k.data);
  }
}

TEST_CASE("norms, written out") {
  GraphBuilder b("norms");
  Val x = b.input("x", DType::kF32, {"M", 2, "hd"}), eps = b.launch_const("eps", DType::kF32);
  Val gamma = b.input("gamma", DType::kF32, {1, "hd"}), beta = b.input("beta", DType::kF32, {1, "hd"});
  b.output("qk", DType::kF32, b.apply1(Op::kQkNorm, {x, gamma, eps}));
  b.output("rms", DType::kF32, b.apply1(Op::kRmsnorm, {x, gamma, eps}));
  b.output("layer", DType::kF32, b.apply1(Op::kLayernorm, {x, gamma, beta, eps}));
  Array a(1, 2, 2);
  a.data = {3, 5, 1, 7};
  Arrays y = interpret(
      b.build_graph(),
      {{"x", a}, {"gamma", array(1, 2, {2, 10})}, {"beta", array(1, 2, {0.5, -1})}, {"eps", array(1, 1, {4})}});
  // Squares: 34 and 50 in the groups, 84 in the row; mean 4, squared distances 20.
  for (std::size_t i = 0; i < 4; ++i) {
    double g = i % 2 == 0 ? 2 : 10, shift = i % 2 == 0 ? 0.5 : -1;
    CHECK(y.at("qk").data[i] == doctest::Approx(a.data[i] * g / std::sqrt((i < 2 ? 34 : 50) / 2.0 + 4)).epsilon(1e-14));
    CHECK(y.at("rms").data[i] == doctest::Approx(a.data[i] * g / std::sqrt(84 / 4.0 + 4)).epsilon(1e-14));
    CHECK(y.at("layer").data[i] ==
          doctest::Approx((a.data[i] - 4) * g / std::sqrt(20 / 4.0 + 4) + shift).epsilon(1e-14));
  }
}

TEST_CASE("composites are their expansion, in every rounding") {
  GraphBuilder b("block");
  Val x = b.input("x", DType::kBF16, {"M", "N"}), eps = b.launch_const("eps", DType::kF32);
  Val gamma = b.input("gamma", DType::kBF16, {1, "N"}), beta = b.input("beta", DType::kBF16, {1, "N"});
  b.output("rms", DType::kBF16, b.apply1(Op::kRmsnorm, {x, gamma, eps}));
  b.output("layer", DType::kBF16, b.apply1(Op::kLayernorm, {x, gamma, beta, eps}));
  b.output("glu", DType::kBF16, binary(Op::kSwiglu, x, x * gamma));
  Graph g = b.build_graph(), expanded = expand_composites(g);
  Arrays in = test::random_inputs(g, {{"M", 3}, {"N", 6}}, 9, {{"eps", {0.01, 0.02}}});
  for (Rounding r : {Rounding::kExact, Rounding::kStores, Rounding::kEager})
    CHECK(test::largest_difference(interpret(g, in, {}, rounding(r)), interpret(expanded, in, {}, rounding(r))) == 0);
  CHECK(test::largest_difference(interpret(g, in, {}, rounding(Rounding::kStores)),
                                 interpret(g, in, {}, rounding(Rounding::kEager))) > 0);
  CHECK(interpret_values(g, in).size() == g.values().size());
}

TEST_CASE("NaN reaches only the rows that depend on it; min and max keep it") {
  Graph g = of_x([](Val x) {
    return std::vector{x * sum(Axis::kN, x), binary(Op::kMax, x, x.builder->literal(0)),
                       binary(Op::kMin, x.builder->literal(0), x)};
  });
  Arrays y = interpret(g, {{"x", array(2, 2, {NAN, 1, 2, 3})}});
  CHECK(std::isnan(y.at("y0").at(0, 1)));
  CHECK(y.at("y0").at(1, 1) == 15);
  CHECK(std::isnan(y.at("y1").at(0, 0)));
  CHECK(std::isnan(y.at("y2").at(0, 0)));
}

TEST_CASE("empty graphs of tensors: no rows, no depth") {
  GraphBuilder b("empty");
  b.output("y", DType::kF32,
           matmul(b.input("x", DType::kF32, {"M", "K"}), b.input("w", DType::kF32, {"N", "K"})) + 1.0);
  Graph g = b.build_graph();
  CHECK(interpret(g, {{"x", Array(2, 1, 0)}, {"w", Array(2, 1, 0)}}).at("y").data == std::vector<double>{1, 1, 1, 1});
  CHECK(interpret(g, {{"x", Array(0, 1, 3)}, {"w", Array(2, 1, 3)}}).at("y").data.empty());
}

TEST_CASE("what the interpreter refuses") {
  GraphBuilder b("refusals");
  Val x = b.input("x", DType::kF32, {"M", "N"}), i = b.input("i", DType::kI32, {"M", 1});
  b.output("y", DType::kF32, x * b.launch_const("scale", DType::kF32), true);
  b.output("j", DType::kI32, i * i);
  Graph g = b.build_graph();
  const Arrays good = {
      {"x", Array(2, 1, 3, 1)}, {"i", Array(2, 1, 1, 3)}, {"scale", array(1, 1, {2})}, {"y", Array(2, 1, 3, 5)}};
  CHECK(interpret(g, good).at("y").data == std::vector<double>(6, 7));
  CHECK(interpret(g, good).at("j").data == std::vector<double>(2, 9));
  auto with = [&](const std::string& name, Array a) {
    Arrays in = good;
    in[name] = std::move(a);
    return message([&] { interpret(g, in); });
  };
  auto without = [&](const std::string& name) {
    Arrays in = good;
    in.erase(name);
    return message([&] { interpret(g, in); });
  };
  CHECK(contains(without("x"), "x: missing"));
  CHECK(contains(without("y"), "y: missing"));
  CHECK(contains(without("y"), "+="));
  CHECK(contains(with("z", Array(1, 1, 1)), "z: no input of refusals; allowed: x, i, scale, y"));
  CHECK(contains(with("i", Array(3, 1, 1)), "size 3 for M; allowed: 2"));
  CHECK(contains(with("x", Array(2, 2, 3)), "x: "));
  CHECK(contains(with("scale", Array(1, 1, 2)), "scale: [1,2]; allowed: one number"));
  CHECK(contains(with("i", array(2, 1, {0, 0.5})), "i: 0.5 in row 1; allowed: integers"));
  CHECK(contains(with("i", array(2, 1, {NAN, 0})), "in row 0"));
  CHECK(contains(with("y", Array(3, 1, 2)), "y: [3,2]; allowed: [2,3]"));
  CHECK(contains(with("i", Array(2, 1, 1, 65536)), "mul: 4294967296 in i32 arithmetic"));
  Array broken(2, 1, 3);
  broken.data.pop_back();
  CHECK(contains(with("x", broken), "5 elements for [2,3]"));
  InterpretOptions options;
  options.eager_dtype = DType::kI32;
  CHECK(contains(message([&] { interpret(g, good, {}, options); }), "eager_dtype"));
  CHECK(contains(message([&] { interpret(g, good, {{"M", 4}}); }), "M"));
}
