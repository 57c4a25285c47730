// Tables of the text form; see syntax.h.
#include "ir/syntax.h"

#include <cstdlib>

#include "coda/error.h"

namespace coda {
namespace {

using namespace precedence;  // NOLINT: the table reads better

constexpr Infix kInfix[] = {
    {"or", Op::kOr, kOr},        {"and", Op::kAnd, kAnd},   {"==", Op::kEq, kCompare}, {"!=", Op::kNe, kCompare},
    {"<", Op::kLt, kCompare},    {"<=", Op::kLe, kCompare}, {">", Op::kGt, kCompare},  {">=", Op::kGe, kCompare},
    {"+", Op::kAdd, kSum},       {"-", Op::kSub, kSum},     {"*", Op::kMul, kProduct}, {"/", Op::kDiv, kProduct},
    {"@", Op::kMatmul, kMatmul},
};

// Operands that have names; the others are called x, or a and b.
struct Signature {
  Op op;
  std::string_view operands;
};
constexpr Signature kSignatures[] = {
    {Op::kLiteral, "number, f32 or i32"},
    {Op::kSize, "size"},
    {Op::kUniform, "seed, offset"},
    {Op::kCis, "position, frequency"},
    {Op::kGather, "table, index"},
    {Op::kMatmul, "a, b) or matmul(a, b, a_axis, b_axis"},
    {Op::kCast, "x, dtype"},
    {Op::kWhere, "condition, a, b"},
    {Op::kConcat, "a, b, …"},
    {Op::kSplit, "x, width, …"},
    {Op::kGroup, "x, width"},
    {Op::kRmsnorm, "x, gamma, eps"},
    {Op::kLayernorm, "x, gamma, beta, eps"},
    {Op::kSwiglu, "gate, up"},
    {Op::kGeglu, "gate, up"},
    {Op::kGegluTanh, "gate, up"},
    {Op::kReglu, "gate, up"},
    {Op::kRope, "x, cos, sin"},
    {Op::kRopePairs, "x, cos, sin"},
    {Op::kQkNorm, "x, gamma, eps"},
    {Op::kCrossEntropy, "z, target, ignore"},
    {Op::kAttention, "q, k, v, batch, heads, kv_heads"},
    {Op::kAttentionGrad, "q, k, v, dout, batch, heads, kv_heads"},
    {Op::kScatterSum, "g, index, rows"},
};

}  // namespace

const Infix* find_infix(std::string_view symbol) {
  for (const Infix& i : kInfix)
    if (i.symbol == symbol) return &i;
  return nullptr;
}

const Infix* find_infix(Op op) {
  for (const Infix& i : kInfix)
    if (i.op == op) return &i;
  return nullptr;
}

int sizes_after_operands(Op op) {
  switch (op) {
    case Op::kGroup:
    case Op::kSplit:
    case Op::kScatterSum: return 1;
    case Op::kAttention:
    case Op::kAttentionGrad: return 3;
    default: return 0;
  }
}

std::string usage(const OpRow& r, std::string_view name) {
  std::string call = std::string(name) + "(";
  for (const Signature& s : kSignatures)
    if (s.op == r.op) return call + std::string(s.operands) + ")";
  if (r.op == Op::kLogsumexp) return call + "z) or " + call + "z, payload)";
  return call + (r.operands == 0 ? "" : r.operands == 1 ? "x" : "a, b") + ")";
}

Axis axis_of(const OpRow& r, std::string_view name) {
  for (Axis a : {Axis::kC, Axis::kG, Axis::kN, Axis::kM, Axis::kMN})
    if (name.substr(r.name.size() + 1) == suffix(a)) return a;
  throw InternalError(__FILE__, __LINE__, "a reduction without an axis: " + std::string(name));
}

bool is_folded_size(const Dim& d) {
  if (d.is_constant() || is_too_large(d)) return false;
  for (const auto& [monomial, c] : d.terms()) {
    if (c.den != 1 || c.num < 0) return false;
    for (const auto& [name, power] : monomial)
      if (power < 0) return false;
  }
  return true;
}

std::optional<Dim> fold_sizes(Op op, const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return std::nullopt;
  Dim d;
  if (op == Op::kAdd)
    d = a + b;
  else if (op == Op::kMul)
    d = a * b;
  else if (op == Op::kDiv && (b.terms().size() == 1 || a == b))
    d = a / b;
  else
    return std::nullopt;
  if (!is_folded_size(d)) return std::nullopt;
  return d;
}

bool is_too_large(const Dim& d) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (d.terms().size() > 32) return true;
  for (const auto& [monomial, c] : d.terms()) {
    int powers = 0;
    for (const auto& [name, power] : monomial) powers += std::abs(power);
    if (c.num > kMost || c.num < -kMost || c.den > kMost || powers > 16) return true;
  }
  return false;
}

}  // namespace coda
