// ProgramKernel; see kernel.h. Order of one run: pack every B operand (all threads), then the row tiles of each group:
// pack the rows of A, multiply column tile by column tile into the worker's lanes, run the epilogue on each tile; then
// merge partials and finish. Tiles write disjoint memory and partials, so their order and owner do not matter.
#include "cpu/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "coda/error.h"

namespace coda::cpu {
namespace {

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

// The accumulator tile of a GEMM: about 120 × 256 floats stay in the second-level cache beside the panels that make
// them.
constexpr std::int64_t kGemmRows = 120, kGemmCols = 256;
constexpr std::int64_t kSourceRows = 64, kSourceCols = 512;  // tiles that are loaded
constexpr std::int64_t kColumnChunkBytes = 6 << 20;          // packed B that one sweep over the rows reuses from cache
constexpr int kTasksPerThread = 16;                          // so that the last one to end is short

char* aligned(std::vector<std::byte>& v) { return line_aligned<char>(v.data()); }

}  // namespace

struct ProgramKernel::Worker {
  std::vector<std::unique_ptr<TileMachine>> machines;  // by strip
  std::vector<std::byte> packed_a;
  const char* a = nullptr;  // the panels of the row tile at hand: its own, or those that all workers share
};

ProgramKernel::ProgramKernel(const Program& program, const Sizes& sizes, const KernelOptions& options)
    : program_(program), options_(options), lowered_(lower(program, sizes)), ops_(vec_ops(options.isa)) {
  if (program_.is_gemm()) {
    const Graph& g = program_.expanded();
    std::set<int> operands;
    std::set<DType> dtypes;
    for (const Accumulator& acc : program_.accumulators())
      for (int t : acc.matmul_nodes)
        for (ValueId v : g.nodes()[idx(t)].operands) {
          operands.insert(static_cast<int>(g.as_input(v) - g.inputs().data()));
          dtypes.insert(g.as_input(v)->dtype);
        }
    bool mixed = dtypes.size() > 1;  // kernels multiply operands of one dtype
    gemm_ = &TileGemm::get(mixed ? DType::kF32 : *dtypes.begin(), options.isa);
    for (int input : operands)
      if (mixed && g.inputs()[idx(input)].dtype != DType::kF32) widened_.push_back({input, {}, {}});
  }
  for (const Strip& s : lowered_.strips) codes_.push_back(compile_strip(s, ops_));
  finish_code_ = compile_finish(lowered_, ops_);
  finish_ = std::make_unique<FinishMachine>(finish_code_, ops_, program_.expanded());
  strips_.resize(lowered_.strips.size());
  plan_groups();
}

ProgramKernel::~ProgramKernel() = default;

std::size_t ProgramKernel::panel_bytes(bool a, std::int64_t count, std::int64_t k) const {
  std::size_t bytes = 0;
  for (std::int64_t k0 = 0; k0 < k; k0 += gemm_->k_block()) {
    std::int64_t block = std::min<std::int64_t>(gemm_->k_block(), k - k0);
    bytes += a ? gemm_->packed_a_bytes(count, block) : gemm_->packed_b_bytes(count, block);
  }
  return bytes;
}

void ProgramKernel::plan_groups() {
  auto left_operands = [&](const Strip& s) {
    std::vector<std::tuple<int, int, std::int64_t>> list;
    for (const Lane& lane : s.lanes)
      for (const LaneTerm& t : lane.terms) list.emplace_back(t.a_input, t.a_axis, t.k);
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  };
  std::map<std::pair<std::int64_t, std::vector<std::tuple<int, int, std::int64_t>>>, std::size_t> found;
  for (std::size_t s = 0; s < lowered_.strips.size(); ++s) {
    const Strip& strip = lowered_.strips[s];
    auto [it, added] = found.emplace(std::make_pair(strip.rows, left_operands(strip)), groups_.size());
    if (added) {
      Group g;
      g.rows = strip.rows;
      std::int64_t rows = gemm_ ? std::max<std::int64_t>(kGemmRows / gemm_->mr(), 1) * gemm_->mr() : kSourceRows;
      if (gemm_) rows = round_up(ceil_div(g.rows, std::max<std::int64_t>(ceil_div(g.rows, rows), 1)), gemm_->mr());
      g.tile_rows = options_.tile_rows > 0 ? options_.tile_rows : std::max<std::int64_t>(rows, 1);
      g.row_tiles = ceil_div(g.rows, g.tile_rows);
      for (const auto& [input, axis, k] : it->first.second) {
        g.a.push_back({input, axis, k, g.a_bytes});
        g.a_bytes += panel_bytes(true, g.tile_rows, k);
      }
      groups_.push_back(std::move(g));
    }
    groups_[it->second].strips.push_back(static_cast<int>(s));
    plan_strip(static_cast<int>(s), groups_[it->second]);
  }
}

void ProgramKernel::plan_strip(int number, Group& group) {
  const Strip& strip = lowered_.strips[idx(number)];
  StripPlan& plan = strips_[idx(number)];
  std::int64_t unit_columns = 0;  // that a tile holds per unit: the lanes' sum, or the widest loaded value
  for (const Lane& lane : strip.lanes) {
    plan.lane_unit.push_back(codes_[idx(number)].values[idx(lane.value)].unit_width);
    unit_columns += plan.lane_unit.back();
  }
  if (strip.lanes.empty())
    for (const CodeValue& v : codes_[idx(number)].values) unit_columns = std::max(unit_columns, v.unit_width);
  std::int64_t target = options_.tile_cols > 0 ? options_.tile_cols : strip.lanes.empty() ? kSourceCols : kGemmCols;
  std::int64_t units = std::max<std::int64_t>(target / std::max<std::int64_t>(unit_columns, 1), 1);
  if (options_.tile_cols == 0 && !strip.lanes.empty()) {
    // Whole micro-panels in every lane, where that does not make the tile much larger.
    std::int64_t step = 1;
    for (std::int64_t w : plan.lane_unit) step = std::lcm(step, gemm_->nr() / std::gcd<std::int64_t>(gemm_->nr(), w));
    if (step * unit_columns <= 2 * target) units = std::max(step, units / step * step);
  }
  plan.tile_units = std::min(units, strip.units);
  plan.col_tiles = ceil_div(strip.units, plan.tile_units);
  for (std::int64_t t = 0; t < plan.col_tiles; ++t) group.columns.push_back({number, t});
  for (std::size_t l = 0; l < strip.lanes.size(); ++l) {
    std::vector<TermPlan> terms;
    for (const LaneTerm& t : strip.lanes[l].terms) {
      TermPlan term;
      term.k = t.k;
      for (std::size_t i = 0; i < group.a.size(); ++i)
        if (group.a[i].input == t.a_input && group.a[i].axis == t.a_axis) term.a = static_cast<int>(i);
      for (std::int64_t tile = 0; tile < plan.col_tiles; ++tile) {
        std::int64_t u0 = tile * plan.tile_units, n = std::min(plan.tile_units, strip.units - u0) * plan.lane_unit[l];
        PackedB p{t.b_input, t.b_axis, strip.lanes[l].first_col + u0 * plan.lane_unit[l], n, t.k, 0};
        // Products of one right operand (dWg, dWu) share its panels.
        auto same = std::find_if(packs_.begin(), packs_.end(), [&](const PackedB& q) {
          return q.input == p.input && q.axis == p.axis && q.first == p.first && q.count == p.count;
        });
        if (same == packs_.end()) {
          p.offset = packed_b_bytes_;
          packed_b_bytes_ += panel_bytes(false, n, t.k);
          packs_.push_back(p);
          same = packs_.end() - 1;
        }
        term.b.push_back(idx(same - packs_.begin()));
      }
      terms.push_back(std::move(term));
    }
    plan.lanes.push_back(std::move(terms));
  }
  for (const LoweredReduce& r : strip.reduces) {
    const Reduction& reduction = lowered_.reductions[idx(r.reduction)];
    bool along_m = reduction.axis == Axis::kM;
    plan.shares.emplace_back(reduction, along_m ? strip.values[idx(r.value)].width() : strip.rows,
                             along_m ? group.row_tiles : plan.col_tiles, r.first_col);
    PartialShare& share = plan.shares.back();
    const CodeValue& value = codes_[idx(number)].values[idx(r.value)];
    for (std::int64_t t = 0; t < share.tiles(); ++t)
      share.set_count(t, along_m ? std::min(group.tile_rows, group.rows - t * group.tile_rows)
                                 : value.columns(std::min(plan.tile_units, strip.units - t * plan.tile_units)));
  }
}

GemmOperand ProgramKernel::a_operand(const RunArgs& args, int input, int axis) const {
  for (const Widened& w : widened_)
    if (w.input == input) return {w.view, axis == 0};
  return {args.inputs[idx(input)], axis == 0};
}

void ProgramKernel::widen(const RunArgs& args, ThreadPool& pool) {
  for (Widened& w : widened_) {
    const TensorView& from = args.inputs[idx(w.input)];
    w.data.resize(idx(from.rows * from.cols));
    w.view = TensorView::matrix(w.data.data(), DType::kF32, from.rows, from.cols);
    pool.run(from.rows, [&](std::int64_t r, int) {
      for_each_run(from, r, 0, from.cols, [&](const char* p, std::int64_t first, std::int64_t count) {
        ops_.load_row(w.data.data() + r * from.cols + first, p, from.dtype, count, from.col_stride);
      });
    });
  }
}

void ProgramKernel::pack_b(const RunArgs& args, ThreadPool& pool) {
  if (packs_.empty()) return;
  if (packed_b_.empty()) packed_b_.resize(packed_b_bytes_ + 64, poisoned_ ? std::byte{0xff} : std::byte{0});
  char* base = aligned(packed_b_);
  auto pack = [&](std::int64_t i, int) {
    const PackedB& p = packs_[idx(i)];
    char* out = base + p.offset;
    GemmOperand b = a_operand(args, p.input, p.axis);
    for (std::int64_t k0 = 0; k0 < p.k; k0 += gemm_->k_block()) {
      std::int64_t k = std::min<std::int64_t>(gemm_->k_block(), p.k - k0);
      gemm_->pack_b(b, p.first, p.count, k0, k, out);
      out += gemm_->packed_b_bytes(p.count, k);
    }
  };
  pool.run(static_cast<std::int64_t>(packs_.size()), pack);
}

void ProgramKernel::pack_a(const RunArgs& args, const Group& g, std::int64_t row0, std::int64_t rows,
                           std::byte* out) const {
  for (const DistinctA& a : g.a) {
    std::byte* p = out + a.offset;
    GemmOperand operand = a_operand(args, a.input, a.axis);
    for (std::int64_t k0 = 0; k0 < a.k; k0 += gemm_->k_block()) {
      std::int64_t k = std::min<std::int64_t>(gemm_->k_block(), a.k - k0);
      gemm_->pack_a(operand, row0, rows, k0, k, p);
      p += gemm_->packed_a_bytes(rows, k);
    }
  }
}

void ProgramKernel::multiply(const Group& g, int strip, const TileExtent& tile, Worker& w) {
  StripPlan& plan = strips_[idx(strip)];
  std::int64_t rows = tile.rows;
  TileMachine& machine = *w.machines[idx(strip)];
  const char* packed_b = aligned(packed_b_);
  const char* packed_a = w.a;
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    std::int64_t n = tile.units * plan.lane_unit[l];
    float* c = machine.lane(static_cast<int>(l));
    bool started = false;
    for (const TermPlan& t : plan.lanes[l]) {
      const char* a = packed_a + g.a[idx(t.a)].offset;
      const char* b = packed_b + packs_[t.b[idx(tile.col_tile)]].offset;
      for (std::int64_t k0 = 0; k0 < t.k; k0 += gemm_->k_block()) {
        std::int64_t k = std::min<std::int64_t>(gemm_->k_block(), t.k - k0);
        bool last = l + 1 == plan.lanes.size() && &t == &plan.lanes[l].back() && k0 + k == t.k;
        if (last) machine.prefetch_first(tile);
        gemm_->multiply(rows, n, k, a, b, c, machine.lane_pitch(), started);
        a += gemm_->packed_a_bytes(rows, k);
        b += gemm_->packed_b_bytes(n, k);
        started = true;
      }
    }
    if (!started) gemm_->multiply(rows, n, 0, packed_a, packed_b, c, machine.lane_pitch(), false);
  }
}

