// The multiply of one output tile on a CPU core: packing of operands into panels and micro-kernels on packed panels,
// in one version per instruction set, chosen at run time. Knows nothing of programs or threads; called by the tile
// driver of the CPU backend. Invariant: for given (isa, dtype, k blocking) the result of a tile does not depend on
// which thread computes it nor on the tiles around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "coda/tensor.h"

namespace coda::cpu {

// kBaseline is plain C++ for any x86-64 (slow, correct); the others need the CPU features of their name.
enum class Isa : std::uint8_t { kBaseline, kAvx2, kAvx512, kAvx512Bf16, kAmx };
std::string_view name(Isa isa);         // "baseline", "avx2", "avx512", "avx512bf16", "amx"
std::span<const Isa> supported_isas();  // of this processor and operating system, best last
Isa best_isa();                         // the last of them, or what CODA_ISA names (Error if unknown or unsupported)

// A GEMM operand as a matrix with K along its columns (`k_is_rows` false: "K-major") or along its rows ("MN-major").
// These names fit a unit stride along the columns; any strides are right, and a unit stride along either axis is fast.
struct GemmOperand {
  TensorView view;
  bool k_is_rows = false;
};

struct KernelSet;  // kernel_set.h: the functions of one instruction set

// Kernels for operands of one storage dtype on one instruction set. Accumulation is fp32. bf16 × bf16 uses native bf16
// products where the instruction set has them, everything else is widened to fp32 while packing. All functions are
// const, allocate nothing and may run concurrently.
class TileGemm {
 public:
  explicit constexpr TileGemm(const KernelSet& kernels) : kernels_(&kernels) {}
  // An instruction set without kernels of its own for this dtype lends those of a lesser set.
  static const TileGemm& get(DType operands, Isa isa);

  // Tiles of whole micro-tiles waste nothing; 192 × 256 was fastest at 2048³ (docs/decisions/0002-cpu-gemm.md).
  int mr() const;       // rows of a micro-tile: packed A comes in panels of mr rows
  int nr() const;       // columns of a micro-tile: packed B comes in panels of nr columns
  int k_block() const;  // K is cut into blocks of at most this many; each is packed on its own

  // Bytes of m rows of A (or n columns of B) times k, padded to whole panels; 64-byte multiples. Panels lie one after
  // another, so a multiple of mr rows (nr columns) into a packed operand is packed_a_bytes(rows, k) bytes into it
  // wherever that many panels fill whole cache lines.
  std::size_t packed_a_bytes(std::int64_t m, std::int64_t k) const;
  std::size_t packed_b_bytes(std::int64_t n, std::int64_t k) const;

  // Packs rows (columns) [first, first+count) and k range [k0, k0+k), k ≤ k_block(); tails are filled with zeros.
  // `out` is 64-byte aligned. Any strides, four-stride views included.
  void pack_a(const GemmOperand& a, std::int64_t first, std::int64_t count, std::int64_t k0, std::int64_t k,
              void* out) const;
  void pack_b(const GemmOperand& b, std::int64_t first, std::int64_t count, std::int64_t k0, std::int64_t k,
              void* out) const;

  // c[m,n] (row pitch ldc floats; fastest from a 64-byte aligned base) = or += packed a[m,k] · packed b[k,n]. Writes
  // exactly m × n. k = 0 without `accumulate` writes zeros.
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const void* packed_a, const void* packed_b, float* c,
                std::int64_t ldc, bool accumulate) const;

 private:
  const KernelSet* kernels_;
};

}  // namespace coda::cpu
