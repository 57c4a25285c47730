// Canonical polynomials over named sizes; see include/coda/dim.h.
#include "coda/dim.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "coda/error.h"

namespace coda {
namespace {

using Rational = Dim::Rational;
using Monomial = Dim::Monomial;

std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    throw Error({"size", fmt::format("{} * {}", a, b), "size expressions whose numbers fit in 64 bits", ""});
  return product;
}

std::int64_t plus(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum))
    throw Error({"size", fmt::format("{} + {}", a, b), "size expressions whose numbers fit in 64 bits", ""});
  return sum;
}

Rational reduce(std::int64_t num, std::int64_t den) {
  if (den < 0) num = -num, den = -den;
  std::int64_t g = std::gcd(num, den);
  return g == 0 ? Rational{0, 1} : Rational{num / g, den / g};
}

Monomial multiply(const Monomial& a, const Monomial& b, int sign) {
  std::map<std::string, int> powers(a.begin(), a.end());
  for (const auto& [name, power] : b) powers[name] += sign * power;
  Monomial m;
  for (const auto& [name, power] : powers)
    if (power != 0) m.emplace_back(name, power);
  return m;
}

void add_term(std::map<Monomial, Rational>& terms, const Monomial& m, Rational c) {
  Rational& slot = terms[m];
  slot = reduce(plus(times(slot.num, c.den), times(c.num, slot.den)), times(slot.den, c.den));
  if (slot.num == 0) terms.erase(m);
}

std::string term_text(const Monomial& m, Rational c) {  // c.num > 0
  std::string text, below;
  auto times = [&](const std::string& factor) { text += (text.empty() ? "" : "*") + factor; };
  if (c.num != 1) times(std::to_string(c.num));
  for (const auto& [name, power] : m) {
    for (int i = 0; i < power; ++i) times(name);
    for (int i = 0; i > power; --i) below += "/" + name;
  }
  if (text.empty()) text = "1";
  if (c.den != 1) text += "/" + std::to_string(c.den);
  return text + below;
}

}  // namespace

Dim::Dim(std::int64_t constant) {
  if (constant != 0) terms_[{}] = {constant, 1};
}

Dim Dim::symbol(const std::string& name) {
  Dim d(0);
  d.terms_[{{name, 1}}] = {1, 1};
  return d;
}

Dim operator+(const Dim& a, const Dim& b) {
  Dim d = a;
  for (const auto& [m, c] : b.terms_) add_term(d.terms_, m, c);
  return d;
}

Dim operator-(const Dim& a, const Dim& b) { return a + Dim(-1) * b; }

Dim operator*(const Dim& a, const Dim& b) {
  Dim d(0);
  for (const auto& [ma, ca] : a.terms_)
    for (const auto& [mb, cb] : b.terms_)
      add_term(d.terms_, multiply(ma, mb, 1), reduce(times(ca.num, cb.num), times(ca.den, cb.den)));
  return d;
}

Dim operator/(const Dim& a, const Dim& b) {
  if (a == b && !b.terms_.empty()) return Dim(1);
  if (b.terms_.size() != 1)
    throw Error({"size", a.str() + " / (" + b.str() + ")", "division by a number or by a product of sizes", ""});
  const auto& [mb, cb] = *b.terms_.begin();
  Dim d(0);
  for (const auto& [ma, ca] : a.terms_)
    add_term(d.terms_, multiply(ma, mb, -1), reduce(times(ca.num, cb.den), times(ca.den, cb.num)));
  return d;
}

bool Dim::is_constant() const { return terms_.empty() || (terms_.size() == 1 && terms_.begin()->first.empty()); }

std::string Dim::as_symbol() const {
  if (terms_.size() != 1) return {};
  const auto& [m, c] = *terms_.begin();
  return m.size() == 1 && m[0].second == 1 && c == Rational{1, 1} ? m[0].first : std::string();
}

std::vector<std::string> Dim::symbols() const {
  std::set<std::string> names;
  for (const auto& [m, c] : terms_)
    for (const auto& [name, power] : m) names.insert(name);
  return {names.begin(), names.end()};
}

Dim Dim::substitute(const std::string& name, const Dim& by) const {
  Dim result(0);
  for (const auto& [m, c] : terms_) {
    Dim term(0);
    Monomial rest;
    int power = 0;
    for (const auto& factor : m)
      if (factor.first == name)
        power = factor.second;
      else
        rest.push_back(factor);
    term.terms_[rest] = c;
    for (int i = 0; i < power; ++i) term = term * by;
    for (int i = 0; i > power; --i) term = term / by;
    result = result + term;
  }
  return result;
}

std::int64_t Dim::eval(const Sizes& sizes) const {
  // One common denominator, so that N/2 + N/2 of an odd N is still exact.
  Rational total{0, 1};
  for (const auto& [m, c] : terms_) {
    Rational term = c;
    for (const auto& [name, power] : m) {
      auto it = sizes.find(name);
      if (it == sizes.end())
        throw Error({"size " + name, "no value", "a value for every size", "Give it, e.g. --size " + name + "=64."});
      for (int i = 0; i < power; ++i) term = reduce(times(term.num, it->second), term.den);
      for (int i = 0; i > power; --i) {
        if (it->second == 0) throw Error({"size " + name, "0 in " + str(), "a size ≥ 1 where it divides", ""});
        term = reduce(term.num, times(term.den, it->second));
      }
    }
    total = reduce(plus(times(total.num, term.den), times(term.num, total.den)), times(total.den, term.den));
  }
  if (total.den != 1 || total.num < 0)
    throw Error({"size " + str(),
                 total.den == 1 ? std::to_string(total.num) : fmt::format("{}/{}", total.num, total.den),
                 "a whole number ≥ 0", "Choose sizes that divide."});
  return total.num;
}

std::string Dim::str() const {
  if (terms_.empty()) return "0";
  std::string text;
  for (auto it = terms_.rbegin(); it != terms_.rend(); ++it) {  // constants last
    auto [m, c] = *it;
    bool negative = c.num < 0;
    if (negative) c.num = -c.num;
    text += text.empty() ? (negative ? "-" : "") : (negative ? " - " : " + ");
    text += term_text(m, c);
  }
  return text;
}

}  // namespace coda
