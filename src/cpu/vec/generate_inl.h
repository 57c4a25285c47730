// Values made from indices: uniform random numbers (Philox 4x32-10, defined in src/ir/philox.h) and cosines and sines
// of position times frequency. Included once per instruction set (simd_inl.h). Invariant: an element depends on its
// index, seed and offset (position and frequency) alone.
#pragma once

#include "cpu/vec/simd_inl.h"
#include "cpu/vec/storage_inl.h"

namespace coda::cpu {
namespace {

struct Product {
  Bits low, high;
};
CODA_SIMD Product multiply(Bits a, std::uint32_t by) {
  Bits b = splat_bits(by);
  Wide even = multiply_even(a, b), odd = multiply_even((Bits)((Wide)a >> 32), b);
  constexpr std::uint64_t kLow = 0xffffffffu;
  return {(Bits)((even & kLow) | odd << 32), (Bits)(even >> 32 | (odd & ~kLow))};
}

// Four words for each of kLanes counters: out[w] holds word w of all.
CODA_SIMD void philox(Bits counter_low, Bits counter_high, std::uint32_t offset, std::uint32_t seed, Bits (&out)[4]) {
  Bits c0 = counter_low, c1 = counter_high, c2 = splat_bits(offset), c3{};
  std::uint32_t k0 = seed, k1 = 0;
  for (int round = 0; round < 10; ++round) {
    Product p0 = multiply(c0, 0xd2511f53u), p1 = multiply(c2, 0xcd9e8d57u);
    c0 = p1.high ^ c1 ^ k0, c1 = p1.low;
    c2 = p0.high ^ c3 ^ k1, c3 = p0.low;
    k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

// The numbers of elements 4·counter … 4·counter + 4·kLanes - 1, in order.
CODA_SIMD void uniform_run(std::uint64_t counter, std::uint32_t offset, std::uint32_t seed, Bits (&out)[4]) {
  Bits low = splat_bits(static_cast<std::uint32_t>(counter)) + (Bits)lane_numbers();
  Bits high = splat_bits(static_cast<std::uint32_t>(counter >> 32));
  high += low < static_cast<std::uint32_t>(counter) ? splat_bits(1) : Bits{};  // carried
  Bits word[4];
  philox(low, high, offset, seed, word);
  for (Bits& w : word) w = (Bits)(from_int((Int)(w >> 8)) * 0x1p-24f);
  // Words w of all counters → counters one after another.
  Bits a = alternate<0>(word[0], word[2], kAllLanes), b = alternate<0>(word[1], word[3], kAllLanes);
  Bits c = alternate<kLanes / 2>(word[0], word[2], kAllLanes), d = alternate<kLanes / 2>(word[1], word[3], kAllLanes);
  out[0] = alternate<0>(a, b, kAllLanes), out[1] = alternate<kLanes / 2>(a, b, kAllLanes);
  out[2] = alternate<0>(c, d, kAllLanes), out[3] = alternate<kLanes / 2>(c, d, kAllLanes);
}

void uniform(float* dst, std::int64_t pitch, std::int64_t rows, std::int64_t n, std::int64_t first,
             std::int64_t row_width, std::int32_t seed, std::int32_t offset) {
  constexpr std::int64_t kRun = 4 * kLanes;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* to = dst + r * pitch;
    std::uint64_t index = static_cast<std::uint64_t>(first + r * row_width);
    Bits run[4];
    for (std::int64_t j = 0; j < n;) {
      std::int64_t skip = static_cast<std::int64_t>(index % 4);  // not 0 only at the start of a row
      std::int64_t count = n - j < kRun - skip ? n - j : kRun - skip;
      uniform_run(index / 4, static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(seed), run);
      if (count == kRun)
        __builtin_memcpy(to + j, run, sizeof run);
      else
        __builtin_memcpy(to + j, reinterpret_cast<const char*>(run) + 4 * skip, static_cast<std::size_t>(count) * 4);
      j += count, index += static_cast<std::uint64_t>(count);
    }
  }
}

// --- cis

CODA_SIMD Double polynomial(Double, double c) { return splat_double(c); }
template <class... Rest>
CODA_SIMD Double polynomial(Double x, double c, Rest... higher) {
  return c + x * polynomial(x, higher...);
}

struct CosSin {
  Double cos, sin;
};

#if defined(__AVX2__)
// Up to here the quotient by π/2 is an exact integer and its products with the two parts of π/2 lose nothing in an fma.
constexpr double kCisLimit = 0x1p30;
CODA_SIMD Double less_quarters(Double x, Double k) {
  Double r = fma(-k, splat_double(0x1.921fb54442d18p+0), x);
  return fma(-k, splat_double(0x1.1a62633145c07p-54), r);
}
#else
constexpr double kCisLimit = -1;  // without fma the C library does all of it
CODA_SIMD Double less_quarters(Double x, Double) { return x; }
#endif

// Taylor series on [-π/4, π/4]: 1e-13, far below the rounding to fp32 that follows.
CODA_SIMD CosSin cos_sin(Double x) {
  Double shifted = x * 0x1.45f306dc9c883p-1 + kRoundDouble;
  Wide quadrant = (Wide)shifted;  // its lowest bits
  Double r = less_quarters(x, shifted - kRoundDouble), s = r * r;
  Double sine =
      r * polynomial(s, 1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800);
  Double cosine = polynomial(s, 1.0, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600);
  auto odd = (quadrant & 1) != 0;
  Double c = odd ? sine : cosine, d = odd ? cosine : sine;
  return {(Double)((Wide)c ^ ((quadrant + 1) & 2) << 62), (Double)((Wide)d ^ (quadrant & 2) << 62)};
}

void cis(float* cos, float* sin, std::int64_t pitch, const std::int32_t* pos, const float* freq, std::int64_t rows,
         std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r) {
    double p = pos[r];
    float* to_cos = cos + r * pitch;
    float* to_sin = sin + r * pitch;
    Int far{};
    each_vector(
        n, [&](std::int64_t j, auto extent) __attribute__((always_inline)) {
          TwoDoubles x = widen(load<Float>(freq + j, extent));
          x.low *= p, x.high *= p;
          CosSin low = cos_sin(x.low), high = cos_sin(x.high);
          store(to_cos + j, narrow(TwoDoubles{low.cos, high.cos}), extent);
          store(to_sin + j, narrow(TwoDoubles{low.sin, high.sin}), extent);
          far |= (Int) ~((abs_of(x.low) <= kCisLimit) & (abs_of(x.high) <= kCisLimit));
        });
    bool any_far = false;
    for (int i = 0; i < kLanes; ++i) any_far |= far[i] != 0;
    for (std::int64_t j = 0; any_far && j < n; ++j) {
      double x = p * static_cast<double>(freq[j]);
      if (__builtin_fabs(x) <= kCisLimit) continue;
      to_cos[j] = static_cast<float>(__builtin_cos(x));
      to_sin[j] = static_cast<float>(__builtin_sin(x));
    }
  }
}

}  // namespace
}  // namespace coda::cpu
