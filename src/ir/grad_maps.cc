// Derivative rows of the maps. `d` is the gradient of the result; forms are chosen so that no ±∞ or large operand makes
// a NaN out of 0·∞ where the derivative has a limit. See grad_rows.h.
#include "ir/grad_tools.h"

namespace coda::grads {
namespace {

constexpr double kTwoOverSqrtPi = 1.12837916709551257390;
constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kDensityAtZero = 0.39894228040143267794;  // 1/sqrt(2π)
constexpr double kSqrt2OverPi = 0.79788456080286535588;
// Beyond this |x| the derivatives of gelu and silu are 0 or 1 in fp64 too; clamping there avoids ∞·0.
constexpr double kFlat = 40;

Val literal(Val like, double x) { return like.builder->literal(x); }
bool is_number(const Val& v) { return v.type().elem == Elem::kF32; }
Val clamped(Val x) { return binary(Op::kMax, binary(Op::kMin, x, literal(x, kFlat)), literal(x, -kFlat)); }

// Gradients of a choice: to `a` where `first`, else to `b`.
void choose(GradFrame& f, std::size_t a, std::size_t b, Val first) {
  Val d = *f.dout[0];
  f.din[a] = where(first, d, zero(f.builder));
  f.din[b] = where(first, zero(f.builder), d);
}

}  // namespace

void neg(GradFrame& f) { f.din[0] = -*f.dout[0]; }

// 0 at 0; the last case keeps NaN.
void abs(GradFrame& f) {
  Val d = *f.dout[0], x = f.in[0], at_zero = literal(x, 0);
  f.din[0] = where(binary(Op::kGt, x, at_zero), d, where(binary(Op::kLt, x, at_zero), -d, d * x));
}

void exp(GradFrame& f) { f.din[0] = *f.dout[0] * f.out[0]; }
void log(GradFrame& f) { f.din[0] = *f.dout[0] / f.in[0]; }
void sqrt(GradFrame& f) { f.din[0] = *f.dout[0] * 0.5 / f.out[0]; }
void rsqrt(GradFrame& f) { f.din[0] = *f.dout[0] * (-0.5 * (f.out[0] * f.out[0] * f.out[0])); }
void tanh(GradFrame& f) { f.din[0] = *f.dout[0] * (1.0 - f.out[0] * f.out[0]); }
void erf(GradFrame& f) { f.din[0] = *f.dout[0] * (kTwoOverSqrtPi * unary(Op::kExp, -(f.in[0] * f.in[0]))); }
void sigmoid(GradFrame& f) { f.din[0] = *f.dout[0] * (f.out[0] * (1.0 - f.out[0])); }

// σ + silu·(1 − σ)
void silu(GradFrame& f) {
  Val s = unary(Op::kSigmoid, f.in[0]);
  f.din[0] = *f.dout[0] * (s + binary(Op::kMin, f.out[0], literal(s, kFlat)) * (1.0 - s));
}

// Φ + x·φ
void gelu(GradFrame& f) {
  Val x = clamped(f.in[0]);
  Val distribution = 0.5 * (1.0 + unary(Op::kErf, x * kSqrtHalf));
  f.din[0] = *f.dout[0] * (distribution + x * (kDensityAtZero * unary(Op::kExp, x * x * -0.5)));
}

// ½(1 + t) + ½x(1 − t²)·√(2/π)(1 + 0.134145 x²)
void gelu_tanh(GradFrame& f) {
  Val x = clamped(f.in[0]);
  Val square = x * x;
  Val t = unary(Op::kTanh, kSqrt2OverPi * (x * (1.0 + 0.044715 * square)));
  Val slope = kSqrt2OverPi * (1.0 + 3 * 0.044715 * square);
  f.din[0] = *f.dout[0] * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope);
}

// 0 at 0.
void relu(GradFrame& f) {
  f.din[0] = where(binary(Op::kLe, f.in[0], literal(f.in[0], 0)), literal(f.in[0], 0), *f.dout[0]);
}

void square(GradFrame& f) { f.din[0] = *f.dout[0] * (f.in[0] + f.in[0]); }

// The rounding passes gradients through; an integer has none.
void cast(GradFrame& f) {
  if (is_number(f.in[0])) f.din[0] = *f.dout[0];
}

void add(GradFrame& f) { f.din = {*f.dout[0], *f.dout[0]}; }
void sub(GradFrame& f) { f.din = {*f.dout[0], -*f.dout[0]}; }
void mul(GradFrame& f) { f.din = {*f.dout[0] * f.in[1], *f.dout[0] * f.in[0]}; }

void div(GradFrame& f) {
  Val share = *f.dout[0] / f.in[1];
  f.din = {share, -(share * f.out[0])};
}

// Ties: the first operand takes all, as the lowest index does in a reduction.
void min(GradFrame& f) { choose(f, 0, 1, binary(Op::kLe, f.in[0], f.in[1])); }
void max(GradFrame& f) { choose(f, 0, 1, binary(Op::kGe, f.in[0], f.in[1])); }
void where(GradFrame& f) { choose(f, 1, 2, f.in[0]); }

}  // namespace coda::grads
