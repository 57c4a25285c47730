// Graph: the operations of a computation in SSA form on whole tensors; immutable once built.
//
// The precision contract (docs/precision.md; every backend keeps it):
//  - operands are bf16, fp16 or fp32; accumulation and all epilogue arithmetic are fp32; ONE rounding, to nearest even,
//  at
//    each store. fp32 operands multiply in fp32.
//  - reductions and finishes read the unrounded fp32 values; the order of merging is fixed, so a plan at one tile
//    configuration gives the same bits from run to run.
//  - only fp32 buffers accumulate (`+=`). Inputs are never written except through `over`; an output is never read
//    unless `+=`. NaN and infinity go where IEEE 754 sends them, and only to rows and columns that depend on them.
//  - a value is exact until it is stored, used as a GEMM operand, or cast. Rewrites that change rounding need
//  `reassociate`.
//  - maps are evaluated as written, one fp32 operation each, never contracted to fused multiply-adds.
// The law (Program, program.h): a reduction along n or m denotes the whole row or column and has stage "finish"; a tile
// value may not depend on a finish value of its own Program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coda/op.h"

namespace coda {

using ValueId = int;

struct Value {
  Type type;
  int node = -1;                 // index of the node that makes it …
  int result = 0;                // … as its result number
  std::string name;              // as written; empty for inner values
  std::optional<DType> storage;  // dtype where it is kept in memory, once a pass has decided
  std::string scope;             // "layer3.norm1"
  bool keep = false;             // kept for the backward
  bool frozen = false;           // no gradient wanted
};

struct Node {
  Op op;
  std::vector<ValueId> operands;
  Attrs attrs;
  std::vector<ValueId> results;
};

struct Input {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<Dim> dims;  // 2 or 3: [R,C] or [R,G,C]; empty for a launch constant
  bool is_const = false;  // a number given at launch (eps, softcap): f32 or i32
  ValueId value = -1;
};

struct Output {
  std::string name;
  DType dtype = DType::kF32;
  ValueId value = -1;
  bool accumulate = false;  // `+=`: fp32 only
  std::string over;         // name of the input whose memory it may reuse; empty: none
};

struct Where {
  std::string size;
  Dim value;  // in terms of sizes that no `where` defines
};

class Graph {
 public:
  const std::string& name() const { return d_->name; }
  bool is_program() const { return d_->is_program; }  // written as `program`: obeys the law
  bool reassociate() const { return d_->reassociate; }
  std::span<const Where> wheres() const { return d_->wheres; }
  std::span<const Input> inputs() const { return d_->inputs; }
  std::span<const Node> nodes() const { return d_->nodes; }  // every operand before its use
  std::span<const Value> values() const { return d_->values; }
  std::span<const Output> outputs() const { return d_->outputs; }

  const Value& value(ValueId v) const { return d_->values[static_cast<std::size_t>(v)]; }
  const Node& def(ValueId v) const { return d_->nodes[static_cast<std::size_t>(value(v).node)]; }
  const Input* find_input(const std::string& input_name) const;
  const Output* find_output(const std::string& output_name) const;
  // The input that a value is, or nullptr.
  const Input* as_input(ValueId v) const;
  std::vector<std::string> free_sizes() const;  // names of sizes that must be known to run it, sorted

  // Stable across runs, machines and versions of the compiler: sees names of inputs and outputs, types, operations and
  // constants; not local names, comments or the order of independent statements.
  std::uint64_t hash() const;

  struct Data {
    std::string name;
    bool is_program = false;
    bool reassociate = false;
    std::vector<Where> wheres;
    std::vector<Input> inputs;
    std::vector<Node> nodes;
    std::vector<Value> values;
    std::vector<Output> outputs;
  };

 private:
  friend class GraphBuilder;
  explicit Graph(std::shared_ptr<const Data> d) : d_(std::move(d)) {}
  std::shared_ptr<const Data> d_;
};

// The same graph with every tensor of storage dtype `from` declared as `to` (programs/ are written in bf16).
Graph with_storage(const Graph& g, DType from, DType to);
// Composites replaced by table operations; the result has none.
Graph expand_composites(const Graph& g);
// Finds the sizes from tensor shapes [rows, groups, cols] by input name; `given` adds or checks. Error if a shape
// contradicts another or a size stays unknown.
struct Shape {
  std::int64_t rows = 0, groups = 1, cols = 0;
};
Sizes solve_sizes(const Graph& g, const std::vector<std::pair<std::string, Shape>>& shapes, const Sizes& given = {});

}  // namespace coda
