// Bytes and FLOPs of one program; see cost.h. A model of memory traffic: every tensor goes through memory once, caches
// hold nothing from one kernel to the next, and partial results of whole-row and whole-column reductions are one value
// for every 128 columns or rows, written and read once.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "coda/error.h"
#include "plan/cost.h"

namespace coda {
namespace {

constexpr std::int64_t kPartialWidth = 128;

class ProgramTraffic {
 public:
  ProgramTraffic(const ProgramStep& step, const Sizes& sizes, const Machine& machine)
      : step_(step),
        p_(step.program),
        g_(step.program.expanded()),
        sizes_(sizes),
        machine_(machine),
        storage_(tile_storage(p_)) {}

  StepCost fused() const {
    StepCost c;
    c.name = p_.name();
    for (const Input& in : g_.inputs())
      if (!in.is_const) c.bytes += input_bytes(in);
    for (const Output& o : g_.outputs()) {
      if (!step_.outputs.count(o.name)) continue;
      c.bytes += elements(o.value) * size_of(o.dtype) * (o.accumulate ? 2 : 1);
      if (p_.stage(o.value) == Stage::kFinish) ++c.finishes;
    }
    bool tiles = false;
    for (const Node& n : g_.nodes()) {
      c.bytes += partial_bytes(n);
      if (n.op == Op::kMatmul) c.flops += product_flops(n);
      for (ValueId v : n.results) tiles = tiles || p_.stage(v) == Stage::kTile;
    }
    c.gemms = p_.is_gemm() ? 1 : 0;
    c.passes = !p_.is_gemm() && tiles ? 1 : 0;
    c.seconds = seconds(c);
    return c;
  }

  std::vector<StepCost> unfused() const {
    std::vector<StepCost> ops;
    for (const Node& n : g_.nodes()) {
      const OpRow& r = row(n.op);
      bool is_view =
          n.op == Op::kGroup || n.op == Op::kFlat || n.op == Op::kHalves || n.op == Op::kSplit || n.op == Op::kPairs;
      if (is_free(n.op) || n.op == Op::kInput || is_view) continue;
      StepCost c;
      c.name = std::string(r.name) + (r.has(kReduceTrait) ? "_" + std::string(suffix(n.attrs.axis)) : std::string());
      std::set<ValueId> operands(n.operands.begin(), n.operands.end());
      bool tiles = false;
      for (ValueId v : operands) {
        bool is_table = n.op == Op::kGather && v == n.operands[0];
        c.bytes += is_table ? gathered_bytes(v, n) : memory_bytes(v);
        tiles = tiles || (is_tile(v) && !is_table);
      }
      for (ValueId v : n.results) {
        c.bytes += memory_bytes(v) * (is_accumulated(v) ? 2 : 1);
        tiles = tiles || is_tile(v);
      }
      if (n.op == Op::kMatmul) c.flops = product_flops(n), c.gemms = 1;
      c.passes = c.gemms == 0 && tiles ? 1 : 0;
      c.seconds = seconds(c);
      ops.push_back(c);
    }
    add_copies(ops);
    return ops;
  }

 private:
  static bool is_free(Op op) { return op == Op::kLiteral || op == Op::kSize || op == Op::kRow || op == Op::kCol; }

  double seconds(const StepCost& c) const {
    double peak = size_of(storage_) == 2 ? machine_.flops_16 : machine_.flops_f32;
    return std::max(static_cast<double>(c.bytes) / machine_.bytes_per_second, static_cast<double>(c.flops) / peak);
  }

  std::int64_t elements(ValueId v) const {
    const Type& t = g_.value(v).type;
    return t.rows.eval(sizes_) * t.width().eval(sizes_);
  }
  bool is_tile(ValueId v) const {
    const Type& t = g_.value(v).type;
    return !is_free(g_.def(v).op) && !t.rows.is_one() && !t.width().is_one();
  }

  // Of a value that goes through memory between two operations.
  std::int64_t memory_bytes(ValueId v) const {
    if (is_free(g_.def(v).op)) return 0;
    if (const Input* in = g_.as_input(v)) return in->is_const ? 0 : elements(v) * size_of(in->dtype);
    for (const Output& o : g_.outputs())
      if (o.value == v) return elements(v) * size_of(o.dtype);
    Elem elem = g_.value(v).type.elem;
    if (elem == Elem::kBool) return elements(v);
    bool is_narrow = elem == Elem::kF32 && is_tile(v);
    return elements(v) * (is_narrow ? size_of(storage_) : 4);
  }