void ProgramKernel::run_tile(const Group& g, const Group::ColumnTile& c, std::int64_t row_tile, Worker& w) {
  StripPlan& plan = strips_[idx(c.strip)];
  TileExtent t;
  t.row_tile = row_tile;
  t.col_tile = c.tile;
  t.row0 = row_tile * g.tile_rows;
  t.rows = std::min(g.tile_rows, g.rows - t.row0);
  t.unit0 = c.tile * plan.tile_units;
  t.units = std::min(plan.tile_units, lowered_.strips[idx(c.strip)].units - t.unit0);
  if (!plan.lanes.empty()) multiply(g, c.strip, t, w);
  std::vector<PartialShare*> shares;
  for (PartialShare& s : plan.shares) shares.push_back(&s);
  w.machines[idx(c.strip)]->run(t, shares);
}

void ProgramKernel::run_group(const Group& g, const RunArgs& args, ThreadPool& pool) {
  std::int64_t tiles = static_cast<std::int64_t>(g.columns.size());
  if (g.row_tiles == 0 || tiles == 0) return;
  // Column chunks: as many as keep the packed columns in cache and every thread busy.
  std::int64_t by_cache = ceil_div(static_cast<std::int64_t>(packed_b_bytes_), kColumnChunkBytes);
  std::int64_t by_threads = pool.size() == 1 ? 1 : ceil_div(kTasksPerThread * pool.size(), g.row_tiles);
  std::int64_t chunks = std::clamp<std::int64_t>(std::max(by_cache, by_threads), 1, tiles);
  // A row tile that several tasks read is packed once, before them.
  bool shared = chunks > 1 && !g.a.empty();
  std::size_t stride = idx(round_up(static_cast<std::int64_t>(g.a_bytes), kCacheLine));
  auto pack = [&](std::int64_t row_tile, char* out) {
    std::int64_t row0 = row_tile * g.tile_rows, rows = std::min(g.tile_rows, g.rows - row0);
    pack_a(args, g, row0, rows, reinterpret_cast<std::byte*>(out));
  };
  if (shared) {
    packed_a_.resize(std::max(packed_a_.size(), stride * idx(g.row_tiles) + 64));
    pool.run(g.row_tiles,
             [&](std::int64_t row_tile, int) { pack(row_tile, aligned(packed_a_) + stride * idx(row_tile)); });
  }
  pool.run(chunks * g.row_tiles, [&](std::int64_t task, int worker) {
    std::int64_t chunk = task / g.row_tiles, row_tile = task % g.row_tiles;
    Worker& w = *workers_[idx(worker)];
    w.a = shared ? aligned(packed_a_) + stride * idx(row_tile) : aligned(w.packed_a);
    if (!g.a.empty() && !shared) pack(row_tile, aligned(w.packed_a));
    for (std::int64_t c = chunk * tiles / chunks; c < (chunk + 1) * tiles / chunks; ++c)
      run_tile(g, g.columns[idx(c)], row_tile, w);
  });
}

