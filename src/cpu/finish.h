// The finish: what follows the merged reductions of a program, on whole vectors of rows or columns. Called once by
// ProgramKernel after the last tile.
#pragma once

#include <vector>

#include "coda/graph.h"
#include "cpu/instr.h"
#include "cpu/tile.h"

namespace coda::cpu {

class FinishMachine {
 public:
  FinishMachine(const Code& code, const VecOps& ops, const Graph& graph);
  // Where the merged result for finish value v goes before run().
  float* value(int v) { return values_[static_cast<std::size_t>(v)].data(); }
  void run(const RunArgs& args);
  void poison() {
    for (AlignedFloats& v : values_) v.poison();
  }

 private:
  void execute(const Instr& i);
  void load(const Instr& i);
  void gather(const Instr& i);
  void reduce(const Instr& i);
  void reduce_groups(const Instr& i);
  void store(const LoweredStore& s);
  std::int64_t size(int v) const;

  const Code& code_;
  const VecOps& ops_;
  const Graph& graph_;
  const RunArgs* args_ = nullptr;
  std::vector<AlignedFloats> values_;
};

}  // namespace coda::cpu
