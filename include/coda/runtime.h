// Backend and Executable: from a plan and sizes to something that runs.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "coda/plan.h"
#include "coda/tensor.h"

namespace coda {

using Bindings = std::map<std::string, TensorView>;  // the plan's input, output and in-out buffers by name

class Executable {
 public:
  virtual ~Executable() = default;
  // Checks every binding (missing, unknown, shape, dtype, null, misaligned, outputs that overlap anything else, integer
  // operands out of range) before anything is written: Error. Not reentrant.
  virtual void run(const Bindings& bindings) = 0;
  // Fills workspace, partials and temporaries with NaN, so that a value read before it is written shows. For tests.
  virtual void poison() = 0;
  // Tile configuration, kernels chosen, workspace bytes: what a checkpoint saves beside the plan.
  virtual std::string configuration() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  // Error if a size is missing or the backend does not support something (docs/support.md).
  virtual std::unique_ptr<Executable> prepare(const Plan& plan, const Sizes& sizes) = 0;
};

}  // namespace coda
