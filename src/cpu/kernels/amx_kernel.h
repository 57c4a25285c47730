// bf16 arithmetic on AMX tiles, over a thin shim of tile operations: the instructions (amx.cc) or their emulation
// (amx_emulated.cc), so that layout and indices are tested on any processor with AVX-512. Unnamed namespace: see
// kernel_set.h. Packing uses AVX-512, which every processor with AMX has.
//
// A micro-tile is 32×32: tiles 0–3 accumulate (2·i + j), 4–5 hold 16 rows of A × 32 k each, 6–7 16 pairs of k × 16
// columns of B each. Panels: A [k/32][32 rows][32 k], B [k/2][32 columns][2 k].
#pragma once

#include "cpu/kernels/avx512_pack.h"
#include "cpu/kernels/kernel_set.h"

namespace coda::cpu {
namespace {

// Tiles: configure(), zero<T>(), load<T>(p, pitch bytes), store<T>(p, pitch bytes), dot<D, A, B>(), on 16 × 64 bytes.
template <class Tiles>
struct AmxTile {
  static constexpr int kMr = 32, kNr = 32, kKUnit = 32;
  using Element = std::uint16_t;

  static void tile(int rows, int columns, std::int64_t k, const Element* a, const Element* b, float* c,
                   std::int64_t ldc, bool accumulate, const char* /*ahead*/) {
    if (rows == kMr && columns == kNr) return whole(k, a, b, c, ldc, accumulate);
    alignas(64) float buffer[kMr * kNr] = {};
    if (accumulate)
      for (int r = 0; r < rows; ++r)
        for (int j = 0; j < columns; ++j) buffer[r * kNr + j] = c[r * ldc + j];
    whole(k, a, b, buffer, kNr, accumulate);
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < columns; ++j) c[r * ldc + j] = buffer[r * kNr + j];
  }

  static void whole(std::int64_t k, const Element* a, const Element* b, float* c, std::int64_t ldc, bool accumulate) {
    std::int64_t pitch = ldc * 4;
    float* lower = c + 16 * ldc;
    if (accumulate) {
      Tiles::template load<0>(c, pitch);
      Tiles::template load<1>(c + 16, pitch);
      Tiles::template load<2>(lower, pitch);
      Tiles::template load<3>(lower + 16, pitch);
    } else {
      Tiles::template zero<0>();
      Tiles::template zero<1>();
      Tiles::template zero<2>();
      Tiles::template zero<3>();
    }
    for (; k > 0; k -= kKUnit, a += kMr * kKUnit, b += kNr * kKUnit) {
      Tiles::template load<4>(a, 64);
      Tiles::template load<6>(b, 128);
      Tiles::template load<7>(b + 32, 128);
      Tiles::template dot<0, 4, 6>();
      Tiles::template load<5>(a + 16 * kKUnit, 64);
      Tiles::template dot<1, 4, 7>();
      Tiles::template dot<2, 5, 6>();
      Tiles::template dot<3, 5, 7>();
    }
    Tiles::template store<0>(c, pitch);
    Tiles::template store<1>(c + 16, pitch);
    Tiles::template store<2>(lower, pitch);
    Tiles::template store<3>(lower + 16, pitch);
  }

  // NOTE: tiles are configured on each call: another library in the process may have changed or released them.
  static void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const void* a, const void* b, float* c,
                       std::int64_t ldc, bool accumulate) {
    Tiles::configure();
    multiply_panels<AmxTile>(m, n, k, a, b, c, ldc, accumulate);
  }
};

void amx_a_from_k_major(const void* const* sources, int count, std::int64_t k, void* panel) {
  for (std::int64_t k0 = 0; k0 < k; k0 += 32) {
    std::uint16_t* out = static_cast<std::uint16_t*>(panel) + k0 * 32;
    for (int i = 0; i < 32; ++i, out += 32) {
      __m512i row = _mm512_setzero_si512();
      if (i < count) row = Bf16Pairs::along_k(static_cast<const std::uint16_t*>(sources[i]) + k0, k - k0);
      _mm512_storeu_si512(out, row);
    }
  }
}

// 16 rows of one AMX tile from columns of the source: pairs of k by row, then the transpose of that.
inline void amx_a_tile(const std::uint16_t* p, std::int64_t k_stride, std::int64_t k, __mmask16 rows,
                       std::uint16_t* out) {
  __m512i v[16];
  CODA_UNROLL
  for (int i = 0; i < 16; ++i) {
    v[i] = _mm512_setzero_si512();
    if (2 * i < k) v[i] = Bf16Pairs::along_mn(p + 2 * i * k_stride, k_stride, 2 * i + 1 < k, rows);
  }
  transpose16(v);
  CODA_UNROLL
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + 32 * i, v[i]);
}

void amx_a_from_mn_major(const void* source, std::int64_t k_stride, std::int64_t k, std::int64_t count, void* panel,
                         std::int64_t panel_bytes) {
  for (std::int64_t k0 = 0; k0 < k; k0 += 32)
    for (std::int64_t c = 0; c < count; c += 32) {
      const std::uint16_t* p = static_cast<const std::uint16_t*>(source) + k0 * k_stride + c;
      auto* out = reinterpret_cast<std::uint16_t*>(static_cast<char*>(panel) + c / 32 * panel_bytes) + k0 * 32;
      amx_a_tile(p, k_stride, k - k0, lanes_below(count - c), out);
      std::int64_t lower = count - c - 16;
      amx_a_tile(p + 16, k_stride, k - k0, lower > 0 ? lanes_below(lower) : __mmask16{0}, out + 16 * 32);
    }
}

template <class Tiles>
constexpr KernelSet amx_kernel_set() {
  using Tile = AmxTile<Tiles>;
  // 256 of K: both panels (16 KiB each) and the tile of c stay in L1.
  return {Tile::kMr,
          Tile::kNr,
          256,
          Tile::kKUnit,
          2,
          {Tile::kMr, amx_a_from_k_major, amx_a_from_mn_major},
          avx512_packer<Bf16Pairs, Tile::kNr, Tile::kKUnit>(),
          Tile::multiply};
}

}  // namespace
}  // namespace coda::cpu
