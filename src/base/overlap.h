// Whether two tensors share memory, element by element: column ranges of one packed matrix interleave in memory and
// share nothing. Called by whoever must refuse overlapping outputs before anything is written.
#pragma once

#include "coda/tensor.h"

namespace coda {

// Exact for views that check_view accepts. Costs nothing unless the byte ranges meet; then O(1) for views with the same
// row strides and contiguous rows, else O(n log n) in the number of contiguous runs.
bool views_overlap(const TensorView& a, const TensorView& b);

}  // namespace coda
