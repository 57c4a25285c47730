// Derivative rows of the composites whose expansion would not give the form that rewriting wants: row sums that are
// inner products with the composite's own result, a rotation that stays a rotation. Tests compare each with reverse
// mode of its expansion. See grad_rows.h.
#include "ir/grad_tools.h"

namespace coda::grads {
namespace {

// Of h = x̂ ⊙ γ (+ β) with s = rowdot(dh, x̂ ⊙ γ):  d eps = −½ r² s.
Val gradient_of_eps(Val r, Val s) { return -0.5 * (r * r * s); }

}  // namespace

// s = rowdot(dh, h); dx = r (dh γ − x̂ s/d); dγ = dh x̂
void rmsnorm(GradFrame& f) {
  Val x = f.in[0], gamma = f.in[1], d = full(f, 0);
  Val width = f.builder.size(DimArg(x.type().width()));
  Val r = unary(Op::kRsqrt, sum(Axis::kN, unary(Op::kSquare, x)) / width + f.in[2]);
  Val normed = x * r, s = sum(Axis::kN, d * f.out[0]);
  f.din[0] = r * (d * gamma - normed * (s / width));
  f.din[1] = d * normed;
  f.din[2] = gradient_of_eps(r, s);
}

// s1 = rowdot(dh, γ), s2 = rowdot(dh, h − β); dx = r (dh γ − s1/d − x̂ s2/d); dγ = dh x̂; dβ = dh
void layernorm(GradFrame& f) {
  Val x = f.in[0], gamma = f.in[1], beta = f.in[2], d = full(f, 0);
  Val width = f.builder.size(DimArg(x.type().width()));
  std::vector<Val> moments = apply(f.builder, Op::kMoments, {x}, Axis::kN);
  Val r = unary(Op::kRsqrt, moments[1] / width + f.in[3]);
  Val normed = (x - moments[0]) * r;
  Val s1 = sum(Axis::kN, d * gamma), s2 = sum(Axis::kN, d * (f.out[0] - beta));
  f.din[0] = r * (d * gamma - s1 / width - normed * (s2 / width));
  f.din[1] = d * normed;
  f.din[2] = d;
  f.din[3] = gradient_of_eps(r, s2);
}

// The transpose of the table's rotation, whatever the table holds: (cos, −sin). Rows of both pairings.
void rope(GradFrame& f) {
  GraphBuilder& b = f.builder;
  Op op = b.def(f.out[0].id).op;
  Val z = f.in[0], cos = f.in[1], sin = f.in[2], d = full(f, 0);
  f.din[0] = b.apply1(op, {d, cos, -sin});
  Dim cols = z.type().cols, rotary = cos.type().cols * Dim(2);
  auto partners = [&](Val v) {
    if (!(cols == rotary)) v = coda::split(v, {rotary, cols - rotary})[0];
    return op == Op::kRope ? coda::halves(v) : coda::pairs(v);
  };
  std::vector<Val> ab = partners(z), dab = partners(d);
  f.din[1] = dab[0] * ab[0] + dab[1] * ab[1];
  f.din[2] = dab[1] * ab[0] - dab[0] * ab[1];
}

// dz = d (softmax − onehot(target)), zero for ignored rows whatever their logits hold.
void cross_entropy(GradFrame& f) {
  GraphBuilder& b = f.builder;
  Val z = f.in[0], target = f.in[1], none = zero(b), d = *f.dout[0];
  std::vector<Val> ml = apply(b, Op::kLogsumexp, {z}, Axis::kN);
  Val softmax = coda::where(binary(Op::kLt, ml[1], none), none, unary(Op::kExp, (z - ml[0]) - ml[1]));
  Val hit = binary(Op::kEq, column_index(b, z.type()), target);
  Val dz = d * (softmax - coda::where(hit, b.literal(1), none));
  f.din[0] = coda::where(binary(Op::kEq, target, f.in[2]), none, dz);
}

}  // namespace coda::grads
