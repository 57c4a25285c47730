// Panel packers with AVX-512, for the files that have it. All work on 32-bit lanes: a float, or a pair of bf16 that are
// neighbours along K. Unnamed namespace: see kernel_set.h. Invariant: reads and writes are masked to the exact extent.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/kernels/kernel_loop.h"
#include "cpu/kernels/kernel_set.h"

namespace coda::cpu {
namespace {

constexpr __mmask16 lanes_below(std::int64_t n) { return static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << n) - 1u); }
constexpr __mmask32 halves_below(std::int64_t n) { return n >= 32 ? 0xffffffffu : (1u << n) - 1u; }

inline __m512i widen_bf16(__m256i x) { return _mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16); }

// A source format: `along_k` fills 16 lanes with consecutive k of one row (n ≤ 16·kKPerLane elements), `along_mn` with
// one k (or pair) of 16 rows; for pairs `second` says whether k + 1 exists.
struct FromF32 {
  using Source = float;
  static constexpr int kKPerLane = 1;
  static __m512i along_k(const float* p, std::int64_t n) { return _mm512_maskz_loadu_epi32(lanes_below(n), p); }
  static __m512i along_mn(const float* p, std::int64_t, bool, __mmask16 m) { return _mm512_maskz_loadu_epi32(m, p); }
};

struct FromBf16 {
  using Source = std::uint16_t;
  static constexpr int kKPerLane = 1;
  static __m512i along_k(const Source* p, std::int64_t n) {
    return widen_bf16(_mm256_maskz_loadu_epi16(lanes_below(n), p));
  }
  static __m512i along_mn(const Source* p, std::int64_t, bool, __mmask16 m) {
    return widen_bf16(_mm256_maskz_loadu_epi16(m, p));
  }
};

struct FromF16 {
  using Source = std::uint16_t;
  static constexpr int kKPerLane = 1;
  static __m512i along_k(const Source* p, std::int64_t n) { return along_mn(p, 0, false, lanes_below(n)); }
  static __m512i along_mn(const Source* p, std::int64_t, bool, __mmask16 m) {
    return _mm512_castps_si512(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p)));
  }
};

struct Bf16Pairs {
  using Source = std::uint16_t;
  static constexpr int kKPerLane = 2;
  static __m512i along_k(const Source* p, std::int64_t n) { return _mm512_maskz_loadu_epi16(halves_below(n), p); }
  static __m512i along_mn(const Source* p, std::int64_t k_stride, bool second, __mmask16 m) {
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p));
    if (!second) return low;
    return _mm512_or_si512(low, widen_bf16(_mm256_maskz_loadu_epi16(m, p + k_stride)));
  }
};

