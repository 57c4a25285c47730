// How elements lie in memory and travel to and from fp32 blocks: rows loaded, stored and accumulated with any stride,
// and moves of columns inside a block. Included once per instruction set (simd_inl.h). Invariant: a store rounds once,
// to nearest even, and exactly as include/coda/dtype.h defines it (NaN stays NaN, its payload is free).
#pragma once

#include "cpu/vec/simd_inl.h"
#include "cpu/vec/vec_ops.h"

namespace coda::cpu {
namespace {

// Memory holds `Vector`s of `Element`s, blocks hold Bits.
struct WordStorage {  // f32 and i32
  using Element = std::uint32_t;
  using Vector = Bits;
  static CODA_SIMD Bits decode(Bits v) { return v; }
  static CODA_SIMD Bits encode(Bits v) { return v; }
};
struct BF16Storage {
  using Element = std::uint16_t;
  using Vector = Half;
  static CODA_SIMD Bits decode(Half v) { return widen(v) << 16; }
  static CODA_SIMD Half encode(Bits u) {
    Bits rounded = u + (0x7fffu + (u >> 16 & 1u));
    return narrow((is_nan((Float)u) ? u | 0x400000u : rounded) >> 16);
  }
};
struct F16Storage {
  using Element = std::uint16_t;
  using Vector = Half;
  static CODA_SIMD Bits decode(Half v) { return (Bits)widen_f16(v); }
  static CODA_SIMD Half encode(Bits u) { return narrow_f16((Float)u); }
};

CODA_SIMD std::int64_t at_most_a_vector(std::int64_t left) { return left < kLanes ? left : kLanes; }

template <class Storage>
void load_row_of(void* dst, const void* src, std::int64_t n, std::int64_t stride) {
  using Element = typename Storage::Element;
  const auto* from = static_cast<const Element*>(src);
  auto* to = static_cast<std::uint32_t*>(dst);
  std::int64_t j = 0;
  typename Storage::Vector v;
  if (stride == 1) {
    for (; j + kLanes <= n; j += kLanes) {
      __builtin_memcpy(&v, from + j, sizeof v);
      store(to + j, Storage::decode(v), Whole{});
    }
  }
  for (; j < n; j += kLanes) {  // by way of a buffer: strided elements, and the tail
    std::int64_t count = at_most_a_vector(n - j);
    Element buffer[kLanes] = {};
    for (std::int64_t i = 0; i < count; ++i) buffer[i] = from[(j + i) * stride];
    __builtin_memcpy(&v, buffer, sizeof v);
    Bits wide = Storage::decode(v);
    if (count == kLanes)
      store(to + j, wide, Whole{});
    else
      store(to + j, wide, Part(count));
  }
}

template <class Storage>
void store_row_of(void* dst, const void* src, std::int64_t n, std::int64_t stride) {
  using Element = typename Storage::Element;
  const auto* from = static_cast<const std::uint32_t*>(src);
  auto* to = static_cast<Element*>(dst);
  std::int64_t j = 0;
  if (stride == 1) {
    for (; j + kLanes <= n; j += kLanes) {
      auto v = Storage::encode(load<Bits>(from + j, Whole{}));
      __builtin_memcpy(to + j, &v, sizeof v);
    }
  }
  for (; j < n; j += kLanes) {
    std::int64_t count = at_most_a_vector(n - j);
    auto v = Storage::encode(count == kLanes ? load<Bits>(from + j, Whole{}) : load<Bits>(from + j, Part(count)));
    Element buffer[kLanes];
    __builtin_memcpy(buffer, &v, sizeof v);
    for (std::int64_t i = 0; i < count; ++i) to[(j + i) * stride] = buffer[i];
  }
}

void load_row(void* dst, const void* src, DType dtype, std::int64_t n, std::int64_t stride) {
  if (dtype == DType::kBF16)
    load_row_of<BF16Storage>(dst, src, n, stride);
  else if (dtype == DType::kF16)
    load_row_of<F16Storage>(dst, src, n, stride);
  else
    load_row_of<WordStorage>(dst, src, n, stride);
}

void store_row(void* dst, const void* src, DType dtype, std::int64_t n, std::int64_t stride) {
  if (dtype == DType::kBF16)
    store_row_of<BF16Storage>(dst, src, n, stride);
  else if (dtype == DType::kF16)
    store_row_of<F16Storage>(dst, src, n, stride);
  else
    store_row_of<WordStorage>(dst, src, n, stride);
}

void add_row(float* dst, const float* src, std::int64_t n, std::int64_t stride) {
  if (stride == 1) {
    each_vector(n, [&](std::int64_t j, auto extent) {
      store(dst + j, load<Float>(dst + j, extent) + load<Float>(src + j, extent), extent);
    });
    return;
  }
  for (std::int64_t j = 0; j < n; ++j) dst[j * stride] += src[j];
}

// --- columns of a block

template <int first, int... i>
CODA_SIMD Bits every_second(Bits a, Bits b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, (2 * i + first)...);
}
template <int first, int... i>
CODA_SIMD Bits alternate(Bits a, Bits b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, (first + i / 2 + (i % 2) * kLanes)...);
}

