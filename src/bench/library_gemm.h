// The rulers of `coda bench`: whole-matrix GEMMs of libraries that are opened at run time (nothing is linked):
// OpenBLAS, MKL, oneDNN. Used by the benchmark alone, never by the library.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coda/tensor.h"

namespace coda::bench {

// c[M,N] = (or +=, fp32 c only) Σ over the shared axis of a and b. Plain row-major views with a unit stride along one
// axis.
struct GemmCall {
  TensorView a, b, c;
  int a_axis = 1, b_axis = 1;  // the contracted axis of each: 0 rows, 1 columns
  bool accumulate = false;
};

class LibraryGemm {
 public:
  virtual ~LibraryGemm() = default;
  virtual std::string name() const = 0;             // "OpenBLAS 0.3.21 (libopenblas.so.0)"
  virtual bool supports(DType operands) const = 0;  // f32 and bf16; a library without bf16 products widens
  virtual void set_threads(int threads) = 0;
  virtual void run(const GemmCall& call) = 0;
};

// Every library found: by the paths in CODA_BENCH_LIBRARIES (colon separated), then by the usual names.
std::vector<std::unique_ptr<LibraryGemm>> open_libraries();

// The fastest of them for operands of `dtype` at n³ with so many threads; nullptr if none supports it.
LibraryGemm* best_library(const std::vector<std::unique_ptr<LibraryGemm>>& libraries, DType dtype, int threads,
                          std::int64_t n);

}  // namespace coda::bench
