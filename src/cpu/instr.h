// The epilogue's instructions: a strip (or the finish list) compiled to calls of vector operations. Built once by
// compile() when a program is prepared, executed by the tile machine (tile.cc) and by the finish (finish.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/vec/vec_ops.h"
#include "plan/lower.h"

namespace coda::cpu {

enum class InstrKind : std::uint8_t {
  kNumber,  // a literal, a size or a launch constant
  kLoad,    // an operand from memory
  kGather,  // rows of a table
  kRow,
  kCol,  // indices
  kUniform,
  kCis,
  kMap,  // any elementwise operation, casts included
  kPairs,
  kInterleave,
  kCopyGroups,  // a column range of every group: halves, split, concat inside groups; broadcasts over rows and groups
  kSpread,      // one value per group to all its columns
  kSumC,
  kMaxC,
  kReduce,  // finish list only: a reduction of a whole vector
};

// How often a value of a strip changes; also the order in which its instruction runs.
enum class Level : std::uint8_t {
  kOnce,   // scalars, and vectors that are the same for every group
  kCols,   // per tile column range
  kRows,   // per tile row range, one number a row
  kBlock,  // per block of rows of the tile
};

struct Instr {
  InstrKind kind = InstrKind::kNumber;
  Level level = Level::kOnce;
  MapFn map = nullptr;
  std::vector<int> in, out;  // values of the code
  LoweredOp op;              // attributes, input, first column
  // kCopyGroups: columns [src_first, +count) of groups src_step wide → [dst_first, +count) of groups dst_step wide;
  // count 0: all columns as they are.
  // kSumC, kMaxC: groups `count` wide. kReduce: `src_step` groups of `count` columns.
  std::int64_t src_first = 0, src_step = 0, dst_first = 0, dst_step = 0, count = 0;
};

struct CodeValue {
  LoweredValue shape;
  Level level = Level::kOnce;
  std::int64_t unit_width = 0;  // columns per unit; 0 if not per unit
  int buffer = -1;              // kBlock: its block buffer (reused once dead); -1 for a lane or the other levels
  int lane = -1;                // a product, left by the GEMM in the lane's accumulator
  // Columns of a tile of `units` units.
  std::int64_t columns(std::int64_t units) const { return unit_width > 0 ? unit_width * units : shape.width(); }
};

struct Code {
  std::vector<CodeValue> values;
  std::vector<Instr> instrs;  // sorted by level
  std::int64_t units = 1;     // of the whole strip
  int block_buffers = 0;
  std::vector<LoweredStore> stores;
  std::vector<LoweredReduce> reduces;
};

Code compile_strip(const Strip& strip, const VecOps& ops);
Code compile_finish(const LoweredProgram& program, const VecOps& ops);

}  // namespace coda::cpu
