// Every row of the op table: its type rule against the shape of what it evaluates to, its derivative against central
// differences in fp64, on plain and grouped shapes and with broadcasting along each axis. A row that has no case here,
// or neither a derivative nor a place in the list of constants, fails.
#include <doctest/doctest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "coda/builder.h"
#include "coda/grad.h"
#include "coda/interpret.h"
#include "graph_check.h"

using namespace coda;

namespace {

const Sizes kSizes = {{"M", 3}, {"N", 4}, {"K", 5}, {"H", 2}, {"hd", 4}, {"S", 3}, {"V", 5}};

using Shape = std::vector<DimArg>;
const Shape kTile = {"M", "N"}, kGrouped = {"M", "H", "hd"}, kRowVector = {"M", 1}, kColVector = {1, "N"},
            kScalar = {1, 1};

// Operations that are constant in every operand, or end every chain of derivatives (attention_grad).
const std::set<Op> kWithoutDerivative = {Op::kInput, Op::kLiteral, Op::kSize, Op::kRow,          Op::kCol, Op::kUniform,
                                         Op::kNot,   Op::kEq,      Op::kNe,   Op::kLt,           Op::kLe,  Op::kGt,
                                         Op::kGe,    Op::kAnd,     Op::kOr,   Op::kAttentionGrad};

struct Case {
  Op op;
  std::function<std::vector<Val>(GraphBuilder&)> build;
  test::Ranges ranges = {};
};

struct Seen {
  std::set<Op> evaluated, differentiated;
};

Val in(GraphBuilder& b, const std::string& name, const Shape& dims, DType t = DType::kF32) {
  return b.input(name, t, dims);
}

void run_case(const Case& c, Seen& seen) {
  GraphBuilder b("a_" + std::string(row(c.op).name));
  std::vector<Val> outputs = c.build(b);
  int n = 0;
  for (Val v : outputs) {
    if (v.type().elem == Elem::kBool) v = where(v, b.literal(1), b.literal(0));
    bool open = v.type().rows.str().starts_with("?") || v.type().cols.str().starts_with("?");
    DType dtype = v.type().elem == Elem::kI32 ? DType::kI32 : DType::kF32;
    std::string name = "y" + std::to_string(n++);
    if (open)
      b.output(name, dtype, {c.op == Op::kCol ? DimArg(1) : "M", c.op == Op::kRow ? DimArg(1) : "N"}, v);
    else
      b.output(name, dtype, v);
  }
  Graph g = b.build_graph();
  std::string types;
  for (const Input& i : g.inputs()) types += i.name + ": " + g.value(i.value).type.str() + " ";
  INFO(row(c.op).name, " of ", types);
  Arrays inputs = test::random_inputs(g, kSizes, 11, c.ranges);
  std::vector<Array> values = interpret_values(g, inputs, kSizes);
  for (std::size_t v = 0; v < values.size(); ++v) {
    const Type& t = g.value(static_cast<ValueId>(v)).type;
    CHECK(values[v].rows == t.rows.eval(kSizes));
    CHECK(values[v].groups == t.groups.eval(kSizes));
    CHECK(values[v].cols == t.cols.eval(kSizes));
    CHECK(static_cast<std::int64_t>(values[v].data.size()) == values[v].rows * values[v].width());
  }
  bool has_op = false, float_output = false;
  for (const Node& node : g.nodes()) has_op = has_op || node.op == c.op;
  CHECK(has_op);
  seen.evaluated.insert(c.op);
  for (const Output& o : g.outputs()) float_output = float_output || is_float(o.dtype);
  if (kWithoutDerivative.count(c.op) || !float_output || test::float_inputs(g).empty()) return;
  CHECK(test::gradient_error(g, kSizes, 23, c.ranges) < 2e-7);
  seen.differentiated.insert(c.op);
}

// --- the cases -------------------------------------------------------------------------------------------------------

std::vector<Case> sources() {
  return {
      {Op::kInput, [](GraphBuilder& b) { return std::vector{in(b, "a", kGrouped)}; }},
      {Op::kLiteral,
       [](GraphBuilder& b) {
         return std::vector{b.literal(0.5), b.integer(3)};
       }},
      {Op::kSize, [](GraphBuilder& b) { return std::vector{b.size(DimArg(Dim::symbol("M") * Dim(2)))}; }},
      {Op::kRow, [](GraphBuilder& b) { return std::vector{b.apply1(Op::kRow, {})}; }},
      {Op::kCol, [](GraphBuilder& b) { return std::vector{b.apply1(Op::kCol, {})}; }},
      {Op::kUniform,
       [](GraphBuilder& b) {
         return std::vector{
             b.apply1(Op::kUniform, {in(b, "seed", kScalar, DType::kI32), in(b, "offset", kScalar, DType::kI32)})};
       }},
      {Op::kCis,
       [](GraphBuilder& b) {
         return b.apply(Op::kCis, {in(b, "pos", kRowVector, DType::kI32), in(b, "freq", kColVector)});
       }},
      // one result alone, narrower gradients
      {Op::kCis,
       [](GraphBuilder& b) {
         return std::vector{
             sum(Axis::kMN, b.apply(Op::kCis, {in(b, "pos", kRowVector, DType::kI32), in(b, "freq", kColVector)})[1])};
       }},
      {Op::kGather,
       [](GraphBuilder& b) {
         return std::vector{gather(in(b, "table", {"S", "N"}), in(b, "index", kRowVector, DType::kI32))};
       }},
      {Op::kGather,
       [](GraphBuilder& b) {
         return std::vector{gather(in(b, "table", {"S", "H", "hd"}), in(b, "index", kRowVector, DType::kI32))};
       }},
      {Op::kScatterSum,
       [](GraphBuilder& b) {
         Attrs rows;
         rows.dims = {Dim::symbol("S")};
         return std::vector{
             b.apply1(Op::kScatterSum, {in(b, "g", kTile), in(b, "index", kRowVector, DType::kI32)}, rows)};
       }},
  };
}

std::vector<Case> products() {
  std::vector<Case> cases;
  for (int a_axis : {0, 1})
    for (int b_axis : {0, 1}) {
      Shape left = a_axis == 1 ? Shape{"M", "K"} : Shape{"K", "M"},
            right = b_axis == 1 ? Shape{"N", "K"} : Shape{"K", "N"};
      auto product = [=](GraphBuilder& b) { return matmul(in(b, "a", left), a_axis, in(b, "b", right), b_axis); };
      cases.push_back({Op::kMatmul, [=](GraphBuilder& b) { return std::vector{product(b)}; }});
      // the gradient of the product arrives as one column
      cases.push_back({Op::kMatmul, [=](GraphBuilder& b) { return std::vector{sum(Axis::kN, product(b))}; }});
    }
  for (const char* kv : {"H", "one"}) {
    auto attention = [=](GraphBuilder& b) {
      Attrs a;
      Dim heads = Dim::symbol("H"), kv_heads = std::string(kv) == "H" ? heads : Dim(1), head = Dim::symbol("hd");
      a.dims = {Dim(2), heads, kv_heads};
      Dim rows = Dim::symbol("M") * Dim(2);
      std::vector<Val> qkv = {in(b, "q", {rows, heads * head}), in(b, "k", {rows, kv_heads * head}),
                              in(b, "v", {rows, kv_heads * head})};
      return std::pair(qkv, a);
    };
    cases.push_back({Op::kAttention, [=](GraphBuilder& b) {
                       auto [qkv, a] = attention(b);
                       return std::vector{b.apply(Op::kAttention, qkv, a)[0]};
                     }});
    cases.push_back({Op::kAttentionGrad, [=](GraphBuilder& b) {
                       auto [qkv, a] = attention(b);
                       qkv.push_back(in(b, "d", {Dim::symbol("M") * Dim(2), Dim::symbol("H") * Dim::symbol("hd")}));
                       return b.apply(Op::kAttentionGrad, qkv, a);
                     }});
  }
  return cases;
}

std::vector<Case> unary_maps() {
  std::vector<Case> cases;
  for (Op op : {Op::kNeg, Op::kAbs, Op::kExp, Op::kLog, Op::kSqrt, Op::kRsqrt, Op::kTanh, Op::kErf, Op::kSigmoid,
                Op::kSilu, Op::kGelu, Op::kGeluTanh, Op::kRelu, Op::kSquare, Op::kCast}) {
    bool positive = op == Op::kLog || op == Op::kSqrt || op == Op::kRsqrt;
    test::Ranges ranges = {{"a", positive ? std::pair(0.3, 3.0) : std::pair(-4.0, 4.0)}};
    for (const Shape& shape : {kTile, kGrouped, kRowVector, kColVector, kScalar}) {
      auto map = [=](GraphBuilder& b) {
        return op == Op::kCast ? cast(in(b, "a", shape), DType::kBF16) : unary(op, in(b, "a", shape));
      };
      cases.push_back({op, [=](GraphBuilder& b) { return std::vector{map(b)}; }, ranges});
      cases.push_back({op, [=](GraphBuilder& b) { return std::vector{sum(Axis::kMN, map(b))}; }, ranges});
    }
  }
  cases.push_back({Op::kCast, [](GraphBuilder& b) { return std::vector{cast(in(b, "a", kTile), DType::kI32)}; }});
  cases.push_back({Op::kCast, [](GraphBuilder& b) {
                     return std::vector{cast(in(b, "i", kTile, DType::kI32), DType::kF32) * in(b, "a", kTile)};
                   }});
  cases.push_back({Op::kNot, [](GraphBuilder& b) {
                     return std::vector{unary(Op::kNot, binary(Op::kLt, in(b, "a", kTile), in(b, "b", kColVector)))};
                   }});
  return cases;
}

// Every way in which two operands can meet: equal, one of them broadcast along each axis, both along different ones.
const std::vector<std::pair<Shape, Shape>> kMeetings = {{kTile, kTile},
                                                        {kTile, kRowVector},
                                                        {kTile, kColVector},
                                                        {kTile, kScalar},
                                                        {kRowVector, kTile},
                                                        {kColVector, kTile},
                                                        {kScalar, kTile},
                                                        {kRowVector, kColVector},
                                                        {kGrouped, kGrouped},
                                                        {kGrouped, {"M", 1}},
                                                        {kGrouped, {1, 1, "hd"}},
                                                        {kGrouped, {"M", "H", 1}},
                                                        {kGrouped, {1, "H", 1}},
                                                        {kGrouped, {1, 1}},
                                                        {{"M", 1, "hd"}, kGrouped},
                                                        {{1, "H", "hd"}, kGrouped},
                                                        {{"M", "H", 1}, {1, 1, "hd"}},
                                                        {{"M", 1}, {1, "H", "hd"}}};

std::vector<Case> binary_maps() {
  std::vector<Case> cases;
  for (Op op : {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kMin, Op::kMax, Op::kEq, Op::kNe, Op::kLt, Op::kLe, Op::kGt,
                Op::kGe, Op::kSwiglu, Op::kGeglu, Op::kGegluTanh, Op::kReglu})
    for (const auto& [left, right] : kMeetings) {
      test::Ranges ranges;
      if (op == Op::kDiv) ranges["b"] = {0.5, 2};
      auto map = [op, l = left, r = right](GraphBuilder& b) { return binary(op, in(b, "a", l), in(b, "b", r)); };
      cases.push_back({op, [=](GraphBuilder& b) { return std::vector{map(b)}; }, ranges});
      if (row(op).grad == nullptr && !row(op).has(kCompositeTrait)) continue;
      // Gradients that arrive constant along rows, along columns, along groups, and everywhere.
      for (Axis axis : {Axis::kN, Axis::kM, Axis::kMN, Axis::kC, Axis::kG})
        cases.push_back({op, [=](GraphBuilder& b) { return std::vector{sum(axis, map(b))}; }, ranges});
    }
  for (Op op : {Op::kAnd, Op::kOr})
    cases.push_back({op, [=](GraphBuilder& b) {
                       Val a = in(b, "a", kTile), c = in(b, "c", kColVector);
                       return std::vector{binary(op, binary(Op::kLt, a, c), binary(Op::kGt, a, b.literal(0)))};
                     }});
  for (const auto& [left, right] : kMeetings)
    for (bool reduced : {false, true})
      cases.push_back({Op::kWhere, [l = left, r = right, reduced](GraphBuilder& b) {
                         Val a = in(b, "a", l), c = in(b, "b", r);
                         Val y = where(binary(Op::kLt, in(b, "c", kScalar), c), a, c);
                         return std::vector{reduced ? sum(Axis::kN, y) : y};
                       }});
  return cases;
}

std::vector<Case> shapes() {
  std::vector<Case> cases;
  for (const Shape& shape : {kTile, kGrouped}) {
    cases.push_back({Op::kPairs, [=](GraphBuilder& b) { return pairs(in(b, "a", shape)); }});
    cases.push_back({Op::kPairs, [=](GraphBuilder& b) { return std::vector{pairs(in(b, "a", shape))[1]}; }});
    cases.push_back({Op::kHalves, [=](GraphBuilder& b) { return halves(in(b, "a", shape)); }});
    cases.push_back(
        {Op::kHalves, [=](GraphBuilder& b) { return std::vector{sum(Axis::kN, halves(in(b, "a", shape))[0])}; }});
    cases.push_back({Op::kSplit, [=](GraphBuilder& b) {
                       Val a = in(b, "a", shape);
                       std::vector<Val> parts = split(a, {a.type().cols - Dim(3), 1, 2});
                       return std::vector{parts[0], parts[2]};
                     }});
    cases.push_back({Op::kFlat, [=](GraphBuilder& b) { return std::vector{flat(in(b, "a", shape))}; }});
    cases.push_back({Op::kConcat, [=](GraphBuilder& b) {
                       return std::vector{concat({in(b, "a", shape), in(b, "b", shape)})};
                     }});
    cases.push_back({Op::kConcat, [=](GraphBuilder& b) {
                       return std::vector{concat({in(b, "a", shape), in(b, "b", {1, 2})})};
                     }});
    cases.push_back(
        {Op::kConcat, [=](GraphBuilder& b) {
           return std::vector{sum(Axis::kM, concat({in(b, "b", {1, 2}), in(b, "c", {"M", 3}), in(b, "a", shape)}))};
         }});
  }
  cases.push_back(
      {Op::kInterleave, [](GraphBuilder& b) { return std::vector{interleave(in(b, "a", kTile), in(b, "b", kTile))}; }});
  cases.push_back({Op::kInterleave, [](GraphBuilder& b) {
                     return std::vector{interleave(in(b, "a", {1, "hd"}), in(b, "b", kGrouped))};
                   }});
  cases.push_back({Op::kGroup, [](GraphBuilder& b) {
                     return std::vector{group(in(b, "a", {"M", Dim::symbol("H") * Dim::symbol("hd")}), "hd")};
                   }});
  cases.push_back(
      {Op::kGroup, [](GraphBuilder& b) {
         return std::vector{sum(Axis::kC, group(in(b, "a", {"M", Dim::symbol("H") * Dim::symbol("hd")}), "hd"))};
       }});
  return cases;
}

std::vector<Case> reductions() {
  std::vector<Case> cases;
  auto with_axis = [](GraphBuilder& b, Op op, std::vector<Val> operands, Axis axis) {
    Attrs a;
    a.axis = axis;
    return b.apply(op, operands, a);
  };
  for (const Shape& shape : {kTile, kGrouped})
    for (Axis axis : {Axis::kC, Axis::kG, Axis::kN, Axis::kM, Axis::kMN}) {
      bool inside = axis == Axis::kC || axis == Axis::kG;
      for (Op op : {Op::kReduceSum, Op::kReduceMax, Op::kArgmax, Op::kLogsumexp, Op::kMoments}) {
        if ((inside && op != Op::kReduceSum && op != Op::kReduceMax) || (op == Op::kArgmax && axis == Axis::kMN))
          continue;
        auto reduced = [=](GraphBuilder& b) { return with_axis(b, op, {in(b, "a", shape)}, axis); };
        cases.push_back({op, reduced});
        cases.push_back({op, [=](GraphBuilder& b) { return std::vector{sum(Axis::kMN, reduced(b)[0])}; }});
        if (op == Op::kLogsumexp || op == Op::kMoments)
          cases.push_back({op, [=](GraphBuilder& b) { return std::vector{reduced(b)[1]}; }});
        if (op == Op::kLogsumexp)
          cases.push_back({op, [=](GraphBuilder& b) {
                             std::vector<Val> ml = reduced(b);
                             return std::vector{ml[0] + ml[1]};
                           }});
      }
      if (inside) continue;
      for (const Shape& payload : {shape, kScalar, kRowVector, Shape{1, shape.back()}})
        for (bool swapped : {false, true})
          cases.push_back({Op::kLogsumexp, [=](GraphBuilder& b) {
                             Val z = in(b, "z", swapped ? payload : shape), w = in(b, "w", swapped ? shape : payload);
                             return with_axis(b, Op::kLogsumexp, {z, w}, axis);
                           }});
    }
  return cases;
}

std::vector<Case> composites() {
  std::vector<Case> cases;
  test::Ranges eps = {{"eps", {0.1, 0.2}}};
  for (const Shape& shape : {kTile, kGrouped})
    for (bool reduced : {false, true}) {
      auto one = [reduced](Val v) { return std::vector{reduced ? sum(Axis::kN, v) : v}; };
      Shape vector = {1, shape.back()};
      cases.push_back(
          {Op::kRmsnorm,
           [=](GraphBuilder& b) {
             return one(b.apply1(Op::kRmsnorm, {in(b, "x", shape), in(b, "gamma", vector), in(b, "eps", kScalar)}));
           },
           eps});
      cases.push_back(
          {Op::kQkNorm,
           [=](GraphBuilder& b) {
             return one(b.apply1(Op::kQkNorm, {in(b, "x", shape), in(b, "gamma", vector), in(b, "eps", kScalar)}));
           },
           eps});
      cases.push_back({Op::kLayernorm,
                       [=](GraphBuilder& b) {
                         return one(b.apply1(Op::kLayernorm, {in(b, "x", shape), in(b, "gamma", vector),
                                                              in(b, "beta", vector), in(b, "eps", kScalar)}));
                       },
                       eps});
      for (Op op : {Op::kRope, Op::kRopePairs})
        for (const Shape& table : {Shape{"M", 2}, Shape{"M", 1}, Shape{1, 2}})
          cases.push_back({op, [=](GraphBuilder& b) {
                             return one(b.apply1(op, {in(b, "z", shape), in(b, "cos", table), in(b, "sin", table)}));
                           }});
    }
  cases.push_back({Op::kCrossEntropy,
                   [](GraphBuilder& b) {
                     return std::vector{
                         b.apply1(Op::kCrossEntropy, {in(b, "z", {"M", "V"}), in(b, "target", kRowVector, DType::kI32),
                                                      in(b, "ignore", kScalar, DType::kI32)})};
                   },
                   {{"ignore", {2, 2}}}});
  cases.push_back(
      {Op::kCrossEntropy, [](GraphBuilder& b) {
         return std::vector{sum(
             Axis::kM, b.apply1(Op::kCrossEntropy,
                                {in(b, "z", {1, "V"}), in(b, "target", kRowVector, DType::kI32), b.integer(-100)}))};
       }});
  return cases;
}

}  // namespace

