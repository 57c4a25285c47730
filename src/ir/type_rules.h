// Type rules of the op table: from operand types and attributes to result types. Called by GraphBuilder::apply alone;
// a rule throws Error with what was found and allowed, and the builder adds where.
#pragma once

#include <vector>

#include "coda/builder.h"
#include "coda/op.h"

namespace coda {

struct TypeQuery {
  GraphBuilder& builder;
  const OpRow& row;
  const Attrs& attrs;
  std::vector<Type> in;

  Dim wildcard() { return builder.fresh_wildcard(); }
  // The size of two axes that must agree (`what` names the axis in the error); binds wildcards.
  Dim same(const Dim& a, const Dim& b, const char* what);
  // As same, but 1 broadcasts.
  Dim broadcast(const Dim& a, const Dim& b, const char* what);
  [[noreturn]] void mistake(const std::string& found, const std::string& allowed,
                            const std::string& way_out = "") const;
  void need_float(std::size_t operand) const;
};

namespace rules {
std::vector<Type> map_float(TypeQuery& q);   // f32 operands → f32
std::vector<Type> map_number(TypeQuery& q);  // f32 or i32, all alike → the same
std::vector<Type> compare(TypeQuery& q);     // f32 or i32, alike → bool
std::vector<Type> logical(TypeQuery& q);     // bool → bool
std::vector<Type> select(TypeQuery& q);      // bool, T, T → T
std::vector<Type> cast(TypeQuery& q);
std::vector<Type> pairs(TypeQuery& q);  // also halves: two of half the columns
std::vector<Type> interleave(TypeQuery& q);
std::vector<Type> concat(TypeQuery& q);
std::vector<Type> split(TypeQuery& q);
std::vector<Type> group(TypeQuery& q);
std::vector<Type> flat(TypeQuery& q);
std::vector<Type> reduce(TypeQuery& q);     // sum, max
std::vector<Type> argmax(TypeQuery& q);     // (value, index)
std::vector<Type> logsumexp(TypeQuery& q);  // (m, l) or, with a payload, (m, l, mean payload)
std::vector<Type> moments(TypeQuery& q);    // (mean, M2)
std::vector<Type> literal(TypeQuery& q);
std::vector<Type> size_value(TypeQuery& q);
std::vector<Type> row_index(TypeQuery& q);
std::vector<Type> col_index(TypeQuery& q);
std::vector<Type> uniform(TypeQuery& q);
std::vector<Type> cis(TypeQuery& q);
std::vector<Type> gather(TypeQuery& q);
std::vector<Type> matmul(TypeQuery& q);
std::vector<Type> rmsnorm(TypeQuery& q);        // x, gamma, eps
std::vector<Type> layernorm(TypeQuery& q);      // x, gamma, beta, eps
std::vector<Type> gated(TypeQuery& q);          // gate, up
std::vector<Type> rope(TypeQuery& q);           // z [.,H,hd], cos and sin [.,rd/2]
std::vector<Type> qk_norm(TypeQuery& q);        // z [.,H,hd], gamma [1,1,hd], eps
std::vector<Type> cross_entropy(TypeQuery& q);  // z, target, ignore
std::vector<Type> attention(TypeQuery& q);
std::vector<Type> attention_grad(TypeQuery& q);
std::vector<Type> scatter_sum(TypeQuery& q);
}  // namespace rules

}  // namespace coda
