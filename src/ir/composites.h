// Expansions of composite operations into table operations: their only definition.
#pragma once

#include <vector>

#include "coda/builder.h"

namespace coda {

struct ExpandFrame {
  GraphBuilder& builder;
  const Attrs& attrs;
  std::vector<Val> in;
  std::vector<Val> out;  // to be filled
};

namespace expand {
void rmsnorm(ExpandFrame& f);
void layernorm(ExpandFrame& f);
void swiglu(ExpandFrame& f);
void geglu(ExpandFrame& f);
void geglu_tanh(ExpandFrame& f);
void reglu(ExpandFrame& f);
void rope(ExpandFrame& f);        // pairing: halves (j, j + rd/2)
void rope_pairs(ExpandFrame& f);  // pairing: adjacent (2j, 2j+1)
void qk_norm(ExpandFrame& f);
void cross_entropy(ExpandFrame& f);
}  // namespace expand

}  // namespace coda
