// What the file of one instruction set provides: packers of single panels and the multiply over packed panels, behind
// function pointers. Used by tile_gemm.cc and pack.cc; a set may be called only where its instruction set exists.
// Invariant: files with instruction-set flags define nothing with external linkage but these getters, and call no
// inline function of another header, so that no baseline file can end up linked with their code.
#pragma once

#include <cstdint>

#include "coda/dtype.h"

namespace coda::cpu {

// Fills panels: `lanes` rows of A (or columns of B) by k, zero beyond the given rows and from k to a multiple of
// k_unit.
struct Packer {
  int lanes;
  // One panel from `count` ≤ lanes sources, each with unit stride along K.
  void (*from_k_major)(const void* const* sources, int count, std::int64_t k, void* panel);
  // ⌈count/lanes⌉ panels, `panel_bytes` apart, from a source with unit stride along rows (columns); k_stride in
  // elements.
  void (*from_mn_major)(const void* source, std::int64_t k_stride, std::int64_t k, std::int64_t count, void* panel,
                        std::int64_t panel_bytes);
};

struct KernelSet {
  int mr, nr;
  int k_block;
  int k_unit;         // packed k is a multiple of this: 1, 2 (bf16 pairs) or 32 (AMX tile)
  int element_bytes;  // of a packed element: 4 (fp32) or 2 (bf16); k (a multiple of k_unit) fills lanes·k of them
  Packer a, b;
  void (*multiply)(std::int64_t m, std::int64_t n, std::int64_t k, const void* a, const void* b, float* c,
                   std::int64_t ldc, bool accumulate);
};

// fp32 arithmetic on operands stored as `t`.
const KernelSet& baseline_kernels(DType t);
const KernelSet& avx2_kernels(DType t);
const KernelSet& avx512_kernels(DType t);
// bf16 arithmetic on bf16 operands.
const KernelSet& avx512_bf16_kernels();
const KernelSet& amx_kernels();
const KernelSet& amx_emulated_kernels();  // the same code over emulated tiles (needs AVX-512): for the tests

}  // namespace coda::cpu
