// Vectors of the widest registers of one instruction set, and the few operations that the compiler's vector types lack.
// Included, with the other *_inl.h of this folder, by exactly one source file per instruction set (baseline.cc,
// avx2.cc, avx512.cc), which is compiled with that set's flags. Invariant: everything is in an anonymous namespace and
// no inline function of a shared header is called, so that no code made with those flags can be linked into another
// file.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <utility>

#define CODA_SIMD inline __attribute__((always_inline))

namespace coda::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using Float = float __attribute__((vector_size(kLanes * 4)));
using Int = std::int32_t __attribute__((vector_size(kLanes * 4)));  // comparisons give these: 0 or -1 per lane
using Bits = std::uint32_t __attribute__((vector_size(kLanes * 4)));
using Half = std::uint16_t __attribute__((vector_size(kLanes * 2)));  // 16-bit storage of a whole vector
using Double = double __attribute__((vector_size(kLanes * 4)));       // half as many lanes
using Wide = std::uint64_t __attribute__((vector_size(kLanes * 4)));
using HalfFloat = float __attribute__((vector_size(kLanes * 2)));  // the floats of one Double

constexpr float kInf = __builtin_inff();

CODA_SIMD Float splat(float x) { return x - Float{}; }  // x + 0 would turn -0 into 0 and is not folded away
CODA_SIMD Bits splat_bits(std::uint32_t x) { return x + Bits{}; }
CODA_SIMD Double splat_double(double x) { return x - Double{}; }

// --- loads and stores: of whole vectors, or of the first lanes at a row's end (the other lanes read as 0)

struct Whole {};

#if defined(__AVX512F__)
struct Part {
  __mmask16 mask;
  explicit CODA_SIMD Part(std::int64_t count) : mask(static_cast<__mmask16>((1u << count) - 1)) {}
};
CODA_SIMD Bits load_bits(const void* p, Part part) { return (Bits)_mm512_maskz_loadu_epi32(part.mask, p); }
CODA_SIMD void store_bits(void* p, Bits v, Part part) { _mm512_mask_storeu_epi32(p, part.mask, (__m512i)v); }
#elif defined(__AVX2__)
struct Part {
  __m256i mask;
  explicit CODA_SIMD Part(std::int64_t count)
      : mask(_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                                _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))) {}
};
CODA_SIMD Bits load_bits(const void* p, Part part) {
  return (Bits)_mm256_maskload_epi32(static_cast<const int*>(p), part.mask);
}
CODA_SIMD void store_bits(void* p, Bits v, Part part) {
  _mm256_maskstore_epi32(static_cast<int*>(p), part.mask, (__m256i)v);
}
#else
struct Part {
  std::size_t bytes;
  explicit CODA_SIMD Part(std::int64_t count) : bytes(static_cast<std::size_t>(count) * 4) {}
};
CODA_SIMD Bits load_bits(const void* p, Part part) {
  Bits v{};
  __builtin_memcpy(&v, p, part.bytes);
  return v;
}
CODA_SIMD void store_bits(void* p, Bits v, Part part) { __builtin_memcpy(p, &v, part.bytes); }
#endif

CODA_SIMD Bits load_bits(const void* p, Whole) {
  Bits v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
CODA_SIMD void store_bits(void* p, Bits v, Whole) { __builtin_memcpy(p, &v, sizeof v); }

template <class V, class Extent>
CODA_SIMD V load(const void* p, Extent extent) {
  return (V)load_bits(p, extent);
}
template <class V, class Extent>
CODA_SIMD void store(void* p, V v, Extent extent) {
  store_bits(p, (Bits)v, extent);
}
CODA_SIMD Bits broadcast(const void* p) {
  std::uint32_t x;
  __builtin_memcpy(&x, p, sizeof x);
  return splat_bits(x);
}

// body(j, extent) for the vectors of a row of n elements: j counts elements, extent is Whole, or Part at the end.
template <class Body>
CODA_SIMD void each_vector(std::int64_t n, Body body) {
  std::int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) body(j, Whole{});
  if (j < n) body(j, Part(n - j));
}

template <int... i>
CODA_SIMD Int lane_numbers(std::integer_sequence<int, i...>) {
  return Int{i...};
}
CODA_SIMD Int lane_numbers() { return lane_numbers(std::make_integer_sequence<int, kLanes>()); }

