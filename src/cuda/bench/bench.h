// `coda bench --backend cuda`: programs, bare GEMMs and Llama layers against cuBLAS, each in one shuffled run with it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coda/runtime.h"
#include "cuda/bench/cublas.h"
#include "cuda/bench/gpu.h"
#include "cuda/bench/nvml.h"
#include "cuda/bench/report.h"

namespace coda::cuda {

struct BenchOptions {
  std::vector<std::string> programs;                     // as program_cases takes them
  std::vector<GemmLayout> bare;                          // bare GEMMs at n³
  std::vector<std::int64_t> sizes = {2048, 4096, 8192};  // n
  bool bare_layer_shapes = false;                        // the GEMMs of Llama layers, forward layout
  std::vector<std::int64_t> layers;                      // widths d of Llama layers without attention
  std::int64_t tokens = 16384;                           // of layers and layer shapes
  DType dtype = DType::kBF16;
  int rounds = 30;
  double warm_up_s = 2;  // of every group
  std::uint64_t seed = 1;
  std::function<void(const std::string&)> progress;  // table lines as they come
};

// One kernel configuration of ours, prepared for one plan on tensors that stay where they are.
enum class RunPart : std::uint8_t { kTiles, kFinishes, kAll };
class Contender {
 public:
  virtual ~Contender() = default;
  virtual std::string name() const = 0;  // "coda pp128x128"
  virtual bool has_finishes() const = 0;
  virtual void run(RunPart part) = 0;  // enqueues
};
// All that shall be timed for a plan, on a stream (a CUstream).
using MakeContenders = std::function<std::vector<std::unique_ptr<Contender>>(const Plan& plan, const Sizes& sizes,
                                                                             const Bindings& bindings, void* stream)>;

struct BenchResult {
  std::vector<Row> rows;
  std::vector<std::string> failed;  // "P6 … 4096x4096x4096: why"; the others ran on
};
// `nvml` may be null.
BenchResult run_bench(const BenchOptions& options, Gpu& gpu, Cublas& cublas, Nvml* nvml, const MakeContenders& make);

}  // namespace coda::cuda
