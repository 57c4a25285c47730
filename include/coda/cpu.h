// The CPU backend: GEMM by tiles, the epilogue on the tile while it is in cache, threads over tiles.
#pragma once

#include <memory>
#include <string>

#include "coda/runtime.h"

namespace coda {

struct CpuOptions {
  int threads = 0;    // 0: CODA_THREADS, else the cores this process may use
  std::string isa;    // "": CODA_ISA, else the best of this processor; else baseline, avx2, avx512, avx512bf16, amx
  int tile_rows = 0;  // 0: chosen from the shape; else as given (tests use small tiles to cross edges cheaply)
  int tile_cols = 0;
};

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

}  // namespace coda
