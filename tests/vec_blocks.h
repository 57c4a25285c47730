// What the tests of src/cpu/vec share: blocks of 32-bit elements in guarded, misaligned memory, and the distinct tables
// of vector operations that this processor runs. Invariant: a Guarded block's surroundings and gaps hold a pattern that
// intact() finds changed after any stray write, and that is a NaN, so that a stray read shows in results.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cpu/vec/vec_ops.h"

namespace coda::test {

inline std::vector<const cpu::VecOps*> vec_tables() {
  std::vector<const cpu::VecOps*> all;
  for (cpu::Isa isa : cpu::supported_isas())
    if (const cpu::VecOps* ops = &cpu::vec_ops(isa); all.empty() || all.back() != ops) all.push_back(ops);
  return all;
}

// Sizes around every vector width and unrolling.
constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 131};

class Guarded {
 public:
  static constexpr std::uint32_t kPoison = 0x7fc0dead;

  Guarded(std::int64_t rows, std::int64_t n, std::int64_t pitch, std::int64_t misalign = 1)
      : rows_(rows),
        n_(n),
        pitch_(pitch),
        first_(kMargin + misalign),
        memory_(static_cast<std::size_t>(2 * kMargin + misalign + rows * pitch + n), kPoison) {}

  std::uint32_t* data() { return memory_.data() + first_; }
  float* floats() { return reinterpret_cast<float*>(data()); }
  std::int32_t* ints() { return reinterpret_cast<std::int32_t*>(data()); }
  std::int64_t pitch() const { return pitch_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t n() const { return n_; }

  std::uint32_t& at(std::int64_t r, std::int64_t j) { return data()[r * pitch_ + j]; }
  float f32(std::int64_t r, std::int64_t j) { return std::bit_cast<float>(at(r, j)); }
  std::int32_t i32(std::int64_t r, std::int64_t j) { return static_cast<std::int32_t>(at(r, j)); }

  template <class Draw>
  Guarded& fill(Draw draw) {
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t j = 0; j < n_; ++j) at(r, j) = std::bit_cast<std::uint32_t>(draw());
    return *this;
  }

  bool intact() const {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(memory_.size()); ++i) {
      std::int64_t place = i - first_;
      bool inside = place >= 0 && place < rows_ * pitch_ && place % pitch_ < n_;
      if (!inside && memory_[static_cast<std::size_t>(i)] != kPoison) return false;
    }
    return true;
  }

  cpu::Block block() { return {floats(), pitch_, rows_, n_}; }

 private:
  static constexpr std::int64_t kMargin = 40;
  std::int64_t rows_, n_, pitch_, first_;
  std::vector<std::uint32_t> memory_;
};

// |got − want| in units of the last fp32 place of want; both NaN, or equal infinities, are 0 apart.
inline double ulps(double want, float got) {
  double g = static_cast<double>(got);
  if (std::isnan(want) || std::isnan(g)) return std::isnan(want) && std::isnan(g) ? 0 : INFINITY;
  if (want == g || static_cast<double>(static_cast<float>(want)) == g) return 0;
  int exponent = 0;
  std::frexp(want, &exponent);
  return std::fabs(g - want) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

}  // namespace coda::test
