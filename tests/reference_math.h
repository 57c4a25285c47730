// Plain loops in fp64 for the references of programs/ (reference_*.h, gathered in references.h). Nothing here comes
// from the library but the Array that holds numbers: a reference must not share a formula with what it checks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "coda/interpret.h"

namespace reference {

using coda::Array;
using coda::Arrays;

// What a program is given: tensors and constants by name, and sizes that no shape tells.
struct In {
  const Arrays& arrays;
  const coda::Sizes& sizes;

  const Array& operator[](const std::string& name) const {
    auto it = arrays.find(name);
    if (it == arrays.end()) throw std::runtime_error("the reference asks for an input that is not there: " + name);
    return it->second;
  }
  double number(const std::string& name) const { return (*this)[name].at(0, 0); }
  bool has(const std::string& name) const { return arrays.count(name) > 0; }
  std::int64_t size(const std::string& name) const { return sizes.at(name); }
};

template <class F>
Array make(std::int64_t rows, std::int64_t cols, F f) {
  Array a(rows, 1, cols);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) a.at(i, j) = f(i, j);
  return a;
}

// f at every element of `like`, in its shape.
template <class F>
Array map(const Array& like, F f) {
  return make(like.rows, like.width(), f);
}

template <class F>
Array row_sum(const Array& like, F f) {
  Array a(like.rows, 1, 1);
  for (std::int64_t i = 0; i < like.rows; ++i)
    for (std::int64_t j = 0; j < like.width(); ++j) a.at(i, 0) += f(i, j);
  return a;
}

template <class F>
Array col_sum(const Array& like, F f) {
  Array a(1, 1, like.width());
  for (std::int64_t i = 0; i < like.rows; ++i)
    for (std::int64_t j = 0; j < like.width(); ++j) a.at(0, j) += f(i, j);
  return a;
}

// x wᵀ, dz w and dzᵀ x: forward, data gradient, weight gradient.
inline Array linear(const Array& x, const Array& w) {
  return make(x.rows, w.rows, [&](auto i, auto j) {
    double sum = 0;
    for (std::int64_t k = 0; k < x.cols; ++k) sum += x.at(i, k) * w.at(j, k);
    return sum;
  });
}

inline Array data_gradient(const Array& dz, const Array& w) {
  return make(dz.rows, w.cols, [&](auto i, auto j) {
    double sum = 0;
    for (std::int64_t k = 0; k < dz.cols; ++k) sum += dz.at(i, k) * w.at(k, j);
    return sum;
  });
}

inline Array weight_gradient(const Array& dz, const Array& x) {
  return make(dz.cols, x.cols, [&](auto i, auto j) {
    double sum = 0;
    for (std::int64_t k = 0; k < dz.rows; ++k) sum += dz.at(k, i) * x.at(k, j);
    return sum;
  });
}

inline Array add(const Array& a, const Array& b) {
  return map(a, [&](auto i, auto j) { return a.at(i, j) + b.at(i, j); });
}
inline Array add_bias(const Array& a, const Array& bias) {
  return map(a, [&](auto i, auto j) { return a.at(i, j) + bias.at(0, j); });
}
inline Array scale_rows(const Array& a, const Array& r) {
  return map(a, [&](auto i, auto j) { return a.at(i, j) * r.at(i, 0); });
}
inline Array columns(const Array& a, std::int64_t first, std::int64_t count) {
  return make(a.rows, count, [&](auto i, auto j) { return a.at(i, first + j); });
}
inline Array side_by_side(const Array& a, const Array& b) {
  return make(a.rows, a.cols + b.cols, [&](auto i, auto j) { return j < a.cols ? a.at(i, j) : b.at(i, j - a.cols); });
}
inline Array gather(const Array& table, const Array& index) {
  return make(index.rows, table.cols, [&](auto i, auto j) { return table.at(std::int64_t(index.at(i, 0)), j); });
}

}  // namespace reference
