// Programs and plans on the CPU backend from plain numbers: memory is laid out and poisoned, guards are looked at, and
// results come back as Arrays. Shared by the tests of the CPU backend.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check/data.h"
#include "coda/cpu.h"
#include "coda/interpret.h"
#include "coda/plan.h"
#include "coda/program.h"
#include "coda/text.h"

namespace cpu_run {

using coda::Array;
using coda::Arrays;
using coda::DType;
using coda::Sizes;
using coda::check::Layout;
using coda::check::Tensor;

struct Setup {
  coda::CpuOptions options{1, "", 0, 0};
  Layout layout = Layout::kPlain;
};

// Small tiles: edges at small sizes.
inline Setup small_tiles(int rows = 8, int cols = 16, int threads = 1) {
  return {{threads, "", rows, cols}, Layout::kPlain};
}

inline const coda::Program& parsed(const std::string& text) {
  static std::map<std::string, coda::Program> programs;
  auto it = programs.find(text);
  if (it == programs.end()) it = programs.emplace(text, coda::parse_program(text)).first;
  return it->second;
}

inline Sizes sizes_of(const coda::Program& p, const Arrays& inputs, const Sizes& given = {}) {
  std::vector<std::pair<std::string, coda::Shape>> shapes;
  for (const coda::Input& in : p.graph().inputs()) {
    const Array& a = inputs.at(in.name);
    shapes.emplace_back(in.name, coda::Shape{a.rows, a.groups, a.cols});
  }
  return coda::solve_sizes(p.graph(), shapes, given);
}

// One program, prepared; its tensors in memory of their own, with guards.
class Rig {
 public:
  Rig(const coda::Program& p, const Arrays& inputs, const Sizes& sizes, const Setup& setup = {})
      : program_(p), sizes_(sizes), backend_(coda::make_cpu_backend(setup.options)) {
    std::map<std::string, double> consts;
    for (const coda::Input& in : p.graph().inputs()) {
      if (in.is_const)
        consts[in.name] = inputs.at(in.name).data.at(0);
      else
        add(in.name, in.dtype, in.value, setup.layout);
    }
    for (const coda::Output& o : p.graph().outputs()) add(called(o), o.dtype, o.value, setup.layout);
    executable_ = backend_->prepare(coda::single_program_plan(p, consts), sizes);
  }

  // Outputs that accumulate begin with inputs[their name], others with NaN.
  Arrays run(const Arrays& inputs) {
    for (const coda::Input& in : program_.graph().inputs())
      if (!in.is_const) tensor(in.name).write(inputs.at(in.name));
    for (const coda::Output& o : program_.graph().outputs()) {
      if (o.accumulate)
        tensor(called(o)).write(inputs.at(o.name));
      else
        tensor(called(o)).fill(std::numeric_limits<double>::quiet_NaN());
    }
    executable_->poison();
    executable_->run(bindings());
    Arrays out;
    for (const coda::Output& o : program_.graph().outputs()) {
      out[o.name] = tensor(called(o)).read();
      INFO(o.name);
      CHECK(tensor(called(o)).guards_intact());
    }
    return out;
  }

  coda::Bindings bindings() {
    coda::Bindings b;
    for (auto& [name, t] : tensors_) b[name] = t.view();
    return b;
  }
  Tensor& tensor(const std::string& name) { return tensors_.at(name); }
  coda::Executable& executable() { return *executable_; }

 private:
  std::string called(const coda::Output& o) const {
    return program_.graph().find_input(o.name) == nullptr ? o.name : "out." + o.name;
  }
  void add(const std::string& name, DType dtype, coda::ValueId v, Layout layout) {
    const coda::Type& t = program_.graph().value(v).type;
    tensors_.emplace(name, Tensor(dtype, t.rows.eval(sizes_), t.width().eval(sizes_), layout));
  }

  coda::Program program_;
  Sizes sizes_;
  std::unique_ptr<coda::Backend> backend_;
  std::unique_ptr<coda::Executable> executable_;
  std::map<std::string, Tensor> tensors_;
};

inline Arrays run(const coda::Program& p, const Arrays& inputs, const Sizes& given = {}, const Setup& setup = {}) {
  return Rig(p, inputs, sizes_of(p, inputs, given), setup).run(inputs);
}

// Bit for bit, but that any NaN equals any NaN; empty, or the first difference.
inline std::string difference(const Array& a, const Array& b) {
  if (a.rows != b.rows || a.width() != b.width()) return "another shape";
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.width(); ++j) {
      double x = a.at(i, j), y = b.at(i, j);
      if ((std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y))) continue;
      return "[" + std::to_string(i) + "," + std::to_string(j) + "] is " + std::to_string(x) + ", not " +
             std::to_string(y);
    }
  return {};
}

inline std::string difference(const Arrays& a, const Arrays& b) {
  if (a.size() != b.size()) return "another number of outputs";
  for (const auto& [name, x] : a)
    if (std::string what = difference(x, b.at(name)); !what.empty()) return name + what;
  return {};
}

// What the program is to give: fp64 and one rounding at each store.
inline Arrays expected(const coda::Program& p, const Arrays& inputs, const Sizes& sizes) {
  return coda::interpret(p.graph(), inputs, sizes, {coda::Rounding::kStores, DType::kBF16});
}

// Small integers by name and place, different everywhere nearby: sums of products stay exact.
inline Array integers(const std::string& name, std::int64_t rows, std::int64_t cols) {
  Array a(rows, 1, cols);
  std::uint64_t h = 0xcbf29ce484222325u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  for (double& x : a.data) {
    h = h * 6364136223846793005u + 1442695040888963407u;
    x = static_cast<double>(static_cast<std::int64_t>((h >> 33) % 7) - 3);
  }
  return a;
}

}  // namespace cpu_run
