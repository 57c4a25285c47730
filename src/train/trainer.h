// The training loop: a Llama on a text, step by step, on any backend. Called by `coda train` and the tests. Invariant:
// a run is a pure function of its options and data; stopping and resuming changes no loss, not even its last bit.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "coda/runtime.h"
#include "model/llama.h"
#include "train/adamw.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/schedule.h"

namespace coda {

struct TrainOptions {
  DataOptions data;   // its `sequence` is the model's sequence length
  LlamaConfig model;  // vocab 0: the data's; context 0: the sequence
  AdamWOptions adamw;
  double learning_rate = 1e-3, learning_rate_floor = 0.1;  // the floor as a share of the peak
  std::int64_t warmup = 50;
  std::int64_t steps = 400, batch = 8;  // sequences of a step
  std::uint64_t seed = 1;
  std::string out = "runs/llama";  // directory; made if its parent exists
  bool resume = false;             // go on from out/checkpoint.safetensors
  std::int64_t eval_every = 50, eval_batches = 8;
  std::int64_t save_every = 100;

  void check() const;        // Error naming the option
  std::string json() const;  // what makes two runs the same run; kept in the checkpoint
};

// Options of a saved run, from the text that json() made. Error if it is not such a text.
TrainOptions train_options(const std::string& json);

struct TrainReport {
  std::int64_t steps = 0;  // done in all
  bool interrupted = false;
  double train_loss = 0, validation_loss = 0;  // last of each, nats per token
  double tokens_per_second = 0;
  std::string checkpoint, curve;  // paths
  std::vector<LossPoint> train, validation;
};

class Trainer {
 public:
  // Checks everything and prepares: nothing is written but the directory.
  Trainer(const TrainOptions& options, Backend& backend, ThreadPool& pool);
  ~Trainer();
  // Until the last step, or until `stop` becomes true: then saves and returns.
  TrainReport run(const std::atomic<bool>& stop);

  // For tests: one forward and backward at the current weights; gradients by parameter name, and the mean loss.
  double loss_and_gradients(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& targets,
                            std::vector<std::vector<float>>& gradients);
  std::vector<std::vector<float>>& weights();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coda
