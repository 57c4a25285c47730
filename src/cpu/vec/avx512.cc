// Vector operations for AVX-512 F, BW, DQ and VL; the only file of this folder with those compiler flags.
// Everything but the table is in anonymous namespaces (simd_inl.h says why).
#include "cpu/vec/table_inl.h"
#include "cpu/vec/tables.h"

namespace coda::cpu {

constinit const VecOps kAvx512VecOps = table_for(Isa::kAvx512);

}  // namespace coda::cpu
