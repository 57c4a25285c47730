// The inner loops of attention, in one version per instruction set: fp32 on dense blocks in cache. Called by forward.cc
// and backward.cc. Score blocks are kept transposed, [keys][kQueries], so that every reduction over keys runs down the
// lanes of a vector and none across them. Invariant: no result depends on padding, alignment or neighbouring blocks.
#pragma once

#include <cstdint>

#include "coda/dtype.h"
#include "cpu/kernels/tile_gemm.h"

namespace coda::cpu {

inline constexpr int kBlock = 64;  // queries in a score block, and keys at most
inline constexpr int kPadding =
    16;  // row widths of blocks are multiples of it: one vector of the widest instruction set

// c[m,n] = or += a[m,k] · b[k,n]; element (i,p) of a is a[i * a_row + p * a_col]; n is a multiple of kPadding.
struct SmallGemm {
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::int64_t a_row = 0, a_col = 0;
  const float* b = nullptr;
  std::int64_t b_row = 0;
  float* c = nullptr;
  std::int64_t c_row = 0;
  bool accumulate = false;
};

struct AttentionKernels {
  void (*gemm)(const SmallGemm& g);
  // One step of the online softmax on scores s[keys][kBlock], query r in lane r: s becomes exp(s·scale − m) with the
  // new maximum m, sum is carried to it, and alpha gets the factor for what was accumulated before. On the diagonal
  // block, key t counts for queries r ≥ t only and s becomes 0 elsewhere.
  void (*softmax)(float* s, std::int64_t keys, bool diagonal, float scale, float* max, float* sum, float* alpha);
  // s becomes p = exp(s·scale − lse), dp becomes p·(dp − delta)·scale; both 0 where masked.
  void (*gradient)(float* s, float* dp, std::int64_t keys, bool diagonal, float scale, const float* lse,
                   const float* delta);
  // n contiguous elements to and from fp32; storing rounds to nearest even.
  void (*load)(const void* src, DType dtype, std::int64_t n, float* dst);
  void (*store)(const float* src, DType dtype, std::int64_t n, void* dst);
};

const AttentionKernels& attention_kernels(Isa isa);  // sets beyond AVX-512 use its version
const AttentionKernels& attention_kernels_baseline();
const AttentionKernels& attention_kernels_avx2();
const AttentionKernels& attention_kernels_avx512();

}  // namespace coda::cpu
