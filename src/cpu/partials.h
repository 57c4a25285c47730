// Partial results of reductions: one set per tile, merged in tile order once every tile is done, so that the bits do
// not depend on threads. Row partials [column tile][M], column partials [row tile][N].
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/vec/vec_ops.h"
#include "plan/lower.h"

namespace coda::cpu {

// Up to three floats (an index is kept in a float's bits) per reduced row or column.
constexpr int kMaxParts = 3;
int parts_of(Op op, bool has_payload);

// One strip's share of one reduction.
class PartialShare {
 public:
  // `lines`: rows (axis n, mn) or the share's columns (axis m); `tiles`: column tiles or row tiles.
  PartialShare(const Reduction& r, std::int64_t lines, std::int64_t tiles, std::int64_t first_col);
  float* part(std::int64_t tile, int which) { return data_.data() + (tile * parts_ + which) * lines_; }
  // Once, before tiles run: several tiles may share a part.
  void set_count(std::int64_t tile, std::int64_t count) { counts_[static_cast<std::size_t>(tile)] = count; }
  void poison();  // NaN everywhere: a part that no tile wrote must show

  std::int64_t lines() const { return lines_; }
  std::int64_t tiles() const { return static_cast<std::int64_t>(counts_.size()); }
  std::int64_t first_col() const { return first_col_; }
  std::int64_t count(std::int64_t tile) const { return counts_[static_cast<std::size_t>(tile)]; }

 private:
  int parts_;
  std::int64_t lines_, first_col_;
  std::vector<std::int64_t> counts_;  // elements of a line in each tile, for moments
  std::vector<float> data_;
};

// Merges the shares of a reduction, in order, into its finish values `out` (one vector per result: rows, columns or
// one).
void merge(const Reduction& r, const std::vector<PartialShare*>& shares, const std::vector<float*>& out);

}  // namespace coda::cpu
