// Which integer inputs of a graph index something, so that the interpreter and every backend refuse the same values. A
// target is told by its comparison with col(): it must name a column, or be a number that it is also compared with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/graph.h"

namespace coda {

// An i32 input whose values must lie in [0, bound), or be one of the numbers it is also compared with (ignore_index).
struct IndexRule {
  int input = -1;  // index in Graph::inputs
  Dim bound;
  std::string of;                  // "rows of cos", "columns"
  std::vector<int> ignore_inputs;  // launch constants, by index in Graph::inputs
  std::vector<std::int64_t> ignore_values;
};
// Of a graph without composites.
std::vector<IndexRule> index_rules(const Graph& g);

// Error naming `called` unless `value` (in `row`) is in [0, bound) or ignored.
void check_index(const std::string& called, const std::string& of, std::int64_t bound,
                 const std::vector<std::int64_t>& ignored, std::int64_t row, std::int64_t value);

}  // namespace coda
