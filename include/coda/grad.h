// Reverse mode on graphs, from the derivative rows of the op table. A Program is differentiated as the graph it is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coda/builder.h"
#include "coda/graph.h"

namespace coda {

// The graph that maps gradients of outputs to gradients of inputs: the inputs of `g`, and for each of `outputs` (none
// named: every float output) an input d_<output> of its shape and dtype; for each of `wrt` an output d_<input>, f32,
// of the input's shape. Inputs that are not asked for cost nothing. Forward values are recomputed from the inputs; what
// is kept instead is a plan's choice. An output that accumulates (+=) is differentiated in what it adds.
// Error for unknown, repeated and integer names, and for operations without a derivative on the way.
Graph gradient(const Graph& g, const std::vector<std::string>& wrt, const std::vector<std::string>& outputs = {});

// The same inside a builder: gradients of Σ ⟨gradient, of⟩ over the seeds with respect to `wrt`, as values of the same
// builder and of the type of their value; empty where no seed depends on it.
struct Seed {
  Val of, gradient;
};
std::vector<std::optional<Val>> backpropagate(GraphBuilder& b, const std::vector<Seed>& seeds,
                                              const std::vector<Val>& wrt);

}  // namespace coda
