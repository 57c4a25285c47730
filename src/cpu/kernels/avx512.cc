// fp32 arithmetic with AVX-512. Compiled with that instruction set's flags: see kernel_set.h for what this forbids.
#include "cpu/kernels/avx512_pack.h"
#include "cpu/kernels/avx512_tile.h"
#include "cpu/kernels/kernel_set.h"

namespace coda::cpu {
namespace {

struct FloatStep {
  using Element = float;
  static constexpr int kKPerLane = 1;
  static __m512i broadcast(const float* a) { return _mm512_castps_si512(_mm512_set1_ps(*a)); }
  static __m512 fma(__m512 sum, __m512i a, __m512i b) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
  }
};

// 12×32: 24 accumulators; a panel of B is 32 KiB, so that it stays in L1 with one of A (12 KiB) streaming past.
constexpr int kKBlock = 256;
using Tile = Avx512Tile<FloatStep, 12, 2>;

template <class From>
constexpr KernelSet make() {
  return {Tile::kMr,
          Tile::kNr,
          kKBlock,
          1,
          4,
          avx512_packer<From, Tile::kMr, 1>(),
          avx512_packer<From, Tile::kNr, 1>(),
          multiply_panels<Tile>};
}

constexpr KernelSet kF32 = make<FromF32>(), kBf16 = make<FromBf16>(), kF16 = make<FromF16>();

}  // namespace

const KernelSet& avx512_kernels(DType t) { return t == DType::kF32 ? kF32 : t == DType::kBF16 ? kBf16 : kF16; }

}  // namespace coda::cpu
