// Placing temporaries; see arena.h.
#include "plan/arena.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace coda {
namespace {

constexpr std::int64_t kAlignment = 64;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct Taken {
  std::int64_t begin, end;
};

// The smallest gap between `taken` that holds `bytes`; else the end.
std::int64_t best_gap(std::vector<Taken> taken, std::int64_t bytes) {
  std::sort(taken.begin(), taken.end(),
            [](const Taken& a, const Taken& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  std::int64_t best = -1, best_size = 0, end = 0;
  for (const Taken& t : taken) {
    std::int64_t gap = t.begin - end;
    if (gap >= bytes && (best < 0 || gap < best_size)) best = end, best_size = gap;
    end = std::max(end, t.end);
  }
  return best < 0 ? end : best;
}

}  // namespace

ArenaLayout place(const std::vector<ArenaBlock>& blocks) {
  ArenaLayout layout;
  layout.offsets.assign(blocks.size(), 0);
  std::vector<std::int64_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return std::tuple(-blocks[index(a)].bytes, blocks[index(a)].life.first, a) <
           std::tuple(-blocks[index(b)].bytes, blocks[index(b)].life.first, b);
  });
  std::vector<std::int64_t> placed;
  for (std::int64_t i : order) {
    const ArenaBlock& block = blocks[index(i)];
    if (block.bytes == 0 || block.life.first < 0) continue;
    std::vector<Taken> taken;
    for (std::int64_t j : placed) {
      const ArenaBlock& other = blocks[index(j)];
      if (other.life.first <= block.life.last && block.life.first <= other.life.last)
        taken.push_back({layout.offsets[index(j)], layout.offsets[index(j)] + aligned(other.bytes)});
    }
    layout.offsets[index(i)] = best_gap(std::move(taken), aligned(block.bytes));
    layout.bytes = std::max(layout.bytes, layout.offsets[index(i)] + aligned(block.bytes));
    placed.push_back(i);
  }
  return layout;
}

std::int64_t bytes_of(const Buffer& b, const Sizes& sizes) {
  return b.rows.eval(sizes) * b.cols.eval(sizes) * size_of(b.dtype);
}

ArenaLayout plan_arena(const Plan& plan, const Sizes& sizes) {
  plan.check_complete();
  std::vector<Lifetime> lives = plan.lifetimes();
  std::vector<ArenaBlock> blocks;
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    bool temporary = plan.buffers()[b].role == BufferRole::kTemp;
    blocks.push_back({temporary ? bytes_of(plan.buffers()[b], sizes) : 0, lives[b]});
  }
  return place(blocks);
}

}  // namespace coda
