// fp32 arithmetic with AVX2, FMA and F16C: 6×16 micro-tiles and packers over 8 lanes. Compiled with that instruction
// set's flags: see kernel_set.h for what this forbids. Invariant: sources are never read beyond their extent.
#include <immintrin.h>

#include "cpu/kernels/kernel_loop.h"
#include "cpu/kernels/kernel_set.h"

namespace coda::cpu {
namespace {

struct FromF32 {
  using Source = float;
  static __m256 load(const float* p) { return _mm256_loadu_ps(p); }
};
struct FromBf16 {
  using Source = std::uint16_t;
  static __m256 load(const Source* p) {
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
  }
};
struct FromF16 {
  using Source = std::uint16_t;
  static __m256 load(const Source* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
};

// n ≤ 8 elements, zeros after them.
template <class From>
__m256 load(const typename From::Source* p, std::int64_t n) {
  if (n >= 8) return From::load(p);
  typename From::Source padded[8] = {};
  for (std::int64_t i = 0; i < n; ++i) padded[i] = p[i];
  return From::load(padded);
}

// The first kCount (6 or 8) lanes.
template <int kCount>
void store(float* p, __m256 x) {
  static_assert(kCount == 6 || kCount == 8);
  if constexpr (kCount == 8) {
    _mm256_storeu_ps(p, x);
  } else {
    _mm_storeu_ps(p, _mm256_castps256_ps128(x));
    _mm_storel_pi(reinterpret_cast<__m64*>(p + 4), _mm256_extractf128_ps(x, 1));
  }
}

void transpose8(__m256 (&v)[8]) {
  __m256 t[8], u[8];
  CODA_UNROLL
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  CODA_UNROLL
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  CODA_UNROLL
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

template <class From, int kLanes>
void pack_from_k_major(const void* const* sources, int count, std::int64_t k, void* panel) {
  constexpr int kGroup = kLanes < 8 ? kLanes : 8;
  for (std::int64_t k0 = 0; k0 < k; k0 += 8) {
    std::int64_t n = smaller<std::int64_t>(k - k0, 8);
    for (int g = 0; g < kLanes; g += kGroup) {
      __m256 v[8];
      CODA_UNROLL
      for (int i = 0; i < 8; ++i) {
        v[i] = _mm256_setzero_ps();
        if (i < kGroup && g + i < count)
          v[i] = load<From>(static_cast<const typename From::Source*>(sources[g + i]) + k0, n);
      }
      transpose8(v);
      float* out = static_cast<float*>(panel) + k0 * kLanes + g;
      CODA_UNROLL
      for (int i = 0; i < 8; ++i)
        if (i < n) store<kGroup>(out + i * kLanes, v[i]);
    }
  }
}

template <class From, int kLanes>
void pack_from_mn_major(const void* source, std::int64_t k_stride, std::int64_t k, std::int64_t count, void* panel,
                        std::int64_t panel_bytes) {
  constexpr int kGroup = kLanes < 8 ? kLanes : 8;
  // A few k at a time across all panels: reads then run along rows of the source, which the prefetchers follow.
  constexpr std::int64_t kRows = 8;
  for (std::int64_t k0 = 0; k0 < k; k0 += kRows) {
    std::int64_t k_end = smaller(k0 + kRows, k);
    for (std::int64_t c = 0; c < count; c += kLanes) {
      float* out = reinterpret_cast<float*>(static_cast<char*>(panel) + c / kLanes * panel_bytes);
      for (std::int64_t kk = k0; kk < k_end; ++kk) {
        const auto* p = static_cast<const typename From::Source*>(source) + kk * k_stride + c;
        CODA_UNROLL
        for (int g = 0; g < kLanes; g += kGroup) store<kGroup>(out + kk * kLanes + g, load<From>(p + g, count - c - g));
      }
    }
  }
}

struct Tile {
  static constexpr int kMr = 6, kNr = 16, kKUnit = 1;
  using Element = float;
  using Fn = void (*)(std::int64_t, const float*, const float*, float*, std::int64_t, bool, __m256i);

  template <int kRows, int kColumns, bool kMasked>  // kColumns in vectors; kMasked: the last one by `last`
  static void run(std::int64_t k, const float* a, const float* b, float* c, std::int64_t ldc, bool accumulate,
                  __m256i last) {
    __m256 sum[kRows][kColumns];
    CODA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      CODA_UNROLL
      for (int v = 0; v < kColumns; ++v) sum[r][v] = _mm256_setzero_ps();
    }
    for (; k > 0; --k, a += kMr, b += kNr) {
      __m256 bv[kColumns];
      CODA_UNROLL
      for (int v = 0; v < kColumns; ++v) bv[v] = _mm256_load_ps(b + 8 * v);
      CODA_UNROLL
      for (int r = 0; r < kRows; ++r) {
        __m256 av = _mm256_broadcast_ss(a + r);
        CODA_UNROLL
        for (int v = 0; v < kColumns; ++v) sum[r][v] = _mm256_fmadd_ps(av, bv[v], sum[r][v]);
      }
    }
    CODA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      CODA_UNROLL
      for (int v = 0; v < kColumns; ++v) {
        float* p = c + r * ldc + 8 * v;
        if (kMasked && v == kColumns - 1) {
          if (accumulate) sum[r][v] = _mm256_add_ps(sum[r][v], _mm256_maskload_ps(p, last));
          _mm256_maskstore_ps(p, last, sum[r][v]);
        } else {
          if (accumulate) sum[r][v] = _mm256_add_ps(sum[r][v], _mm256_loadu_ps(p));
          _mm256_storeu_ps(p, sum[r][v]);
        }
      }
    }
  }

  template <int kColumns, bool kMasked, int kRows = kMr>
  static Fn pick(int rows) {
    if constexpr (kRows > 1)
      if (rows < kRows) return pick<kColumns, kMasked, kRows - 1>(rows);
    return run<kRows, kColumns, kMasked>;
  }

  static void tile(int rows, int columns, std::int64_t k, const float* a, const float* b, float* c, std::int64_t ldc,
                   bool accumulate, const char* /*ahead*/) {
    int used = (columns - 1) % 8 + 1;
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i last = _mm256_cmpgt_epi32(_mm256_set1_epi32(used), lane);
    Fn fn = columns == 16  ? pick<2, false>(rows)
            : columns > 8  ? pick<2, true>(rows)
            : columns == 8 ? pick<1, false>(rows)
                           : pick<1, true>(rows);
    fn(k, a, b, c, ldc, accumulate, last);
  }
};

template <class From>
constexpr KernelSet make() {
  return {Tile::kMr,
          Tile::kNr,
          256,
          1,
          4,
          {Tile::kMr, pack_from_k_major<From, Tile::kMr>, pack_from_mn_major<From, Tile::kMr>},
          {Tile::kNr, pack_from_k_major<From, Tile::kNr>, pack_from_mn_major<From, Tile::kNr>},
          multiply_panels<Tile>};
}

constexpr KernelSet kF32 = make<FromF32>(), kBf16 = make<FromBf16>(), kF16 = make<FromF16>();

}  // namespace

const KernelSet& avx2_kernels(DType t) { return t == DType::kF32 ? kF32 : t == DType::kBF16 ? kBf16 : kF16; }

}  // namespace coda::cpu