  bool is_accumulated(ValueId v) const {
    return std::any_of(g_.outputs().begin(), g_.outputs().end(),
                       [&](const Output& o) { return o.value == v && o.accumulate; });
  }

  std::int64_t gathered_bytes(ValueId table, const Node& gather) const {
    const Type& t = g_.value(table).type;
    std::int64_t rows = std::min(t.rows.eval(sizes_), elements(gather.operands[1]));
    return rows * t.width().eval(sizes_) * size_of(g_.as_input(table)->dtype);
  }

  // Tables are read where they are indexed; everything else whole.
  std::int64_t input_bytes(const Input& in) const {
    std::int64_t gathered = 0;
    bool is_whole = false;
    for (const Node& n : g_.nodes())
      for (std::size_t i = 0; i < n.operands.size(); ++i) {
        if (n.operands[i] != in.value) continue;
        if (n.op == Op::kGather && i == 0)
          gathered = std::max(gathered, gathered_bytes(in.value, n));
        else
          is_whole = true;
      }
    for (const Output& o : g_.outputs()) is_whole = is_whole || o.value == in.value;
    return is_whole ? elements(in.value) * size_of(in.dtype) : gathered;
  }

  std::int64_t partial_bytes(const Node& n) const {
    if (!row(n.op).has(kReduceTrait) || p_.stage(n.results[0]) != Stage::kFinish ||
        p_.stage(n.operands[0]) != Stage::kTile)
      return 0;
    const Type& t = g_.value(n.operands[0]).type;
    auto parts = [](std::int64_t n_elements) { return (n_elements + kPartialWidth - 1) / kPartialWidth; };
    std::int64_t rows = t.rows.eval(sizes_), cols = t.width().eval(sizes_);
    std::int64_t count = n.attrs.axis == Axis::kN   ? rows * parts(cols)
                         : n.attrs.axis == Axis::kM ? cols * parts(rows)
                                                    : parts(rows) * parts(cols);
    return 2 * 4 * count * static_cast<std::int64_t>(n.results.size());
  }

  std::int64_t product_flops(const Node& n) const {
    const Type& a = g_.value(n.operands[0]).type;
    std::int64_t depth = (n.attrs.a_axis == 0 ? a.rows : a.width()).eval(sizes_);
    std::int64_t flops = 0;
    if (__builtin_mul_overflow(2 * elements(n.results[0]), depth, &flops) || flops > std::int64_t{1} << 60)
      throw Error({"sizes", fmt::format("a product of {} elements and depth {}", elements(n.results[0]), depth),
                   "fewer than 2^60 operations a step", "Choose smaller sizes."});
    return flops;
  }

  // An output that stores an input, or a value that another output stores already.
  void add_copies(std::vector<StepCost>& ops) const {
    std::set<ValueId> stored;
    for (const Output& o : g_.outputs()) {
      bool is_new = stored.insert(o.value).second;
      if (is_new && g_.as_input(o.value) == nullptr) continue;
      StepCost c;
      c.name = "copy";
      c.bytes = memory_bytes(o.value) + elements(o.value) * size_of(o.dtype);
      c.passes = is_tile(o.value) ? 1 : 0;
      c.seconds = seconds(c);
      ops.push_back(c);
    }
  }

  const ProgramStep& step_;
  const Program& p_;
  const Graph& g_;
  const Sizes& sizes_;
  const Machine& machine_;
  DType storage_;
};

}  // namespace

DType tile_storage(const Program& p) {
  const Graph& g = p.expanded();
  for (const Node& n : g.nodes())
    if (n.op == Op::kMatmul) return g.as_input(n.operands[0])->dtype;
  for (const Input& in : g.inputs()) {
    const Type& t = g.value(in.value).type;
    if (!in.is_const && is_float(in.dtype) && !t.rows.is_one() && !t.width().is_one()) return in.dtype;
  }
  return DType::kF32;
}

StepCost program_cost(const ProgramStep& step, const Sizes& sizes, const Machine& machine) {
  ProgramTraffic traffic(step, sizes, machine);
  StepCost c = traffic.fused();
  c.unfused = traffic.unfused();
  return c;
}

}  // namespace coda
