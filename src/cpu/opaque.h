// The opaque calls of a plan on the CPU. Called by the backend with views at concrete sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "coda/plan.h"
#include "coda/tensor.h"
#include "cpu/kernels/tile_gemm.h"

namespace coda::cpu {

// Operands and sizes as OpaqueKind lists them.
void run_opaque(OpaqueKind kind, const std::vector<TensorView>& in, const std::vector<TensorView>& out,
                const std::vector<std::int64_t>& sizes, Isa isa, ThreadPool& pool);

}  // namespace coda::cpu
