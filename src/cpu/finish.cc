// The finish; see finish.h. Every value is a contiguous array of rows × width, with rows or width 1.
#include "cpu/finish.h"

#include <algorithm>
#include <limits>

#include "coda/error.h"
#include "cpu/partials.h"

namespace coda::cpu {
namespace {
std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }
}  // namespace

FinishMachine::FinishMachine(const Code& code, const VecOps& ops, const Graph& graph)
    : code_(code), ops_(ops), graph_(graph) {
  for (std::size_t v = 0; v < code.values.size(); ++v) values_.emplace_back(idx(size(static_cast<int>(v))));
}

std::int64_t FinishMachine::size(int v) const {
  const LoweredValue& s = code_.values[idx(v)].shape;
  return s.rows * s.width();
}

void FinishMachine::run(const RunArgs& args) {
  args_ = &args;
  for (const Instr& i : code_.instrs) execute(i);
  for (const LoweredStore& s : code_.stores) store(s);
}

void FinishMachine::execute(const Instr& i) {
  int out = i.out[0];
  const LoweredValue& shape = code_.values[idx(out)].shape;
  std::int64_t n = size(out);
  switch (i.kind) {
    case InstrKind::kNumber:
      if (shape.elem == Elem::kI32)
        reinterpret_cast<std::int32_t*>(value(out))[0] = static_cast<std::int32_t>(i.op.attrs.number);
      else
        value(out)[0] = static_cast<float>(i.op.attrs.number);
      return;
    case InstrKind::kLoad: return load(i);
    case InstrKind::kGather: return gather(i);
    case InstrKind::kRow:
    case InstrKind::kCol:
      for (std::int64_t j = 0; j < n; ++j)
        reinterpret_cast<std::int32_t*>(value(out))[j] = static_cast<std::int32_t>(j);
      return;
    case InstrKind::kUniform: {
      auto integer = [&](std::size_t k) { return reinterpret_cast<const std::int32_t*>(value(i.in[k]))[0]; };
      return ops_.uniform(value(out), shape.width(), shape.rows, shape.width(), 0, i.op.row_width, integer(0),
                          integer(1));
    }
    case InstrKind::kCis:
      return ops_.cis(value(out), value(i.out[1]), shape.width(), reinterpret_cast<const std::int32_t*>(value(i.in[0])),
                      value(i.in[1]), shape.rows, shape.width());
    case InstrKind::kMap: {
      MapArgs args;
      args.dst = value(out);
      args.dst_pitch = n;
      for (std::size_t k = 0; k < i.in.size(); ++k)
        args.in[k] = {value(i.in[k]), 0, size(i.in[k]) == 1 && n != 1 ? 0 : 1};
      args.rows = 1;
      args.n = n;
      return i.map(args);
    }
    case InstrKind::kPairs:
      return ops_.pairs(value(i.in[0]), shape.width() * 2, value(out), value(i.out[1]), shape.width(), shape.rows,
                        shape.width());
    case InstrKind::kInterleave:
      return ops_.interleave(value(i.in[0]), value(i.in[1]), shape.width() / 2, value(out), shape.width(), shape.rows,
                             shape.width() / 2);
    case InstrKind::kCopyGroups:
      return ops_.copy_groups(value(out) + i.dst_first, shape.width(), i.dst_step, value(i.in[0]) + i.src_first,
                              code_.values[idx(i.in[0])].shape.width(), i.src_step, shape.rows, shape.groups, i.count);
    case InstrKind::kSpread:
      return ops_.spread_groups(value(out), shape.width(), value(i.in[0]), shape.groups, shape.rows, shape.groups,
                                shape.cols);
    case InstrKind::kSumC:
    case InstrKind::kMaxC: {
      std::int64_t width = code_.values[idx(i.in[0])].shape.width();
      Block b{value(i.in[0]), width, shape.rows, width};
      return (i.kind == InstrKind::kSumC ? ops_.sum_c : ops_.max_c)(b, i.count, value(out), shape.width());
    }
    case InstrKind::kReduce: return i.op.attrs.axis == Axis::kG ? reduce_groups(i) : reduce(i);
  }
}

void FinishMachine::load(const Instr& i) {
  int out = i.out[0];
  const LoweredValue& shape = code_.values[idx(out)].shape;
  if (graph_.inputs()[idx(i.op.input)].is_const) {
    double x = args_->consts[idx(i.op.input)];
    if (shape.elem == Elem::kI32)
      reinterpret_cast<std::int32_t*>(value(out))[0] = static_cast<std::int32_t>(x);
    else
      value(out)[0] = static_cast<float>(x);
    return;
  }
  const TensorView& view = args_->inputs[idx(i.op.input)];
  if (shape.width() == 1) {
    for_each_row_run(view, 0, shape.rows,
                     [&](const char* p, std::int64_t first, std::int64_t count, std::int64_t stride) {
                       ops_.load_row(value(out) + first, p, view.dtype, count, stride);
                     });
    return;
  }
  for (std::int64_t r = 0; r < shape.rows; ++r)
    for_each_run(view, r, 0, shape.width(), [&](const char* p, std::int64_t first, std::int64_t count) {
      ops_.load_row(value(out) + r * shape.width() + first, p, view.dtype, count, view.col_stride);
    });
}

