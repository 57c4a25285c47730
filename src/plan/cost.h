// What one program moves and computes at concrete sizes, fused and one operation at a time. Called by cost.cc.
#pragma once

#include <string>
#include <vector>

#include "coda/machine.h"

namespace coda {

// `step` tells which outputs are stored. Seconds are filled in by the caller's machine.
StepCost program_cost(const ProgramStep& step, const Sizes& sizes, const Machine& machine);

// The storage of a program's tiles: of its GEMM operands, else of its first tile.
DType tile_storage(const Program& p);

}  // namespace coda
