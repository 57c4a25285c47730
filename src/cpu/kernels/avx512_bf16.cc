// bf16 arithmetic with AVX512_BF16: each step multiplies pairs along K and adds both products to an fp32 sum. The
// instruction flushes denormal inputs and results to zero (docs/decisions/0002-cpu-gemm.md). Flags: see kernel_set.h.
#include "cpu/kernels/avx512_pack.h"
#include "cpu/kernels/avx512_tile.h"
#include "cpu/kernels/kernel_set.h"

namespace coda::cpu {
namespace {

struct PairStep {
  using Element = std::uint16_t;
  static constexpr int kKPerLane = 2;
  static __m512i broadcast(const std::uint16_t* a) {
    int pair;
    __builtin_memcpy(&pair, a, 4);
    return _mm512_set1_epi32(pair);
  }
  static __m512 fma(__m512 sum, __m512i a, __m512i b) { return _mm512_dpbf16_ps(sum, (__m512bh)b, (__m512bh)a); }
};

constexpr int kKBlock = 512;  // the same bytes as 256 of fp32: see avx512.cc
using Tile = Avx512Tile<PairStep, 12, 2>;

constexpr KernelSet kKernels = {Tile::kMr,
                                Tile::kNr,
                                kKBlock,
                                2,
                                2,
                                avx512_packer<Bf16Pairs, Tile::kMr, 2>(),
                                avx512_packer<Bf16Pairs, Tile::kNr, 2>(),
                                multiply_panels<Tile>};

}  // namespace

const KernelSet& avx512_bf16_kernels() { return kKernels; }

}  // namespace coda::cpu
