// fp64 definitions of the operations that are no maps. Called by the interpreter alone, one function per row of the op
// table; `in` and `out` have the shapes that the types say.
#pragma once

#include <vector>

#include "coda/interpret.h"
#include "coda/op.h"

namespace coda {

struct EvalFrame {
  const Node& node;
  const Attrs& attrs;
  const Sizes& sizes;
  const InterpretOptions& options;  // for the summation of kEager
  std::vector<const Array*> in;
  std::vector<Array> out;  // allocated, zero
};

namespace eval {
void literal(EvalFrame& f);
void size_value(EvalFrame& f);
void row_index(EvalFrame& f);
void col_index(EvalFrame& f);
void uniform(EvalFrame& f);
void cis(EvalFrame& f);
void gather(EvalFrame& f);
void matmul(EvalFrame& f);
void cast(EvalFrame& f);
void pairs(EvalFrame& f);
void interleave(EvalFrame& f);
void halves(EvalFrame& f);
void concat(EvalFrame& f);
void split(EvalFrame& f);
void reshape(EvalFrame& f);  // group and flat: the same elements in the same order
void reduce_sum(EvalFrame& f);
void reduce_max(EvalFrame& f);
void argmax(EvalFrame& f);
void logsumexp(EvalFrame& f);
void moments(EvalFrame& f);
void attention(EvalFrame& f);
void attention_grad(EvalFrame& f);
void scatter_sum(EvalFrame& f);
}  // namespace eval

}  // namespace coda
