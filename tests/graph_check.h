// Random inputs for a graph and the comparison of its gradient with central differences of the interpreter in fp64.
// Shared by the tests of the op table, the interpreter and reverse mode.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coda/grad.h"
#include "coda/interpret.h"

namespace coda::test {

// Lowest and highest value of an input, by name. Floats are drawn from [-2, 2] unless said, integers from {0, 1, 2}.
using Ranges = std::map<std::string, std::pair<double, double>>;

inline Arrays random_inputs(const Graph& g, const Sizes& sizes, unsigned seed, const Ranges& ranges = {}) {
  std::mt19937_64 generator(seed);
  Arrays inputs;
  for (const Input& in : g.inputs()) {
    bool integer = in.dtype == DType::kI32;
    auto range = ranges.count(in.name) ? ranges.at(in.name) : integer ? std::pair(0.0, 2.0) : std::pair(-2.0, 2.0);
    std::uniform_real_distribution<double> real(range.first, range.second);
    std::uniform_int_distribution<int> whole(static_cast<int>(range.first), static_cast<int>(range.second));
    const Type& t = g.value(in.value).type;
    Array a(t.rows.eval(sizes), t.groups.eval(sizes), t.cols.eval(sizes));
    for (double& x : a.data) x = integer ? whole(generator) : real(generator);
    inputs[in.name] = a;
  }
  for (const Output& o : g.outputs())
    if (o.accumulate) {
      const Type& t = g.value(o.value).type;
      inputs[o.name] = Array(t.rows.eval(sizes), t.groups.eval(sizes), t.cols.eval(sizes), 0.5);
    }
  return inputs;
}

inline std::vector<std::string> float_inputs(const Graph& g) {
  std::vector<std::string> names;
  for (const Input& in : g.inputs())
    if (is_float(in.dtype)) names.push_back(in.name);
  return names;
}

// Σ over outputs of ⟨output, d_output⟩.
inline double weighted_sum(const Graph& g, const Arrays& inputs, const Arrays& d, const Sizes& sizes) {
  double total = 0;
  for (const auto& [name, y] : interpret(g, inputs, sizes)) {
    auto weight = d.find("d_" + name);
    if (weight == d.end()) continue;
    for (std::size_t i = 0; i < y.data.size(); ++i) total += y.data[i] * weight->second.data[i];
  }
  return total;
}

// Largest |analytic − numeric| / (1 + |numeric|) over all elements of all float inputs.
inline double gradient_error(const Graph& g, const Graph& derivative, const Arrays& inputs, const Sizes& sizes,
                             unsigned seed) {
  Arrays d, all = random_inputs(derivative, sizes, seed + 1);
  for (auto& [name, array] : all) {
    auto given = inputs.find(name);
    if (given == inputs.end())
      d[name] = array;
    else
      array = given->second;
  }
  Arrays analytic = interpret(derivative, all, sizes);
  double worst = 0;
  for (const auto& [name, gradient] : analytic) {
    std::string input = name.substr(2);
    for (std::size_t i = 0; i < gradient.data.size(); ++i) {
      Arrays moved = inputs;
      double& x = moved[input].data[i];
      double at = x, step = 1e-5 * std::max(1.0, std::fabs(at));
      x = at + step;
      double up = weighted_sum(g, moved, d, sizes);
      x = at - step;
      double down = weighted_sum(g, moved, d, sizes);
      double numeric = (up - down) / (2 * step);
      double error = std::fabs(gradient.data[i] - numeric) / (1 + std::fabs(numeric));
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
  }
  return worst;
}

inline double gradient_error(const Graph& g, const Sizes& sizes, unsigned seed, const Ranges& ranges = {}) {
  return gradient_error(g, gradient(g, float_inputs(g)), random_inputs(g, sizes, seed, ranges), sizes, seed);
}

inline double largest_difference(const Arrays& a, const Arrays& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (const auto& [name, x] : a) {
    const Array& y = b.at(name);
    if (x.rows != y.rows || x.groups != y.groups || x.cols != y.cols) return INFINITY;
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      double difference = std::fabs(x.data[i] - y.data[i]);
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    }
  }
  return worst;
}

}  // namespace coda::test
