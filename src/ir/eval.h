// fp64 definitions of the operations that are no maps. Called by the interpreter alone, one function per row of the op
// table; `in` and `out` have the shapes that the types say.
#pragma once

#include <string>
#include <vector>

#include "coda/interpret.h"
#include "coda/op.h"

namespace coda {

struct EvalFrame {
  const Graph& graph;
  const Node& node;
  const Attrs& attrs;
  const Sizes& sizes;
  const InterpretOptions& options;  // for the summation of kEager
  std::vector<const Array*> in;
  std::vector<Array> out;  // allocated, zero

  bool eager() const { return options.rounding == Rounding::kEager; }
  // How messages call an operand: its name, or its place in the operation.
  std::string called(std::size_t operand) const;
};

namespace eval {

// A running sum: fp64, or in the eager mode fp32 terms one after another.
class Sum {
 public:
  explicit Sum(bool in_fp32) : in_fp32_(in_fp32) {}
  void add(double x) {
    total_ = in_fp32_ ? static_cast<double>(static_cast<float>(total_) + static_cast<float>(x)) : total_ + x;
  }
  double total() const { return total_; }

 private:
  bool in_fp32_;
  double total_ = 0;
};

// `x` repeated along its axes of size 1.
Array broadcast(const Array& x, std::int64_t rows, std::int64_t groups, std::int64_t cols);

// Row of a table for each index; Error if one is outside [0, rows).
std::int64_t checked_index(const EvalFrame& f, std::size_t operand, std::int64_t row, std::int64_t rows,
                           const std::string& of);

void literal(EvalFrame& f);
void size_value(EvalFrame& f);
void row_index(EvalFrame& f);
void col_index(EvalFrame& f);  // the column within its group
void uniform(EvalFrame& f);    // see philox.h
void cis(EvalFrame& f);        // cos and sin of the exact product of an i32 position and an fp32 frequency
void gather(EvalFrame& f);
void matmul(EvalFrame& f);
void cast(EvalFrame& f);  // to a float: rounds, except under kExact; to i32: toward zero, Error outside 32 bits
void pairs(EvalFrame& f);
void interleave(EvalFrame& f);
void halves(EvalFrame& f);
void concat(EvalFrame& f);
void split(EvalFrame& f);
void reshape(EvalFrame& f);     // group and flat: the same elements in the same order
void reduce_sum(EvalFrame& f);  // of nothing: 0
void reduce_max(EvalFrame& f);  // of nothing: -inf; NaN wins
void argmax(EvalFrame& f);  // (value, index): lowest index of the maximum, of the first NaN if any; nothing: (-inf, -1)
// (m, ln Σ exp(z − m)); with a payload w also Σ exp(z − m) w / Σ exp(z − m), where exp(z − m) = 0 takes no part, not
// even with an infinite w. Of nothing or of -inf alone: (-inf, -inf, 0).
void logsumexp(EvalFrame& f);
void moments(EvalFrame& f);  // (mean, Σ (x − mean)²) in two passes; of nothing: (0, 0)
// Causal, scale 1/sqrt(head_dim); rows are (batch, position), columns (head, element); query head h reads kv head
// h / (heads / kv_heads). → (o, lse of the scaled scores)
void attention(EvalFrame& f);
void attention_grad(EvalFrame& f);
void scatter_sum(EvalFrame& f);  // out[index[i]] += g[i], in the order of i

}  // namespace eval

}  // namespace coda
