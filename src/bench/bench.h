// `coda bench`: programs and the Llama layer on a backend against their bare GEMM, the best library GEMM and the same
// operations unfused, all in one run with the candidates shuffled in every round.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "coda/dtype.h"

namespace coda::bench {

struct BenchOptions {
  std::int64_t n = 2048;  // programs run at n³
  std::vector<DType> dtypes = {DType::kF32, DType::kBF16};
  std::vector<int> threads;  // empty: 1 and all
  int rounds = 9;
  std::string filter;                                                          // rows whose name contains it
  std::int64_t tokens = 2048, d = 1024, ff = 2816, heads = 16, kv_heads = 16;  // the layer
  std::function<void(const std::string&)> progress;
};

struct BenchRow {
  std::string name, backend, shape, dtype;
  int threads = 1;
  double median_s = 0, q1_s = 0, q3_s = 0;
  std::string baseline;  // what it was compared with, in words
  double baseline_s = 0, ratio = 0;
};

std::vector<BenchRow> run_bench(const BenchOptions& options);
std::string cpu_name();  // of this machine, for the record

}  // namespace coda::bench
