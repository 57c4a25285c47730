// Program: one kernel. A graph with at most one source (a GEMM, or tiles that are loaded) that obeys the law: a tile
// value never depends on a finish value of its own program.
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

// When a value is known: kOperand from the inputs alone, kTile on the accumulator tile, kFinish once whole rows or
// columns have been reduced.
enum class Stage : std::uint8_t { kOperand, kTile, kFinish };

// Σ_i A_i @ B_i: one accumulator of the GEMM source.
struct Accumulator {
  ValueId value = -1;             // the sum (or the single product)
  std::vector<int> matmul_nodes;  // its terms, in order
};

class Program {
 public:
  // Verifies; throws Error that names the offending value.
  explicit Program(Graph g);

  const Graph& graph() const { return written_; }      // as written
  const Graph& expanded() const { return expanded_; }  // composites expanded; stages and accumulators refer to this one
  const std::string& name() const { return written_.name(); }
  std::uint64_t hash() const { return written_.hash(); }

  Stage stage(ValueId v) const { return stages_[static_cast<std::size_t>(v)]; }
  // Products of the GEMM source; several share all their A operands, or all their B operands. Empty: tile source.
  const std::vector<Accumulator>& accumulators() const { return accumulators_; }
  bool is_gemm() const { return !accumulators_.empty(); }

 private:
  Graph written_, expanded_;
  std::vector<Stage> stages_;
  std::vector<Accumulator> accumulators_;
};

}  // namespace coda
