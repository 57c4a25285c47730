// The interpreter: fp64, slow, obvious. It is the definition of every operation, on graphs and programs alike; backends
// are tested against it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coda/graph.h"
#include "coda/tensor.h"

namespace coda {

// A whole tensor [rows, groups, cols], row-major. Integers and booleans are kept as doubles.
struct Array {
  std::int64_t rows = 0, groups = 1, cols = 0;
  std::vector<double> data;

  Array() = default;
  Array(std::int64_t r, std::int64_t g, std::int64_t c, double fill = 0)
      : rows(r), groups(g), cols(c), data(static_cast<std::size_t>(r * g * c), fill) {}
  std::int64_t width() const { return groups * cols; }
  double& at(std::int64_t r, std::int64_t c) { return data[static_cast<std::size_t>(r * width() + c)]; }
  double at(std::int64_t r, std::int64_t c) const { return data[static_cast<std::size_t>(r * width() + c)]; }
};

enum class Rounding : std::uint8_t {
  kExact,   // fp64 throughout, outputs too
  kStores,  // the precision contract: fp64 arithmetic, one rounding to the storage dtype at each output
  kEager,   // plain low-precision computation: every tile value is rounded to `eager_dtype` as an unfused framework
            // stores it, sums run in fp32 one after another; the yardstick of the error bound
};

struct InterpretOptions {
  Rounding rounding = Rounding::kExact;
  DType eager_dtype = DType::kBF16;
};

using Arrays = std::map<std::string, Array>;

// Inputs by name (launch constants as 1×1); `accumulate` outputs need their old contents under the output's name.
// Error for a missing or unknown name, a shape that contradicts the graph, an index out of range.
Arrays interpret(const Graph& g, const Arrays& inputs, const Sizes& sizes = {}, const InterpretOptions& options = {});
// Every value of the graph, for tests and for finding where two runs part.
std::vector<Array> interpret_values(const Graph& g, const Arrays& inputs, const Sizes& sizes = {},
                                    const InterpretOptions& options = {});

}  // namespace coda
