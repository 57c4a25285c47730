// Derivative rows of the op table: from the gradients of an operation's results to those of its operands, built with
// table operations. Called by reverse mode (src/grad) alone, which sums over the axes along which an operand was
// broadcast.
#pragma once

#include <optional>
#include <vector>

#include "coda/builder.h"

namespace coda {

struct GradFrame {
  GraphBuilder& builder;
  const Attrs& attrs;
  std::vector<Val> in;                   // the operation's operands
  std::vector<Val> out;                  // its results
  std::vector<std::optional<Val>> dout;  // gradients of the results; empty: zero
  std::vector<std::optional<Val>> din;   // to be filled: gradients of the operands in any shape that broadcasts to the
                                         // result's; empty: zero
};

namespace grads {
void neg(GradFrame& f);
void abs(GradFrame& f);
void exp(GradFrame& f);
void log(GradFrame& f);
void sqrt(GradFrame& f);
void rsqrt(GradFrame& f);
void tanh(GradFrame& f);
void erf(GradFrame& f);
void sigmoid(GradFrame& f);
void silu(GradFrame& f);
void gelu(GradFrame& f);
void gelu_tanh(GradFrame& f);
void relu(GradFrame& f);
void square(GradFrame& f);
void cast(GradFrame& f);
void add(GradFrame& f);
void sub(GradFrame& f);
void mul(GradFrame& f);
void div(GradFrame& f);
void min(GradFrame& f);
void max(GradFrame& f);
void where(GradFrame& f);
void pairs(GradFrame& f);
void interleave(GradFrame& f);
void halves(GradFrame& f);
void concat(GradFrame& f);
void split(GradFrame& f);
void group(GradFrame& f);
void flat(GradFrame& f);
void reduce_sum(GradFrame& f);
void reduce_max(GradFrame& f);
void argmax(GradFrame& f);
void logsumexp(GradFrame& f);
void moments(GradFrame& f);
void cis(GradFrame& f);
void gather(GradFrame& f);
void matmul(GradFrame& f);
void rmsnorm(GradFrame& f);
void layernorm(GradFrame& f);
void rope(GradFrame& f);
void cross_entropy(GradFrame& f);
void attention(GradFrame& f);
void scatter_sum(GradFrame& f);
}  // namespace grads

}  // namespace coda
