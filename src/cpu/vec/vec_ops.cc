// Chooses the table of vector operations of an instruction set; called once per executable.
#include "cpu/vec/vec_ops.h"

#include "cpu/vec/tables.h"

namespace coda::cpu {

const VecOps& vec_ops(Isa isa) {
  switch (isa) {
    case Isa::kBaseline: return kBaselineVecOps;
    case Isa::kAvx2: return kAvx2VecOps;
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
    case Isa::kAmx: break;
  }
  return kAvx512VecOps;
}

}  // namespace coda::cpu
