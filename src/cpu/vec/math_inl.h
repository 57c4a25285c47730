// Transcendental functions on vectors, for the maps and for logsumexp. Each is at most 2 ulp from the fp64 definition
// in src/ir/op_table.cc (gelu, gelu_tanh, silu: 4) wherever the result is a normal number, and gives its special
// values: NaN to NaN, limits at ±∞. Polynomials are minimax fits whose coefficients were rounded to fp32 one after
// another, from the constant term on, the rest fitted again each time. tests/cpu_vec_math_test.cc holds them to the
// bounds.
#pragma once

#include "cpu/vec/simd_inl.h"

namespace coda::cpu {
namespace {

constexpr float kLog2e = 0x1.715476p+0f;
constexpr float kLn2 = 0x1.62e43p-1f, kLn2Rest = -0x1.05c61p-29f;  // ln 2 in two parts, the first with 20 bits
constexpr float kRound = 0x1.8p23f;  // x + kRound - kRound is x rounded to an integer, |x| < 2^22
constexpr double kRoundDouble = 0x1.8p52;

CODA_SIMD Float horner(Float, float c) { return splat(c); }
template <class... Rest>
CODA_SIMD Float horner(Float x, float c, Rest... higher) {  // c + x·(higher…)
  return fma(x, horner(x, higher...), splat(c));
}

// The integer nearest to x·c (or its neighbour when the product is close to the middle).
CODA_SIMD Float nearest(Float x, float c) { return fma(x, splat(c), splat(kRound)) - kRound; }

CODA_SIMD Float exp2_fraction(Float r) {  // 2^r for |r| ≤ ½
  return horner(r, 1.0f, 0x1.62e43p-1f, 0x1.ebfbdcp-3f, 0x1.c6af7cp-5f, 0x1.3b2dep-7f, 0x1.5f082ep-10f,
                0x1.416b52p-13f);
}

CODA_SIMD Float exp_fraction(Float r) {  // e^r for |r| ≤ ½ ln 2
  return horner(r, 1.0f, 1.0f, 0x1.fffffcp-2f, 0x1.55548cp-3f, 0x1.5558b8p-5f, 0x1.123e58p-7f, 0x1.6a4d6ep-10f);
}

// p · 2^n, to be put together by scale2: where the result is subnormal, a factor must go to p first.
struct Scaled {
  Float p, n;
  CODA_SIMD Float value() const { return scale2(p, n); }
};

// e^(x + rest) for -110 ≤ x ≤ 89, outside of which it is 0 or ∞ in fp32. |rest| is at most half an ulp of x.
CODA_SIMD Scaled exp_inside(Float x, Float rest) {
  Float n = nearest(x, kLog2e);
  Float r = fma(n, splat(-kLn2), x) + rest;  // the fma is exact
  r = fma(n, splat(-kLn2Rest), r);
  return {exp_fraction(r), n};
}
CODA_SIMD Scaled exp_inside(Float x) {
  Float n = nearest(x, kLog2e);
  return {exp_fraction(fma(n, splat(-kLn2Rest), fma(n, splat(-kLn2), x))), n};
}
constexpr float kExpIsZero = -110.0f;  // even times 200
CODA_SIMD Scaled exp_nonpositive_scaled(Float x) { return exp_inside(quick_max(splat(kExpIsZero), x)); }
CODA_SIMD Float exp_nonpositive(Float x) { return exp_nonpositive_scaled(x).value(); }
CODA_SIMD Float exp(Float x) { return exp_inside(quick_min(splat(89.0f), quick_max(splat(kExpIsZero), x))).value(); }

// e^x, x ≤ 0, for sums of at least 1: what would be subnormal is 0, which spares masked elements a detour of hundreds
// of cycles through the processor's microcode.
CODA_SIMD Float exp_summand(Float x) {
  Float e = exp_inside(quick_max(splat(-87.0f), x)).value();
  return x < -87.0f ? Float{} : e;
}

CODA_SIMD Float log(Float x) {
  Int tiny = x < 0x1p-126f;
  Bits u = (Bits)(tiny ? x * 0x1p23f : x);
  Int exponent = (Int)(u - 0x3f3504f3u) >> 23;  // so that the mantissa is in [√½, √2)
  Float f = (Float)(u - ((Bits)exponent << 23)) - 1.0f;
  Float e = from_int(tiny ? exponent - 23 : exponent);
  Float cubic = horner(f, -0.5f, 0x1.555554p-2f, -0x1.000226p-2f, 0x1.99a01cp-3f, -0x1.54728ap-3f, 0x1.22d92ep-3f,
                       -0x1.0d8242p-3f, 0x1.055ec6p-3f, -0x1.38c9dep-4f);
  Float y = fma(f * f, cubic, e * kLn2Rest) + f;
  y = fma(e, splat(kLn2), y);
  Float outside = x == 0.0f ? splat(-kInf) : (x < 0.0f ? splat(__builtin_nanf("")) : x);  // +∞ and NaN stay
  return ((x > 0.0f) & (x < kInf)) ? y : outside;
}

CODA_SIMD Float tanh(Float x) {
  Float a = abs(x), s = x * x;
  Float small =
      fma(a * s, horner(s, -0x1.555534p-2f, 0x1.11076p-3f, -0x1.b8434p-5f, 0x1.52509ep-6f, -0x1.76922ap-8f), a);
  Float large = 1.0f - 2.0f / (exp_inside(2.0f * quick_min(splat(10.0f), a)).value() + 1.0f);
  return with_sign_of(a < 0.625f ? small : large, x);
}

CODA_SIMD Float erf(Float x) {
  Float a = abs(x), s = x * x;
  Float small = fma(
      a, horner(s, 0x1.06eba6p-3f, -0x1.8126eep-2f, 0x1.ce1c18p-4f, -0x1.b6a74cp-6f, 0x1.47f3ep-8f, -0x1.3d52c4p-11f),
      a);
  // erfc(a) = 2^-q(a); beyond 4 it is below half an ulp of 1.
  Float b = quick_min(splat(4.0f), a);
  Float q = horner(b, 0x1.f7988p-13f, 0x1.a0877ep+0f, 0x1.d6823ep-1f, 0x1.339e26p-3f, -0x1.07bb52p-5f, 0x1.21d4eep-8f,
                   -0x1.2bd96cp-12f);
  Float n = nearest(q, -1.0f);
  Float large = 1.0f - scale2(exp2_fraction(-q - n), n);
  return with_sign_of(a < 0.9f ? small : large, x);
}

// sigmoid(x) = (x ≥ 0 ? 1 : t) / (1 + t) with t = e^-|x| ≤ 1, which cannot overflow and keeps small results exact.
// t / (1 + t) is t less t times that: the roundings of sum and quotient then weigh less.
CODA_SIMD Float sigmoid(Float x) {
  Float t = exp_nonpositive(-abs(x));
  Int negative = x < 0.0f;
  Float q = (negative ? t : splat(1.0f)) / (1.0f + t);
  return negative ? fma(-t, q, t) : q;
}
// x·sigmoid from the exponential. x is bounded below where t is 0 already: -∞ · 0 would be NaN.
CODA_SIMD Float times_sigmoid(Float x, Scaled t) {
  Float bounded = quick_max(splat(-200.0f), x);
  return (x < 0.0f ? scale2(bounded * t.p, t.n) : bounded) / (1.0f + t.value());
}
CODA_SIMD Float silu(Float x) { return times_sigmoid(x, exp_nonpositive_scaled(-abs(x))); }

// x·Φ(x) = max(x, 0) - a·Φ(-a) with a = |x| and a·Φ(-a) = e^(-a²/2) · w·P(w), w = a / (1 + ⅜a): P varies little, and
// errors of w vanish with a. The square is kept in two parts, or its rounding error would become a relative error of
// a²/2 ulp. Beyond 14.5 the exponential is 0.
CODA_SIMD Float gelu(Float x) {
  Float a = quick_min(splat(14.5f), abs(x));
  Float w = a / fma(a, splat(0.375f), splat(1.0f));
  Float p = horner(w, 0.5f, -0x1.b10886p-3f, 0x1.59c02ap-6f, 0x1.9fb5ccp-8f, -0x1.476db4p-12f, -0x1.4cce72p-12f,
                   -0x1.1379f2p-16f, -0x1.c4d33ap-16f, 0x1.6522b8p-16f, -0x1.9cc50cp-19f);
  Float square = a * a, rest = fma(a, a, -square);
  Float tail = exp_inside(square * -0.5f, rest * -0.5f).value();
  return fma(-w * p, tail, quick_max(Float{}, x));
}

// ½x(1 + tanh z) = x·sigmoid(2z). The exponent is wanted to 2^-25 where it is near 100, so it is made in double, in
// units of ln 2: its integer part is then split off without error.
CODA_SIMD Float gelu_tanh(Float x) {
  constexpr double kFirst = 0x1.26aec21bce759p+1, kThird = 0x1.a5a7cf7572a98p-4;  // 2·√(2/π)·log2(e) · (1, 0.044715)
  auto exponent = [](Double d) {
    Double y = -d * (kFirst + kThird * (d * d));
    return y < -200.0 ? splat_double(-200.0) : y;
  };
  auto integer = [](Double y) { return (y + kRoundDouble) - kRoundDouble; };
  TwoDoubles a = widen(abs(x));
  TwoDoubles y = {exponent(a.low), exponent(a.high)};
  TwoDoubles n = {integer(y.low), integer(y.high)};
  Float r = narrow(TwoDoubles{y.low - n.low, y.high - n.high});
  return times_sigmoid(x, {exp2_fraction(r), narrow(n)});
}

}  // namespace
}  // namespace coda::cpu
