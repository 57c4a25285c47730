// ProgramKernel: one program prepared for concrete sizes on the CPU. GEMM by tiles, the strip's epilogue on each tile,
// partials merged, finish. Called by the backend for every program step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "coda/program.h"
#include "cpu/finish.h"
#include "cpu/kernels/tile_gemm.h"
#include "cpu/partials.h"
#include "cpu/tile.h"

namespace coda::cpu {

struct KernelOptions {
  Isa isa = Isa::kBaseline;
  std::int64_t tile_rows = 0, tile_cols = 0;  // 0: chosen from the shape, never from the number of threads
};

class ProgramKernel {
 public:
  ProgramKernel(const Program& program, const Sizes& sizes, const KernelOptions& options);
  ~ProgramKernel();

  // Arguments are checked by the caller (checks.h).
  void run(const RunArgs& args, ThreadPool& pool);

  std::string configuration() const;  // "f32 avx512, tiles 112x256"
  std::size_t workspace_bytes() const;
  void poison();  // fills partials, scratch and what is packed with NaN: tests

 private:
  // An operand packed once a run: a column range of B, or (per worker) a row range of A.
  struct PackedB {
    int input, axis;
    std::int64_t first, count, k;
    std::size_t offset;  // in packed_b_
  };
  struct TermPlan {
    int a = -1;                  // index of the distinct A operand within its group
    std::vector<std::size_t> b;  // by column tile: index in packs_
    std::int64_t k = 0;
  };
  struct StripPlan {
    std::int64_t tile_units = 0, col_tiles = 0;
    std::vector<std::vector<TermPlan>> lanes;  // terms by lane
    std::vector<std::int64_t> lane_unit;       // columns per unit of each lane
    std::vector<PartialShare> shares;
  };
  struct DistinctA {
    int input, axis;
    std::int64_t k;
    std::size_t offset;  // in the worker's packed A
  };
  // Strips over the same rows and left operands: A is packed once a row tile for all of them.
  struct Group {
    std::vector<int> strips;
    std::int64_t rows = 0, tile_rows = 0, row_tiles = 0;
    std::vector<DistinctA> a;
    std::size_t a_bytes = 0;
    struct ColumnTile {
      int strip;
      std::int64_t tile;
    };
    std::vector<ColumnTile> columns;  // of all its strips, in order
  };
  // An operand of @ in 16 bits beside others in f32: copied to f32 once a run.
  struct Widened {
    int input;
    std::vector<float> data;
    TensorView view;
  };
  struct Worker;

  void plan_groups();
  void plan_strip(int strip, Group& group);
  void widen(const RunArgs& args, ThreadPool& pool);
  void pack_b(const RunArgs& args, ThreadPool& pool);
  void pack_a(const RunArgs& args, const Group& g, std::int64_t row0, std::int64_t rows, std::byte* out) const;
  void run_tile(const Group& g, const Group::ColumnTile& c, std::int64_t row_tile, Worker& w);
  void run_group(const Group& g, const RunArgs& args, ThreadPool& pool);
  void multiply(const Group& g, int strip, const TileExtent& tile, Worker& w);
  GemmOperand a_operand(const RunArgs& args, int input, int axis) const;
  void make_workers(int count);
  std::size_t panel_bytes(bool a, std::int64_t count, std::int64_t k) const;

  Program program_;
  KernelOptions options_;
  LoweredProgram lowered_;
  const VecOps& ops_;
  const TileGemm* gemm_ = nullptr;
  std::vector<Code> codes_;
  Code finish_code_;
  std::vector<StripPlan> strips_;
  std::vector<Group> groups_;
  std::vector<Widened> widened_;
  std::vector<PackedB> packs_;
  std::vector<std::byte> packed_b_, packed_a_;  // packed_a_: of every row tile, where several tasks share one
  std::size_t packed_b_bytes_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<FinishMachine> finish_;
  bool poisoned_ = false;  // workers made from now on begin poisoned
};

}  // namespace coda::cpu
