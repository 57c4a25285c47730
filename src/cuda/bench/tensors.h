// The memory of a benchmark on the GPU: the tensors of a plan's caller, and of the bare GEMMs it is compared with.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coda/runtime.h"
#include "cuda/bench/cublas.h"
#include "cuda/bench/gpu.h"
#include "cuda/bench/sample.h"

namespace coda::cuda {

// Every buffer of a plan that is not its own temporary, contiguous: inputs with values that suit their programs.
class PlanTensors {
 public:
  PlanTensors(Gpu& gpu, const Plan& plan, const Sizes& sizes, std::uint64_t seed);
  const Bindings& bindings() const { return bindings_; }
  // Outputs become NaN, accumulated ones 0: before a run that will be verified.
  void renew_outputs();
  ReadRows reader() const;
  std::vector<std::byte> read(const std::string& buffer) const;  // all of it

 private:
  Gpu& gpu_;
  const Plan& plan_;
  Bindings bindings_;
  std::vector<std::shared_ptr<void>> memory_;
};

// Products one after another on operands of their own.
class BareGemms {
 public:
  BareGemms(Gpu& gpu, Cublas& cublas, std::vector<GemmShape> shapes, std::uint64_t seed);
  void run();  // enqueues them all
  double flops() const;
  const std::vector<GemmShape>& shapes() const { return shapes_; }

 private:
  struct Operands {
    std::shared_ptr<void> a, b, c;
  };
  Cublas& cublas_;
  std::vector<GemmShape> shapes_;
  std::vector<Operands> operands_;
};

}  // namespace coda::cuda