void pairs(const void* x, std::int64_t pitch, void* even, void* odd, std::int64_t out_pitch, std::int64_t rows,
           std::int64_t n_out) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto* from = static_cast<const std::uint32_t*>(x) + r * pitch;
    auto* evens = static_cast<std::uint32_t*>(even) + r * out_pitch;
    auto* odds = static_cast<std::uint32_t*>(odd) + r * out_pitch;
    auto split = [&](std::int64_t j, Bits a, Bits b, auto extent) {
      store(evens + j, every_second<0>(a, b, kAllLanes), extent);
      store(odds + j, every_second<1>(a, b, kAllLanes), extent);
    };
    std::int64_t j = 0;
    for (; j + kLanes <= n_out; j += kLanes)
      split(j, load<Bits>(from + 2 * j, Whole{}), load<Bits>(from + 2 * j + kLanes, Whole{}), Whole{});
    if (std::int64_t left = 2 * (n_out - j); left > kLanes)
      split(j, load<Bits>(from + 2 * j, Whole{}), load<Bits>(from + 2 * j + kLanes, Part(left - kLanes)),
            Part(left / 2));
    else if (left > 0)
      split(j, left == kLanes ? load<Bits>(from + 2 * j, Whole{}) : load<Bits>(from + 2 * j, Part(left)), Bits{},
            Part(left / 2));
  }
}

void interleave(const void* even, const void* odd, std::int64_t pitch, void* out, std::int64_t out_pitch,
                std::int64_t rows, std::int64_t n_in) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto* evens = static_cast<const std::uint32_t*>(even) + r * pitch;
    const auto* odds = static_cast<const std::uint32_t*>(odd) + r * pitch;
    auto* to = static_cast<std::uint32_t*>(out) + r * out_pitch;
    std::int64_t j = 0;
    for (; j + kLanes <= n_in; j += kLanes) {
      Bits a = load<Bits>(evens + j, Whole{}), b = load<Bits>(odds + j, Whole{});
      store(to + 2 * j, alternate<0>(a, b, kAllLanes), Whole{});
      store(to + 2 * j + kLanes, alternate<kLanes / 2>(a, b, kAllLanes), Whole{});
    }
    for (; j < n_in; ++j) to[2 * j] = evens[j], to[2 * j + 1] = odds[j];
  }
}

void copy_groups(void* dst, std::int64_t dst_pitch, std::int64_t dst_group_step, const void* src,
                 std::int64_t src_pitch, std::int64_t src_group_step, std::int64_t rows, std::int64_t groups,
                 std::int64_t count) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t g = 0; g < groups; ++g) {
      auto* to = static_cast<std::uint32_t*>(dst) + r * dst_pitch + g * dst_group_step;
      const auto* from = static_cast<const std::uint32_t*>(src) + r * src_pitch + g * src_group_step;
      each_vector(count, [&](std::int64_t j, auto extent) { store(to + j, load<Bits>(from + j, extent), extent); });
    }
}

void spread_groups(void* dst, std::int64_t dst_pitch, const void* src, std::int64_t src_pitch, std::int64_t rows,
                   std::int64_t groups, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t g = 0; g < groups; ++g) {
      auto* to = static_cast<std::uint32_t*>(dst) + r * dst_pitch + g * width;
      Bits v = broadcast(static_cast<const std::uint32_t*>(src) + r * src_pitch + g);
      each_vector(width, [&](std::int64_t j, auto extent) { store(to + j, v, extent); });
    }
}

}  // namespace
}  // namespace coda::cpu
