// Indices, broadcasting and its sums for the derivative rows; see grad_tools.h.
#include "ir/grad_tools.h"

#include "ir/type_rules.h"

namespace coda::grads {
namespace {

// Gives the open size of row() or col() its value.
void fix(GraphBuilder& b, const Dim& open, const Dim& size) {
  const Attrs none;
  TypeQuery q{b, row(Op::kCol), none, {}};
  q.same(open, size, "size");
}

Val always(Val index) { return binary(Op::kGe, index, index.builder->integer(0)); }

}  // namespace

Val zero(GraphBuilder& b) { return b.literal(0); }

std::vector<Val> apply(GraphBuilder& b, Op op, std::vector<Val> operands, Axis axis) {
  Attrs attrs;
  attrs.axis = axis;
  return b.apply(op, operands, attrs);
}

Val apply1(GraphBuilder& b, Op op, std::vector<Val> operands, Axis axis) { return apply(b, op, operands, axis)[0]; }

Val column_index(GraphBuilder& b, Type t) {
  Val c = b.apply1(Op::kCol, {});
  fix(b, c.type().cols, t.width());
  return t.groups.is_one() ? c : group(c, DimArg(t.cols));
}

Val row_number(GraphBuilder& b, Type t) {
  Val r = b.apply1(Op::kRow, {});
  fix(b, r.type().rows, t.rows);
  return r;
}

Val broadcast_to(Val v, Type t) {
  GraphBuilder& b = *v.builder;
  if (!(v.type().groups == t.groups) || !(v.type().cols == t.cols)) {
    Val here = always(column_index(b, t));
    v = where(here, v, v);
  }
  if (!(v.type().rows == t.rows)) {
    Val here = always(row_number(b, t));
    v = where(here, v, v);
  }
  return v;
}

Val sum_to(Val grad, Type extent, Type operand) {
  GraphBuilder& b = *grad.builder;
  auto reduces = [](const Dim& whole, const Dim& part) { return part.is_one() && !whole.is_one(); };
  bool rows = reduces(extent.rows, operand.rows), groups = reduces(extent.groups, operand.groups),
       cols = reduces(extent.cols, operand.cols);
  // Along an axis where the gradient is constant the sum is a product.
  auto times = [&](bool& axis, const Dim& have, const Dim& whole) {
    if (!axis || !have.is_one()) return;
    grad = grad * b.size(DimArg(whole));
    axis = false;
  };
  times(rows, grad.type().rows, extent.rows);
  times(groups, grad.type().groups, extent.groups);
  times(cols, grad.type().cols, extent.cols);
  // A whole row counts as reduced along n also where it has only groups or only columns left to sum.
  bool whole_row = (groups || grad.type().groups.is_one()) && (cols || grad.type().cols.is_one()) && (groups || cols);
  if (rows && whole_row) return sum(Axis::kMN, grad);
  if (whole_row) return sum(Axis::kN, grad);
  if (rows) grad = sum(Axis::kM, grad);
  if (cols) grad = sum(Axis::kC, grad);
  if (groups) grad = sum(Axis::kG, grad);
  return grad;
}

Val count_of(GraphBuilder& b, Axis axis, Type t) {
  switch (axis) {
    case Axis::kC: return b.size(DimArg(t.cols));
    case Axis::kG: return b.size(DimArg(t.groups));
    case Axis::kN: return b.size(DimArg(t.width()));
    case Axis::kM: return b.size(DimArg(t.rows));
    case Axis::kMN: break;
  }
  return b.size(DimArg(t.rows * t.width()));
}

namespace {

Val is_first_along(Val x, Axis axis) {
  GraphBuilder& b = *x.builder;
  Val index = apply(b, Op::kArgmax, {x}, axis)[1];
  return binary(Op::kEq, axis == Axis::kM ? row_number(b, x.type()) : column_index(b, x.type()), index);
}

// Inside groups there is no argmax: the lowest column is the largest distance to the row's end.
Val is_first_inside(Val x, Val maximum, Axis axis) {
  GraphBuilder& b = *x.builder;
  Val distance = b.size(DimArg(x.type().width())) - cast(column_index(b, x.type()), DType::kF32);
  Val attains = binary(Op::kEq, x, maximum);
  Val longest = reduce(Op::kReduceMax, axis, where(attains, distance, zero(b)));
  return binary(Op::kAnd, attains, binary(Op::kEq, distance, longest));
}

}  // namespace

Val first_maximum(Val x, Val maximum, Axis axis) {
  if (axis == Axis::kC || axis == Axis::kG) return is_first_inside(x, maximum, axis);
  if (axis != Axis::kMN) return is_first_along(x, axis);
  Val best_of_rows = reduce(Op::kReduceMax, Axis::kN, x);
  return binary(Op::kAnd, is_first_along(best_of_rows, Axis::kM), is_first_along(x, Axis::kN));
}

Val full(GradFrame& f, std::size_t i) {
  return broadcast_to(f.dout[i] ? *f.dout[i] : zero(f.builder), f.out[i].type());
}

}  // namespace coda::grads
