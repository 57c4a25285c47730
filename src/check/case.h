// A conformance case and how it is judged. Called by the driver (run.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "check/data.h"
#include "coda/check.h"
#include "coda/program.h"

namespace coda::check {

// What a case looks for besides right values.
enum class Probe : std::uint8_t {
  kValues,   // outputs against the interpreter; twice with other data in between: same bits; guards; inputs unchanged
  kThreads,  // the same bits with 1, 2, 3 threads
  kNan,      // NaN in one row of one input: only what depends on that row changes
  kLarge,    // more than 2^31 elements and 2^32 bytes, against a closed form
};

struct Case {
  std::string program;
  DType dtype = DType::kBF16;
  Sizes sizes;
  Values values = Values::kRandom;
  Layout layout = Layout::kPlain;
  Probe probe = Probe::kValues;
  BackendSetup setup;
  std::string name() const;
};

// Every case for the library's programs.
std::vector<Case> case_table(const CheckOptions& options);

// The reference values of one program at one input: exact, and as a plain low-precision computation has them.
struct Reference {
  Arrays exact, rounded, plain;         // by output; rounded: exact, then one rounding at the store
  std::map<std::string, bool> whole;    // outputs that must be exact (small integers, exact operations)
  std::map<std::string, double> scale;  // largest magnitude among the values that an output is computed from
};
Reference make_reference(const Program& p, const Arrays& inputs, const Sizes& sizes, DType dtype);

// Empty if `got` is right; else the worst element with its index, what was found and what was right.
std::string judge(const Reference& ref, const Output& output, const Array& got);

}  // namespace coda::check
