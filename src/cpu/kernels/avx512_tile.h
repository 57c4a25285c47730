// The register-blocked micro-tile of the AVX-512 kernels, fp32 or bf16 pairs: kMr rows by kVectors·16 columns of
// accumulators, one broadcast of A and kVectors loads of B per step. Unnamed namespace: see kernel_set.h.
// Invariant: the sum of a K block is formed in registers and added to c once.
#pragma once

#include <immintrin.h>

#include "cpu/kernels/kernel_loop.h"

namespace coda::cpu {
namespace {

// Step: how one packed row of A (a 32-bit lane a row) meets one of B. Lane: float or bf16 pair.
template <class Step, int kMrValue, int kVectors>
struct Avx512Tile {
  static constexpr int kMr = kMrValue, kNr = 16 * kVectors, kKUnit = Step::kKPerLane;
  using Element = typename Step::Element;
  using Fn = void (*)(std::int64_t, const Element*, const Element*, float*, std::int64_t, bool, __mmask16, const char*);

  // NOTE: `ahead`, a cache line every 4 steps, is where the next panel of B comes from: worth 6 % of an fp32 GEMM whose
  // packed B lies in L3.
  template <int kRows, int kColumns>  // kColumns in vectors, the last one masked by `last`
  static void run(std::int64_t steps, const Element* a, const Element* b, float* c, std::int64_t ldc, bool accumulate,
                  __mmask16 last, const char* ahead) {
    __m512 sum[kRows][kColumns];
    CODA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      CODA_UNROLL
      for (int v = 0; v < kColumns; ++v) {
        if (accumulate) _mm_prefetch(reinterpret_cast<const char*>(c + r * ldc + 16 * v), _MM_HINT_T0);
        sum[r][v] = _mm512_setzero_ps();
      }
    }
    auto step = [&](const Element* as, const Element* bs) __attribute__((always_inline)) {
      __m512i bv[kColumns];
      CODA_UNROLL
      for (int v = 0; v < kColumns; ++v) bv[v] = _mm512_load_si512(bs + v * 16 * kKUnit);
      CODA_UNROLL
      for (int r = 0; r < kRows; ++r) {
        __m512i av = Step::broadcast(as + r * kKUnit);
        CODA_UNROLL
        for (int v = 0; v < kColumns; ++v) sum[r][v] = Step::fma(sum[r][v], av, bv[v]);
      }
    };
    for (; steps >= 4; steps -= 4, a += 4 * kMr * kKUnit, b += 4 * kNr * kKUnit, ahead += 64) {
      _mm_prefetch(ahead, _MM_HINT_T0);
      CODA_UNROLL
      for (int i = 0; i < 4; ++i) step(a + i * kMr * kKUnit, b + i * kNr * kKUnit);
    }
    for (; steps > 0; --steps, a += kMr * kKUnit, b += kNr * kKUnit) step(a, b);
    CODA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      CODA_UNROLL
      for (int v = 0; v < kColumns; ++v) {
        __mmask16 mask = v == kColumns - 1 ? last : __mmask16{0xffff};
        float* p = c + r * ldc + 16 * v;
        if (accumulate) sum[r][v] = _mm512_add_ps(sum[r][v], _mm512_maskz_loadu_ps(mask, p));
        _mm512_mask_storeu_ps(p, mask, sum[r][v]);
      }
    }
  }

  template <int kColumns, int kRows = kMr>
  static Fn pick(int rows) {
    if constexpr (kRows > 1)
      if (rows < kRows) return pick<kColumns, kRows - 1>(rows);
    return run<kRows, kColumns>;
  }

  template <int kColumns = kVectors>
  static void tile(int rows, int columns, std::int64_t k, const Element* a, const Element* b, float* c,
                   std::int64_t ldc, bool accumulate, const char* ahead) {
    if constexpr (kColumns > 1)
      if (columns <= 16 * (kColumns - 1)) return tile<kColumns - 1>(rows, columns, k, a, b, c, ldc, accumulate, ahead);
    int used = columns - 16 * (kColumns - 1);
    __mmask16 last = static_cast<__mmask16>(used >= 16 ? 0xffffu : (1u << used) - 1u);
    pick<kColumns>(rows)(k / kKUnit, a, b, c, ldc, accumulate, last, ahead);
  }
};

}  // namespace
}  // namespace coda::cpu
