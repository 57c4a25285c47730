// Compiles strips and finish lists to instructions; see instr.h.
#include <algorithm>

#include "coda/error.h"
#include "cpu/instr.h"

namespace coda::cpu {
namespace {

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

class Compiler {
 public:
  Compiler(const std::vector<LoweredValue>& values, std::int64_t units, bool whole, const VecOps& ops)
      : ops_(ops), whole_(whole) {
    code_.units = units;
    for (const LoweredValue& v : values) add_value(v);
  }

  void op(const LoweredOp& op) {
    Instr i;
    i.op = op;
    i.in = op.in;
    i.out = op.out;
    switch (op.op) {
      case Op::kLiteral:
      case Op::kSize: i.kind = InstrKind::kNumber; break;
      case Op::kInput: i.kind = InstrKind::kLoad; break;
      case Op::kGather: i.kind = InstrKind::kGather; break;
      case Op::kRow: i.kind = InstrKind::kRow; break;
      case Op::kCol: i.kind = InstrKind::kCol; break;
      case Op::kUniform: i.kind = InstrKind::kUniform; break;
      case Op::kCis: i.kind = InstrKind::kCis; break;
      case Op::kPairs: i.kind = InstrKind::kPairs; break;
      case Op::kInterleave:
        i.kind = InstrKind::kInterleave;
        for (int& v : i.in) {
          LoweredValue half = at(i.out[0]).shape;
          half.cols /= 2;
          v = whole_rows(spread(v, half), i.out[0]);
        }
        break;
      case Op::kGroup:
      case Op::kFlat: return alias(op);
      case Op::kHalves:
      case Op::kSplit: return split(op);
      case Op::kConcat: return concat(op);
      case Op::kReduceSum:
      case Op::kReduceMax:
        i.kind = op.attrs.axis == Axis::kC ? (op.op == Op::kReduceSum ? InstrKind::kSumC : InstrKind::kMaxC)
                                           : InstrKind::kReduce;
        i.count = at(op.in[0]).shape.cols;
        i.src_step = at(op.in[0]).shape.groups;
        break;
      case Op::kArgmax:
      case Op::kLogsumexp:
      case Op::kMoments: i.kind = InstrKind::kReduce; break;
      default: return map(i);
    }
    emit(std::move(i));
  }

  void lane(const Lane& lane, int number) { at(lane.value).lane = number; }

  // A value as the memory operations and reductions at the end want it.
  int resolved(int v) const { return alias_of(v); }

  Code finish(std::vector<LoweredStore> stores, std::vector<LoweredReduce> reduces) {
    for (LoweredStore& s : stores) s.value = resolved(s.value);
    for (LoweredReduce& r : reduces) {
      r.value = resolved(r.value);
      if (r.payload >= 0) r.payload = resolved(r.payload);
    }
    code_.stores = std::move(stores);
    code_.reduces = std::move(reduces);
    if (!whole_) fuse();
    std::stable_sort(code_.instrs.begin(), code_.instrs.end(),
                     [](const Instr& a, const Instr& b) { return a.level < b.level; });
    allocate();
    return std::move(code_);
  }

 private:
  CodeValue& at(int v) { return code_.values[idx(v)]; }
  const CodeValue& at(int v) const { return code_.values[idx(v)]; }

  int add_value(const LoweredValue& shape) {
    CodeValue v;
    v.shape = shape;
    if (shape.per_unit && !whole_) v.unit_width = shape.width() / code_.units;
    if (whole_)
      v.level = Level::kOnce;
    else if (shape.per_row)
      v.level = shape.per_unit || shape.width() > 1 ? Level::kBlock : Level::kRows;
    else
      v.level = shape.per_unit ? Level::kCols : Level::kOnce;
    code_.values.push_back(v);
    aliases_.push_back(static_cast<int>(code_.values.size()) - 1);
    return aliases_.back();
  }

  int alias_of(int v) const { return aliases_[idx(v)]; }

  // group and flat: the same memory.
  void alias(const LoweredOp& op) { aliases_[idx(op.out[0])] = alias_of(op.in[0]); }

