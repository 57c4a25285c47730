// The tile machine: runs a strip's compiled epilogue on one output tile, block of rows by block of rows, while the tile
// is in cache. One per worker and strip; owns all scratch. Called by ProgramKernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/align.h"
#include "coda/graph.h"
#include "cpu/instr.h"
#include "cpu/partials.h"
#include "cpu/views.h"

namespace coda::cpu {

// 64-byte aligned float storage.
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(std::size_t count) : storage_(count + 16) {}
  float* data() { return line_aligned<float>(storage_.data()); }
  void poison() { std::fill(storage_.begin(), storage_.end(), std::numeric_limits<float>::quiet_NaN()); }

 private:
  std::vector<float> storage_;
};

struct TileExtent {
  std::int64_t row0 = 0, rows = 0;  // of the strip
  std::int64_t unit0 = 0, units = 0;
  std::int64_t row_tile = 0, col_tile = 0;  // their numbers, for the partials
};

class TileMachine {
 public:
  // Tiles of at most max_rows × max_units. `reductions` as in LoweredProgram.
  TileMachine(const Code& code, const VecOps& ops, const Graph& graph, const std::vector<Reduction>& reductions,
              std::int64_t max_rows, std::int64_t max_units);

  float* lane(int number) { return lanes_.data() + number * lane_size_; }  // the GEMM writes here
  std::int64_t lane_pitch() const { return pitch_; }

  void begin_run(const RunArgs& args);
  // Asks for the memory that the epilogue of tile `t` will touch first, while the GEMM still multiplies.
  void prefetch_first(const TileExtent& t) const { prefetch(t, 0, block_rows_); }
  // The epilogue of a tile whose lanes are filled. `shares`: one per LoweredReduce of the code.
  void run(const TileExtent& t, const std::vector<PartialShare*>& shares);
  void poison();  // all scratch with NaN: tests

 private:
  struct Place {  // where a value lives now
    char* base = nullptr;
    std::int64_t pitch = 0;  // kBlock: floats from row to row
  };
  void prefetch(const TileExtent& t, std::int64_t r0, std::int64_t rows) const;
  void run_level(Level level, std::int64_t row0, std::int64_t rows);
  void execute(const Instr& i, std::int64_t row0, std::int64_t rows);
  void load(const Instr& i, std::int64_t row0, std::int64_t rows);
  void gather(const Instr& i, std::int64_t rows);
  void copy_groups(const Instr& i, std::int64_t rows);
  void number(const Instr& i);
  BlockOperand operand(int v, Level level) const;
  float* write(int v) { return reinterpret_cast<float*>(places_[static_cast<std::size_t>(v)].base); }
  const CodeValue& value(int v) const { return code_.values[static_cast<std::size_t>(v)]; }
  std::int64_t columns(int v) const { return value(v).columns(tile_.units); }
  void place_block(std::int64_t r0);
  void store_block(std::int64_t r0, std::int64_t rows);
  void begin_reductions();
  void reduce_block(std::int64_t r0, std::int64_t rows, const std::vector<PartialShare*>& shares);
  void end_reductions(const std::vector<PartialShare*>& shares);

  const Code& code_;
  const VecOps& ops_;
  const Graph& graph_;
  const std::vector<Reduction>& reductions_;
  const RunArgs* args_ = nullptr;
  std::int64_t block_rows_, pitch_, lane_size_;
  AlignedFloats lanes_, blocks_, fixed_;  // fixed_: the values of levels kOnce, kCols, kRows
  std::vector<Place> places_;
  std::vector<std::size_t> level_begin_;          // instruction ranges by level
  std::vector<std::vector<float>> column_parts_;  // running column results, parts × columns, per LoweredReduce
  TileExtent tile_;
};

}  // namespace coda::cpu
