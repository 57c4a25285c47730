// Results of the GPU benchmark as a table and as JSON (the form of bench/results/). Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cuda/bench/harness.h"
#include "cuda/bench/nvml.h"

namespace coda::cuda {

// What was the same for all rows.
struct RunInfo {
  std::string machine, driver, cublas, commit, command;
  double warm_up_s = 0;
};

// One group of candidates, timed in one shuffle.
struct Group {
  std::string name, shape;  // "P2 rmsnorm_swiglu", "4096x4096x4096"
  std::string baseline;     // in words
  std::string dtype;
  double flops = 0;  // of the baseline
  int rounds = 0;
  ChipState chip;
  Agreement agreement;  // of the baseline with itself
};

struct Row {
  Group group;
  std::string candidate;  // "coda pp128x128", "cublas again"
  Comparison timing;
  double baseline_s = 0;
};

// Rows of one measured group. The first candidate is the baseline, the second the same under another name.
std::vector<Row> rows_of(Group group, const std::vector<Candidate>& candidates);

std::string table_head();
std::string table_line(const Row& row);
nlohmann::json to_json(const RunInfo& info, const std::vector<Row>& rows);

}  // namespace coda::cuda
