// cuBLAS, opened at run time: the ruler of the GPU benchmark, never used by the library itself.
//
// Searched as library_search.h says: CODA_CUBLAS, libcublas.so.13 and .12, the wheels' folders nvidia/cu13/lib and
// nvidia/cublas/lib.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "cuda/bench/gemm_shape.h"

namespace coda::cuda {

class Cublas {
 public:
  static constexpr std::size_t kWorkspace = std::size_t{64} << 20;  // bytes; NVIDIA advises 32 MiB for Hopper
  // In the current context, on `stream` (a CUstream), with kWorkspace bytes of device memory that outlive it. Error
  // that lists what was looked for.
  static std::unique_ptr<Cublas> open(void* stream, void* workspace);
  virtual ~Cublas() = default;
  virtual std::string version() const = 0;  // "13.1.0 (libcublas.so.13)"
  // Enqueues one product, fp32 accumulation and, for fp32 operands, fp32 multiplication. Pointers on the device.
  virtual void gemm(const GemmShape& shape, const void* a, const void* b, void* c) = 0;
};

// A row-major product as the arguments of the column-major library: Cᵀ = Bᵀ Aᵀ.
struct ColumnMajorCall {
  bool first_transposed = false, second_transposed = false;  // first is B, second A
  int m = 0, n = 0, k = 0, first_ld = 0, second_ld = 0, c_ld = 0;
  float beta = 0;
};
ColumnMajorCall column_major(const GemmShape& shape);

}  // namespace coda::cuda