// v in the lanes that `part` has, fill in the others.
CODA_SIMD Float filled(Float v, Whole, float) { return v; }
CODA_SIMD Float filled(Float v, Part part, float fill) {
#if defined(__AVX512F__)
  return (Float)_mm512_mask_blend_ps(part.mask, _mm512_set1_ps(fill), (__m512)v);
#elif defined(__AVX2__)
  return (Int)part.mask ? v : splat(fill);
#else
  return lane_numbers() < static_cast<std::int32_t>(part.bytes / 4) ? v : splat(fill);
#endif
}

// --- doubles

CODA_SIMD Double widen(HalfFloat a) { return __builtin_convertvector(a, Double); }
CODA_SIMD HalfFloat narrow(Double a) { return __builtin_convertvector(a, HalfFloat); }
struct TwoDoubles {
  Double low, high;
};
template <int first, int... i>
CODA_SIMD HalfFloat half_of(Float a, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, a, (first + i)...);
}
template <int... i>
CODA_SIMD Float joined(HalfFloat low, HalfFloat high, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(low, high, i...);
}
constexpr auto kAllLanes = std::make_integer_sequence<int, kLanes>();
constexpr auto kHalfOfLanes = std::make_integer_sequence<int, kLanes / 2>();
CODA_SIMD TwoDoubles widen(Float a) {
  return {widen(half_of<0>(a, kHalfOfLanes)), widen(half_of<kLanes / 2>(a, kHalfOfLanes))};
}
CODA_SIMD Float narrow(TwoDoubles a) { return joined(narrow(a.low), narrow(a.high), kAllLanes); }

// --- arithmetic

