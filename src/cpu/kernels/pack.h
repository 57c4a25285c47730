// Cuts an operand with any strides into the panel pieces that an instruction set's packers take. Called by TileGemm.
// Invariant: every byte of the panels of the range is written, the zeros of the tails included, and nothing beyond.
#pragma once

#include <cstdint>

#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/tile_gemm.h"

namespace coda::cpu {

struct Range {
  std::int64_t first, count;
};

constexpr std::int64_t round_up(std::int64_t x, std::int64_t unit) { return (x + unit - 1) / unit * unit; }

void pack(const KernelSet& set, const Packer& packer, const GemmOperand& operand, Range mn, Range k, void* out);

}  // namespace coda::cpu
