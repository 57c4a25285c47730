// What the derivative rows and reverse mode share: indices of a given extent, broadcasting, and the sums that undo it.
// Called by grad_*.cc here and by src/grad. All of it builds table operations. Types are taken by value: a reference
// into the builder would not survive the next operation.
#pragma once

#include "coda/builder.h"
#include "ir/grad_rows.h"

namespace coda::grads {

// Index of a column within the whole row, i32[1,G,C], and of a row, i32[R,1], for values of type t.
Val column_index(GraphBuilder& b, Type t);
Val row_number(GraphBuilder& b, Type t);

// v repeated to type t; v itself if it has it already. Depends on nothing but v.
Val broadcast_to(Val v, Type t);

// The gradient of an operand of type `operand` from that of a value of extent `extent` over which it was broadcast:
// the sum over those axes. `grad` may itself be narrower than `extent` (constant along an axis).
Val sum_to(Val grad, Type extent, Type operand);

// Number of elements that a reduction of a value of type t takes together, as f32[1,1].
Val count_of(GraphBuilder& b, Axis axis, Type t);

// True at the lowest index of the maximum of x along the reduction (`maximum` is its result), false elsewhere.
Val first_maximum(Val x, Val maximum, Axis axis);

// Gradient of result i in the result's own type; zeros if none arrived.
Val full(GradFrame& f, std::size_t i);

Val zero(GraphBuilder& b);
Val apply1(GraphBuilder& b, Op op, std::vector<Val> operands, Axis axis);
std::vector<Val> apply(GraphBuilder& b, Op op, std::vector<Val> operands, Axis axis);

}  // namespace coda::grads
