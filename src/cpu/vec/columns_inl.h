// Reductions along the rows of a block into running results, one per column. Included once per instruction set
// (simd_inl.h). Invariant: a column's result depends on that column alone and on how its rows were cut into blocks;
// inside a block rows are taken in order.
#pragma once

#include "cpu/vec/reduce_inl.h"

namespace coda::cpu {
namespace {

void sum_m(const Block& b, float* acc) {
  each_vector(
      b.n, [&](std::int64_t j, auto extent) __attribute__((always_inline)) {
        Float sum{};  // of the block first: fewer and better balanced roundings than adding each row to the total
        for (std::int64_t r = 0; r < b.rows; ++r) sum += load<Float>(b.x + r * b.pitch + j, extent);
        store(acc + j, load<Float>(acc + j, extent) + sum, extent);
      });
}

template <class Extent>
CODA_SIMD Float max_of_rows(const Block& b, std::int64_t j, Float top, Extent extent) {
  for (std::int64_t r = 0; r < b.rows; ++r) top = maximum(top, load<Float>(b.x + r * b.pitch + j, extent));
  return top;
}

void max_m(const Block& b, float* acc) {
  each_vector(
      b.n, [&](std::int64_t j, auto extent) __attribute__((always_inline)) {
        store(acc + j, max_of_rows(b, j, load<Float>(acc + j, extent), extent), extent);
      });
}

void argmax_m(const Block& b, std::int32_t first_row, float* value, std::int32_t* index) {
  each_vector(
      b.n, [&](std::int64_t j, auto extent) __attribute__((always_inline)) {
        Float best = load<Float>(value + j, extent);
        Int at = load<Int>(index + j, extent);
        for (std::int64_t r = 0; r < b.rows; ++r) {
          Float v = load<Float>(b.x + r * b.pitch + j, extent);
          Int better = replaces(v, best) | (at < 0);  // the very first row counts even if it is -∞
          best = better ? v : best;
          at = better ? Int{} + (first_row + static_cast<std::int32_t>(r)) : at;
        }
        store(value + j, best, extent);
        store(index + j, at, extent);
      });
}

template <bool has_payload>
CODA_SIMD void logsumexp_columns(const Block& b, const float* w, std::int64_t w_pitch, float* m, float* s, float* t) {
  each_vector(
      b.n, [&](std::int64_t j, auto extent) __attribute__((always_inline)) {
        Float before = load<Float>(m + j, extent);
        Float top = max_of_rows(b, j, before, extent);
        // What was summed relative to the old maximum; equal maxima, infinite ones too, need no rescaling.
        Float scale = before == top ? splat(1.0f) : exp_summand(before - top);
        Float sum{}, weighted{};
        for (std::int64_t r = 0; r < b.rows; ++r) {
          Float v = load<Float>(b.x + r * b.pitch + j, extent);
          Int nothing = v == -kInf;
          Float e = nothing ? Float{} : exp_summand(v - top);
          sum += e;
          if constexpr (has_payload) weighted += e == 0.0f ? Float{} : e * load<Float>(w + r * w_pitch + j, extent);
        }
        store(m + j, top, extent);
        store(s + j, load<Float>(s + j, extent) * scale + sum, extent);
        if constexpr (has_payload) store(t + j, load<Float>(t + j, extent) * scale + weighted, extent);
      });
}

void logsumexp_m(const Block& b, const float* payload, std::int64_t payload_pitch, float* m, float* s, float* t) {
  if (payload != nullptr)
    logsumexp_columns<true>(b, payload, payload_pitch, m, s, t);
  else
    logsumexp_columns<false>(b, nullptr, 0, m, s, nullptr);
}

void moments_m(const Block& b, std::int64_t rows_before, float* mean, float* m2) {
  if (b.rows <= 0) return;
  float count = static_cast<float>(b.rows), before = static_cast<float>(rows_before);
  float share = count / static_cast<float>(rows_before + b.rows);  // of the block in the merged rows
  each_vector(
      b.n, [&](std::int64_t j, auto extent) __attribute__((always_inline)) {
        Float sum{};
        for (std::int64_t r = 0; r < b.rows; ++r) sum += load<Float>(b.x + r * b.pitch + j, extent);
        Float first = sum / count, left{}, squares{};
        for (std::int64_t r = 0; r < b.rows; ++r) {
          Float d = load<Float>(b.x + r * b.pitch + j, extent) - first;
          left += d;
          squares += d * d;
        }
        Float shift = left / count, own_m2 = squares - left * shift;
        Float own_mean = first - first == 0.0f ? first + shift : first;  // nothing corrects an infinite mean
        own_m2 = own_m2 < 0.0f ? Float{} : own_m2;
        if (rows_before > 0) {
          Float old_mean = load<Float>(mean + j, extent), delta = own_mean - old_mean;
          Int infinite = (abs(old_mean) == kInf) | (abs(own_mean) == kInf);
          own_mean = old_mean + (infinite ? own_mean : delta * share);
          own_m2 = load<Float>(m2 + j, extent) + own_m2 + delta * delta * (before * share);
        }
        store(mean + j, own_mean, extent);
        store(m2 + j, own_m2, extent);
      });
}

}  // namespace
}  // namespace coda::cpu
