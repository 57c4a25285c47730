// What parser and printer share: precedences, the shapes of calls, and which arithmetic on sizes stays a size.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "coda/dim.h"
#include "coda/op.h"

namespace coda {

// Loosest first; an operator binds operands of a higher level. `@` binds tighter than `*`: (x @ w) * r is x @ w * r.
namespace precedence {
constexpr int kOr = 1, kAnd = 2, kNot = 3, kCompare = 4, kSum = 5, kProduct = 6, kMinus = 7, kMatmul = 8, kAtom = 10;
}

struct Infix {
  std::string_view symbol;
  Op op;
  int precedence;
};
const Infix* find_infix(std::string_view symbol);  // nullptr if none
const Infix* find_infix(Op op);

// Sizes that follow the operands of a call: group(x, hd). kSplit takes one or more.
int sizes_after_operands(Op op);
// How a call is written: "layernorm(x, gamma, beta, eps)"; `name` with its axis.
std::string usage(const OpRow& r, std::string_view name);
// The operation's axis from its name: "sum_mn" → kMN.
Axis axis_of(const OpRow& r, std::string_view name);

// 2*N, H*hd and N/H (where N = H*hd) in an expression are one size, not operations on numbers: sums, products and exact
// quotients that are whole and ≥ 0 whatever the sizes are. Nothing if `a op b` is none of these.
std::optional<Dim> fold_sizes(Op op, const Dim& a, const Dim& b);
// A polynomial with whole positive coefficients: what fold_sizes makes.
bool is_folded_size(const Dim& d);

// Dim throws at division by a sum; this bounds the rest: coefficients, powers, number of terms.
bool is_too_large(const Dim& d);

}  // namespace coda
