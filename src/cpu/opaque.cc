// Opaque calls; see opaque.h.
#include "cpu/opaque.h"

#include <algorithm>

#include "coda/error.h"
#include "cpu/attention/attention.h"
#include "cpu/vec/vec_ops.h"
#include "cpu/views.h"

namespace coda::cpu {
namespace {

AttentionSizes attention_sizes(const TensorView& q, const std::vector<std::int64_t>& sizes) {
  AttentionSizes s;
  s.batch = sizes[0];
  s.heads = sizes[1];
  s.kv_heads = sizes[2];
  s.seq = s.batch == 0 ? 0 : q.rows / s.batch;
  s.head_dim = s.heads == 0 ? 0 : q.cols / s.heads;
  return s;
}

// table[index[t]] += g[t] in the order of t; columns are shared out, so the bits do not depend on the threads.
void scatter_sum(const TensorView& g, const TensorView& index, const TensorView& table, Isa isa, ThreadPool& pool) {
  constexpr std::int64_t kColumns = 64;
  const VecOps& ops = vec_ops(isa);
  std::int64_t pieces = (g.cols + kColumns - 1) / kColumns;
  pool.run(pieces, [&](std::int64_t piece, int) {
    std::int64_t first = piece * kColumns, count = std::min(kColumns, g.cols - first);
    float row[kColumns];
    for (std::int64_t t = 0; t < g.rows; ++t) {
      std::int32_t to = static_cast<const std::int32_t*>(index.data)[index.offset(t, 0)];
      for_each_run(g, t, first, count, [&](const char* p, std::int64_t at, std::int64_t n) {
        ops.load_row(row + at, p, g.dtype, n, g.col_stride);
      });
      for_each_run(table, to, first, count, [&](char* p, std::int64_t at, std::int64_t n) {
        ops.add_row(reinterpret_cast<float*>(p), row + at, n, table.col_stride);
      });
    }
  });
}

void zero(const TensorView& v, Isa isa) {
  constexpr std::int64_t kCount = 256;
  const std::vector<float> zeros(kCount, 0.0f);
  const VecOps& ops = vec_ops(isa);
  for (std::int64_t r = 0; r < v.rows; ++r)
    for_each_run(v, r, 0, v.cols, [&](char* p, std::int64_t, std::int64_t n) {
      for (std::int64_t done = 0; done < n; done += kCount)
        ops.store_row(p + done * v.col_stride * size_of(v.dtype), zeros.data(), v.dtype, std::min(kCount, n - done),
                      v.col_stride);
    });
}

}  // namespace

void run_opaque(OpaqueKind kind, const std::vector<TensorView>& in, const std::vector<TensorView>& out,
                const std::vector<std::int64_t>& sizes, Isa isa, ThreadPool& pool) {
  switch (kind) {
    case OpaqueKind::kAttention:
      return attention_forward(attention_sizes(in[0], sizes), {in[0], in[1], in[2], out[0], out[1]}, pool, isa);
    case OpaqueKind::kAttentionGrad:
      return attention_backward(attention_sizes(in[0], sizes),
                                {in[0], in[1], in[2], in[3], in[4], in[5], out[0], out[1], out[2]}, pool, isa);
    case OpaqueKind::kScatterSum: return scatter_sum(in[0], in[1], out[0], isa, pool);
    case OpaqueKind::kZero:
      for (const TensorView& v : out) zero(v, isa);
      return;
  }
  throw InternalError(__FILE__, __LINE__, "an opaque call of no kind");
}

}  // namespace coda::cpu
