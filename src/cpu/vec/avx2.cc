// Vector operations for AVX2, FMA and F16C; the only file of this folder with those compiler flags.
// Everything but the table is in anonymous namespaces (simd_inl.h says why).
#include "cpu/vec/table_inl.h"
#include "cpu/vec/tables.h"

namespace coda::cpu {

constinit const VecOps kAvx2VecOps = table_for(Isa::kAvx2);

}  // namespace coda::cpu
