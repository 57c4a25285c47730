// The driver of the conformance table; see coda/check.h.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>

#include "check/case.h"
#include "coda/error.h"
#include "plan/program_library.h"

namespace coda {
namespace check {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// One program prepared on a backend, with its tensors in memory.
class Rig {
 public:
  Rig(const Case& c, const BackendFactory& factory, const Program& p)
      : program_(p), graph_(p.expanded()), case_(c), backend_(factory(c.setup)) {}

  void prepare(const Arrays& values) {
    std::map<std::string, double> consts;
    for (const Input& in : graph_.inputs()) {
      if (in.is_const)
        consts[in.name] = values.at(in.name).data[0];
      else
        make(in.name, in.dtype, graph_.value(in.value).type, values.at(in.name).data.size());
    }
    for (const Output& o : graph_.outputs()) make(o.name, o.dtype, graph_.value(o.value).type, 0);
    Plan plan = single_program_plan(program_, consts);
    executable_ = backend_->prepare(plan, case_.sizes);
  }

  // Runs once; outputs poisoned before (accumulating ones get their old contents). Returns the raw bytes of all
  // outputs.
  std::map<std::string, Array> run(const Arrays& values) {
    for (const Input& in : graph_.inputs())
      if (!in.is_const) at(in.name).write(values.at(in.name));
    for (const Output& o : graph_.outputs()) {
      if (o.accumulate)
        at(o.name).write(values.at(o.name));
      else
        at(o.name).fill(kNaN);
    }
    executable_->poison();
    Bindings b;
    for (auto& [name, t] : tensors_) b[name] = t.view();
    executable_->run(b);
    std::map<std::string, Array> out;
    for (const Output& o : graph_.outputs()) out[o.name] = at(o.name).read();
    return out;
  }

  // Empty, or what was written that must not be.
  std::string stray_writes(const Arrays& values) {
    for (auto& [name, t] : tensors_)
      if (!t.guards_intact()) return "memory around " + name + " was written";
    for (const Input& in : graph_.inputs()) {
      if (in.is_const) continue;
      Tensor fresh(in.dtype, at(in.name).view().rows, at(in.name).view().cols, case_.layout);
      fresh.write(values.at(in.name));
      Array now = at(in.name).read(), before = fresh.read();
      for (std::size_t i = 0; i < now.data.size(); ++i)
        if (now.data[i] != before.data[i] && !(std::isnan(now.data[i]) && std::isnan(before.data[i])))
          return "input " + in.name + " was written";
    }
    return {};
  }

 private:
  void make(const std::string& name, DType dtype, const Type& t, std::size_t) {
    tensors_.emplace(name, Tensor(dtype, t.rows.eval(case_.sizes), t.width().eval(case_.sizes), case_.layout));
  }
  Tensor& at(const std::string& name) { return tensors_.at(name); }

