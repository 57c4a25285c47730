// AdamW with decoupled weight decay and clipping by the global norm, on fp32 weights and moments. Called once a step by
// the training loop. Invariant: a step is the same bits for any number of threads, and a gradient that is not finite
// changes nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "coda/dtype.h"

namespace coda {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95;  // in [0, 1)
  double epsilon = 1e-8;             // finite, > 0
  double weight_decay = 0.1;         // finite, ≥ 0
  double clip_norm = 1.0;            // finite, ≥ 0; 0: no clipping

  void check() const;  // Error naming the option
};

// One tensor to be trained, where its owner keeps it.
struct Parameter {
  std::string name;
  std::int64_t count = 0;
  float* weight = nullptr;          // fp32 master
  const float* gradient = nullptr;  // fp32, read by step()
  bool decay = true;                // usually matrices yes, norms no
  void* copy = nullptr;             // if set, the new weight is written here too, as `copy_dtype`, in the same pass
  DType copy_dtype = DType::kBF16;  // bf16 or f16
};

struct StepReport {
  double gradient_norm = 0;  // over all parameters, before clipping
  bool applied = true;       // false: the norm is not finite; weights, moments and copies are as before
};

class AdamW {
 public:
  // Moments start at zero. Error for bad options or parameters (null, negative count, a copy that is neither bf16 nor
  // f16, equal names).
  AdamW(const AdamWOptions& options, std::vector<Parameter> parameters);

  // Update number `number` (1 is the first: it sets the bias correction) at `rate` (finite, ≥ 0; else Error).
  StepReport step(std::int64_t number, double rate, ThreadPool& pool);
  void write_copies(ThreadPool& pool);  // all copies from the weights as they are: after loading

  const std::vector<Parameter>& parameters() const { return parameters_; }
  // Moments of parameter i, `count` floats each; to save and to load.
  std::span<float> first_moment(std::size_t i) { return first_[i]; }
  std::span<float> second_moment(std::size_t i) { return second_[i]; }

 private:
  struct Piece {  // a range of one parameter that one thread handles
    std::size_t parameter;
    std::int64_t begin, end;
  };
  double gradient_norm(ThreadPool& pool);
  void update(const Piece& piece, std::int64_t number, double rate, double scale);

  AdamWOptions options_;
  std::vector<Parameter> parameters_;
  std::vector<std::vector<float>> first_, second_;
  std::vector<Piece> pieces_;
  std::vector<double> squares_;  // of each piece
};

}  // namespace coda
