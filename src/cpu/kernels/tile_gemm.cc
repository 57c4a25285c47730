// The public face of the kernels: picks a set and checks what a caller hands over.
#include "cpu/kernels/tile_gemm.h"

#include <algorithm>
#include <string>

#include "coda/error.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/pack.h"

namespace coda::cpu {
namespace {

const KernelSet& kernels_for(DType t, Isa isa) {
  if (t == DType::kBF16 && isa == Isa::kAmx) return amx_kernels();
  if (t == DType::kBF16 && isa == Isa::kAvx512Bf16) return avx512_bf16_kernels();
  if (isa >= Isa::kAvx512) return avx512_kernels(t);
  return isa == Isa::kAvx2 ? avx2_kernels(t) : baseline_kernels(t);
}

std::size_t packed_bytes(const KernelSet& set, int lanes, std::int64_t extent, std::int64_t k) {
  std::int64_t bytes = round_up(extent, lanes) * round_up(k, set.k_unit) * set.element_bytes;
  return static_cast<std::size_t>(round_up(bytes, 64));
}

}  // namespace

const TileGemm& TileGemm::get(DType t, Isa isa) {
  CODA_CHECK(is_float(t), "no GEMM kernels for operands of type " + std::string(coda::name(t)));
  CODA_CHECK(isa <= supported_isas().back(), "this processor has no " + std::string(cpu::name(isa)));
  struct Table {
    TileGemm of[3][5] = {
        {row(DType::kF32, 0), row(DType::kF32, 1), row(DType::kF32, 2), row(DType::kF32, 3), row(DType::kF32, 4)},
        {row(DType::kBF16, 0), row(DType::kBF16, 1), row(DType::kBF16, 2), row(DType::kBF16, 3), row(DType::kBF16, 4)},
        {row(DType::kF16, 0), row(DType::kF16, 1), row(DType::kF16, 2), row(DType::kF16, 3), row(DType::kF16, 4)}};
    static TileGemm row(DType t, int isa) { return TileGemm(kernels_for(t, static_cast<Isa>(isa))); }
  };
  static const Table table;
  return table.of[static_cast<int>(t)][static_cast<int>(isa)];
}

int TileGemm::mr() const { return kernels_->mr; }
int TileGemm::nr() const { return kernels_->nr; }
int TileGemm::k_block() const { return kernels_->k_block; }

std::size_t TileGemm::packed_a_bytes(std::int64_t m, std::int64_t k) const {
  return packed_bytes(*kernels_, kernels_->mr, m, k);
}

std::size_t TileGemm::packed_b_bytes(std::int64_t n, std::int64_t k) const {
  return packed_bytes(*kernels_, kernels_->nr, n, k);
}

void TileGemm::pack_a(const GemmOperand& a, std::int64_t first, std::int64_t count, std::int64_t k0, std::int64_t k,
                      void* out) const {
  pack(*kernels_, kernels_->a, a, {first, count}, {k0, k}, out);
}

void TileGemm::pack_b(const GemmOperand& b, std::int64_t first, std::int64_t count, std::int64_t k0, std::int64_t k,
                      void* out) const {
  pack(*kernels_, kernels_->b, b, {first, count}, {k0, k}, out);
}

void TileGemm::multiply(std::int64_t m, std::int64_t n, std::int64_t k, const void* packed_a, const void* packed_b,
                        float* c, std::int64_t ldc, bool accumulate) const {
  CODA_CHECK(k <= kernels_->k_block, "a K block longer than the packed layout allows");
  if (m > 0 && n > 0) kernels_->multiply(m, n, k, packed_a, packed_b, c, ldc, accumulate);
}

}  // namespace coda::cpu
