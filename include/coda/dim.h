// Symbolic sizes: polynomials with rational coefficients over named sizes, e.g. N/2, 2*F, H*hd + 2*G*hd. Equality is
// equality of the canonical form, so the verifier compares sizes without knowing their values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace coda {

using Sizes = std::map<std::string, std::int64_t>;  // values of named sizes

class Dim {
 public:
  Dim() : Dim(1) {}
  Dim(std::int64_t constant);                                      // NOLINT: sizes are written as plain numbers
  Dim(int constant) : Dim(static_cast<std::int64_t>(constant)) {}  // NOLINT
  static Dim symbol(const std::string& name);

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  // Exact for a constant or a single product (N/2, H*hd/hd); Error for division by a sum or by 0.
  friend Dim operator/(const Dim& a, const Dim& b);
  friend bool operator==(const Dim& a, const Dim& b) = default;
  friend auto operator<=>(const Dim& a, const Dim& b) = default;

  bool is_constant() const;
  bool is_one() const { return *this == Dim(1); }
  // The symbol's name if the Dim is exactly one symbol, else empty.
  std::string as_symbol() const;
  std::vector<std::string> symbols() const;  // sorted, each once
  Dim substitute(const std::string& name, const Dim& by) const;
  // Error if a size is unknown or the value is negative or no integer.
  std::int64_t eval(const Sizes& sizes) const;
  std::string str() const;  // parses back to the same Dim

  struct Rational {
    std::int64_t num = 0, den = 1;
    auto operator<=>(const Rational&) const = default;
  };
  using Monomial = std::vector<std::pair<std::string, int>>;  // sorted by name, exponents ≠ 0
  const std::map<Monomial, Rational>& terms() const { return terms_; }

 private:
  std::map<Monomial, Rational> terms_;  // no zero coefficients
};

}  // namespace coda
