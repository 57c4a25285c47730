// Rounding up, and cache-line alignment inside memory that is one line larger than needed.
#pragma once

#include <cstdint>

namespace coda {

inline constexpr std::int64_t kCacheLine = 64;

constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t d) { return (n + d - 1) / d; }
constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) { return ceil_div(n, step) * step; }

// The first cache line that starts in `memory`, which must hold kCacheLine bytes more than are used.
template <class T>
T* line_aligned(void* memory) {
  return reinterpret_cast<T*>(round_up(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(memory)), kCacheLine));
}

}  // namespace coda
