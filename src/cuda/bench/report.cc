// Table and JSON of the GPU benchmark; see report.h.
#include "cuda/bench/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coda/error.h"

namespace coda::cuda {

std::vector<Row> rows_of(Group group, const std::vector<Candidate>& candidates) {
  CODA_CHECK(candidates.size() >= 2, "a baseline is timed twice");
  group.rounds = static_cast<int>(candidates[0].seconds.size());
  group.agreement = agreement(candidates[0], candidates[1]);
  std::vector<Row> rows;
  for (const Candidate& c : candidates)
    rows.push_back({group, c.name, compare(c, candidates[0]), candidates[0].quantile(0.5)});
  return rows;
}

std::string table_head() {
  return fmt::format("{:30} {:20} {:24} {:>9} {:>9} {:>9} {:>7} {:>7} {:>6} {:>5} {:>5}  {}", "name", "shape",
                     "candidate", "ms", "q1", "q3", "ratio", "rounds'", "TF/s", "MHz", "W", "verdict");
}

std::string table_line(const Row& r) {
  const Comparison& t = r.timing;
  return fmt::format("{:30} {:20} {:24} {:9.4f} {:9.4f} {:9.4f} {:7.3f} {:7.3f} {:6.0f} {:5.0f} {:5.0f}  {}",
                     r.group.name, r.group.shape, r.candidate, t.median_s * 1e3, t.q1_s * 1e3, t.q3_s * 1e3, t.ratio,
                     t.ratio_by_round, r.group.flops / t.median_s / 1e12, r.group.chip.sm_mhz, r.group.chip.watts,
                     r.group.agreement.counts
                         ? "counts"
                         : fmt::format("does not count: the baseline reads {:.3f} of itself", r.group.agreement.ratio));
}

nlohmann::json to_json(const RunInfo& info, const std::vector<Row>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const Row& r : rows)
    list.push_back({{"name", r.group.name},
                    {"backend", "cuda"},
                    {"candidate", r.candidate},
                    {"shape", r.group.shape},
                    {"dtype", r.group.dtype},
                    {"rounds", r.group.rounds},
                    {"median_s", r.timing.median_s},
                    {"q1_s", r.timing.q1_s},
                    {"q3_s", r.timing.q3_s},
                    {"baseline", r.group.baseline},
                    {"baseline_s", r.baseline_s},
                    {"ratio", r.timing.ratio},
                    {"ratio_by_round", r.timing.ratio_by_round},
                    {"flops", r.group.flops},
                    {"baseline_again_ratio", r.group.agreement.ratio},
                    {"counts", r.group.agreement.counts},
                    {"sm_mhz", r.group.chip.sm_mhz},
                    {"watts", r.group.chip.watts}});
  return {
      {"machine", info.machine},
      {"driver", info.driver},
      {"cublas", info.cublas},
      {"commit", info.commit},
      {"command", info.command},
      {"regime", fmt::format("mixed: candidates shuffled in every round, a 256 MB memset before each, {} s of warm-up",
                             info.warm_up_s)},
      {"rows", list}};
}

}  // namespace coda::cuda
