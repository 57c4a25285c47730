// A plan run by the fp64 interpreter, step by step: the oracle of every backend for whole plans. Slow and obvious.
#pragma once

#include "coda/interpret.h"
#include "coda/plan.h"

namespace coda {

// `inputs`: every input and in-out buffer by name. Returns outputs and in-outs; with `all` temporaries too, to find
// where two runs part. Error for a missing or unknown name, a wrong shape, and whatever the interpreter refuses.
Arrays interpret_plan(const Plan& plan, const Arrays& inputs, const Sizes& sizes, const InterpretOptions& options = {},
                      bool all = false);

}  // namespace coda
