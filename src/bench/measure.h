// Timing of several candidates in one run. Used by the benchmark.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace coda::bench {

struct Candidate {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds = {};
  double quantile(double q) const;
};

// Each round runs every candidate once, in an order shuffled anew, after one round that is not counted: a slow spell of
// the machine hits all of them.
void measure(std::vector<Candidate>& candidates, int rounds);

}  // namespace coda::bench
