// Where a plan's temporaries lie in one block of memory: buffers whose lifetimes meet never share bytes. Called by
// backends' prepare and by the cost model. Deterministic: the same plan and sizes give the same layout.
#pragma once

#include <cstdint>
#include <vector>

#include "coda/plan.h"

namespace coda {

struct ArenaBlock {
  std::int64_t bytes = 0;
  Lifetime life;
};

struct ArenaLayout {
  std::vector<std::int64_t> offsets;  // by buffer (of plan_arena) or block; multiples of 64
  std::int64_t bytes = 0;             // of the whole block
};

// Best fit over lifetimes, largest first.
ArenaLayout place(const std::vector<ArenaBlock>& blocks);

// The temporaries of a complete plan; 0 for every other buffer.
ArenaLayout plan_arena(const Plan& plan, const Sizes& sizes);

std::int64_t bytes_of(const Buffer& b, const Sizes& sizes);

}  // namespace coda
