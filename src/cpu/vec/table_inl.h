// The table of one instruction set. Included last by each of baseline.cc, avx2.cc and avx512.cc.
#pragma once

#include "cpu/vec/columns_inl.h"
#include "cpu/vec/generate_inl.h"
#include "cpu/vec/maps_inl.h"
#include "cpu/vec/reduce_inl.h"
#include "cpu/vec/storage_inl.h"

namespace coda::cpu {
namespace {

constexpr VecOps table_for(Isa isa) {
  return {.isa = isa,
          .map = map_of,
          .fused = fused_map,
          .cast = cast_of,
          .load_row = load_row,
          .store_row = store_row,
          .add_row = add_row,
          .sum_n = sum_n,
          .max_n = max_n,
          .argmax_n = argmax_n,
          .logsumexp_n = logsumexp_n,
          .moments_n = moments_n,
          .sum_m = sum_m,
          .max_m = max_m,
          .argmax_m = argmax_m,
          .logsumexp_m = logsumexp_m,
          .moments_m = moments_m,
          .sum_c = sum_c,
          .max_c = max_c,
          .pairs = pairs,
          .interleave = interleave,
          .copy_groups = copy_groups,
          .spread_groups = spread_groups,
          .uniform = uniform,
          .cis = cis};
}

}  // namespace
}  // namespace coda::cpu
