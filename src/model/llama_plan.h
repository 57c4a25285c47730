// The plans of a Llama, assembled by hand from the library's programs: one layer forward and backward, the whole
// model's loss, and its loss with every gradient. Called by the trainer, `coda explain` and the benchmarks; what a
// compiler derives is judged against them. Symbolic in the sizes of llama_sizes.
//
// One layer, from attention's output y to the next layer's q, k, v, is 4 GEMMs forward and 8 backward, with no pass
// forward and one backward (the rotation of what attention's backward returns). Kept for the backward: x1, x2, y, g, u,
// the norms' r, and q, k, v for attention; everything else is recomputed in an epilogue.
#pragma once

#include "coda/plan.h"
#include "model/llama.h"

namespace coda {

struct LlamaShape {  // of one layer; its sizes are free: llama_layer_sizes
  DType dtype = DType::kBF16;
  double eps = 1e-5;
  bool keep_mlp_operand = false;  // as in LlamaConfig: h1 is an output of the forward, an input of the backward
};
Sizes llama_layer_sizes(std::int64_t tokens, std::int64_t d, std::int64_t ff, std::int64_t heads,
                        std::int64_t kv_heads);

// Inputs y, x0, wo, norm2, wg, wu, w2, norm1 and wq, wk, wv (of the next layer), pos, cos, sin; outputs x1, r1, g, u,
// x2, r2, q, k, v.
Plan llama_layer_forward(const LlamaShape& shape);

// From dq, dk, dv and dx (the gradient of x2 from above, without the norm's share) to dy and dx0; gradients of the
// weights, fp32, are added to "grad.wo", "grad.norm2", ….
Plan llama_layer_backward(const LlamaShape& shape);

// Inputs: the parameters, ids i32[M,1], targets i32[M,1], pos i32[M,1], cos, sin f32[S,hd/2]; output loss f32[M,1] of
// every token, 0 where the target is c.ignore. The mean is the caller's.
Plan llama_forward(const LlamaConfig& c);

// The same, and the gradients of Σ dloss_i · loss_i, dloss f32[M,1] an input (1/count for a mean), added to
// "grad.<parameter>", f32, in-out. zero_gradients: the plan clears them first. Logits exist by chunks of rows only.
// fp16: dloss also scales the stored gradients of activations; give it as 1 and divide the gradients afterwards.
Plan llama_forward_backward(const LlamaConfig& c, bool zero_gradients = false);

}  // namespace coda