TEST_CASE("every row of the table: type rule, evaluation and derivative") {
  Seen seen;
  for (const auto& cases : {sources(), products(), unary_maps(), binary_maps(), shapes(), reductions(), composites()})
    for (const Case& c : cases) run_case(c, seen);
  for (int i = 0; i <= static_cast<int>(Op::kScatterSum); ++i) {
    Op op = static_cast<Op>(i);
    INFO("row ", row(op).name);
    CHECK_MESSAGE(seen.evaluated.count(op) == 1, "no case evaluates it");
    bool constant = kWithoutDerivative.count(op) == 1;
    bool derivative = row(op).grad != nullptr || row(op).has(kCompositeTrait);
    CHECK_MESSAGE(constant != derivative, "either a derivative row or a place in the list of constants");
    CHECK_MESSAGE(seen.differentiated.count(op) == (constant ? 0u : 1u), "its derivative meets central differences");
    bool defined = row(op).map != nullptr || row(op).eval != nullptr || row(op).expand != nullptr || op == Op::kInput;
    CHECK_MESSAGE(defined, "a definition");
    bool typed = row(op).type_rule != nullptr || op == Op::kInput;
    CHECK_MESSAGE(typed, "a type rule");
  }
}

TEST_CASE("a composite's own derivative row agrees with reverse mode of its expansion") {
  int compared = 0;
  std::vector<Case> cases = composites(), maps = binary_maps();
  cases.insert(cases.end(), maps.begin(), maps.end());
  for (const Case& c : cases) {
    if (!row(c.op).has(kCompositeTrait) || row(c.op).grad == nullptr) continue;
    GraphBuilder b("composite");
    b.output("y", DType::kF32, c.build(b)[0]);
    Graph g = b.build_graph();
    Graph own = gradient(g, test::float_inputs(g)), expanded = gradient(expand_composites(g), test::float_inputs(g));
    INFO(row(c.op).name);
    CHECK(own.hash() != expanded.hash());  // not the same thing twice
    test::Ranges ranges = c.ranges;
    Arrays inputs = test::random_inputs(own, kSizes, 5, ranges);
    CHECK(test::largest_difference(interpret(own, inputs, kSizes), interpret(expanded, inputs, kSizes)) < 1e-11);
    ++compared;
  }
  CHECK(compared > 20);
}

TEST_CASE("adjoint and inverse of a row name rows that name it back or themselves") {
  for (int i = 0; i <= static_cast<int>(Op::kScatterSum); ++i) {
    const OpRow& r = row(static_cast<Op>(i));
    INFO(r.name);
    CHECK(find_op(r.has(kReduceTrait) ? std::string(r.name) + "_n" : std::string(r.name)) == &r);
    if (r.adjoint) CHECK(r.has(kRowLinearTrait));
    if (r.inverse) CHECK(row(*r.inverse).inverse.has_value());
  }
}
