// Solving for a program's sizes, one unknown at a time; see bind.h.
#include "plan/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "coda/error.h"

namespace coda {
namespace {

struct Equation {
  const std::string* called;
  Dim in_program, in_plan;
};

class Solver {
 public:
  explicit Solver(const std::map<std::string, Dim>& given) : known_(given) {}

  std::map<std::string, Dim>& known() { return known_; }

  std::vector<std::string> unknowns(const Dim& d) const {
    std::vector<std::string> names;
    for (const std::string& s : d.symbols())
      if (!known_.count(s)) names.push_back(s);
    return names;
  }

  // Both sides may use the same names for different sizes, so known sizes go in all at once, under other names first.
  Dim substitute(Dim d) const {
    for (const auto& [name, value] : known_) d = d.substitute(name, Dim::symbol("?" + name));
    for (const auto& [name, value] : known_) d = d.substitute("?" + name, value);
    return d;
  }

  // Solves for the one unknown, if it stands in one term with power 1.
  bool solve(const Equation& e) {
    std::vector<std::string> names = unknowns(e.in_program);
    if (names.size() != 1) return false;
    const std::string marked = "?" + names[0];
    Dim side = substitute(e.in_program.substitute(names[0], Dim::symbol(marked)));
    Dim rest(0), factor(0);
    for (const auto& [monomial, coefficient] : side.terms()) {
      Dim term(coefficient.num);
      int power = 0;
      term = term / Dim(coefficient.den);
      for (const auto& [name, exponent] : monomial) {
        if (name == marked) power = exponent;
        for (int i = 0; name != marked && i < exponent; ++i) term = term * Dim::symbol(name);
        for (int i = 0; name != marked && i > exponent; --i) term = term / Dim::symbol(name);
      }
      if (power != 0 && power != 1) return false;
      (power == 1 ? factor : rest) = (power == 1 ? factor : rest) + term;
    }
    if (factor.terms().size() != 1) return false;
    known_[names[0]] = (e.in_plan - rest) / factor;
    return true;
  }

 private:
  std::map<std::string, Dim> known_;
};

std::map<std::string, Dim> check_given(const Program& p, const std::string& step, const std::vector<std::string>& free,
                                       const std::map<std::string, Dim>& given, std::vector<Equation>& equations,
                                       const std::string& where_called) {
  std::map<std::string, Dim> known;
  for (const auto& [name, value] : given) {
    if (std::find(free.begin(), free.end(), name) != free.end()) {
      known[name] = value;
      continue;
    }
    auto where = std::find_if(p.graph().wheres().begin(), p.graph().wheres().end(),
                              [&size = name](const Where& w) { return w.size == size; });
    if (where == p.graph().wheres().end())
      throw Error({step + ", size " + name, "no size of " + p.name(), fmt::format("{}", fmt::join(free, ", ")), ""});
    equations.push_back({&where_called, where->value, value});
  }
  return known;
}

}  // namespace

std::map<std::string, Dim> bind_sizes(const Program& p, const std::string& step,
                                      const std::map<std::string, Dim>& given, const std::vector<BoundShape>& shapes) {
  std::vector<std::string> free = p.graph().free_sizes();
  for (const std::string& s : p.expanded().free_sizes())
    if (std::find(free.begin(), free.end(), s) == free.end()) free.push_back(s);
  const std::string given_called = "a size given";
  std::vector<Equation> equations;
  Solver solver(check_given(p, step, free, given, equations, given_called));
  for (const BoundShape& s : shapes) {
    equations.push_back({&s.called, s.type->rows, s.rows});
    equations.push_back({&s.called, s.type->width(), s.cols});
  }
  for (bool progress = true; progress;) {
    progress = false;
    for (const Equation& e : equations) progress = solver.solve(e) || progress;
  }
  for (const std::string& s : free)
    if (!solver.known().count(s))
      throw Error({step + ", size " + s, "fixed by no buffer", "a value for every size of " + p.name(),
                   "Give it in the step's sizes."});
  for (const Equation& e : equations)
    if (Dim expected = solver.substitute(e.in_program); expected != e.in_plan)
      throw Error({step + ", " + *e.called, "size " + e.in_plan.str() + " for " + e.in_program.str(), expected.str(),
                   "The other buffers of the step fix it."});
  return solver.known();
}

}  // namespace coda
