// The attention kernels for AVX-512. Compiled with that instruction set's flags.
#include "cpu/attention/kernels.h"

namespace coda::cpu {
namespace {
constexpr int kLanes = 16;                    // floats in a vector
constexpr int kRowTile = 6, kVectorTile = 4;  // accumulators: 24 of 32 registers
}  // namespace
}  // namespace coda::cpu

#include "cpu/attention/kernels_impl.h"

namespace coda::cpu {
const AttentionKernels& attention_kernels_avx512() { return kKernels; }
}  // namespace coda::cpu
