// A training run on disk: weights, Adam's moments, where it stood and how it was made, in one safetensors file. Called
// by the training loop. Invariants: a checkpoint replaces the old one as a whole; loading writes nothing into the
// caller's tensors unless the whole file fits them; what is loaded is bit for bit what was saved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/atomic_file.h"  // check_writable, for the start of a run
#include "train/curve.h"

namespace coda {

// One trained tensor: fp32, row-major, contiguous, shape[0] · shape[1] · … elements each.
struct CheckpointTensor {
  std::string name;  // not "adam.…" or "history.…"
  std::vector<std::int64_t> shape;
  float* weight = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
};

struct CheckpointState {
  std::int64_t step = 0;  // updates done
  std::string config;     // JSON text of the run's options
  std::vector<LossPoint> train, validation;
};

// In the file: "<name>", "adam.first.<name>", "adam.second.<name>" (F32), "history.<series>.step" (I64) and
// "history.<series>.loss" (F32); metadata "format", "step", "config". Error if it can't be written.
void save_checkpoint(const std::string& path, const std::vector<CheckpointTensor>& tensors,
                     const CheckpointState& state);

// Only the state: enough to build the model that load_checkpoint then fills. Error for a file that is damaged or no
// checkpoint.
CheckpointState read_checkpoint_state(const std::string& path);

// Error if a tensor is missing, of another shape or type (named, with what was found and expected), or one too many.
CheckpointState load_checkpoint(const std::string& path, const std::vector<CheckpointTensor>& tensors);

}  // namespace coda
