// The learning rate of each step: a linear warm-up, then half a cosine down to a floor. Called by the training loop.
// Invariant: a pure function of the step, so that a resumed run needs no state.
#pragma once

#include <cstdint>

namespace coda {

struct Schedule {
  double peak = 3e-4;         // finite, > 0
  double floor = 0.1;         // of the peak, in [0, 1]
  std::int64_t warmup = 100;  // steps, in [0, total]
  std::int64_t total = 1000;  // steps, ≥ 1; beyond it the rate stays at the floor

  void check() const;  // Error naming the option
  // Step 0 is the first. Rises as (step + 1) / warmup; the peak is reached at step warmup − 1 and left at step warmup;
  // peak · floor at step total.
  double rate(std::int64_t step) const;
};

}  // namespace coda
