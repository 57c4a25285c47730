// The tile machine; see tile.h. Values of level kOnce are computed once a run, kCols and kRows once a tile, kBlock for
// each block of rows; the block size keeps the live block buffers in the first-level cache.
#include "cpu/tile.h"

#include <algorithm>
#include <limits>

#include "coda/error.h"

namespace coda::cpu {
namespace {

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

// Elements of a block: a handful of live blocks fit in 48 KiB.
constexpr std::int64_t kBlockElements = 3072;
constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

TileMachine::TileMachine(const Code& code, const VecOps& ops, const Graph& graph,
                         const std::vector<Reduction>& reductions, std::int64_t max_rows, std::int64_t max_units)
    : code_(code), ops_(ops), graph_(graph), reductions_(reductions), places_(code.values.size()) {
  std::int64_t widest = 1, fixed = 0, lanes = 0;
  for (const CodeValue& v : code.values) {
    std::int64_t n = v.columns(max_units);
    if (v.level == Level::kBlock) widest = std::max(widest, n);
    if (v.lane >= 0) ++lanes;
  }
  pitch_ = round_up(widest, 16);
  block_rows_ = std::clamp<std::int64_t>(kBlockElements / pitch_, 1, std::max<std::int64_t>(max_rows, 1));
  lane_size_ = pitch_ * max_rows;
  lanes_ = AlignedFloats(idx(lanes * lane_size_));
  blocks_ = AlignedFloats(idx(code.block_buffers * block_rows_ * pitch_));
  auto size_of_fixed = [&](const CodeValue& v) {
    return round_up(v.level == Level::kRows ? max_rows : v.columns(max_units), 16);
  };
  for (const CodeValue& v : code.values)
    if (v.level != Level::kBlock) fixed += size_of_fixed(v);
  fixed_ = AlignedFloats(idx(fixed));
  float* next = fixed_.data();
  for (std::size_t v = 0; v < code.values.size(); ++v) {
    const CodeValue& value = code.values[v];
    if (value.level == Level::kBlock) continue;
    places_[v].base = reinterpret_cast<char*>(next);
    next += size_of_fixed(value);
  }
  for (Level level : {Level::kOnce, Level::kCols, Level::kRows, Level::kBlock})
    level_begin_.push_back(
        idx(std::distance(code.instrs.begin(), std::find_if(code.instrs.begin(), code.instrs.end(),
                                                            [&](const Instr& i) { return i.level >= level; }))));
  level_begin_.push_back(code.instrs.size());
  for (const LoweredReduce& r : code.reduces) {
    const Reduction& reduction = reductions[idx(r.reduction)];
    bool along_m = reduction.axis == Axis::kM;
    column_parts_.emplace_back(along_m ? idx(parts_of(reduction.op, reduction.has_payload) * pitch_) : 0);
  }
}

void TileMachine::begin_run(const RunArgs& args) {
  args_ = &args;
  tile_ = {};
  run_level(Level::kOnce, 0, 1);
}

namespace {

constexpr std::int64_t kLine = 64;

// NOTE: rows of a tensor often lie a power of two apart, so a whole tile asked for at once evicts itself: one block
// ahead (numbers in docs/decisions/0005-cpu-epilogue.md).
template <int kWrite>
void prefetch_rows(const TensorView& v, std::int64_t row0, std::int64_t rows, std::int64_t col, std::int64_t n) {
  if (v.data == nullptr || v.col_stride != 1) return;
  for (std::int64_t r = row0; r < row0 + rows; ++r)
    for_each_run(v, r, col, n, [&](const char* p, std::int64_t, std::int64_t count) {
      const char* end = p + count * size_of(v.dtype);
      for (; p < end; p += kLine) __builtin_prefetch(p, kWrite, 3);
    });
}

}  // namespace

void TileMachine::prefetch(const TileExtent& t, std::int64_t r0, std::int64_t rows) const {
  rows = std::min(rows, t.rows - r0);
  for (std::size_t i = level_begin_[idx(static_cast<int>(Level::kBlock))]; i < code_.instrs.size(); ++i) {
    const Instr& instr = code_.instrs[i];
    const CodeValue& v = value(instr.out[0]);
    if (instr.kind == InstrKind::kLoad && v.unit_width > 0)
      prefetch_rows<0>(args_->inputs[idx(instr.op.input)], t.row0 + r0, rows,
                       instr.op.first_col + t.unit0 * v.unit_width, v.columns(t.units));
  }
  for (const LoweredStore& s : code_.stores) {
    const CodeValue& v = value(s.value);
    prefetch_rows<1>(args_->outputs[idx(s.output)], t.row0 + r0, rows, s.first_col + t.unit0 * v.unit_width,
                     v.columns(t.units));
  }
}

void TileMachine::run(const TileExtent& t, const std::vector<PartialShare*>& shares) {
  tile_ = t;
  run_level(Level::kCols, 0, 1);
  run_level(Level::kRows, t.row0, t.rows);
  begin_reductions();
  for (std::int64_t r0 = 0; r0 < t.rows; r0 += block_rows_) {
    std::int64_t rows = std::min(block_rows_, t.rows - r0);
    place_block(r0);
    prefetch(t, r0 + rows, block_rows_);
    run_level(Level::kBlock, t.row0 + r0, rows);
    store_block(r0, rows);
    reduce_block(r0, rows, shares);
  }
  end_reductions(shares);
}

void TileMachine::poison() {
  for (AlignedFloats* scratch : {&lanes_, &blocks_, &fixed_}) scratch->poison();
  for (std::vector<float>& parts : column_parts_)
    std::fill(parts.begin(), parts.end(), std::numeric_limits<float>::quiet_NaN());
}

void TileMachine::place_block(std::int64_t r0) {
  for (std::size_t v = 0; v < code_.values.size(); ++v) {
    const CodeValue& value = code_.values[v];
    if (value.level == Level::kRows) {
      places_[v].pitch = r0;  // operand() starts at this row
    } else if (value.level == Level::kBlock) {
      float* base =
          value.lane >= 0 ? lane(value.lane) + r0 * pitch_ : blocks_.data() + value.buffer * block_rows_ * pitch_;
      if (value.lane < 0 && value.buffer < 0) base = nullptr;
      places_[v] = {reinterpret_cast<char*>(base), pitch_};
    }
  }
}

// A value as an operand of an instruction of `level`.
BlockOperand TileMachine::operand(int v, Level level) const {
  const CodeValue& value = code_.values[idx(v)];
  const Place& place = places_[idx(v)];
  bool one_column = value.unit_width == 0 && value.shape.width() == 1;
  switch (value.level) {
    case Level::kBlock: return {place.base, place.pitch, 1};
    case Level::kRows:
      if (level == Level::kRows) return {place.base, 0, 1};  // rows lie along the vector
      return {place.base + place.pitch * 4, 1, 0};
    default: return {place.base, 0, one_column ? 0 : 1};
  }
}

void TileMachine::run_level(Level level, std::int64_t row0, std::int64_t rows) {
  for (std::size_t i = level_begin_[idx(static_cast<int>(level))]; i < level_begin_[idx(static_cast<int>(level) + 1)];
       ++i)
    execute(code_.instrs[i], row0, rows);
}

void TileMachine::execute(const Instr& i, std::int64_t row0, std::int64_t rows) {
  int out = i.out[0];
  bool along_rows = i.level == Level::kRows;
  std::int64_t n = along_rows ? rows : columns(out), lines = along_rows ? 1 : rows;
  auto in_place = [&](std::size_t k) { return operand(i.in[k], i.level); };
  auto in_floats = [&](std::size_t k) { return static_cast<const float*>(in_place(k).base); };
  switch (i.kind) {
    case InstrKind::kNumber: return number(i);
    case InstrKind::kLoad: return load(i, row0, rows);
    case InstrKind::kGather: return gather(i, rows);
    case InstrKind::kRow:
      for (std::int64_t r = 0; r < rows; ++r)
        reinterpret_cast<std::int32_t*>(write(out))[r] = static_cast<std::int32_t>(row0 + r);
      return;
    case InstrKind::kCol: {
      std::int64_t first = i.op.first_col + tile_.unit0 * value(out).unit_width;
      for (std::int64_t c = 0; c < n; ++c)
        reinterpret_cast<std::int32_t*>(write(out))[c] = static_cast<std::int32_t>(first + c);
      return;
    }
    case InstrKind::kUniform: {
      std::int64_t first = row0 * i.op.row_width + i.op.first_col + tile_.unit0 * value(out).unit_width;
      ops_.uniform(write(out), pitch_, rows, n, first, i.op.row_width,
                   static_cast<const std::int32_t*>(in_place(0).base)[0],
                   static_cast<const std::int32_t*>(in_place(1).base)[0]);
      return;
    }
    case InstrKind::kCis:
      return ops_.cis(write(out), write(i.out[1]), pitch_, static_cast<const std::int32_t*>(in_place(0).base),
                      in_floats(1), rows, n);
    case InstrKind::kMap: {
      MapArgs args;
      args.dst = write(out);
      args.dst_pitch = pitch_;
      for (std::size_t k = 0; k < i.in.size(); ++k) args.in[k] = in_place(k);
      args.rows = lines;
      args.n = n;
      return i.map(args);
    }
    case InstrKind::kPairs: return ops_.pairs(in_floats(0), pitch_, write(out), write(i.out[1]), pitch_, rows, n);
    case InstrKind::kInterleave:
      return ops_.interleave(in_floats(0), in_floats(1), pitch_, write(out), pitch_, rows, n / 2);
    case InstrKind::kCopyGroups: return copy_groups(i, rows);
    case InstrKind::kSpread:
      return ops_.spread_groups(write(out), pitch_, in_floats(0), pitch_, rows, n / i.dst_step, i.dst_step);
    case InstrKind::kSumC:
    case InstrKind::kMaxC: {
      Block b{in_floats(0), pitch_, rows, columns(i.in[0])};
      return (i.kind == InstrKind::kSumC ? ops_.sum_c : ops_.max_c)(b, i.count, write(out), pitch_);
    }
    case InstrKind::kReduce: break;
  }
  throw InternalError(__FILE__, __LINE__, "an instruction that no tile runs");
}

void TileMachine::number(const Instr& i) {
  double x = i.op.attrs.number;
  if (value(i.out[0]).shape.elem == Elem::kI32)
    reinterpret_cast<std::int32_t*>(write(i.out[0]))[0] = static_cast<std::int32_t>(x);
  else
    write(i.out[0])[0] = static_cast<float>(x);
}

void TileMachine::load(const Instr& i, std::int64_t row0, std::int64_t rows) {
  int out = i.out[0];
  const Input& in = graph_.inputs()[idx(i.op.input)];
  if (in.is_const) {
    Instr constant = i;
    constant.op.attrs.number = args_->consts[idx(i.op.input)];
    return number(constant);
  }
  const TensorView& view = args_->inputs[idx(i.op.input)];
  if (i.level == Level::kRows) {
    for_each_row_run(view, row0, rows, [&](const char* p, std::int64_t first, std::int64_t count, std::int64_t stride) {
      ops_.load_row(write(out) + first, p, view.dtype, count, stride);
    });
    return;
  }
  std::int64_t n = columns(out), col = i.op.first_col + tile_.unit0 * value(out).unit_width;
  for (std::int64_t r = 0; r < rows; ++r)
    for_each_run(view, i.level == Level::kBlock ? row0 + r : 0, col, n,
                 [&](const char* p, std::int64_t first, std::int64_t count) {
                   ops_.load_row(write(out) + r * pitch_ + first, p, view.dtype, count, view.col_stride);
                 });
}

void TileMachine::gather(const Instr& i, std::int64_t rows) {
  int out = i.out[0];
  const TensorView& table = args_->inputs[idx(i.op.input)];
  BlockOperand index = operand(i.in[0], i.level);
  std::int64_t step = i.level == Level::kRows ? 1 : index.row_step;
  std::int64_t n = i.level == Level::kRows ? 1 : columns(out),
               col = i.op.first_col + tile_.unit0 * value(out).unit_width;
  std::int64_t pitch = i.level == Level::kRows ? 1 : pitch_;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int32_t from = static_cast<const std::int32_t*>(index.base)[r * step];
    for_each_run(table, from, col, n, [&](const char* p, std::int64_t first, std::int64_t count) {
      ops_.load_row(write(out) + r * pitch + first, p, table.dtype, count, table.col_stride);
    });
  }
}

void TileMachine::copy_groups(const Instr& i, std::int64_t rows) {
  int out = i.out[0];
  BlockOperand src = operand(i.in[0], i.level);
  std::int64_t lines = i.level == Level::kBlock ? rows : 1;
  std::int64_t groups = i.count == 0 ? 1 : columns(out) / i.dst_step, count = i.count == 0 ? columns(out) : i.count;
  ops_.copy_groups(write(out) + i.dst_first, pitch_, i.dst_step, static_cast<const float*>(src.base) + i.src_first,
                   src.row_step, i.src_step, lines, groups, count);
}

void TileMachine::store_block(std::int64_t r0, std::int64_t rows) {
  for (const LoweredStore& s : code_.stores) {
    const TensorView& view = args_->outputs[idx(s.output)];
    if (view.data == nullptr) continue;
    const CodeValue& v = value(s.value);
    BlockOperand src = operand(s.value, Level::kBlock);
    bool accumulate = graph_.outputs()[idx(s.output)].accumulate;
    std::int64_t col = s.first_col + tile_.unit0 * v.unit_width, n = columns(s.value);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* from = static_cast<const float*>(src.base) + r * src.row_step;
      for_each_run(view, tile_.row0 + r0 + r, col, n, [&](char* p, std::int64_t first, std::int64_t count) {
        if (accumulate)
          ops_.add_row(reinterpret_cast<float*>(p), from + first, count, view.col_stride);
        else
          ops_.store_row(p, from + first, view.dtype, count, view.col_stride);
      });
    }
  }
}

