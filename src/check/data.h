// Inputs of a conformance case: values, and memory laid out on purpose so that a wrong address shows.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coda/graph.h"
#include "coda/interpret.h"
#include "coda/tensor.h"

namespace coda::check {

enum class Values : std::uint8_t {
  kIntegers,  // small integers; per-row and per-column vectors encode their index, so that a neighbour's value shows
  kRandom,    // roughly normal, rounded to the storage dtype
};

enum class Layout : std::uint8_t {
  kPlain,    // contiguous
  kPitched,  // rows further apart than wide, NaN in an input's gaps, guards in an output's; base off by one element
  kBlocked,  // four strides: rows and columns in blocks, as attention's tensors are kept
  kStrided,  // inputs with every second column only (and NaN between)
};
std::string name(Values v);
std::string name(Layout l);

// One tensor in memory with guards around it.
class Tensor {
 public:
  Tensor(DType dtype, std::int64_t rows, std::int64_t cols, Layout layout);
  TensorView view() { return view_; }
  void write(const Array& a);  // every element of the view
  Array read() const;          // [rows, 1, cols]
  void fill(double value);     // the view's elements
  bool guards_intact() const;  // every byte outside of the view's elements is as it was made
  std::vector<std::byte> bytes() const { return memory_; }

 private:
  TensorView view_;
  std::vector<std::byte> memory_;
  std::vector<bool> covered_;  // by element of memory_
  std::byte guard_;
};

// Values for every tensor input and launch constant of a graph. Seeded by name and `seed` alone.
Arrays make_values(const Graph& g, const Sizes& sizes, Values kind, std::uint64_t seed);

}  // namespace coda::check
