// The order and the arithmetic of a GPU benchmark, apart from any GPU: every candidate once a round, in an order
// shuffled anew, the cache flushed before each; medians, quartiles and ratios to a baseline; and the verdict whether
// the run counts (the baseline is timed twice under two names). Called by the cases of `coda bench --backend cuda`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace coda::cuda {

// `run` enqueues the work of one measurement and returns; `verify` (may be empty) checks what a run left behind and
// throws an Error that says what is wrong.
struct Candidate : bench::Candidate {
  std::function<void()> verify;
};

// Where time comes from: a CUDA stream, or a test's clock.
class Ticker {
 public:
  virtual ~Ticker() = default;
  virtual void flush() = 0;                   // evicts what the last candidate left in the cache
  virtual void start() = 0;                   // marks of one measurement, in the order of the work
  virtual void stop() = 0;                    //
  virtual std::vector<double> collect() = 0;  // waits; seconds of every start/stop pair since the last call
  virtual double now() const = 0;             // of the host, for the length of the warm-up
};

struct HarnessOptions {
  int rounds = 30;
  double warm_up_s = 2;
  std::uint64_t seed = 1;
};

// Runs and verifies every candidate once, warms up with all of them for at least warm_up_s, then times the rounds into
// Candidate::seconds. Work of one round is enqueued at once, behind one candidate that is not timed: the first after a
// wait reads 5 to 10 % slow.
void measure(std::vector<Candidate>& candidates, const HarnessOptions& options, Ticker& ticker);

// A run counts if the same baseline, timed under two names, agrees with itself this well.
inline constexpr double kAgreement = 0.03;

struct Comparison {
  double median_s = 0, q1_s = 0, q3_s = 0;
  double ratio = 0;           // of medians
  double ratio_by_round = 0;  // median over rounds of the ratio within a round
};
Comparison compare(const Candidate& candidate, const Candidate& baseline);

struct Agreement {
  double ratio = 1;  // of the two medians
  bool counts = false;
};
Agreement agreement(const Candidate& first, const Candidate& second);

}  // namespace coda::cuda
