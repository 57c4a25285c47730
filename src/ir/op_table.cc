// The op table itself. Maps carry their fp64 definition here; everything else names its function in eval.h
// (definition), grad_rows.h (derivative) or composites.h (expansion).
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "coda/error.h"
#include "coda/op.h"
#include "ir/composites.h"
#include "ir/eval.h"
#include "ir/grad_rows.h"
#include "ir/type_rules.h"

namespace coda {
namespace {

using X = const double*;
constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kSqrtHalf = 0.70710678118654752440;

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
// min and max as IEEE 754-2019 minimum/maximum: NaN wins, so that it reaches what depends on it.
double minimum(double a, double b) { return std::isnan(a) || std::isnan(b) ? a + b : std::min(a, b); }
double maximum(double a, double b) { return std::isnan(a) || std::isnan(b) ? a + b : std::max(a, b); }
// x·Φ(x) and its tanh form; the products with 0 at ±∞ are taken as limits.
double gelu(double x) { return x == -INFINITY ? 0 : 0.5 * x * std::erfc(-x * kSqrtHalf); }
double gelu_tanh(double x) {
  return x == -INFINITY ? 0 : 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
}
double silu(double x) { return x == -INFINITY ? 0 : x * sigmoid(x); }

constexpr unsigned kMapLinear = kMapTrait | kRowLinearTrait;
constexpr unsigned kCommutes = kMapTrait | kCommutativeTrait;
constexpr unsigned kShapeLinear = kShapeTrait | kRowLinearTrait;

// A row a line.
// clang-format off
const OpRow kRows[] = {
    // sources of values
    {.op = Op::kInput, .name = "input", .operands = 0},
    {.op = Op::kLiteral, .name = "literal", .operands = 0, .type_rule = rules::literal, .eval = eval::literal},
    {.op = Op::kSize, .name = "size", .operands = 0, .type_rule = rules::size_value, .eval = eval::size_value},
    {.op = Op::kRow, .name = "row", .operands = 0, .type_rule = rules::row_index, .eval = eval::row_index},
    {.op = Op::kCol, .name = "col", .operands = 0, .type_rule = rules::col_index, .eval = eval::col_index},
    {.op = Op::kUniform, .name = "uniform", .operands = 2, .type_rule = rules::uniform, .eval = eval::uniform},
    {.op = Op::kCis, .name = "cis", .operands = 2, .type_rule = rules::cis, .eval = eval::cis, .grad = grads::cis},
    {.op = Op::kGather, .name = "gather", .operands = 2, .type_rule = rules::gather, .eval = eval::gather, .grad = grads::gather},
    {.op = Op::kMatmul, .name = "matmul", .operands = 2, .traits = kRowLinearTrait, .type_rule = rules::matmul, .eval = eval::matmul, .grad = grads::matmul, .adjoint = Op::kMatmul},

    // maps of one operand
    {.op = Op::kNeg, .name = "neg", .traits = kMapLinear, .type_rule = rules::map_number, .map = [](X x) { return -x[0]; }, .grad = grads::neg, .adjoint = Op::kNeg, .inverse = Op::kNeg},
    {.op = Op::kNot, .name = "not", .traits = kMapTrait, .type_rule = rules::logical, .map = [](X x) { return x[0] == 0 ? 1.0 : 0.0; }, .inverse = Op::kNot},
    {.op = Op::kAbs, .name = "abs", .traits = kMapTrait, .type_rule = rules::map_number, .map = [](X x) { return std::fabs(x[0]); }, .grad = grads::abs},
    {.op = Op::kExp, .name = "exp", .traits = kMapTrait, .type_rule = rules::map_float, .map = [](X x) { return std::exp(x[0]); }, .grad = grads::exp, .inverse = Op::kLog},
    {.op = Op::kLog, .name = "log", .traits = kMapTrait, .type_rule = rules::map_float, .map = [](X x) { return std::log(x[0]); }, .grad = grads::log, .inverse = Op::kExp},
    {.op = Op::kSqrt, .name = "sqrt", .traits = kMapTrait, .type_rule = rules::map_float, .map = [](X x) { return std::sqrt(x[0]); }, .grad = grads::sqrt},
    {.op = Op::kRsqrt, .name = "rsqrt", .traits = kMapTrait, .type_rule = rules::map_float, .map = [](X x) { return 1 / std::sqrt(x[0]); }, .grad = grads::rsqrt},
    {.op = Op::kTanh, .name = "tanh", .traits = kMapTrait, .type_rule = rules::map_float, .map = [](X x) { return std::tanh(x[0]); }, .grad = grads::tanh},
    {.op = Op::kErf, .name = "erf", .traits = kMapTrait, .type_rule = rules::map_float, .map = [](X x) { return std::erf(x[0]); }, .grad = grads::erf},
    {.op = Op::kSigmoid, .name = "sigmoid", .traits = kMapTrait, .type_rule = rules::map_float, .map = [](X x) { return sigmoid(x[0]); }, .grad = grads::sigmoid},
    {.op = Op::kSilu, .name = "silu", .traits = kMapTrait, .type_rule = rules::map_float, .map = [](X x) { return silu(x[0]); }, .grad = grads::silu},
    {.op = Op::kGelu, .name = "gelu", .traits = kMapTrait, .type_rule = rules::map_float, .map = [](X x) { return gelu(x[0]); }, .grad = grads::gelu},
    {.op = Op::kGeluTanh, .name = "gelu_tanh", .traits = kMapTrait, .type_rule = rules::map_float, .map = [](X x) { return gelu_tanh(x[0]); }, .grad = grads::gelu_tanh},
    {.op = Op::kRelu, .name = "relu", .traits = kMapTrait, .type_rule = rules::map_float, .map = [](X x) { return maximum(x[0], 0); }, .grad = grads::relu},
    {.op = Op::kSquare, .name = "square", .traits = kMapTrait, .type_rule = rules::map_number, .map = [](X x) { return x[0] * x[0]; }, .grad = grads::square},
    {.op = Op::kCast, .name = "cast", .traits = kMapTrait, .type_rule = rules::cast, .eval = eval::cast, .grad = grads::cast},

    // maps of two and three operands
    {.op = Op::kAdd, .name = "add", .operands = 2, .traits = kCommutes | kRowLinearTrait, .type_rule = rules::map_number, .map = [](X x) { return x[0] + x[1]; }, .grad = grads::add},
    {.op = Op::kSub, .name = "sub", .operands = 2, .traits = kMapLinear, .type_rule = rules::map_number, .map = [](X x) { return x[0] - x[1]; }, .grad = grads::sub},
    {.op = Op::kMul, .name = "mul", .operands = 2, .traits = kCommutes, .type_rule = rules::map_number, .map = [](X x) { return x[0] * x[1]; }, .grad = grads::mul},
    {.op = Op::kDiv, .name = "div", .operands = 2, .traits = kMapTrait, .type_rule = rules::map_float, .map = [](X x) { return x[0] / x[1]; }, .grad = grads::div},
    {.op = Op::kMin, .name = "min", .operands = 2, .traits = kCommutes, .type_rule = rules::map_number, .map = [](X x) { return minimum(x[0], x[1]); }, .grad = grads::min},
    {.op = Op::kMax, .name = "max", .operands = 2, .traits = kCommutes, .type_rule = rules::map_number, .map = [](X x) { return maximum(x[0], x[1]); }, .grad = grads::max},
    {.op = Op::kEq, .name = "eq", .operands = 2, .traits = kCommutes, .type_rule = rules::compare, .map = [](X x) { return x[0] == x[1] ? 1.0 : 0.0; }},
    {.op = Op::kNe, .name = "ne", .operands = 2, .traits = kCommutes, .type_rule = rules::compare, .map = [](X x) { return x[0] != x[1] ? 1.0 : 0.0; }},
    {.op = Op::kLt, .name = "lt", .operands = 2, .traits = kMapTrait, .type_rule = rules::compare, .map = [](X x) { return x[0] < x[1] ? 1.0 : 0.0; }},
    {.op = Op::kLe, .name = "le", .operands = 2, .traits = kMapTrait, .type_rule = rules::compare, .map = [](X x) { return x[0] <= x[1] ? 1.0 : 0.0; }},
    {.op = Op::kGt, .name = "gt", .operands = 2, .traits = kMapTrait, .type_rule = rules::compare, .map = [](X x) { return x[0] > x[1] ? 1.0 : 0.0; }},
    {.op = Op::kGe, .name = "ge", .operands = 2, .traits = kMapTrait, .type_rule = rules::compare, .map = [](X x) { return x[0] >= x[1] ? 1.0 : 0.0; }},
    {.op = Op::kAnd, .name = "and", .operands = 2, .traits = kCommutes, .type_rule = rules::logical, .map = [](X x) { return x[0] != 0 && x[1] != 0 ? 1.0 : 0.0; }},
    {.op = Op::kOr, .name = "or", .operands = 2, .traits = kCommutes, .type_rule = rules::logical, .map = [](X x) { return x[0] != 0 || x[1] != 0 ? 1.0 : 0.0; }},
    {.op = Op::kWhere, .name = "where", .operands = 3, .traits = kMapTrait, .type_rule = rules::select, .map = [](X x) { return x[0] != 0 ? x[1] : x[2]; }, .grad = grads::where},

    // shape
    {.op = Op::kPairs, .name = "pairs", .traits = kShapeLinear, .type_rule = rules::pairs, .eval = eval::pairs, .grad = grads::pairs, .adjoint = Op::kInterleave, .inverse = Op::kInterleave},
    {.op = Op::kInterleave, .name = "interleave", .operands = 2, .traits = kShapeLinear, .type_rule = rules::interleave, .eval = eval::interleave, .grad = grads::interleave, .adjoint = Op::kPairs, .inverse = Op::kPairs},
    {.op = Op::kHalves, .name = "halves", .traits = kShapeLinear, .type_rule = rules::pairs, .eval = eval::halves, .grad = grads::halves, .adjoint = Op::kConcat, .inverse = Op::kConcat},
    {.op = Op::kConcat, .name = "concat", .operands = 1, .traits = kShapeLinear | kVariadicTrait, .type_rule = rules::concat, .eval = eval::concat, .grad = grads::concat, .adjoint = Op::kSplit, .inverse = Op::kSplit},
    {.op = Op::kSplit, .name = "split", .traits = kShapeLinear, .type_rule = rules::split, .eval = eval::split, .grad = grads::split, .adjoint = Op::kConcat, .inverse = Op::kConcat},
    {.op = Op::kGroup, .name = "group", .traits = kShapeLinear, .type_rule = rules::group, .eval = eval::reshape, .grad = grads::group, .adjoint = Op::kFlat, .inverse = Op::kFlat},
    {.op = Op::kFlat, .name = "flat", .traits = kShapeLinear, .type_rule = rules::flat, .eval = eval::reshape, .grad = grads::flat, .adjoint = Op::kGroup, .inverse = Op::kGroup},

    // reductions
    {.op = Op::kReduceSum, .name = "sum", .traits = kReduceTrait | kRowLinearTrait, .type_rule = rules::reduce, .eval = eval::reduce_sum, .grad = grads::reduce_sum},
    {.op = Op::kReduceMax, .name = "max", .traits = kReduceTrait, .type_rule = rules::reduce, .eval = eval::reduce_max, .grad = grads::reduce_max},
    {.op = Op::kArgmax, .name = "argmax", .traits = kReduceTrait, .type_rule = rules::argmax, .eval = eval::argmax, .grad = grads::argmax},
    {.op = Op::kLogsumexp, .name = "logsumexp", .optional_operands = 1, .traits = kReduceTrait, .type_rule = rules::logsumexp, .eval = eval::logsumexp, .grad = grads::logsumexp},
    {.op = Op::kMoments, .name = "moments", .traits = kReduceTrait, .type_rule = rules::moments, .eval = eval::moments, .grad = grads::moments},

    // composites
    {.op = Op::kRmsnorm, .name = "rmsnorm", .operands = 3, .traits = kCompositeTrait, .type_rule = rules::rmsnorm, .grad = grads::rmsnorm, .expand = expand::rmsnorm},
    {.op = Op::kLayernorm, .name = "layernorm", .operands = 4, .traits = kCompositeTrait, .type_rule = rules::layernorm, .grad = grads::layernorm, .expand = expand::layernorm},
    {.op = Op::kSwiglu, .name = "swiglu", .operands = 2, .traits = kCompositeTrait, .type_rule = rules::gated, .expand = expand::swiglu},
    {.op = Op::kGeglu, .name = "geglu", .operands = 2, .traits = kCompositeTrait, .type_rule = rules::gated, .expand = expand::geglu},
    {.op = Op::kGegluTanh, .name = "geglu_tanh", .operands = 2, .traits = kCompositeTrait, .type_rule = rules::gated, .expand = expand::geglu_tanh},
    {.op = Op::kReglu, .name = "reglu", .operands = 2, .traits = kCompositeTrait, .type_rule = rules::gated, .expand = expand::reglu},
    {.op = Op::kRope, .name = "rope", .operands = 3, .traits = kCompositeTrait | kRowLinearTrait, .type_rule = rules::rope, .grad = grads::rope, .expand = expand::rope, .adjoint = Op::kRope},
    {.op = Op::kRopePairs, .name = "rope_pairs", .operands = 3, .traits = kCompositeTrait | kRowLinearTrait, .type_rule = rules::rope, .grad = grads::rope, .expand = expand::rope_pairs, .adjoint = Op::kRopePairs},
    {.op = Op::kQkNorm, .name = "qk_norm", .operands = 3, .traits = kCompositeTrait, .type_rule = rules::qk_norm, .expand = expand::qk_norm},
    {.op = Op::kCrossEntropy, .name = "cross_entropy", .operands = 3, .traits = kCompositeTrait, .type_rule = rules::cross_entropy, .grad = grads::cross_entropy, .expand = expand::cross_entropy},

    // opaque
    {.op = Op::kAttention, .name = "attention", .operands = 3, .traits = kOpaqueTrait, .type_rule = rules::attention, .eval = eval::attention, .grad = grads::attention},
    {.op = Op::kAttentionGrad, .name = "attention_grad", .operands = 4, .traits = kOpaqueTrait, .type_rule = rules::attention_grad, .eval = eval::attention_grad},
    {.op = Op::kScatterSum, .name = "scatter_sum", .operands = 2, .traits = kOpaqueTrait, .type_rule = rules::scatter_sum, .eval = eval::scatter_sum, .grad = grads::scatter_sum},
};
// clang-format on

}  // namespace

std::string_view name(Elem e) { return e == Elem::kF32 ? "f32" : e == Elem::kI32 ? "i32" : "bool"; }

std::string_view suffix(Axis a) {
  constexpr std::string_view kSuffix[] = {"c", "g", "n", "m", "mn"};
  return kSuffix[static_cast<int>(a)];
}

std::string Type::str() const {
  std::string text = std::string(coda::name(elem)) + "[" + rows.str() + ",";
  if (!groups.is_one()) text += groups.str() + ",";
  return text + cols.str() + "]";
}

const OpRow& row(Op op) {
  const OpRow& r = kRows[static_cast<std::size_t>(op)];
  CODA_CHECK(r.op == op, "the op table is out of order at " + std::string(r.name));
  return r;
}

const OpRow* find_op(std::string_view op_name) {
  for (const OpRow& r : kRows)
    if (r.name == op_name && !r.has(kReduceTrait)) return &r;
  for (const OpRow& r : kRows)
    for (Axis a : {Axis::kC, Axis::kG, Axis::kN, Axis::kM, Axis::kMN})
      if (r.has(kReduceTrait) && op_name == std::string(r.name) + "_" + std::string(suffix(a))) return &r;
  return nullptr;
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const OpRow& r : kRows) {
    if (r.op == Op::kInput || r.op == Op::kLiteral || r.op == Op::kSize) continue;
    names.push_back(std::string(r.name) + (r.has(kReduceTrait) ? "_n" : ""));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace coda
