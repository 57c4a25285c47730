// Are the numbers of a timed program right? Some of its rows are computed again by the CPU backend: rows of M do not
// depend on each other in anything a program or layer plan stores per row. Sums over rows are not covered (`coda check`
// is the test of a backend; this only keeps a benchmark from timing a kernel that does less). Pure: memory is read
// through a function.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "coda/plan.h"

namespace coda::cuda {

// Copies rows [first, first + count) of a plan's buffer, contiguous row-major, to `to`.
using ReadRows = std::function<void(const std::string& buffer, std::int64_t first, std::int64_t count, void* to)>;

// Error naming `candidate` and the output if the first and last rows of an output differ from the CPU's by more than
// rounding explains. Outputs must have been NaN before the run, so that one that was never written shows.
void verify_rows(const std::string& candidate, const Plan& plan, const Sizes& sizes, const ReadRows& read);

// The same for two tensors that should be equal: their difference over the second one's size, root of mean squares; NaN
// anywhere in the first is infinitely far.
double distance(const void* found, const void* wanted, DType dtype, std::int64_t elements);
void check_distance(const std::string& candidate, const std::string& output, double distance);

}  // namespace coda::cuda
