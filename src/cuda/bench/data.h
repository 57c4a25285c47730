// Values for the tensors of a benchmark: random where a GEMM's power depends on them, in range where a program indexes
// with them. Host side and pure: a tensor's values are one block, repeated; a prime number of elements, so that no two
// rows of a tensor are alike.
#pragma once

#include <cstdint>
#include <vector>

#include "coda/plan.h"

namespace coda::cuda {

// The bytes of a block: all of the tensor if it is small.
//   i32: uniform in [0, bound) of the programs that index with it; one number per row (r, s, m, l): |normal| + 0.5;
//   tables named cos and sin: of position · 10000^(-2j/hd); activations (M rows): normal; all else: normal / √columns.
std::vector<std::byte> values_block(const Plan& plan, BufferId buffer, const Sizes& sizes, std::uint64_t seed);
// Normal values of one type times `scale`; for a GEMM's operands.
std::vector<std::byte> normal_block(DType dtype, std::int64_t elements, float scale, std::uint64_t seed);

}  // namespace coda::cuda
