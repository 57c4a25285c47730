// Transcendental functions on vectors, for the maps and for logsumexp. Each is at most 2 ulp from the fp64 definition
// in src/ir/op_table.cc (gelu, gelu_tanh, silu: 4) wherever the result is a normal number, and gives its special
// values: NaN to NaN, limits at ±∞. Polynomials are minimax fits whose coefficients were rounded to fp32 one after
// another, from the constant term on, the rest fitted again each time. tests/cpu_vec_math_test.cc holds them to the
// bounds.
#pragma once

#include "cpu/vec/simd_inl.h"

namespace coda::cpu {
namespace {

constexpr float kLog2e = 0x1.715476p+0f, kLog2eRest = 0x1.4ae0cp-26f;  // log2(e) in two parts
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

// e^x for -104 ≤ x ≤ 89, outside of which it is 0 or ∞ in fp32.
CODA_SIMD Float exp_inside(Float x) {
  Float n = nearest(x, kLog2e);
  Float r = fma(x, splat(kLog2e), -n);
  r = fma(x, splat(kLog2eRest), r);
  return scale2(exp2_fraction(r), n);
}
CODA_SIMD Float exp_nonpositive(Float x) { return exp_inside(quick_max(splat(-104.0f), x)); }
CODA_SIMD Float exp(Float x) { return exp_inside(quick_min(splat(89.0f), quick_max(splat(-104.0f), x))); }

CODA_SIMD Float log(Float x) {
  Int tiny = x < 0x1p-126f;
  Bits u = (Bits)(tiny ? x * 0x1p23f : x);
  Int exponent = (Int)(u - 0x3f3504f3u) >> 23;  // so that the mantissa is in [√½, √2)
  Float f = (Float)(u - ((Bits)exponent << 23)) - 1.0f;
  Float e = from_int(tiny ? exponent - 23 : exponent);
  Float cubic = horner(f, -0.5f, 0x1.555554p-2f, -0x1.000226p-2f, 0x1.99a01cp-3f, -0x1.54728ap-3f, 0x1.22d92ep-3f,
                       -0x1.0d8242p-3f, 0x1.055ec6p-3f, -0x1.38c9dep-4f);
  Float y = fma(f * f, cubic, e * -0x1.05c61p-29f) + f;
  y = fma(e, splat(0x1.62e43p-1f), y);
  Float outside = x == 0.0f ? splat(-kInf) : (x < 0.0f ? splat(__builtin_nanf("")) : x);  // +∞ and NaN stay
  return ((x > 0.0f) & (x < kInf)) ? y : outside;
}

CODA_SIMD Float tanh(Float x) {
  Float a = abs(x), s = x * x;
  Float small =
      fma(a * s, horner(s, -0x1.555534p-2f, 0x1.11076p-3f, -0x1.b8434p-5f, 0x1.52509ep-6f, -0x1.76922ap-8f), a);
  Float large = 1.0f - 2.0f / (exp_inside(2.0f * quick_min(splat(10.0f), a)) + 1.0f);
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
CODA_SIMD Float sigmoid_from(Float x, Float t, Float factor) { return (x < 0.0f ? factor * t : factor) / (1.0f + t); }
CODA_SIMD Float sigmoid(Float x) { return sigmoid_from(x, exp_nonpositive(-abs(x)), splat(1.0f)); }
// The factor is bounded below where t is 0 already: -∞ · 0 would be NaN.
CODA_SIMD Float silu(Float x) { return sigmoid_from(x, exp_nonpositive(-abs(x)), quick_max(splat(-200.0f), x)); }

// x·Φ(x) = max(x, 0) - a·Φ(-a) with a = |x| and Φ(-a) = e^(-a²/2) · u·P(u), u = 1 / (1 + a/4). The square is kept in
// two parts, or its rounding error would become a relative error of a²/2 ulp. Beyond 14.5 the exponential is 0.
CODA_SIMD Float gelu(Float x) {
  Float a = quick_min(splat(14.5f), abs(x));
  Float u = 1.0f / fma(a, splat(0.25f), splat(1.0f));
  Float p = horner(u, 0x1.988f4ep-4f, 0x1.97a96ap-4f, 0x1.862014p-4f, 0x1.2bd696p-4f, 0x1.554a02p-4f, 0x1.32264p-6f,
                   0x1.604ebap-6f, 0x1.d05fdcp-5f, -0x1.09b68p-4f, 0x1.15bfc2p-6f);
  Float square = a * a, rest = fma(a, a, -square);
  Float n = nearest(square, -0.5f * kLog2e);
  Float r = fma(square, splat(-0.5f * kLog2e), -n);
  r = fma(square, splat(-0.5f * kLog2eRest), r);
  r = fma(rest, splat(-0.5f * kLog2e), r);
  Float tail = scale2(exp2_fraction(r), n);
  return fma(-(a * u) * p, tail, quick_max(Float{}, x));
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
  return sigmoid_from(x, scale2(exp2_fraction(r), narrow(n)), quick_max(splat(-200.0f), x));
}

}  // namespace
}  // namespace coda::cpu
