// The same computation unfused: every product by a library's whole GEMM, every other operation a pass of its own over
// whole tensors in memory, stored in the program's storage dtype, as an eager framework runs it. The passes are
// vectorised and threaded (one-operation programs on the same backend), so only the fusing differs. Used by the
// benchmark alone.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/library_gemm.h"
#include "coda/plan.h"
#include "coda/runtime.h"

namespace coda::bench {

class Unfused {
 public:
  // Of every program step of `plan`, in order; opaque calls and loops are an Error.
  Unfused(const Plan& plan, const Sizes& sizes, LibraryGemm& gemm, Backend& passes);
  ~Unfused();
  void run(const Bindings& bindings);
  // The bare GEMMs of the same steps, results stored, nothing else.
  void run_gemms(const Bindings& bindings);
  std::size_t passes() const;  // operations that are no GEMM

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coda::bench
