// The text of the attention kernels, written with the compilers' vector types; included once by the file of each
// instruction set, which defines kLanes, kRowTile and kVectorTile first. Everything is in an unnamed namespace and
// calls no inline function of another header when F16C exists (see cpu/kernels/kernel_set.h for why).
#pragma once

#include "cpu/attention/kernels.h"
#include "cpu/kernels/kernel_loop.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace coda::cpu {
namespace {

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t IntVec __attribute__((vector_size(4 * kLanes)));
typedef std::uint16_t HalfVec __attribute__((vector_size(2 * kLanes)));

template <class V>
V load_as(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

template <class V>
void store_as(void* p, V v) {
  __builtin_memcpy(p, &v, sizeof v);
}

Vec spread(float x) { return x - Vec{}; }  // minus: x + 0 would lose the sign of −0

constexpr float kInf = __builtin_huge_valf();

// exp(x) for x ≤ 88, relative error below 2e-7; 0 below the smallest normal number, NaN for NaN.
Vec exp(Vec x) {
  constexpr float kRound = 0x1.8p23f;  // adding it leaves round(x) in the low bits of the sum
  Vec low = spread(-87.33f);
  Vec t = (x < low ? low : x) * 0x1.715476p0f + kRound;
  Vec n = t - kRound;
  Vec r = x - n * 0x1.62e4p-1f;  // ln 2 in two parts: n times the first is exact
  r = r - n * 0x1.7f7d1cp-20f;
  Vec p = spread(0x1.6c16c2p-10f);
  p = p * r + 0x1.111112p-7f;
  p = p * r + 0x1.555556p-5f;
  p = p * r + 0x1.555556p-3f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  IntVec bits = load_as<IntVec>(&p) + (load_as<IntVec>(&t) << 23);
  Vec y = load_as<Vec>(&bits);
  return x < low ? spread(0.0f) : (x == x ? y : x);
}

template <int kRows, int kVectors>
void gemm_tile(const SmallGemm& g, std::int64_t i, std::int64_t j) {
  Vec sum[kRows][kVectors];
  float* c = g.c + i * g.c_row + j;
  CODA_UNROLL
  for (int r = 0; r < kRows; ++r) {
    CODA_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v] = g.accumulate ? load_as<Vec>(c + r * g.c_row + v * kLanes) : Vec{};
  }
  const float* a = g.a + i * g.a_row;
  const float* b = g.b + j;
  std::int64_t a_row = g.a_row;
  for (std::int64_t p = 0; p < g.k; ++p, a += g.a_col, b += g.b_row) {
    Vec bv[kVectors];
    CODA_UNROLL
    for (int v = 0; v < kVectors; ++v) bv[v] = load_as<Vec>(b + v * kLanes);
    CODA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      Vec av = spread(a[r * a_row]);
      CODA_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[r][v] += av * bv[v];
    }
  }
  CODA_UNROLL
  for (int r = 0; r < kRows; ++r) {
    CODA_UNROLL
    for (int v = 0; v < kVectors; ++v) store_as(c + r * g.c_row + v * kLanes, sum[r][v]);
  }
}

template <int kRows, int kVectors>
void gemm_rows(const SmallGemm& g, std::int64_t i, std::int64_t j, std::int64_t rows) {
  if constexpr (kRows > 1)
    if (rows < kRows) return gemm_rows<kRows - 1, kVectors>(g, i, j, rows);
  gemm_tile<kRows, kVectors>(g, i, j);
}

template <int kVectors>
void gemm_panel(const SmallGemm& g, std::int64_t j, std::int64_t vectors) {
  if constexpr (kVectors > 1)
    if (vectors < kVectors) return gemm_panel<kVectors - 1>(g, j, vectors);
  for (std::int64_t i = 0; i < g.m; i += kRowTile) gemm_rows<kRowTile, kVectors>(g, i, j, g.m - i);
}

void gemm(const SmallGemm& g) {
  for (std::int64_t j = 0; j < g.n; j += kVectorTile * kLanes) gemm_panel<kVectorTile>(g, j, (g.n - j) / kLanes);
}

IntVec lane_numbers(int first) {
  IntVec lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = first + i;
  return lanes;
}

void softmax(float* s, std::int64_t keys, bool diagonal, float scale, float* max, float* sum, float* alpha) {
  for (int first = 0; first < kBlock; first += kLanes) {
    IntVec query = lane_numbers(first);
    Vec before = load_as<Vec>(max + first), top = before;
    for (std::int64_t t = 0; t < keys; ++t) {
      float* at = s + t * kBlock + first;
      Vec x = load_as<Vec>(at) * scale;
      if (diagonal) x = query < static_cast<std::int32_t>(t) ? spread(-kInf) : x;
      top = x > top ? x : top;
      store_as(at, x);
    }
    // Nothing but −∞ so far: any finite shift gives the zeros that are due, where −∞ − −∞ would give NaN.
    Vec shift = top == -kInf ? spread(0.0f) : top;
    Vec factor = exp(before - shift);
    Vec total = load_as<Vec>(sum + first) * factor;
    for (std::int64_t t = 0; t < keys; ++t) {
      float* at = s + t * kBlock + first;
      Vec p = exp(load_as<Vec>(at) - shift);
      total += p;
      store_as(at, p);
    }
    store_as(max + first, top);
    store_as(sum + first, total);
    store_as(alpha + first, factor);
  }
}

