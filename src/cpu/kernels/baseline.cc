// fp32 arithmetic in plain C++ for any x86-64: the fallback, and the shortest statement of what a kernel set does.
#include <algorithm>

#include "cpu/kernels/kernel_loop.h"
#include "cpu/kernels/kernel_set.h"

namespace coda::cpu {
namespace {

struct F32 {
  float value;
};
float to_float(F32 x) { return x.value; }

template <class Source, int kLanes>
void pack_from_k_major(const void* const* sources, int count, std::int64_t k, void* panel) {
  float* out = static_cast<float*>(panel);
  for (int i = 0; i < kLanes; ++i) {
    const Source* p = i < count ? static_cast<const Source*>(sources[i]) : nullptr;
    for (std::int64_t kk = 0; kk < k; ++kk) out[kk * kLanes + i] = p != nullptr ? to_float(p[kk]) : 0.f;
  }
}

template <class Source, int kLanes>
void pack_from_mn_major(const void* source, std::int64_t k_stride, std::int64_t k, std::int64_t count, void* panel,
                        std::int64_t panel_bytes) {
  for (std::int64_t c = 0; c < count; c += kLanes) {
    float* out = reinterpret_cast<float*>(static_cast<char*>(panel) + c / kLanes * panel_bytes);
    for (std::int64_t kk = 0; kk < k; ++kk) {
      const Source* p = static_cast<const Source*>(source) + kk * k_stride + c;
      for (int i = 0; i < kLanes; ++i) out[kk * kLanes + i] = c + i < count ? to_float(p[i]) : 0.f;
    }
  }
}

struct Tile {
  static constexpr int kMr = 4, kNr = 8, kKUnit = 1;
  using Element = float;

  // Always whole micro-tiles: the zeros of the tails cost less than a second loop.
  static void tile(int rows, int columns, std::int64_t k, const float* a, const float* b, float* c, std::int64_t ldc,
                   bool accumulate, const char* /*ahead*/) {
    float sum[kMr][kNr] = {};
    for (std::int64_t kk = 0; kk < k; ++kk, a += kMr, b += kNr) {
      CODA_UNROLL
      for (int r = 0; r < kMr; ++r) {
        CODA_UNROLL
        for (int j = 0; j < kNr; ++j) sum[r][j] += a[r] * b[j];
      }
    }
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < columns; ++j) c[r * ldc + j] = accumulate ? c[r * ldc + j] + sum[r][j] : sum[r][j];
  }
};

template <class Source>
constexpr KernelSet make() {
  return {Tile::kMr,
          Tile::kNr,
          256,
          1,
          4,
          {Tile::kMr, pack_from_k_major<Source, Tile::kMr>, pack_from_mn_major<Source, Tile::kMr>},
          {Tile::kNr, pack_from_k_major<Source, Tile::kNr>, pack_from_mn_major<Source, Tile::kNr>},
          multiply_panels<Tile>};
}

constexpr KernelSet kF32 = make<F32>(), kBf16 = make<BF16>(), kF16 = make<F16>();

}  // namespace

const KernelSet& baseline_kernels(DType t) { return t == DType::kF32 ? kF32 : t == DType::kBF16 ? kBf16 : kF16; }

}  // namespace coda::cpu
