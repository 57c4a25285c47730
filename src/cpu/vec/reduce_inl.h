// Reductions along the columns of a block, one result per row (or per row and group). Included once per instruction set
// (simd_inl.h). Invariant: a row's result depends on that row alone, and is summed in one fixed order: four vectors of
// partial sums taken in turn, added in a tree, then the lanes in a tree.
#pragma once

#include "cpu/vec/math_inl.h"
#include "cpu/vec/vec_ops.h"

namespace coda::cpu {
namespace {

constexpr int kPartials = 4;
template <int i>
using Which = std::integral_constant<int, i>;

// body(which, j, extent) for the vectors of a row, `which` of the partial results in turn.
template <class Body>
CODA_SIMD void each_vector_in_turn(std::int64_t n, Body body) {
  std::int64_t j = 0;
  for (; j + kPartials * kLanes <= n; j += kPartials * kLanes) {
    body(Which<0>{}, j, Whole{});
    body(Which<1>{}, j + kLanes, Whole{});
    body(Which<2>{}, j + 2 * kLanes, Whole{});
    body(Which<3>{}, j + 3 * kLanes, Whole{});
  }
  if (j + 2 * kLanes <= n) {
    body(Which<0>{}, j, Whole{});
    body(Which<1>{}, j + kLanes, Whole{});
    j += 2 * kLanes;
  }
  if (j + kLanes <= n) {
    body(Which<2>{}, j, Whole{});
    j += kLanes;
  }
  if (j < n) body(Which<3>{}, j, Part(n - j));
}

CODA_SIMD float sum_partials(const Float (&p)[kPartials]) { return sum_lanes((p[0] + p[1]) + (p[2] + p[3])); }

float sum_row(const float* x, std::int64_t n) {
  Float partial[kPartials] = {};
  each_vector_in_turn(
      n, [&](auto which, std::int64_t j, auto extent)
             __attribute__((always_inline)) { partial[which.value] += load<Float>(x + j, extent); });
  return sum_partials(partial);
}

float max_row(const float* x, std::int64_t n) {
  Float partial[kPartials] = {splat(-kInf), splat(-kInf), splat(-kInf), splat(-kInf)};
  each_vector_in_turn(
      n, [&](auto which, std::int64_t j, auto extent) __attribute__((always_inline)) {
        partial[which.value] = maximum(partial[which.value], filled(load<Float>(x + j, extent), extent, -kInf));
      });
  return max_lanes(maximum(maximum(partial[0], partial[1]), maximum(partial[2], partial[3])));
}

void sum_n(const Block& b, float* out) {
  for (std::int64_t r = 0; r < b.rows; ++r) out[r] = sum_row(b.x + r * b.pitch, b.n);
}

void max_n(const Block& b, float* out) {
  for (std::int64_t r = 0; r < b.rows; ++r) out[r] = max_row(b.x + r * b.pitch, b.n);
}

// Whether `x` replaces `best`: it is larger, or the first NaN.
CODA_SIMD Int replaces(Float x, Float best) { return (x > best) | (is_nan(x) & ~is_nan(best)); }

void argmax_row(const float* x, std::int64_t n, float* value, std::int32_t* index) {
  Float best = splat(-kInf);
  Int at = Int{} - 1;
  each_vector(
      n, [&](std::int64_t j, auto extent) __attribute__((always_inline)) {
        Float v = filled(load<Float>(x + j, extent), extent, -kInf);
        Int better = replaces(v, best);
        best = better ? v : best;
        at = better ? lane_numbers() + static_cast<std::int32_t>(j) : at;
      });
  float top = max_lanes(best);
  constexpr std::int32_t kNone = 0x7fffffff;
  Int wins = ((best == top) | (is_nan(best) & is_nan(splat(top)))) & (at >= 0);
  std::int32_t lowest = min_lanes(wins ? at : Int{} + kNone);
  // If no lane ever replaced -∞, all of the row is -∞.
  *value = top;
  *index = lowest != kNone ? lowest : n > 0 ? 0 : -1;
}

void argmax_n(const Block& b, float* value, std::int32_t* index) {
  for (std::int64_t r = 0; r < b.rows; ++r) argmax_row(b.x + r * b.pitch, b.n, value + r, index + r);
}

// Σ exp(x − m) and, with a payload, Σ exp(x − m)·w. Where the exponential is 0 the payload adds nothing, not even ∞;
// with m = +∞ the exponents are ∞ − ∞ and the sums NaN, as IEEE has it.
template <bool has_payload>
CODA_SIMD void exp_sums(const float* x, const float* w, std::int64_t n, float m, float* s, float* t) {
  Float sum[kPartials] = {}, weighted[kPartials] = {};
  each_vector_in_turn(
      n, [&](auto which, std::int64_t j, auto extent) __attribute__((always_inline)) {
        Float v = filled(load<Float>(x + j, extent), extent, -kInf);
        Float e = exp_summand(v - m);
        sum[which.value] += e;
        if constexpr (has_payload) weighted[which.value] += e == 0.0f ? Float{} : e * load<Float>(w + j, extent);
      });
  *s = sum_partials(sum);
  if constexpr (has_payload) *t = sum_partials(weighted);
}

void logsumexp_n(const Block& b, const float* payload, std::int64_t payload_pitch, float* m, float* s, float* t) {
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const float* x = b.x + r * b.pitch;
    m[r] = max_row(x, b.n);
    if (m[r] == -kInf) {
      s[r] = 0;
      if (payload != nullptr) t[r] = 0;
    } else if (payload != nullptr) {
      exp_sums<true>(x, payload + r * payload_pitch, b.n, m[r], s + r, t + r);
    } else {
      exp_sums<false>(x, nullptr, b.n, m[r], s + r, nullptr);
    }
  }
}

// The second pass also sums the deviations themselves: their sum is what the rounding of the mean left over, and
// corrects both results.
void moments_row(const float* x, std::int64_t n, float* mean, float* m2) {
  *mean = *m2 = 0;
  if (n <= 0) return;
  float count = static_cast<float>(n);
  float first = sum_row(x, n) / count;
  Float sum[kPartials] = {}, squares[kPartials] = {};
  each_vector_in_turn(
      n, [&](auto which, std::int64_t j, auto extent) __attribute__((always_inline)) {
        Float d = filled(load<Float>(x + j, extent) - first, extent, 0.0f);
        sum[which.value] += d;
        squares[which.value] += d * d;
      });
  float left = sum_partials(sum), shift = left / count;
  float square = sum_partials(squares) - left * shift;
  *mean = first - first == 0 ? first + shift : first;  // nothing corrects an infinite mean
  *m2 = square < 0 ? 0 : square;
}

void moments_n(const Block& b, float* mean, float* m2) {
  for (std::int64_t r = 0; r < b.rows; ++r) moments_row(b.x + r * b.pitch, b.n, mean + r, m2 + r);
}

// --- inside groups of columns

void sum_c(const Block& b, std::int64_t width, float* out, std::int64_t out_pitch) {
  std::int64_t groups = width > 0 ? b.n / width : 0;
  for (std::int64_t r = 0; r < b.rows; ++r)
    for (std::int64_t g = 0; g < groups; ++g) out[r * out_pitch + g] = sum_row(b.x + r * b.pitch + g * width, width);
}

void max_c(const Block& b, std::int64_t width, float* out, std::int64_t out_pitch) {
  std::int64_t groups = width > 0 ? b.n / width : 0;
  for (std::int64_t r = 0; r < b.rows; ++r)
    for (std::int64_t g = 0; g < groups; ++g) out[r * out_pitch + g] = max_row(b.x + r * b.pitch + g * width, width);
}

}  // namespace
}  // namespace coda::cpu
