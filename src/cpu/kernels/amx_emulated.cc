// The semantics of the AMX tile operations in plain C++, after the instruction set reference: for the tests of
// amx_kernel.h on processors without AMX. Invariant: same layout of tiles and same order of sums as the instructions.
#include "cpu/kernels/amx_kernel.h"

namespace coda::cpu {
namespace {

struct EmulatedTiles {
  static constexpr int kRows = 16, kColumns = 16;  // 32-bit columns
  static inline thread_local std::uint32_t tiles[8][kRows][kColumns];

  static void configure() { __builtin_memset(tiles, 0, sizeof tiles); }

  template <int T>
  static void zero() {
    __builtin_memset(tiles[T], 0, sizeof tiles[T]);
  }

  template <int T>
  static void load(const void* p, std::int64_t pitch) {
    for (int r = 0; r < kRows; ++r) __builtin_memcpy(tiles[T][r], static_cast<const char*>(p) + r * pitch, 64);
  }

  template <int T>
  static void store(void* p, std::int64_t pitch) {
    for (int r = 0; r < kRows; ++r) __builtin_memcpy(static_cast<char*>(p) + r * pitch, tiles[T][r], 64);
  }

  static float from_bits(std::uint32_t bits) {
    if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;  // denormals are zeros
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
  }
  static std::uint32_t to_bits(float x) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    return (bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits;
  }

  // The even and the odd products of a row are summed apart, then together, then added to the destination.
  template <int D, int A, int B>
  static void dot() {
    for (int r = 0; r < kRows; ++r)
      for (int n = 0; n < kColumns; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < kColumns; ++k) {
          std::uint32_t a = tiles[A][r][k], b = tiles[B][k][n];
          even += from_bits(a << 16) * from_bits(b << 16);
          odd += from_bits(a & 0xffff0000u) * from_bits(b & 0xffff0000u);
        }
        tiles[D][r][n] = to_bits(from_bits(tiles[D][r][n]) + (even + odd));
      }
  }
};

constexpr KernelSet kKernels = amx_kernel_set<EmulatedTiles>();

}  // namespace

const KernelSet& amx_emulated_kernels() { return kKernels; }

}  // namespace coda::cpu
