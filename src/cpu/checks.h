// What a run checks before anything is written: every binding of the caller, and integer operands that index.
#pragma once

#include <vector>

#include "coda/plan.h"
#include "coda/runtime.h"
#include "cpu/views.h"

namespace coda::cpu {

// Missing, unknown, shape, dtype, null, misaligned, overlapping.
void check_bindings(const Plan& plan, const Sizes& sizes, const Bindings& bindings);

// Values of an i32 tensor against a rule; `called` names the tensor, `ignored` are further allowed values.
void check_indices(const std::string& called, const TensorView& index, const std::string& of, std::int64_t bound,
                   const std::vector<std::int64_t>& ignored);

}  // namespace coda::cpu
