// The op table: one row per operation with its name, type rule, fp64 definition, derivative and traits. A formula
// stands here (src/ir/) and nowhere else; parser, verifier, interpreter, reverse mode, rewriter and backends read the
// rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coda/dim.h"
#include "coda/dtype.h"

namespace coda {

enum class Elem : std::uint8_t { kF32, kI32, kBool };
std::string_view name(Elem e);  // "f32", "i32", "bool"

// elem[R,G,C]: R rows (1 or the row size), G groups of C columns; G = 1 unless grouped. See design: values.
struct Type {
  Elem elem = Elem::kF32;
  Dim rows, groups, cols;

  Dim width() const { return groups * cols; }
  std::string str() const;  // f32[M,N], f32[M,H,hd] when grouped
  friend bool operator==(const Type&, const Type&) = default;
};

// Which elements a reduction takes together: the columns of one group (kC), the groups (kG), a whole row (kN), a whole
// column (kM), everything (kMN). kC stays a tile value; kN, kM, kMN give stage "finish".
enum class Axis : std::uint8_t { kC, kG, kN, kM, kMN };
std::string_view suffix(Axis a);  // "c", "g", "n", "m", "mn": sum_n, max_c, …

enum class Op : std::uint8_t {
  // sources of values
  kInput,
  kLiteral,
  kSize,
  kRow,
  kCol,
  kUniform,
  kCis,
  kGather,
  kMatmul,
  // maps of one operand
  kNeg,
  kNot,
  kAbs,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kTanh,
  kErf,
  kSigmoid,
  kSilu,
  kGelu,
  kGeluTanh,
  kRelu,
  kSquare,
  kCast,
  // maps of two and three operands
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMin,
  kMax,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kWhere,
  // shape
  kPairs,
  kInterleave,
  kHalves,
  kConcat,
  kSplit,
  kGroup,
  kFlat,
  // reductions
  kReduceSum,
  kReduceMax,
  kArgmax,
  kLogsumexp,
  kMoments,
  // composites: expand into the operations above
  kRmsnorm,
  kLayernorm,
  kSwiglu,
  kGeglu,
  kGegluTanh,
  kReglu,
  kRope,
  kRopePairs,
  kQkNorm,
  kCrossEntropy,
  // opaque, in graphs only
  kAttention,
  kAttentionGrad,
  kScatterSum,
};

// Parameters of an operation that are not values.
struct Attrs {
  double number = 0;          // kLiteral: the value. kLogsumexp: unused
  DType dtype = DType::kF32;  // kCast: the target. kLiteral: kF32 or kI32
  Axis axis = Axis::kN;       // reductions
  std::vector<Dim>
      dims;  // kSize {value}; kGroup {width}; kSplit {widths…}; kScatterSum {rows}; kAttention {batch, heads, kv_heads}
  int a_axis = 1, b_axis = 1;  // kMatmul: the contracted axis of each operand (0 rows, 1 columns)
  friend bool operator==(const Attrs&, const Attrs&) = default;
};

enum Trait : unsigned {
  kMapTrait = 1u << 0,        // elementwise, operands broadcast axis by axis
  kShapeTrait = 1u << 1,      // moves elements within rows
  kReduceTrait = 1u << 2,     // takes an Axis; kC/kG inside rows, else stage finish
  kCompositeTrait = 1u << 3,  // has an expansion
  kOpaqueTrait = 1u << 4,     // no pass looks inside; graphs only
  kRowLinearTrait = 1u << 5,  // acts on each row linearly in its first operand(s): rules R1–R4
  kCommutativeTrait = 1u << 6,
  kVariadicTrait = 1u << 7,
};

class GraphBuilder;
struct Node;
class Graph;
struct EvalFrame;    // src/ir/eval.h
struct GradFrame;    // src/ir/grad_rows.h
struct ExpandFrame;  // src/ir/composites.h
struct TypeQuery;    // src/ir/type_rules.h

struct OpRow {
  Op op;
  std::string_view name;      // in text; reductions get "_<axis>"
  int operands = 1;           // the number (at least, if variadic)
  int optional_operands = 0;  // that may follow
  unsigned traits = 0;
  std::vector<Type> (*type_rule)(TypeQuery&) = nullptr;
  double (*map)(const double* x) = nullptr;  // fp64 definition of a map …
  void (*eval)(EvalFrame&) = nullptr;      // … or of anything else (null for composites: the expansion defines them)
  void (*grad)(GradFrame&) = nullptr;      // null: constant in every operand (integers, booleans)
  void (*expand)(ExpandFrame&) = nullptr;  // composites
  std::optional<Op> adjoint = std::nullopt;  // row-linear: the operation that is its transpose
  std::optional<Op> inverse = std::nullopt;

  bool has(Trait t) const { return (traits & t) != 0; }
};

const OpRow& row(Op op);
// By its name in text without axis; nullptr if unknown. Operators ("+") have names too ("add").
const OpRow* find_op(std::string_view name);
std::vector<std::string> op_names();  // for messages: as a user writes them, sorted

}  // namespace coda