void FinishMachine::gather(const Instr& i) {
  int out = i.out[0];
  const LoweredValue& shape = code_.values[idx(out)].shape;
  const TensorView& table = args_->inputs[idx(i.op.input)];
  for (std::int64_t r = 0; r < shape.rows; ++r)
    for_each_run(table, reinterpret_cast<const std::int32_t*>(value(i.in[0]))[r], 0, shape.width(),
                 [&](const char* p, std::int64_t first, std::int64_t count) {
                   ops_.load_row(value(out) + r * shape.width() + first, p, table.dtype, count, table.col_stride);
                 });
}

// A reduction of a whole vector (or of operands known before the program): one share of one tile, then the usual merge.
void FinishMachine::reduce(const Instr& i) {
  const LoweredValue& in = code_.values[idx(i.in[0])].shape;
  Reduction r;
  r.op = i.op.op;
  r.axis = i.op.attrs.axis;
  r.has_payload = i.in.size() == 2;
  r.rows = in.rows;
  r.width = in.width();
  bool along_m = r.axis == Axis::kM;
  PartialShare share(r, along_m ? r.width : r.rows, 1, 0);
  share.set_count(0, along_m ? r.rows : r.width);
  // A column's elements lie r.width apart; with one of rows and width 1 both directions are contiguous.
  std::int64_t lines = along_m ? r.width : r.rows, n = along_m ? r.rows : r.width;
  CODA_CHECK(lines == 1 || n == 1, "a finish value is a vector");
  Block b{value(i.in[0]), n, lines, n};
  const float* payload = r.has_payload ? value(i.in[1]) : nullptr;
  auto index = [&] { return reinterpret_cast<std::int32_t*>(share.part(0, 1)); };
  switch (r.op) {
    case Op::kReduceSum: ops_.sum_n(b, share.part(0, 0)); break;
    case Op::kReduceMax: ops_.max_n(b, share.part(0, 0)); break;
    case Op::kArgmax: ops_.argmax_n(b, share.part(0, 0), index()); break;
    case Op::kLogsumexp:
      ops_.logsumexp_n(b, payload, n, share.part(0, 0), share.part(0, 1), r.has_payload ? share.part(0, 2) : nullptr);
      break;
    case Op::kMoments: ops_.moments_n(b, share.part(0, 0), share.part(0, 1)); break;
    default: throw InternalError(__FILE__, __LINE__, "no vector reduction");
  }
  std::vector<float*> out;
  for (int v : i.out) out.push_back(value(v));
  merge(r, {&share}, out);
}

// Sum or maximum over the groups, column by column.
void FinishMachine::reduce_groups(const Instr& i) {
  const LoweredValue& in = code_.values[idx(i.in[0])].shape;
  for (std::int64_t r = 0; r < in.rows; ++r) {
    float* acc = value(i.out[0]) + r * i.count;
    bool sums = i.op.op == Op::kReduceSum;
    std::fill_n(acc, i.count, sums ? 0.0f : -std::numeric_limits<float>::infinity());
    Block b{value(i.in[0]) + r * in.width(), i.count, i.src_step, i.count};
    (sums ? ops_.sum_m : ops_.max_m)(b, acc);
  }
}

void FinishMachine::store(const LoweredStore& s) {
  const TensorView& view = args_->outputs[idx(s.output)];
  if (view.data == nullptr) return;
  const LoweredValue& shape = code_.values[idx(s.value)].shape;
  bool accumulate = graph_.outputs()[idx(s.output)].accumulate;
  auto put = [&](char* p, const float* from, std::int64_t count, std::int64_t stride) {
    if (accumulate)
      ops_.add_row(reinterpret_cast<float*>(p), from, count, stride);
    else
      ops_.store_row(p, from, view.dtype, count, stride);
  };
  const float* from = value(s.value);
  if (shape.width() == 1) {
    for_each_row_run(view, 0, shape.rows, [&](char* p, std::int64_t first, std::int64_t count, std::int64_t stride) {
      put(p, from + first, count, stride);
    });
    return;
  }
  for (std::int64_t r = 0; r < shape.rows; ++r)
    for_each_run(view, r, 0, shape.width(), [&](char* p, std::int64_t first, std::int64_t count) {
      put(p, from + r * shape.width() + first, count, view.col_stride);
    });
}

}  // namespace coda::cpu
