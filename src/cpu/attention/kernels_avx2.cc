// The attention kernels for AVX2, FMA and F16C. Compiled with that instruction set's flags.
#include "cpu/attention/kernels.h"

namespace coda::cpu {
namespace {
constexpr int kLanes = 8;                     // floats in a vector
constexpr int kRowTile = 6, kVectorTile = 2;  // accumulators: 12 of 16 registers
}  // namespace
}  // namespace coda::cpu

#include "cpu/attention/kernels_impl.h"

namespace coda::cpu {
const AttentionKernels& attention_kernels_avx2() { return kKernels; }
}  // namespace coda::cpu
