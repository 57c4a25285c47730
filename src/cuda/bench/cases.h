// What `coda bench --backend cuda` times and at which sizes: the paper's ten programs at n³, and the shapes of Llama
// layers. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/program.h"
#include "cuda/bench/gemm_shape.h"

namespace coda::cuda {

struct ProgramCase {
  std::string label, program;  // "P2", "rmsnorm_swiglu"
  std::string str() const { return label.empty() ? program : label + " " + program; }
};
// From labels (P0 … P9), names of programs/, or "all" (the ten). Error for any other word.
std::vector<ProgramCase> program_cases(const std::vector<std::string>& words);

// n³ in all: products of one operand share the n columns, heads are 128 wide, positions 0 … n-1; a vocabulary has 32768
// columns whatever n is.
Sizes cube_sizes(const Program& p, std::int64_t n);

struct LayerShape {
  std::int64_t d = 0, ff = 0, heads = 0;  // as many key and value heads
};
// Llama's: heads of 128, ff = 8d/3 rounded up to a multiple of 256. Error if d is no multiple of 128.
LayerShape llama_shape(std::int64_t d);
// The forward GEMMs of layers of d = 2048, 4096 and 8192 (q, k, v; gate and up; down), by `tokens` rows.
std::vector<GemmShape> layer_gemms(std::int64_t tokens);

}  // namespace coda::cuda
