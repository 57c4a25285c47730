// Lowering: a program at concrete sizes as strips, the form that backends execute.
//
// Columns that meet elementwise share a strip; columns that never meet (q, k and v of one GEMM; the parts of a split)
// get strips of their own. Inside a strip the products are zipped: gate and up, or the two halves of a packed weight,
// are lanes over one column index. So segments side by side, zipped, along K (terms) and along M (products of one right
// operand) all come out of one analysis, and a split, concat or halves of an ungrouped value costs nothing: it is gone.
// Called by backends' prepare and by the cost model; knows nothing of tiles, threads or memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/program.h"

namespace coda {

// A value inside a strip, or (with `rows`, `groups`, `cols` whole) in the finish list.
struct LoweredValue {
  Elem elem = Elem::kF32;
  bool per_row = false;   // varies with the row
  bool per_unit = false;  // varies with the strip's column units; then groups × cols covers the whole strip
  std::int64_t groups =
      1;  // of `cols` columns each; not per_unit: 1 × 1 (scalar, row) or 1 × cols (same for every group)
  std::int64_t cols = 1;
  std::int64_t rows = 1;  // finish values: number of rows
  std::string name;       // for messages and generated text
  std::int64_t width() const { return groups * cols; }
};

struct LoweredOp {
  Op op = Op::kInput;
  Attrs attrs;
  std::vector<int> in, out;    // values of the strip (or of the finish list)
  int input = -1;              // kInput, kGather: index in Graph::inputs of the tensor (table) read
  std::int64_t first_col = 0;  // kInput, kGather, kCol, kUniform: where the strip's columns start in the whole tensor
  std::int64_t row_width = 0;  // kUniform: width of the whole row
  ValueId source = -1;         // the graph value (first result) it comes from
};

struct LaneTerm {
  int a_input = -1, b_input = -1;  // indices in Graph::inputs
  int a_axis = 1, b_axis = 1;      // contracted axis of each
  std::int64_t k = 0;
};

// One product (accumulator) as far as this strip goes: its columns [first_col, first_col + width).
struct Lane {
  int value = -1;
  std::int64_t first_col = 0;
  std::vector<LaneTerm> terms;
};

struct LoweredStore {
  int output = -1;  // index in Graph::outputs
  int value = -1;
  std::int64_t first_col = 0;
};

// A strip's share of a reduction: its columns start at first_col of the whole reduced value.
struct LoweredReduce {
  int reduction = -1;
  int value = -1, payload = -1;
  std::int64_t first_col = 0;
};

struct Strip {
  std::int64_t rows = 0;
  std::int64_t units =
      0;  // smallest steps along the columns: each value has width()/units columns (cols, if per group) a unit
  std::vector<LoweredValue> values;
  std::vector<LoweredOp> ops;  // in order
  std::vector<Lane> lanes;     // empty: a tile source
  std::vector<LoweredStore> stores;
  std::vector<LoweredReduce> reduces;
};

// A reduction of tile values to stage finish, merged over the pieces that strips contribute (in strip order).
struct Reduction {
  Op op = Op::kReduceSum;
  Axis axis = Axis::kN;  // kN, kM or kMN
  bool has_payload = false;
  std::int64_t rows = 0, width = 0;  // of what is reduced
  std::vector<int> out;              // finish values
};

struct LoweredProgram {
  std::vector<Strip> strips;
  std::vector<Reduction> reductions;
  // Finish list: whole vectors. kInput reads whole operands; reductions here take finish or operand values.
  std::vector<LoweredValue> finish_values;
  std::vector<LoweredOp> finish_ops;
  std::vector<LoweredStore> finish_stores;
};

LoweredProgram lower(const Program& p, const Sizes& sizes);

}  // namespace coda
