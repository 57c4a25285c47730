// The AMX instructions behind the shim of amx_kernel.h. Tile numbers are part of the opcode, hence the switches.
#include <immintrin.h>

#include "cpu/kernels/amx_kernel.h"

namespace coda::cpu {
namespace {

struct TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
alignas(64) constexpr TileConfig kConfig;

struct HardwareTiles {
  static void configure() { _tile_loadconfig(&kConfig); }

  template <int T>
  static void zero() {
    if constexpr (T == 0) _tile_zero(0);
    if constexpr (T == 1) _tile_zero(1);
    if constexpr (T == 2) _tile_zero(2);
    if constexpr (T == 3) _tile_zero(3);
  }

  template <int T>
  static void load(const void* p, std::int64_t pitch) {
    if constexpr (T == 0) _tile_loadd(0, p, pitch);
    if constexpr (T == 1) _tile_loadd(1, p, pitch);
    if constexpr (T == 2) _tile_loadd(2, p, pitch);
    if constexpr (T == 3) _tile_loadd(3, p, pitch);
    if constexpr (T == 4) _tile_loadd(4, p, pitch);
    if constexpr (T == 5) _tile_loadd(5, p, pitch);
    if constexpr (T == 6) _tile_loadd(6, p, pitch);
    if constexpr (T == 7) _tile_loadd(7, p, pitch);
  }

  template <int T>
  static void store(void* p, std::int64_t pitch) {
    if constexpr (T == 0) _tile_stored(0, p, pitch);
    if constexpr (T == 1) _tile_stored(1, p, pitch);
    if constexpr (T == 2) _tile_stored(2, p, pitch);
    if constexpr (T == 3) _tile_stored(3, p, pitch);
  }

  template <int D, int A, int B>
  static void dot() {
    static_assert(A == 4 + D / 2 && B == 6 + D % 2);
    if constexpr (D == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (D == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (D == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (D == 3) _tile_dpbf16ps(3, 5, 7);
  }
};

constexpr KernelSet kKernels = amx_kernel_set<HardwareTiles>();

}  // namespace

const KernelSet& amx_kernels() { return kKernels; }

}  // namespace coda::cpu
