// The loop over micro-tiles that the fp32 and bf16 kernels share. Included once by the file of each instruction set;
// everything is in an unnamed namespace, so each file compiles its own copy with its own flags (see kernel_set.h).
// Invariant: a K is a struct with kMr, kNr, kKUnit, Element, and tile(rows, columns, packed_k, a, b, c, ldc,
// accumulate, ahead).
#pragma once

#include <cstdint>

#if defined(__clang__)
#define CODA_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CODA_UNROLL _Pragma("GCC unroll 64")
#endif

namespace coda::cpu {
namespace {

template <class T>
constexpr T smaller(T x, T y) {
  return x < y ? x : y;
}

// A panel of B stays in L1 while the panels of A pass by: A is the smaller stream (kMr < kNr).
template <class K>
void multiply_panels(std::int64_t m, std::int64_t n, std::int64_t k, const void* packed_a, const void* packed_b,
                     float* c, std::int64_t ldc, bool accumulate) {
  using Element = typename K::Element;
  std::int64_t packed_k = (k + K::kKUnit - 1) / K::kKUnit * K::kKUnit;
  const Element* b = static_cast<const Element*>(packed_b);
  for (std::int64_t j = 0; j < n; j += K::kNr, b += packed_k * K::kNr) {
    int columns = static_cast<int>(smaller<std::int64_t>(n - j, K::kNr));
    const Element* a = static_cast<const Element*>(packed_a);
    for (std::int64_t i = 0; i < m; i += K::kMr, a += packed_k * K::kMr) {
      int rows = static_cast<int>(smaller<std::int64_t>(m - i, K::kMr));
      // Each micro-tile may prefetch its share of the panel after this one (past the last: an address, never read).
      const char* ahead =
          reinterpret_cast<const char*>(b + packed_k * K::kNr) + i / K::kMr * (packed_k / K::kKUnit) * 16;
      K::tile(rows, columns, packed_k, a, b, c + i * ldc + j, ldc, accumulate, ahead);
    }
  }
}

}  // namespace
}  // namespace coda::cpu
