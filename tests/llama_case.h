// Small Llamas and batches for tests: grouped queries, odd widths, chunks of the head with a tail, an ignored target,
// repeated ids. Shared by tests/llama_*_test.cc.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "model/llama_plan.h"
#include "programs_data.h"
#include "reference_llama.h"

namespace llama_case {

using coda::Array;
using coda::Arrays;
using coda::DType;
using coda::LlamaConfig;
using coda::Sizes;

inline LlamaConfig small_config(bool tied) {
  LlamaConfig c;
  c.layers = 2;
  c.dim = 7;
  c.ff = 9;
  c.heads = 6;
  c.kv_heads = 2;
  c.head_dim = 4;
  c.vocab = 11;
  c.context = 8;
  c.tied = tied;
  c.eps = 0.01;
  c.storage = DType::kF32;
  c.head_chunk = 4;
  return c;
}

constexpr std::int64_t kBatch = 2, kSequence = 5, kTokens = kBatch * kSequence;

inline reference::LlamaNumbers numbers_of(const LlamaConfig& c) {
  return {c.layers,  c.heads, c.kv_heads, c.head_dim,  kBatch,
          kSequence, c.tied,  c.eps,      c.rope_base, static_cast<double>(c.ignore)};
}

inline Arrays parameters_of(const LlamaConfig& c, std::uint64_t seed) {
  Arrays p;
  Sizes sizes = coda::llama_sizes(c, kBatch, kSequence);
  for (const coda::LlamaParameter& q : coda::llama_parameters(c)) {
    Array a = programs::random(q.name, q.rows.eval(sizes), q.cols.eval(sizes), seed);
    for (double& x : a.data) x = q.is_norm ? 1 + x / 4 : x / 2;
    p[q.name] = a;
  }
  return p;
}

inline Array integers(std::int64_t count, std::int64_t below, std::int64_t step) {
  Array a(count, 1, 1);
  for (std::int64_t i = 0; i < count; ++i) a.at(i, 0) = static_cast<double>((i * step + 2) % below);
  return a;
}

struct Batch {
  Array ids, targets, dloss;
};

inline Batch batch_of(const LlamaConfig& c) {
  Batch b{integers(kTokens, 6, 5), integers(kTokens, c.vocab, 7), programs::random("dloss", kTokens, 1)};
  b.targets.at(3, 0) = static_cast<double>(c.ignore);
  return b;
}

inline void add_tables(Arrays& in, const LlamaConfig& c) {
  coda::RopeTables t = coda::rope_tables(c);
  Array co(c.context, 1, c.head_dim / 2), si = co, pos(kTokens, 1, 1);
  for (std::size_t i = 0; i < t.cos.size(); ++i)
    co.data[i] = static_cast<double>(t.cos[i]), si.data[i] = static_cast<double>(t.sin[i]);
  std::vector<std::int32_t> p = coda::rope_positions(kBatch, kSequence);
  for (std::size_t i = 0; i < p.size(); ++i) pos.data[i] = p[i];
  in["cos"] = co;
  in["sin"] = si;
  in["pos"] = pos;
}

inline Arrays plan_inputs(const LlamaConfig& c, const Arrays& parameters, const Batch& b, double old_gradient) {
  Arrays in = parameters;
  add_tables(in, c);
  in["ids"] = b.ids;
  in["targets"] = b.targets;
  in["dloss"] = b.dloss;
  for (const auto& [name, a] : parameters) in["grad." + name] = Array(a.rows, 1, a.width(), old_gradient);
  return in;
}

inline double total(const Array& loss, const Array& dloss) {
  double sum = 0;
  for (std::int64_t i = 0; i < loss.rows; ++i) sum += loss.at(i, 0) * dloss.at(i, 0);
  return sum;
}

inline void check_close(const std::string& what, const Array& found, const Array& expected, double tolerance) {
  INFO(what, ": ", programs::difference(found, expected, tolerance));
  CHECK(programs::difference(found, expected, tolerance).empty());
}

}  // namespace llama_case
