// The backward of one unit: probabilities are recomputed from q, k and lse, block by block; dk and dv of the unit's
// head are summed in fp32 over its query heads and query blocks, in a fixed order, and stored once.
#include <algorithm>
#include <utility>

#include "cpu/attention/units.h"

namespace coda::cpu {
namespace {

struct Workspace {
  float *k, *v, *dk, *dv;          // [seq, width]
  float *q, *o, *d_o, *dq;         // [kBlock, width]
  float *q_columns, *d_o_columns;  // [head_dim, kBlock]
  float *s, *dp;                   // [kBlock keys, kBlock queries]
  float *lse, *delta;              // [kBlock queries]
};

Workspace carve(const AttentionContext& x, float* at) {
  auto take = [&at](std::int64_t n) { return std::exchange(at, at + n); };
  std::int64_t all = x.sizes.seq * x.width(), block = kBlock * x.width();
  Workspace w;
  for (float** p : {&w.k, &w.v, &w.dk, &w.dv}) *p = take(all);
  for (float** p : {&w.q, &w.o, &w.d_o, &w.dq, &w.q_columns, &w.d_o_columns}) *p = take(block);
  for (float** p : {&w.s, &w.dp}) *p = take(kBlock * kBlock);
  for (float** p : {&w.lse, &w.delta}) *p = take(kBlock);
  return w;
}

// Σ a·b in kPadding sums, so that a vector does it; width is a multiple.
float dot(const float* a, const float* b, std::int64_t width) {
  float sums[kPadding] = {};
  for (std::int64_t c = 0; c < width; c += kPadding)
    for (int i = 0; i < kPadding; ++i) sums[i] += a[c + i] * b[c + i];
  for (int half = kPadding / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

void query_block(const AttentionContext& x, const Workspace& w, std::int64_t block, std::int64_t queries) {
  std::int64_t width = x.width(), dim = x.sizes.head_dim;
  transpose(x, w.q, queries, w.q_columns);
  transpose(x, w.d_o, queries, w.d_o_columns);
  for (std::int64_t r = 0; r < queries; ++r) w.delta[r] = dot(w.o + r * width, w.d_o + r * width, width);
  for (std::int64_t j = 0; j <= block; ++j) {
    bool diagonal = j == block;
    std::int64_t keys = std::min<std::int64_t>(kBlock, x.sizes.seq - j * kBlock), at = j * kBlock * width;
    x.kernels.gemm({keys, kBlock, dim, w.k + at, width, 1, w.q_columns, kBlock, w.s, kBlock, false});
    x.kernels.gemm({keys, kBlock, dim, w.v + at, width, 1, w.d_o_columns, kBlock, w.dp, kBlock, false});
    x.kernels.gradient(w.s, w.dp, keys, diagonal, x.scale, w.lse, w.delta);
    Part by_key = diagonal ? Part::kUpper : Part::kAll, by_query = diagonal ? Part::kLower : Part::kAll;
    multiply(x.kernels, {keys, width, queries, w.s, kBlock, 1, w.d_o, width, w.dv + at, width, true}, by_key);
    multiply(x.kernels, {keys, width, queries, w.dp, kBlock, 1, w.q, width, w.dk + at, width, true}, by_key);
    multiply(x.kernels, {queries, width, keys, w.dp, 1, kBlock, w.k + at, width, w.dq, width, j > 0}, by_query);
  }
}

}  // namespace

std::int64_t backward_scratch(const AttentionContext& x) {
  return (4 * x.sizes.seq + 6 * kBlock) * x.width() + kBlock * (2 * kBlock + 2);
}

void backward_unit(const AttentionContext& x, const AttentionBackward& t, std::int64_t batch, std::int64_t kv_head,
                   float* scratch) {
  Workspace w = carve(x, scratch);
  std::int64_t seq = x.sizes.seq;
  HeadView{x, t.k, batch, kv_head}.load(0, seq, w.k);
  HeadView{x, t.v, batch, kv_head}.load(0, seq, w.v);
  std::fill(w.dk, w.dk + seq * x.width(), 0.0f);
  std::fill(w.dv, w.dv + seq * x.width(), 0.0f);
  for (std::int64_t head = kv_head * x.group(); head < (kv_head + 1) * x.group(); ++head) {
    for (std::int64_t i = 0; i < block_count(seq); ++i) {
      std::int64_t start = i * kBlock, queries = std::min<std::int64_t>(kBlock, seq - start);
      HeadView{x, t.q, batch, head}.load(start, queries, w.q);
      HeadView{x, t.o, batch, head}.load(start, queries, w.o);
      HeadView{x, t.d_o, batch, head}.load(start, queries, w.d_o);
      for (std::int64_t r = 0; r < kBlock; ++r)
        w.lse[r] =
            r < queries ? load_element(t.lse.data, t.lse.offset(batch * seq + start + r, head), t.lse.dtype) : 0.0f;
      std::fill(w.delta, w.delta + kBlock, 0.0f);
      query_block(x, w, i, queries);
      HeadView{x, t.dq, batch, head}.store(start, queries, w.dq);
    }
  }
  HeadView{x, t.dk, batch, kv_head}.store(0, seq, w.dk);
  HeadView{x, t.dv, batch, kv_head}.store(0, seq, w.dv);
}

}  // namespace coda::cpu