#if defined(__AVX512F__)
CODA_SIMD Float fma(Float a, Float b, Float c) { return (Float)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
CODA_SIMD Double fma(Double a, Double b, Double c) {
  return (Double)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
// The second operand where one is NaN or both are equal: put what may be NaN there.
CODA_SIMD Float quick_min(Float a, Float b) { return (Float)_mm512_min_ps((__m512)a, (__m512)b); }
CODA_SIMD Float quick_max(Float a, Float b) { return (Float)_mm512_max_ps((__m512)a, (__m512)b); }
CODA_SIMD Float sqrt(Float a) { return (Float)_mm512_sqrt_ps((__m512)a); }
CODA_SIMD Int truncate(Float a) { return (Int)_mm512_cvttps_epi32((__m512)a); }  // out of range: the lowest integer
CODA_SIMD Float from_int(Int a) { return (Float)_mm512_cvtepi32_ps((__m512i)a); }
CODA_SIMD Wide multiply_even(Bits a, Bits b) { return (Wide)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
CODA_SIMD Bits widen(Half a) { return (Bits)_mm512_cvtepu16_epi32((__m256i)a); }
CODA_SIMD Half narrow(Bits a) { return (Half)_mm512_cvtepi32_epi16((__m512i)a); }
CODA_SIMD Float widen_f16(Half a) { return (Float)_mm512_cvtph_ps((__m256i)a); }
CODA_SIMD Half narrow_f16(Float a) { return (Half)_mm512_cvtps_ph((__m512)a, _MM_FROUND_TO_NEAREST_INT); }
// p · 2^n for integers n in [-252, 254], rounded once.
CODA_SIMD Float scale2(Float p, Float n) { return (Float)_mm512_scalef_ps((__m512)p, (__m512)n); }
#else
CODA_SIMD Float scale2(Float p, Float n);
#if defined(__AVX2__)
CODA_SIMD Float fma(Float a, Float b, Float c) { return (Float)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
CODA_SIMD Double fma(Double a, Double b, Double c) {
  return (Double)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
CODA_SIMD Float quick_min(Float a, Float b) { return (Float)_mm256_min_ps((__m256)a, (__m256)b); }
CODA_SIMD Float quick_max(Float a, Float b) { return (Float)_mm256_max_ps((__m256)a, (__m256)b); }
CODA_SIMD Float sqrt(Float a) { return (Float)_mm256_sqrt_ps((__m256)a); }
CODA_SIMD Int truncate(Float a) { return (Int)_mm256_cvttps_epi32((__m256)a); }
CODA_SIMD Float from_int(Int a) { return (Float)_mm256_cvtepi32_ps((__m256i)a); }
CODA_SIMD Wide multiply_even(Bits a, Bits b) { return (Wide)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
CODA_SIMD Bits widen(Half a) { return (Bits)_mm256_cvtepu16_epi32((__m128i)a); }
CODA_SIMD Half narrow(Bits a) { return __builtin_convertvector(a, Half); }
CODA_SIMD Float widen_f16(Half a) { return (Float)_mm256_cvtph_ps((__m128i)a); }
CODA_SIMD Half narrow_f16(Float a) { return (Half)_mm256_cvtps_ph((__m256)a, _MM_FROUND_TO_NEAREST_INT); }
#else
// Fused by way of double: the product is exact there; the sum is rounded twice, which can differ from a true fma once
// in 2^29. Slow, but every approximation then has one error analysis for all instruction sets.
CODA_SIMD Float fma(Float a, Float b, Float c) {
  TwoDoubles x = widen(a), y = widen(b), z = widen(c);
  return narrow(TwoDoubles{x.low * y.low + z.low, x.high * y.high + z.high});
}
CODA_SIMD Float quick_min(Float a, Float b) { return (Float)_mm_min_ps((__m128)a, (__m128)b); }
CODA_SIMD Float quick_max(Float a, Float b) { return (Float)_mm_max_ps((__m128)a, (__m128)b); }
CODA_SIMD Float sqrt(Float a) { return (Float)_mm_sqrt_ps((__m128)a); }
CODA_SIMD Int truncate(Float a) { return (Int)_mm_cvttps_epi32((__m128)a); }
CODA_SIMD Float from_int(Int a) { return (Float)_mm_cvtepi32_ps((__m128i)a); }
CODA_SIMD Wide multiply_even(Bits a, Bits b) { return (Wide)_mm_mul_epu32((__m128i)a, (__m128i)b); }
CODA_SIMD Bits widen(Half a) { return __builtin_convertvector(a, Bits); }
CODA_SIMD Half narrow(Bits a) { return __builtin_convertvector(a, Half); }
CODA_SIMD Float widen_f16(Half a) {
  Bits h = widen(a), rest = h & 0x7fffu;
  Bits subnormal = (Bits)(from_int((Int)rest) * 0x1p-24f);  // exact
  Bits finite = rest >= 0x400u ? (rest << 13) + 0x38000000u : subnormal;
  return (Float)((rest >= 0x7c00u ? (rest << 13) | 0x7f800000u : finite) | (h & 0x8000u) << 16);
}
CODA_SIMD Half narrow_f16(Float a) {
  Bits u = (Bits)a, size = u & 0x7fffffffu;
  // Subnormal result: adding 0.5 aligns the last kept bit with the float's last bit, so the addition rounds for us.
  Bits subnormal = (Bits)((Float)size + 0.5f) - 0x3f000000u;
  Bits normal = (size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13;
  Bits finite = size < 0x38800000u ? subnormal : normal;
  Bits special = size > 0x7f800000u ? splat_bits(0x7e00u) : splat_bits(0x7c00u);
  return narrow((size >= 0x477ff000u ? special : finite) | (u >> 16 & 0x8000u));
}
#endif
CODA_SIMD Float scale2(Float p, Float n) {
  // In two steps, of which the first is exact: one factor alone cannot reach the subnormal numbers.
  Int whole = truncate(n), first = whole >> 1, second = whole - first;
  return p * (Float)((first + 127) << 23) * (Float)((second + 127) << 23);
}
#endif

CODA_SIMD Double abs_of(Double a) { return (Double)((Wide)a & 0x7fffffffffffffffu); }
CODA_SIMD Float abs(Float a) { return (Float)((Bits)a & 0x7fffffffu); }
CODA_SIMD Float with_sign_of(Float size, Float sign) { return (Float)((Bits)size | ((Bits)sign & 0x80000000u)); }
CODA_SIMD Int is_nan(Float a) { return a != a; }
// NaN wins; of 0 and -0 either.
CODA_SIMD Float minimum(Float a, Float b) { return is_nan(a) ? a : quick_min(a, b); }
CODA_SIMD Float maximum(Float a, Float b) { return is_nan(a) ? a : quick_max(a, b); }

// --- across lanes, always in the same tree

template <int distance, class V, int... i>
CODA_SIMD V partner(V v, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, v, (i ^ distance)...);
}
template <int distance = kLanes / 2, class V, class Combine>
CODA_SIMD auto across(V v, Combine combine) {
  v = combine(v, partner<distance>(v, kAllLanes));
  if constexpr (distance > 1)
    return across<distance / 2>(v, combine);
  else
    return v[0];
}
CODA_SIMD float sum_lanes(Float v) {
  return across(v, [](Float a, Float b) { return a + b; });
}
CODA_SIMD std::int32_t min_lanes(Int v) {
  return across(v, [](Int a, Int b) { return a < b ? a : b; });
}
CODA_SIMD float max_lanes(Float v) {
  return across(v, [](Float a, Float b) { return maximum(a, b); });
}

}  // namespace
}  // namespace coda::cpu
