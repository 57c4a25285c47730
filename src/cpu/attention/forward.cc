// The forward of one unit: for each block of queries, scores against one block of keys after another, with the running
// maximum, sum and output of the online softmax.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cpu/attention/units.h"

namespace coda::cpu {
namespace {

struct Workspace {
  float *k, *v;              // [seq, width]
  float *q, *o;              // [kBlock, width]
  float* q_columns;          // [head_dim, kBlock]
  float* s;                  // [kBlock keys, kBlock queries]
  float *max, *sum, *alpha;  // [kBlock queries]
};

Workspace carve(const AttentionContext& x, float* at) {
  auto take = [&at](std::int64_t n) { return std::exchange(at, at + n); };
  std::int64_t all = x.sizes.seq * x.width(), block = kBlock * x.width();
  Workspace w;
  w.k = take(all);
  w.v = take(all);
  w.q = take(block);
  w.o = take(block);
  w.q_columns = take(block);
  w.s = take(kBlock * kBlock);
  w.max = take(kBlock);
  w.sum = take(kBlock);
  w.alpha = take(kBlock);
  return w;
}

void query_block(const AttentionContext& x, const Workspace& w, std::int64_t block, std::int64_t queries) {
  std::int64_t width = x.width();
  transpose(x, w.q, queries, w.q_columns);
  std::fill(w.max, w.max + kBlock, -std::numeric_limits<float>::infinity());
  std::fill(w.sum, w.sum + kBlock, 0.0f);
  for (std::int64_t j = 0; j <= block; ++j) {
    bool diagonal = j == block;
    std::int64_t keys = std::min<std::int64_t>(kBlock, x.sizes.seq - j * kBlock);
    x.kernels.gemm(
        {keys, kBlock, x.sizes.head_dim, w.k + j * kBlock * width, width, 1, w.q_columns, kBlock, w.s, kBlock, false});
    x.kernels.softmax(w.s, keys, diagonal, x.scale, w.max, w.sum, w.alpha);
    if (j > 0) {
      for (std::int64_t r = 0; r < queries; ++r) {
        if (w.alpha[r] == 1.0f) continue;
        for (std::int64_t c = 0; c < width; ++c) w.o[r * width + c] *= w.alpha[r];
      }
    }
    multiply(x.kernels, {queries, width, keys, w.s, 1, kBlock, w.v + j * kBlock * width, width, w.o, width, j > 0},
             diagonal ? Part::kLower : Part::kAll);
  }
  for (std::int64_t r = 0; r < queries; ++r)
    for (std::int64_t c = 0; c < width; ++c) w.o[r * width + c] /= w.sum[r];
}

}  // namespace

std::int64_t forward_scratch(const AttentionContext& x) {
  return (2 * x.sizes.seq + 3 * kBlock) * x.width() + kBlock * (kBlock + 3);
}

void forward_unit(const AttentionContext& x, const AttentionForward& t, std::int64_t batch, std::int64_t kv_head,
                  std::int64_t first, std::int64_t end, float* scratch) {
  Workspace w = carve(x, scratch);
  std::int64_t keys = std::min(end * kBlock, x.sizes.seq);
  HeadView{x, t.k, batch, kv_head}.load(0, keys, w.k);
  HeadView{x, t.v, batch, kv_head}.load(0, keys, w.v);
  for (std::int64_t head = kv_head * x.group(); head < (kv_head + 1) * x.group(); ++head) {
    for (std::int64_t i = first; i < end; ++i) {
      std::int64_t start = i * kBlock, queries = std::min<std::int64_t>(kBlock, x.sizes.seq - start);
      HeadView{x, t.q, batch, head}.load(start, queries, w.q);
      query_block(x, w, i, queries);
      HeadView{x, t.o, batch, head}.store(start, queries, w.o);
      for (std::int64_t r = 0; r < queries; ++r)
        store_element(t.lse.data, t.lse.offset(batch * x.sizes.seq + start + r, head), t.lse.dtype,
                      w.max[r] + std::log(w.sum[r]));
    }
  }
}

}  // namespace coda::cpu
