// Inputs for the programs of programs/: deterministic numbers by the name of an input, in ranges that its meaning
// allows. Shared by tests/programs_*_test.cc.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "coda/interpret.h"
#include "coda/program.h"
#include "coda/text.h"

namespace programs {

using coda::Array;
using coda::Arrays;
using coda::DType;
using coda::Sizes;

inline std::filesystem::path folder() { return std::filesystem::path(CODA_SOURCE_DIR) / "programs"; }

inline std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    if (entry.path().extension() == ".coda") list.push_back(entry.path().stem().string());
  std::sort(list.begin(), list.end());
  return list;
}

inline const coda::Program& load(const std::string& name) {
  static std::map<std::string, coda::Program> loaded;
  auto it = loaded.find(name);
  if (it == loaded.end()) it = loaded.emplace(name, coda::load_program((folder() / (name + ".coda")).string())).first;
  return it->second;
}

// A number in [-1.5, 1.5] from a name and an index, exact in bf16 and fp16.
inline double number(const std::string& name, std::int64_t index, std::uint64_t seed = 0) {
  std::uint64_t h = 0xcbf29ce484222325u + seed * 0x632be59bd9b4e019u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  h += static_cast<std::uint64_t>(index) * 0x9e3779b97f4a7c15u;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>(static_cast<std::int64_t>((h >> 33) % 193) - 96) / 64;
}

inline Array random(const std::string& name, std::int64_t rows, std::int64_t cols, std::uint64_t seed = 0) {
  Array a(rows, 1, cols);
  for (std::size_t i = 0; i < a.data.size(); ++i) a.data[i] = number(name, static_cast<std::int64_t>(i), seed);
  return a;
}

inline Array scalar(double x) { return Array(1, 1, 1, x); }

inline double constant(const std::string& name) {
  static const std::map<std::string, double> kConstants = {
      {"eps", 1e-5},   {"cap", 2.5},   {"smoothing", 0.125}, {"z_loss", 0.0625},
      {"scale", 0.75}, {"keep", 0.75}, {"ignore", -100},
  };
  auto it = kConstants.find(name);
  if (it == kConstants.end())
    throw std::runtime_error("no value for the constant " + name + ": add it to programs_data.h");
  return it->second;
}

// What an i32 input may hold.
inline double index_value(const coda::Graph& g, const std::string& name, std::int64_t i, const Sizes& sizes) {
  auto below = [&](std::int64_t n) { return static_cast<double>((i * 7 + 3) % n); };
  if (name == "seed") return 20260 + static_cast<double>(sizes.count("M") ? sizes.at("M") : 0);
  if (name == "offset") return -3;
  if (name == "ids") return below(sizes.at("V"));
  if (name == "pos") return g.find_input("cos") || g.find_input("places") ? below(sizes.at("S")) : below(1000);
  if (name == "t") return g.find_input("ignore") && i % 4 == 2 ? constant("ignore") : below(sizes.at("V"));
  throw std::runtime_error("no values for the integers " + name + ": add them to programs_data.h");
}

inline Array input(const coda::Graph& g, const std::string& name, DType dtype, const coda::Type& t, const Sizes& sizes,
                   std::uint64_t seed) {
  Array a(t.rows.eval(sizes), t.groups.eval(sizes), t.cols.eval(sizes));
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    auto at = static_cast<std::int64_t>(i);
    if (dtype == DType::kI32)
      a.data[i] = index_value(g, name, at, sizes);
    else if (name == "r")
      a.data[i] = 0.25 + std::abs(number(name, at, seed));
    else
      a.data[i] = number(name, at, seed);
  }
  return a;
}

// Every input, and the old contents of outputs that accumulate.
inline Arrays inputs(const coda::Graph& g, const Sizes& sizes, std::uint64_t seed = 0) {
  Arrays all;
  for (const coda::Input& in : g.inputs())
    all[in.name] =
        in.is_const ? scalar(constant(in.name)) : input(g, in.name, in.dtype, g.value(in.value).type, sizes, seed);
  for (const coda::Output& o : g.outputs())
    if (o.accumulate) all[o.name] = input(g, o.name, o.dtype, g.value(o.value).type, sizes, seed);
  return all;
}

// Only the sizes that a graph has.
inline Sizes sizes_for(const coda::Graph& g, const Sizes& from) {
  Sizes sizes;
  for (const std::string& s : g.free_sizes()) {
    auto it = from.find(s);
    if (it == from.end()) throw std::runtime_error("no value for the size " + s + " of " + g.name());
    sizes[s] = it->second;
  }
  return sizes;
}

// Equal but for the order of fp64 sums; NaN equals NaN.
inline bool close(double a, double b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= tolerance * (1 + std::abs(b));
}

// The first difference in words; empty if there is none.
inline std::string difference(const Array& found, const Array& expected, double tolerance) {
  if (found.rows != expected.rows || found.width() != expected.width()) return "another shape";
  for (std::int64_t i = 0; i < found.rows; ++i)
    for (std::int64_t j = 0; j < found.width(); ++j)
      if (!close(found.at(i, j), expected.at(i, j), tolerance))
        return "[" + std::to_string(i) + "," + std::to_string(j) + "] is " + std::to_string(found.at(i, j)) +
               ", expected " + std::to_string(expected.at(i, j));
  return {};
}

// The first output that differs, is missing or is too much; empty if none is.
inline std::string difference(const Arrays& found, const Arrays& expected, double tolerance) {
  for (const auto& [name, value] : found)
    if (!expected.count(name)) return name + ": not in the reference";
  for (const auto& [name, value] : expected) {
    auto it = found.find(name);
    if (it == found.end()) return name + ": missing";
    if (std::string what = difference(it->second, value, tolerance); !what.empty()) return name + what;
  }
  return {};
}

}  // namespace programs