void TileMachine::begin_reductions() {
  for (std::size_t k = 0; k < code_.reduces.size(); ++k) {
    const Reduction& r = reductions_[idx(code_.reduces[k].reduction)];
    if (r.axis != Axis::kM) continue;
    std::vector<float>& parts = column_parts_[k];
    std::fill(parts.begin(), parts.end(), 0.0f);
    bool from_minus_inf = r.op == Op::kReduceMax || r.op == Op::kArgmax || r.op == Op::kLogsumexp;
    if (from_minus_inf) std::fill(parts.begin(), parts.begin() + pitch_, -kInf);
    if (r.op == Op::kArgmax) std::fill(parts.begin() + pitch_, parts.end(), std::bit_cast<float>(-1));
  }
}

void TileMachine::reduce_block(std::int64_t r0, std::int64_t rows, const std::vector<PartialShare*>& shares) {
  for (std::size_t k = 0; k < shares.size(); ++k) {
    const LoweredReduce& share = code_.reduces[k];
    const Reduction& r = reductions_[idx(share.reduction)];
    BlockOperand x = operand(share.value, Level::kBlock);
    Block b{static_cast<const float*>(x.base), x.row_step, rows, columns(share.value)};
    BlockOperand payload;
    if (share.payload >= 0) payload = operand(share.payload, Level::kBlock);
    bool along_m = r.axis == Axis::kM;
    float* part[kMaxParts] = {};
    for (int p = 0; p < parts_of(r.op, r.has_payload); ++p)
      part[p] = along_m ? column_parts_[k].data() + p * pitch_ : shares[k]->part(tile_.col_tile, p) + tile_.row0 + r0;
    auto index = [&] { return reinterpret_cast<std::int32_t*>(part[1]); };
    std::int64_t first_col = share.first_col + tile_.unit0 * value(share.value).unit_width;
    switch (r.op) {
      case Op::kReduceSum: (along_m ? ops_.sum_m : ops_.sum_n)(b, part[0]); break;
      case Op::kReduceMax: (along_m ? ops_.max_m : ops_.max_n)(b, part[0]); break;
      case Op::kArgmax:
        if (along_m) {
          ops_.argmax_m(b, static_cast<std::int32_t>(tile_.row0 + r0), part[0], index());
        } else {
          ops_.argmax_n(b, part[0], index());
          for (std::int64_t row = 0; row < rows; ++row)
            if (index()[row] >= 0) index()[row] += static_cast<std::int32_t>(first_col);
        }
        break;
      case Op::kLogsumexp:
        (along_m ? ops_.logsumexp_m : ops_.logsumexp_n)(b, static_cast<const float*>(payload.base), payload.row_step,
                                                        part[0], part[1], part[2]);
        break;
      case Op::kMoments:
        if (along_m)
          ops_.moments_m(b, r0, part[0], part[1]);
        else
          ops_.moments_n(b, part[0], part[1]);
        break;
      default: throw InternalError(__FILE__, __LINE__, "no vector reduction");
    }
  }
}

void TileMachine::end_reductions(const std::vector<PartialShare*>& shares) {
  for (std::size_t k = 0; k < shares.size(); ++k) {
    const LoweredReduce& share = code_.reduces[k];
    const Reduction& r = reductions_[idx(share.reduction)];
    if (r.axis != Axis::kM) continue;
    std::int64_t col = tile_.unit0 * value(share.value).unit_width, n = columns(share.value);
    for (int p = 0; p < parts_of(r.op, r.has_payload); ++p)
      std::copy_n(column_parts_[k].data() + p * pitch_, n, shares[k]->part(tile_.row_tile, p) + col);
  }
}

}  // namespace coda::cpu