  void emit(Instr i) {
    for (int& v : i.in) v = alias_of(v);
    i.level = at(i.out[0]).level;
    code_.instrs.push_back(std::move(i));
  }

  void map(Instr& i) {
    i.kind = InstrKind::kMap;
    for (int& v : i.in) v = spread(v, at(i.out[0]).shape);
    Elem elem = at(i.in.back()).shape.elem;  // of what is compared; of a branch of where
    i.map = i.op.op == Op::kCast ? ops_.cast(elem, i.op.attrs.dtype) : ops_.map(i.op.op, elem);
    CODA_CHECK(i.map != nullptr, "no vector operation for " + std::string(row(i.op.op).name));
    emit(std::move(i));
  }

  // The operand as columns that line up with a result of shape `out`: repeats what is per group or the same for every
  // group.
  int spread(int operand, const LoweredValue out) {
    const LoweredValue in = at(operand).shape;
    bool per_group = in.per_unit && in.cols == 1 && out.cols != 1;
    bool per_column = !in.per_unit && in.cols != 1 && out.per_unit;
    bool whole_groups = whole_ && in.groups == 1 && out.groups > 1 && in.cols != 1;
    if (!per_group && !per_column && !whole_groups) return operand;
    int from = alias_of(operand);
    std::int64_t groups = out.groups, cols = out.cols;
    for (const auto& [key, v] : spread_)
      if (key.from == from && key.groups == groups && key.cols == cols) return v;
    LoweredValue shape = out;
    shape.elem = in.elem;
    shape.per_row = in.per_row;
    shape.rows = in.rows;
    int v = add_value(shape);
    Instr i;
    i.in = {from};
    i.out = {v};
    i.kind = per_group ? InstrKind::kSpread : InstrKind::kCopyGroups;
    i.dst_step = i.count = cols;
    emit(std::move(i));
    spread_.push_back({{from, groups, cols}, v});
    return v;
  }

  // Operations that read whole blocks: repeats a per-column operand for every row.
  int whole_rows(int operand, int result) {
    if (at(operand).shape.per_row == at(result).shape.per_row || whole_) return operand;
    LoweredValue shape = at(operand).shape;
    shape.per_row = true;
    int v = add_value(shape);
    Instr i;
    i.kind = InstrKind::kCopyGroups;
    i.in = {operand};
    i.out = {v};
    emit(std::move(i));  // count 0: every column
    return v;
  }

  void split(const LoweredOp& op) {
    std::int64_t first = 0;
    for (int out : op.out) {
      Instr i;
      i.kind = InstrKind::kCopyGroups;
      i.in = op.in;
      i.out = {out};
      i.src_first = first;
      i.src_step = at(op.in[0]).shape.cols;
      i.dst_step = i.count = at(out).shape.cols;
      first += i.count;
      emit(std::move(i));
    }
  }

  void concat(const LoweredOp& op) {
    std::int64_t first = 0;
    for (int in : op.in) {
      Instr i;
      i.kind = InstrKind::kCopyGroups;
      i.in = {in};
      i.out = op.out;
      i.dst_first = first;
      i.dst_step = at(op.out[0]).shape.cols;
      i.count = at(in).shape.cols;
      const LoweredValue &from = at(in).shape, &to = at(op.out[0]).shape;
      bool same_for_groups = whole_ ? from.groups != to.groups : from.per_unit != to.per_unit;
      i.src_step = same_for_groups ? 0 : i.count;
      first += i.count;
      emit(std::move(i));
    }
  }

