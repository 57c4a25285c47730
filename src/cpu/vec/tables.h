// The tables of the instruction sets, for vec_ops.cc to choose from. Constants, so that using one early is no danger.
#pragma once

#include "cpu/vec/vec_ops.h"

namespace coda::cpu {

extern constinit const VecOps kBaselineVecOps, kAvx2VecOps, kAvx512VecOps;

}  // namespace coda::cpu
