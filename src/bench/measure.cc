// Timing; see measure.h.
#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace coda::bench {

double Candidate::quantile(double q) const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  double at = q * static_cast<double>(sorted.size() - 1);
  auto low = static_cast<std::size_t>(at), high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

void measure(std::vector<Candidate>& candidates, int rounds) {
  std::mt19937 random(1);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < candidates.size(); ++i) order.push_back(i);
  for (int round = 0; round <= rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t i : order) {
      auto start = std::chrono::steady_clock::now();
      candidates[i].run();
      std::chrono::duration<double> t = std::chrono::steady_clock::now() - start;
      if (round > 0) candidates[i].seconds.push_back(t.count());
    }
  }
}

}  // namespace coda::bench