  // Pairs of additions, subtractions and multiplications of which nobody else reads the first: one pass instead of two
  // over the block. Each is still rounded on its own.
  void fuse() {
    std::vector<int> uses(code_.values.size(), 0), maker(code_.values.size(), -1);
    for (const Instr& i : code_.instrs)
      for (int v : i.in) ++uses[idx(v)];
    for (const LoweredStore& s : code_.stores) ++uses[idx(s.value)];
    for (const LoweredReduce& r : code_.reduces) {
      ++uses[idx(r.value)];
      if (r.payload >= 0) ++uses[idx(r.payload)];
    }
    std::vector<bool> gone(code_.instrs.size(), false);
    for (std::size_t n = 0; n < code_.instrs.size(); ++n) {
      Instr& second = code_.instrs[n];
      for (int side = 0; side < 2 && can_fuse(second); ++side) {
        int operand = second.in[idx(side)], made_by = maker[idx(operand)];
        if (made_by < 0 || uses[idx(operand)] != 1 || gone[idx(made_by)]) continue;
        const Instr& first = code_.instrs[idx(made_by)];
        if (!can_fuse(first) || first.level != second.level) continue;
        second.map = ops_.fused(first.op.op, second.op.op, side == 1);
        second.in = {first.in[0], first.in[1], second.in[idx(1 - side)]};
        gone[idx(made_by)] = true;
      }
      for (int v : second.out) maker[idx(v)] = static_cast<int>(n);
    }
    std::size_t kept = 0;
    for (std::size_t n = 0; n < code_.instrs.size(); ++n)
      if (!gone[n]) code_.instrs[kept++] = code_.instrs[n];
    code_.instrs.resize(kept);
  }

  bool can_fuse(const Instr& i) const {
    return i.kind == InstrKind::kMap && i.in.size() == 2 && at(i.out[0]).shape.elem == Elem::kF32 &&
           (i.op.op == Op::kAdd || i.op.op == Op::kSub || i.op.op == Op::kMul);
  }

  // Block buffers: each value has one from its first writer to its last reader; an instruction may write over an
  // operand that dies in it only if it is a map (elementwise in place).
  void allocate() {
    std::vector<int> last(code_.values.size(), -1), first(code_.values.size(), -1);
    int position = 0;
    for (const Instr& i : code_.instrs) {
      for (int v : i.in) last[idx(v)] = position;
      for (int v : i.out) {
        if (first[idx(v)] < 0) first[idx(v)] = position;
        last[idx(v)] = std::max(last[idx(v)], position);
      }
      ++position;
    }
    for (const LoweredStore& s : code_.stores) last[idx(s.value)] = position;
    for (const LoweredReduce& r : code_.reduces) {
      last[idx(r.value)] = position;
      if (r.payload >= 0) last[idx(r.payload)] = position;
    }
    std::vector<int> free;
    position = 0;
    for (const Instr& i : code_.instrs) {
      auto release = [&] {
        for (std::size_t k = 0; k < i.in.size(); ++k) {
          CodeValue& v = at(i.in[k]);
          bool repeated = std::find(i.in.begin(), i.in.begin() + static_cast<long>(k), i.in[k]) !=
                          i.in.begin() + static_cast<long>(k);
          if (v.buffer >= 0 && last[idx(i.in[k])] == position && !repeated) free.push_back(v.buffer);
        }
      };
      if (i.kind == InstrKind::kMap) release();
      for (int out : i.out) {
        CodeValue& v = at(out);
        if (v.level != Level::kBlock || v.lane >= 0 || v.buffer >= 0) continue;
        if (free.empty()) free.push_back(code_.block_buffers++);
        v.buffer = free.back();
        free.pop_back();
      }
      if (i.kind != InstrKind::kMap) release();
      for (int out : i.out)  // a result nobody reads
        if (at(out).buffer >= 0 && last[idx(out)] == position && first[idx(out)] == position)
          free.push_back(at(out).buffer);
      ++position;
    }
  }

  struct SpreadKey {
    int from;
    std::int64_t groups, cols;
  };

  const VecOps& ops_;
  bool whole_;
  Code code_;
  std::vector<int> aliases_;
  std::vector<std::pair<SpreadKey, int>> spread_;
};

}  // namespace

Code compile_strip(const Strip& strip, const VecOps& ops) {
  Compiler c(strip.values, strip.units, false, ops);
  for (std::size_t i = 0; i < strip.lanes.size(); ++i) c.lane(strip.lanes[i], static_cast<int>(i));
  for (const LoweredOp& op : strip.ops) c.op(op);
  return c.finish(strip.stores, strip.reduces);
}

Code compile_finish(const LoweredProgram& program, const VecOps& ops) {
  Compiler c(program.finish_values, 1, true, ops);
  for (const LoweredOp& op : program.finish_ops) c.op(op);
  return c.finish(program.finish_stores, {});
}

}  // namespace coda::cpu
