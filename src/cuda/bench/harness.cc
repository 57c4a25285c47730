// Order and arithmetic of a benchmark; see harness.h.
#include "cuda/bench/harness.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "coda/error.h"

namespace coda::cuda {
namespace {

void time_one(Candidate& c, Ticker& ticker) {
  ticker.flush();
  ticker.start();
  c.run();
  ticker.stop();
}

}  // namespace

void measure(std::vector<Candidate>& candidates, const HarnessOptions& options, Ticker& ticker) {
  CODA_CHECK(!candidates.empty() && options.rounds > 0, "a benchmark of nothing");
  for (Candidate& c : candidates) {
    time_one(c, ticker);
    ticker.collect();
    if (c.verify) c.verify();
    c.seconds.clear();
  }
  std::mt19937_64 random(options.seed);
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  auto round = [&] {
    std::shuffle(order.begin(), order.end(), random);
    time_one(candidates[order.back()], ticker);  // not counted
    for (std::size_t i : order) time_one(candidates[i], ticker);
    return ticker.collect();
  };
  for (double end = ticker.now() + options.warm_up_s; ticker.now() < end;) round();
  for (int r = 0; r < options.rounds; ++r) {
    std::vector<double> seconds = round();
    CODA_CHECK(seconds.size() == order.size() + 1, "measurements went missing");
    for (std::size_t i = 0; i < order.size(); ++i) candidates[order[i]].seconds.push_back(seconds[i + 1]);
  }
}

Comparison compare(const Candidate& candidate, const Candidate& baseline) {
  CODA_CHECK(!candidate.seconds.empty() && candidate.seconds.size() == baseline.seconds.size(),
             "candidates of different runs compared");
  bench::Candidate ratios;
  for (std::size_t r = 0; r < candidate.seconds.size(); ++r)
    ratios.seconds.push_back(candidate.seconds[r] / baseline.seconds[r]);
  double median = candidate.quantile(0.5);
  return {median, candidate.quantile(0.25), candidate.quantile(0.75), median / baseline.quantile(0.5),
          ratios.quantile(0.5)};
}

Agreement agreement(const Candidate& first, const Candidate& second) {
  double ratio = compare(second, first).ratio;
  return {ratio, std::fabs(ratio - 1) <= kAgreement};
}

}  // namespace coda::cuda
