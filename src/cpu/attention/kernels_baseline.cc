// The attention kernels for any x86-64 (SSE2). Compiled with that instruction set's flags.
#include "cpu/attention/kernels.h"

namespace coda::cpu {
namespace {
constexpr int kLanes = 4;                     // floats in a vector
constexpr int kRowTile = 6, kVectorTile = 2;  // accumulators: 12 of 16 registers
}  // namespace
}  // namespace coda::cpu

#include "cpu/attention/kernels_impl.h"

namespace coda::cpu {
const AttentionKernels& attention_kernels_baseline() { return kKernels; }
}  // namespace coda::cpu
