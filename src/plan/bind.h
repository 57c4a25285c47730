// What a program's sizes are in a plan's sizes, found from the shapes of the buffers it is bound to. Called by
// Plan::run. Symbolic: nothing is known here but names, so shapes that only happen to be equal do not match.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coda/dim.h"
#include "coda/program.h"

namespace coda {

// Stands for the rows of the current chunk among a step's sizes.
inline constexpr const char* kChunkRows = "(rows of the chunk)";

struct BoundShape {
  std::string called;  // "input wq = layer0.wq", for messages
  const Type* type;    // as the program declares it
  Dim rows, cols;      // as the plan has it
};

// Every free size of `p`, starting from `given`; Error that starts with `step` if shapes contradict or a size stays
// open.
std::map<std::string, Dim> bind_sizes(const Program& p, const std::string& step,
                                      const std::map<std::string, Dim>& given, const std::vector<BoundShape>& shapes);

}  // namespace coda
