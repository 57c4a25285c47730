// Vector operations for SSE2, which every x86-64 processor has; the only file of this folder with those compiler flags.
// Everything but the table is in anonymous namespaces (simd_inl.h says why).
#include "cpu/vec/table_inl.h"
#include "cpu/vec/tables.h"

namespace coda::cpu {

constinit const VecOps kBaselineVecOps = table_for(Isa::kBaseline);

}  // namespace coda::cpu
