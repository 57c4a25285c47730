// Vector operations on blocks of an output tile: what the CPU backend's epilogue is made of. One table of functions per
// instruction set, chosen at run time; every function is one fp32 operation per element, rounded as the precision
// contract says (never contracted). Called by the epilogue machine of the CPU backend (src/cpu), which knows programs.
//
// A block is `rows` × `n` elements of 32 bits (float, int32, or bool as 0 / -1) in cache. An operand is addressed as
// base[r * row_step + j * col_step] with col_step 0 or 1, so a tile, a per-row, a per-column and a scalar operand are
// one kind of thing.
#pragma once

#include <cstdint>

#include "coda/op.h"
#include "cpu/kernels/tile_gemm.h"

namespace coda::cpu {

struct BlockOperand {
  const void* base = nullptr;
  std::int64_t row_step = 0;
  std::int64_t col_step = 1;
};

struct MapArgs {
  void* dst = nullptr;  // rows × n, row pitch dst_pitch; may be the same memory as an operand of the same addressing
  std::int64_t dst_pitch = 0;
  BlockOperand in[3];
  std::int64_t rows = 0, n = 0;
};
using MapFn = void (*)(const MapArgs&);

// A block of floats to reduce: x[r * pitch + j].
struct Block {
  const float* x = nullptr;
  std::int64_t pitch = 0, rows = 0, n = 0;
};

struct VecOps {
  Isa isa;

  // --- maps: the function for an operation on operands of `elem` (comparisons: of what is compared; where: of the
  // branches); nullptr if the operation is no map. kCast is in `cast`.
  MapFn (*map)(Op op, Elem elem);
  // Two f32 maps in one pass, each rounded on its own: second(first(in[0], in[1]), in[2]), or with the first on the
  // right second(in[2], first(in[0], in[1])). For add, sub and mul; else nullptr.
  MapFn (*fused)(Op first, Op second, bool on_right);
  // x rounded to `to` and widened again (f32 → f32 for floats); f32 → i32 truncates and saturates, NaN gives 0.
  MapFn (*cast)(Elem from, DType to);

  // --- memory: one row of n elements, element stride `stride` (1 has a fast path, any other works, 0 too)
  // Floats widen and are rounded once; i32 goes as is.
  void (*load_row)(void* dst, const void* src, DType dtype, std::int64_t n, std::int64_t stride);
  void (*store_row)(void* dst, const void* src, DType dtype, std::int64_t n, std::int64_t stride);
  void (*add_row)(float* dst, const float* src, std::int64_t n, std::int64_t stride);  // dst (strided) += src

  // --- reductions along the columns of a block, one result per row
  void (*sum_n)(const Block& b, float* out);
  void (*max_n)(const Block& b, float* out);  // NaN wins; n = 0: -inf
  // NaN wins, then the lowest index; n = 0: (-inf, -1).
  void (*argmax_n)(const Block& b, float* value, std::int32_t* index);
  // m = max, s = Σ exp(x − m); all -inf or n = 0: (-inf, 0). With payload w (same block shape; nullptr: none, and t is
  // not touched): t = Σ exp(x−m)·w over the elements whose exp is not 0 (below e^-87 it counts as 0). NaN: m, s and t
  // are NaN; +inf without NaN: m = +inf, s and t NaN (exp(inf − inf)).
  void (*logsumexp_n)(const Block& b, const float* payload, std::int64_t payload_pitch, float* m, float* s, float* t);
  void (*moments_n)(const Block& b, float* mean, float* m2);  // two passes; n = 0: (0, 0)

  // --- reductions along the rows of a block into running column results of n elements, in row order. Begin with sum 0,
  // max -inf, (value, index) = (-inf, -1), (m, s, t) = (-inf, 0, 0); moments with rows_before = 0 need no beginning.
  void (*sum_m)(const Block& b, float* acc);  // acc[j] += Σ_r x
  void (*max_m)(const Block& b, float* acc);
  void (*argmax_m)(const Block& b, std::int32_t first_row, float* value, std::int32_t* index);
  void (*logsumexp_m)(const Block& b, const float* payload, std::int64_t payload_pitch, float* m, float* s, float* t);
  // The block's own moments, merged (Chan).
  void (*moments_m)(const Block& b, std::int64_t rows_before, float* mean, float* m2);

  // --- inside groups of `width` columns; n = groups * width
  void (*sum_c)(const Block& b, std::int64_t width, float* out, std::int64_t out_pitch);  // out[r][g]
  void (*max_c)(const Block& b, std::int64_t width, float* out, std::int64_t out_pitch);

  // --- shape: 32-bit elements, type does not matter
  void (*pairs)(const void* x, std::int64_t pitch, void* even, void* odd, std::int64_t out_pitch, std::int64_t rows,
                std::int64_t n_out);
  void (*interleave)(const void* even, const void* odd, std::int64_t pitch, void* out, std::int64_t out_pitch,
                     std::int64_t rows, std::int64_t n_in);
  // For each row r and group g: dst[r*dst_pitch + g*dst_group_step + c] = src[r*src_pitch + g*src_group_step + c],
  // c < count. src_group_step = 0 repeats one group for all (broadcast over groups).
  void (*copy_groups)(void* dst, std::int64_t dst_pitch, std::int64_t dst_group_step, const void* src,
                      std::int64_t src_pitch, std::int64_t src_group_step, std::int64_t rows, std::int64_t groups,
                      std::int64_t count);
  // dst[r][g*width + c] = src[r][g]: one value per group to all its columns.
  void (*spread_groups)(void* dst, std::int64_t dst_pitch, const void* src, std::int64_t src_pitch, std::int64_t rows,
                        std::int64_t groups, std::int64_t width);

  // --- generators
  // dst[r][j] = uniform number of element index (first + r * row_width + j) (src/ir/philox.h)
  void (*uniform)(float* dst, std::int64_t pitch, std::int64_t rows, std::int64_t n, std::int64_t first,
                  std::int64_t row_width, std::int32_t seed, std::int32_t offset);
  void (*cis)(float* cos, float* sin, std::int64_t pitch, const std::int32_t* pos, const float* freq, std::int64_t rows,
              std::int64_t n);
};

const VecOps& vec_ops(Isa isa);  // kAvx512Bf16 and kAmx use the AVX-512 table

}  // namespace coda::cpu
