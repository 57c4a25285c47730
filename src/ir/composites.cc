// Expansions of composite operations (RMSNorm, LayerNorm, gated units, rotations, cross-entropy).
#include "ir/composites.h"

namespace coda::expand {
namespace {

Val number_of_columns(ExpandFrame& f, Val x) { return f.builder.size(DimArg(x.type().width())); }

// (a, b) → (a c − b s, a s + b c)
struct Rotated {
  Val a, b;
};
Rotated rotate(Val a, Val b, Val c, Val s) { return {a * c - b * s, a * s + b * c}; }

// Splits off the columns that stay unrotated (partial rotary: cos has fewer than half the columns).
template <class Rotate>
void rotate_first(ExpandFrame& f, Rotate rotate_columns) {
  Val z = f.in[0];
  Dim cols = f.builder.canonical(z.type().cols);
  Dim rotary = f.builder.canonical(f.in[1].type().cols * Dim(2));
  if (cols == rotary) {
    f.out = {rotate_columns(z)};
    return;
  }
  std::vector<Val> parts = split(z, {rotary, cols - rotary});
  f.out = {concat({rotate_columns(parts[0]), parts[1]})};
}

}  // namespace

void rmsnorm(ExpandFrame& f) {
  Val x = f.in[0];
  Val r = unary(Op::kRsqrt, sum(Axis::kN, unary(Op::kSquare, x)) / number_of_columns(f, x) + f.in[2]);
  f.out = {x * r * f.in[1]};
}

void layernorm(ExpandFrame& f) {
  Val x = f.in[0];
  Attrs along_n;
  along_n.axis = Axis::kN;
  std::vector<Val> moments = f.builder.apply(Op::kMoments, {x}, along_n);
  Val r = unary(Op::kRsqrt, moments[1] / number_of_columns(f, x) + f.in[3]);
  f.out = {(x - moments[0]) * r * f.in[1] + f.in[2]};
}

void swiglu(ExpandFrame& f) { f.out = {unary(Op::kSilu, f.in[0]) * f.in[1]}; }
void geglu(ExpandFrame& f) { f.out = {unary(Op::kGelu, f.in[0]) * f.in[1]}; }
void geglu_tanh(ExpandFrame& f) { f.out = {unary(Op::kGeluTanh, f.in[0]) * f.in[1]}; }
void reglu(ExpandFrame& f) { f.out = {unary(Op::kRelu, f.in[0]) * f.in[1]}; }

void rope(ExpandFrame& f) {
  rotate_first(f, [&](Val z) {
    std::vector<Val> ab = halves(z);
    Rotated r = rotate(ab[0], ab[1], f.in[1], f.in[2]);
    return concat({r.a, r.b});
  });
}

void rope_pairs(ExpandFrame& f) {
  rotate_first(f, [&](Val z) {
    std::vector<Val> ab = pairs(z);
    Rotated r = rotate(ab[0], ab[1], f.in[1], f.in[2]);
    return interleave(r.a, r.b);
  });
}

void qk_norm(ExpandFrame& f) {
  Val z = f.in[0];
  Val width = f.builder.size(DimArg(z.type().cols));
  f.out = {z * unary(Op::kRsqrt, sum(Axis::kC, unary(Op::kSquare, z)) / width + f.in[2]) * f.in[1]};
}

void cross_entropy(ExpandFrame& f) {
  Val z = f.in[0], target = f.in[1];
  Attrs along_n;
  along_n.axis = Axis::kN;
  std::vector<Val> ml = f.builder.apply(Op::kLogsumexp, {z}, along_n);
  Val column = f.builder.apply1(Op::kCol, {});
  Val zt = sum(Axis::kN, where(binary(Op::kEq, column, target), z, f.builder.literal(0)));
  f.out = {where(binary(Op::kEq, target, f.in[2]), f.builder.literal(0), (ml[0] - zt) + ml[1])};
}

}  // namespace coda::expand