// v[i] lane j ↔ v[j] lane i.
inline void transpose16(__m512i (&v)[16]) {
  __m512i t[16];
  CODA_UNROLL
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  CODA_UNROLL
  for (int i = 0; i < 16; i += 4) {  // v[i + q]: column q of each 4×4 block of rows i … i+3
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  CODA_UNROLL
  for (int q = 0; q < 4; ++q) {  // blocks (rows 0-3, 4-7, 8-11, 12-15) × (columns q, q+4, q+8, q+12)
    __m512i even_lo = _mm512_shuffle_i32x4(v[q], v[q + 4], 0x88),
            even_hi = _mm512_shuffle_i32x4(v[q + 8], v[q + 12], 0x88);
    __m512i odd_lo = _mm512_shuffle_i32x4(v[q], v[q + 4], 0xdd),
            odd_hi = _mm512_shuffle_i32x4(v[q + 8], v[q + 12], 0xdd);
    t[q] = _mm512_shuffle_i32x4(even_lo, even_hi, 0x88);
    t[q + 8] = _mm512_shuffle_i32x4(even_lo, even_hi, 0xdd);
    t[q + 4] = _mm512_shuffle_i32x4(odd_lo, odd_hi, 0x88);
    t[q + 12] = _mm512_shuffle_i32x4(odd_lo, odd_hi, 0xdd);
  }
  CODA_UNROLL
  for (int i = 0; i < 16; ++i) v[i] = t[i];
}

// Zeros from packed row ⌈k/kKPerLane⌉ to the padded end of the panel.
template <class From, int kLanes, int kKUnit>
void pad_panel(std::int64_t k, std::uint32_t* panel) {
  std::int64_t row = (k + From::kKPerLane - 1) / From::kKPerLane,
               end = (k + kKUnit - 1) / kKUnit * (kKUnit / From::kKPerLane);
  for (; row < end; ++row)
    for (int i = 0; i < kLanes; ++i) panel[row * kLanes + i] = 0;
}

// Panel layout: packed row (k or pair of k) by lane.
template <class From, int kLanes, int kKUnit>
void pack_from_k_major(const void* const* sources, int count, std::int64_t k, void* panel) {
  constexpr std::int64_t kStep = 16 * From::kKPerLane;
  std::uint32_t* out = static_cast<std::uint32_t*>(panel);
  for (std::int64_t k0 = 0; k0 < k; k0 += kStep) {
    std::int64_t n = smaller(k - k0, kStep);
    int packed_rows = static_cast<int>((n + From::kKPerLane - 1) / From::kKPerLane);
    for (int g = 0; g < kLanes; g += 16) {
      __mmask16 mask = lanes_below(kLanes - g);
      __m512i v[16];
      CODA_UNROLL
      for (int i = 0; i < 16; ++i) {
        v[i] = _mm512_setzero_si512();
        if (g + i < kLanes && g + i < count)
          v[i] = From::along_k(static_cast<const typename From::Source*>(sources[g + i]) + k0, n);
      }
      transpose16(v);
      std::uint32_t* o = out + k0 / From::kKPerLane * kLanes + g;
      CODA_UNROLL
      for (int i = 0; i < 16; ++i)
        if (i < packed_rows) _mm512_mask_storeu_epi32(o + i * kLanes, mask, v[i]);
    }
  }
  pad_panel<From, kLanes, kKUnit>(k, out);
}

template <class From, int kLanes, int kKUnit>
void pack_from_mn_major(const void* source, std::int64_t k_stride, std::int64_t k, std::int64_t count, void* panel,
                        std::int64_t panel_bytes) {
  // A few k at a time across all panels: reads then run along rows of the source, which the prefetchers follow.
  constexpr std::int64_t kRows = 8 * From::kKPerLane;
  for (std::int64_t k0 = 0; k0 < k; k0 += kRows) {
    std::int64_t k_end = smaller(k0 + kRows, k);
    for (std::int64_t c = 0; c < count; c += kLanes) {
      std::uint32_t* out = reinterpret_cast<std::uint32_t*>(static_cast<char*>(panel) + c / kLanes * panel_bytes);
      for (std::int64_t kk = k0; kk < k_end; kk += From::kKPerLane) {
        const auto* p = static_cast<const typename From::Source*>(source) + kk * k_stride + c;
        CODA_UNROLL
        for (int g = 0; g < kLanes; g += 16) {
          // NOTE: a lane beyond `count` must not be read, but is written as zero.
          __mmask16 read =
              count - c - g <= 0 ? __mmask16{0} : lanes_below(smaller<std::int64_t>(count - c, kLanes) - g);
          _mm512_mask_storeu_epi32(out + kk / From::kKPerLane * kLanes + g, lanes_below(kLanes - g),
                                   From::along_mn(p + g, k_stride, kk + 1 < k, read));
        }
      }
    }
  }
  for (std::int64_t c = 0; c < count; c += kLanes)
    pad_panel<From, kLanes, kKUnit>(
        k, reinterpret_cast<std::uint32_t*>(static_cast<char*>(panel) + c / kLanes * panel_bytes));
}

template <class From, int kLanes, int kKUnit>
constexpr Packer avx512_packer() {
  return {kLanes, pack_from_k_major<From, kLanes, kKUnit>, pack_from_mn_major<From, kLanes, kKUnit>};
}

}  // namespace
}  // namespace coda::cpu
