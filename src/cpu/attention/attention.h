// Causal attention on a CPU, forward and backward, by blocks of queries and keys that stay in cache; scores are never
// stored. Opaque to plans: the CPU backend calls it where a plan says so. Invariant: results are the same bits for any
// number of threads; a query depends on no later key, not even through NaN; one batch and head never touches another.
#pragma once

#include <cstdint>
#include <optional>

#include "base/thread_pool.h"
#include "coda/tensor.h"
#include "cpu/kernels/tile_gemm.h"

namespace coda::cpu {

// Tensors are [batch·seq, heads·head_dim]: rows are (batch, position), columns (head, element), any strides, so q, k
// and v may be column ranges of one packed matrix and [B,H,S,D] tensors are read in place. Query head h reads head h /
// (heads / kv_heads) of k and v.
struct AttentionSizes {
  std::int64_t batch = 0, seq = 0;  // may be 0
  std::int64_t heads = 1, kv_heads = 1, head_dim = 1;
  std::optional<float> scale = std::nullopt;  // of q·k; default 1/√head_dim
};

// Storage f32, bf16 or f16, each tensor its own; arithmetic is fp32 with one rounding when o is stored.
struct AttentionForward {
  TensorView q;     // [B·S, H·D]
  TensorView k, v;  // [B·S, G·D], G = kv_heads
  TensorView o;     // [B·S, H·D], written
  TensorView lse;   // f32 [B·S, H], written: ln Σ exp(scale · q·k) of each query, for the backward
};

struct AttentionBackward {
  TensorView q, k, v, o, lse;  // as the forward read and wrote them
  TensorView d_o;              // [B·S, H·D], the gradient of o
  TensorView dq, dk, dv;       // written, shaped as q, k, v
};

// `data` as f32 [B,H,S], contiguous: the usual place of lse.
TensorView lse_view(float* data, const AttentionSizes& sizes);

// Error before anything is written for sizes that are negative, don't divide or don't fit the tensors, dtypes that are
// not float, null or misaligned memory, and outputs that share memory with any other tensor.
void attention_forward(const AttentionSizes& sizes, const AttentionForward& tensors, ThreadPool& pool,
                       Isa isa = best_isa());
void attention_backward(const AttentionSizes& sizes, const AttentionBackward& tensors, ThreadPool& pool,
                        Isa isa = best_isa());

}  // namespace coda::cpu