  const Program& program_;
  const Graph& graph_;
  const Case& case_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executable> executable_;
  std::map<std::string, Tensor> tensors_;
};

bool same_bits(const std::map<std::string, Array>& a, const std::map<std::string, Array>& b, std::string& where) {
  for (const auto& [name, x] : a) {
    const Array& y = b.at(name);
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      bool same = (std::isnan(x.data[i]) && std::isnan(y.data[i])) ||
                  (x.data[i] == y.data[i] && std::signbit(x.data[i]) == std::signbit(y.data[i]));
      if (same) continue;
      std::int64_t width = std::max<std::int64_t>(x.width(), 1), e = static_cast<std::int64_t>(i);
      where = fmt::format("{}[{},{}] is {} and then {}", name, e / width, e % width, x.data[i], y.data[i]);
      return false;
    }
  }
  return true;
}

std::string check_values(const Case& c, const BackendFactory& backend, std::uint64_t seed) {
  const Program& p = library_program(c.program, c.dtype);
  Arrays values = make_values(p.expanded(), c.sizes, c.values, seed),
         other = make_values(p.expanded(), c.sizes, c.values, seed + 1);
  Rig rig(c, backend, p);
  rig.prepare(values);
  auto first = rig.run(values);
  Reference ref = make_reference(p, values, c.sizes, c.dtype);
  for (const Output& o : p.expanded().outputs())
    if (std::string wrong = judge(ref, o, first.at(o.name)); !wrong.empty()) return wrong;
  if (std::string stray = rig.stray_writes(values); !stray.empty()) return stray;
  rig.run(other);
  auto again = rig.run(values);
  std::string where;
  if (!same_bits(first, again, where)) return "not the same twice: " + where;
  return {};
}

std::string check_threads(const Case& c, const BackendFactory& backend, std::uint64_t seed) {
  const Program& p = library_program(c.program, c.dtype);
  Arrays values = make_values(p.expanded(), c.sizes, c.values, seed);
  std::map<std::string, Array> first;
  for (int threads : {1, 2, 3}) {
    Case with = c;
    with.setup.threads = threads;
    Rig rig(with, backend, p);
    rig.prepare(values);
    auto out = rig.run(values);
    std::string where;
    if (first.empty())
      first = out;
    else if (!same_bits(first, out, where))
      return fmt::format("{} threads differ from 1: {}", threads, where);
  }
  return {};
}

// NaN in one row of one tensor input at a time; rows of outputs that do not depend on it (by the interpreter, run on
// the same NaN) must keep their bits.
std::string check_nan(const Case& c, const BackendFactory& backend, std::uint64_t seed) {
  const Program& p = library_program(c.program, c.dtype);
  const Graph& g = p.expanded();
  Arrays values = make_values(g, c.sizes, c.values, seed);
  Rig rig(c, backend, p);
  rig.prepare(values);
  auto clean = rig.run(values);
  for (const Input& in : g.inputs()) {
    if (in.is_const || !is_float(in.dtype) || values.at(in.name).data.empty()) continue;
    Arrays with = values;
    Array& a = with.at(in.name);
    std::int64_t row = a.rows / 2;
    for (std::int64_t col = 0; col < a.width(); ++col) a.at(row, col) = kNaN;
    auto got = rig.run(with);
    Arrays right = interpret(g, with, c.sizes, {Rounding::kStores, c.dtype});
    for (const Output& o : g.outputs()) {
      const Array &x = got.at(o.name), &r = right.at(o.name), &before = clean.at(o.name);
      for (std::size_t i = 0; i < x.data.size(); ++i) {
        bool nan_right = std::isnan(r.data[i]);
        bool ok = nan_right ? std::isnan(x.data[i])
                            : x.data[i] == before.data[i] || std::isfinite(x.data[i]) == std::isfinite(r.data[i]);
        if (!nan_right && std::isnan(x.data[i])) ok = false;
        if (!ok) {
          std::int64_t width = std::max<std::int64_t>(x.width(), 1), e = static_cast<std::int64_t>(i);
          return fmt::format("NaN in row {} of {}: {}[{},{}] is {}, right is {}", row, in.name, o.name, e / width,
                             e % width, x.data[i], r.data[i]);
        }
      }
    }
  }
  return {};
}

double available_gib() {
  std::ifstream in("/proc/meminfo");
  std::string word;
  double kib = 0;
  while (in >> word)
    if (word == "MemAvailable:") in >> kib;
  return kib / (1 << 20);
}

// x and w are columns of small integers, so every element is x[m]·w[n]·r[m], exact in bf16 by choice.
std::string check_large(const Case& c, const BackendFactory& backend) {
  const Program& p = library_program(c.program, c.dtype);
  std::int64_t m = c.sizes.at("M"), n = c.sizes.at("N");
  auto x_of = [](std::int64_t r) { return static_cast<float>(1 + r % 13); };
  auto w_of = [](std::int64_t col) { return static_cast<float>(1 + col % 17); };
  std::vector<BF16> x(static_cast<std::size_t>(m)), w(static_cast<std::size_t>(n)), z(static_cast<std::size_t>(m * n));
  std::vector<float> r(static_cast<std::size_t>(m));
  for (std::int64_t i = 0; i < m; ++i)
    x[static_cast<std::size_t>(i)] = to_bf16(x_of(i)),
    r[static_cast<std::size_t>(i)] = static_cast<float>(1 << (i % 3));
  for (std::int64_t i = 0; i < n; ++i) w[static_cast<std::size_t>(i)] = to_bf16(w_of(i));
  auto executable = backend(c.setup)->prepare(single_program_plan(p, {}), c.sizes);
  executable->run({{"x", TensorView::matrix(x.data(), DType::kBF16, m, 1)},
                   {"w", TensorView::matrix(w.data(), DType::kBF16, n, 1)},
                   {"r", TensorView::matrix(r.data(), DType::kF32, m, 1)},
                   {"z", TensorView::matrix(z.data(), DType::kBF16, m, n)}});
  for (std::int64_t i = 0; i < m; i += 1 + i % 97)
    for (std::int64_t j = 0; j < n; j += 1 + j % 89) {
      float right = x_of(i) * w_of(j) * r[static_cast<std::size_t>(i)],
            got = to_float(z[static_cast<std::size_t>(i * n + j)]);
      if (got != right) return fmt::format("z[{},{}] is {}, right is {}", i, j, got, right);
    }
  return {};
}

}  // namespace
}  // namespace check

std::vector<std::string> check_names(const CheckOptions& options) {
  std::vector<std::string> names;
  for (const check::Case& c : check::case_table(options)) names.push_back(c.name());
  return names;
}

CheckReport run_checks(const BackendFactory& backend, const CheckOptions& options) {
  CheckReport report;
  std::vector<check::Case> cases = check::case_table(options);
  if (cases.empty())
    throw Error({"filter", "'" + options.filter + "', which no case's name contains", "a part of a case's name",
                 "`coda check --list` prints them."});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const check::Case& c = cases[i];
    if (options.progress) options.progress(i, cases.size(), c.name());
    std::string wrong;
    if (c.probe == check::Probe::kLarge && check::available_gib() < 8) {
      ++report.skipped;
      report.skips.push_back(c.name() + ": needs 8 GiB of free memory");
      continue;
    }
    try {
      switch (c.probe) {
        case check::Probe::kValues: wrong = check::check_values(c, backend, options.seed); break;
        case check::Probe::kThreads: wrong = check::check_threads(c, backend, options.seed); break;
        case check::Probe::kNan: wrong = check::check_nan(c, backend, options.seed); break;
        case check::Probe::kLarge: wrong = check::check_large(c, backend); break;
      }
    } catch (const std::exception& e) {
      wrong = std::string("threw: ") + e.what();
    }
    if (wrong.empty())
      ++report.passed;
    else
      report.failures.push_back({c.name(), wrong});
  }
  if (options.progress) options.progress(cases.size(), cases.size(), "");
  return report;
}

}  // namespace coda