void ProgramKernel::make_workers(int count) {
  while (static_cast<int>(workers_.size()) < count) {
    auto w = std::make_unique<Worker>();
    std::size_t a_bytes = 0;
    w->machines.resize(strips_.size());
    for (const Group& g : groups_) {
      a_bytes = std::max(a_bytes, g.a_bytes);
      for (int s : g.strips)
        w->machines[idx(s)] = std::make_unique<TileMachine>(
            codes_[idx(s)], ops_, program_.expanded(), lowered_.reductions,
            std::min(g.tile_rows, std::max<std::int64_t>(g.rows, 1)), strips_[idx(s)].tile_units);
    }
    w->packed_a.resize(a_bytes + 64, poisoned_ ? std::byte{0xff} : std::byte{0});
    for (const auto& machine : w->machines)
      if (poisoned_) machine->poison();
    workers_.push_back(std::move(w));
  }
}

void ProgramKernel::run(const RunArgs& args, ThreadPool& pool) {
  make_workers(pool.size());
  for (auto& w : workers_)
    for (auto& machine : w->machines) machine->begin_run(args);
  widen(args, pool);
  pack_b(args, pool);
  for (const Group& g : groups_) run_group(g, args, pool);
  for (std::size_t r = 0; r < lowered_.reductions.size(); ++r) {
    std::vector<PartialShare*> shares;
    for (std::size_t s = 0; s < strips_.size(); ++s)
      for (std::size_t k = 0; k < strips_[s].shares.size(); ++k)
        if (lowered_.strips[s].reduces[k].reduction == static_cast<int>(r)) shares.push_back(&strips_[s].shares[k]);
    std::vector<float*> out;
    for (int v : lowered_.reductions[r].out) out.push_back(finish_->value(v));
    merge(lowered_.reductions[r], shares, out);
  }
  finish_->run(args);
}

void ProgramKernel::poison() {
  for (std::vector<std::byte>* packed : {&packed_a_, &packed_b_})
    std::fill(packed->begin(), packed->end(), std::byte{0xff});
  for (StripPlan& s : strips_)
    for (PartialShare& share : s.shares) share.poison();
  finish_->poison();
  workers_.clear();
  poisoned_ = true;
}

std::string ProgramKernel::configuration() const {
  std::string text = fmt::format("{}", coda::cpu::name(options_.isa));
  for (const Group& g : groups_)
    for (int s : g.strips) {
      std::int64_t columns = 0;
      for (std::int64_t w : strips_[idx(s)].lane_unit) columns += w * strips_[idx(s)].tile_units;
      text +=
          fmt::format(" {}x{}", g.tile_rows, strips_[idx(s)].lane_unit.empty() ? strips_[idx(s)].tile_units : columns);
    }
  return text;
}

std::size_t ProgramKernel::workspace_bytes() const {
  std::size_t a = 0;
  for (const Group& g : groups_) a = std::max(a, g.a_bytes);
  return packed_b_bytes_ + packed_a_.size() + a * std::max<std::size_t>(workers_.size(), 1);
}

}  // namespace coda::cpu