void gradient(float* s, float* dp, std::int64_t keys, bool diagonal, float scale, const float* lse,
              const float* delta) {
  for (int first = 0; first < kBlock; first += kLanes) {
    IntVec query = lane_numbers(first);
    Vec l = load_as<Vec>(lse + first), d = load_as<Vec>(delta + first);
    for (std::int64_t t = 0; t < keys; ++t) {
      std::int64_t at = t * kBlock + first;
      Vec p = exp(load_as<Vec>(s + at) * scale - l);
      Vec ds = p * (load_as<Vec>(dp + at) - d) * scale;
      if (diagonal) {
        p = query < static_cast<std::int32_t>(t) ? spread(0.0f) : p;
        ds = query < static_cast<std::int32_t>(t) ? spread(0.0f) : ds;
      }
      store_as(s + at, p);
      store_as(dp + at, ds);
    }
  }
}

Vec widen_bf16(HalfVec h) {
  IntVec bits = __builtin_convertvector(h, IntVec) << 16;
  return load_as<Vec>(&bits);
}

HalfVec round_bf16(Vec x) {
  IntVec bits = load_as<IntVec>(&x);
  IntVec rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  IntVec kept = x == x ? rounded : ((bits >> 16) | 0x40);
  return __builtin_convertvector(kept & 0xffff, HalfVec);
}

#if defined(__F16C__)
Vec widen_f16(HalfVec h) {
  if constexpr (kLanes == 8) {
    __m256 x = _mm256_cvtph_ps(load_as<__m128i>(&h));
    return load_as<Vec>(&x);
  } else {
    __m256 x[2] = {_mm256_cvtph_ps(load_as<__m128i>(&h)),
                   _mm256_cvtph_ps(load_as<__m128i>(reinterpret_cast<char*>(&h) + 16))};
    return load_as<Vec>(x);
  }
}
HalfVec round_f16(Vec x) {
  __m128i h[kLanes / 8];
  for (int i = 0; i < kLanes / 8; ++i)
    h[i] = _mm256_cvtps_ph(load_as<__m256>(reinterpret_cast<char*>(&x) + 32 * i), _MM_FROUND_TO_NEAREST_INT);
  return load_as<HalfVec>(h);
}
#else
Vec widen_f16(HalfVec h) {
  Vec x;
  for (int i = 0; i < kLanes; ++i) x[i] = to_float(F16{h[i]});
  return x;
}
HalfVec round_f16(Vec x) {
  HalfVec h;
  for (int i = 0; i < kLanes; ++i) h[i] = to_f16(x[i]).bits;
  return h;
}
#endif

template <class Stored, Vec (*widen)(Stored)>
void load_all(const void* src, std::int64_t n, float* dst) {
  constexpr std::int64_t kBytes = sizeof(Stored) / kLanes;
  const char* from = static_cast<const char*>(src);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_as(dst + i, widen(load_as<Stored>(from + i * kBytes)));
  if (i == n) return;
  Stored tail{};
  __builtin_memcpy(&tail, from + i * kBytes, static_cast<std::size_t>((n - i) * kBytes));
  Vec x = widen(tail);
  __builtin_memcpy(dst + i, &x, static_cast<std::size_t>((n - i) * 4));
}

template <class Stored, Stored (*round)(Vec)>
void store_all(const float* src, std::int64_t n, void* dst) {
  constexpr std::int64_t kBytes = sizeof(Stored) / kLanes;
  char* to = static_cast<char*>(dst);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_as(to + i * kBytes, round(load_as<Vec>(src + i)));
  if (i == n) return;
  Vec tail{};
  __builtin_memcpy(&tail, src + i, static_cast<std::size_t>((n - i) * 4));
  Stored x = round(tail);
  __builtin_memcpy(to + i * kBytes, &x, static_cast<std::size_t>((n - i) * kBytes));
}

Vec same(Vec x) { return x; }

void load(const void* src, DType dtype, std::int64_t n, float* dst) {
  if (dtype == DType::kF32) return load_all<Vec, same>(src, n, dst);
  if (dtype == DType::kBF16) return load_all<HalfVec, widen_bf16>(src, n, dst);
  load_all<HalfVec, widen_f16>(src, n, dst);
}

void store(const float* src, DType dtype, std::int64_t n, void* dst) {
  if (dtype == DType::kF32) return store_all<Vec, same>(src, n, dst);
  if (dtype == DType::kBF16) return store_all<HalfVec, round_bf16>(src, n, dst);
  store_all<HalfVec, round_f16>(src, n, dst);
}

constexpr AttentionKernels kKernels{gemm, softmax, gradient, load, store};

}  // namespace
}  // namespace coda::cpu
