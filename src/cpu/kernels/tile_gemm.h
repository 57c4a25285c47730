// The multiply of one output tile on a CPU core: packing of operands into panels and micro-kernels on packed panels,
// in one version per instruction set, chosen at run time. Knows nothing of programs or threads; called by the tile
// driver of the CPU backend. Invariant: for given (isa, dtype, k blocking) the result of a tile does not depend on which
// thread computes it nor on the tiles around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "coda/tensor.h"

namespace coda::cpu {

// kBaseline is plain C++ for any x86-64 (slow, correct); the others need the CPU features of their name.
enum class Isa : std::uint8_t { kBaseline, kAvx2, kAvx512, kAvx512Bf16, kAmx };
std::string_view name(Isa isa);
std::span<const Isa> supported_isas();  // of this processor, best last
Isa best_isa();                         // the last of them, or what CODA_ISA names (Error if unsupported)

// A GEMM operand as a matrix with K along its columns (`k_is_rows` false: "K-major") or along its rows ("MN-major").
struct GemmOperand {
  TensorView view;
  bool k_is_rows = false;
};

// Kernels for operands of one storage dtype on one instruction set. Accumulation is fp32. bf16 × bf16 uses native bf16
// products where the instruction set has them, everything else is widened to fp32 while packing.
class TileGemm {
 public:
  virtual ~TileGemm() = default;
  static const TileGemm& get(DType operands, Isa isa);

  virtual int mr() const = 0;      // rows of a micro-tile: packed A comes in panels of mr rows
  virtual int nr() const = 0;      // columns of a micro-tile: packed B comes in panels of nr columns
  virtual int k_block() const = 0; // K is cut into blocks of at most this many; each is packed on its own

  // Bytes of `extent` rows of A (or columns of B) times k, padded to whole panels; 64-byte multiples.
  virtual std::size_t packed_a_bytes(std::int64_t m, std::int64_t k) const = 0;
  virtual std::size_t packed_b_bytes(std::int64_t n, std::int64_t k) const = 0;

  // Packs rows (columns) [first, first+count) and k range [k0, k0+k), k ≤ k_block(); tails are filled with zeros.
  // `out` is 64-byte aligned. Any strides, four-stride views included.
  virtual void pack_a(const GemmOperand& a, std::int64_t first, std::int64_t count, std::int64_t k0, std::int64_t k,
                      void* out) const = 0;
  virtual void pack_b(const GemmOperand& b, std::int64_t first, std::int64_t count, std::int64_t k0, std::int64_t k,
                      void* out) const = 0;

  // c[m,n] (row pitch ldc floats, 64-byte aligned base) = or += packed a[m,k] · packed b[k,n]. Writes exactly m × n.
  virtual void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const void* packed_a, const void* packed_b,
                        float* c, std::int64_t ldc, bool accumulate) const = 0;
};

}  // namespace coda::cpu
