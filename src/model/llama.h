// A Llama: its numbers, its parameters and their names, its rotary tables. Called by the plans of the model, the
// trainer and whoever reads or writes weights. Pre-norm blocks: RMSNorm, rotary embeddings on halves, grouped-query
// attention, SwiGLU; the head is a matrix of its own or the embedding (tied).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/dim.h"
#include "coda/dtype.h"

namespace coda {

struct LlamaConfig {
  std::int64_t layers = 2;
  std::int64_t dim = 256;  // of the residual stream
  std::int64_t ff = 704;   // of the gated unit
  std::int64_t heads = 4;
  std::int64_t kv_heads = 4;   // divides heads
  std::int64_t head_dim = 64;  // even
  std::int64_t vocab = 256;
  std::int64_t context = 256;  // positions that the rotary table holds
  bool tied = false;           // the head is the embedding
  double eps = 1e-5;
  double rope_base = 10000;
  std::int64_t ignore = -100;    // a target that does not count
  DType storage = DType::kBF16;  // of parameters and activations
  // Keep the MLP's operand x1·γ for the second form of its norm's backward (algebra 2): tokens × dim fewer elements
  // written a layer, and as many more kept.
  bool keep_mlp_operand = false;
  // Rows of logits that exist at a time in the head's backward; 0: as many as keep them within 32 MiB.
  std::int64_t head_chunk = 0;
};

// Error that names the number, e.g. `layers: 0; allowed: at least 1`.
void check_llama(const LlamaConfig& c);

struct LlamaParameter {
  std::string name;  // "embedding", "layer0.norm1", "layer0.wq", …, "norm", "head"
  Dim rows, cols;
  bool is_norm = false;  // a norm's weight: starts at 1, no weight decay
};
// In a fixed order; a tied model has no "head". A parameter's gradient is called "grad." + name.
std::vector<LlamaParameter> llama_parameters(const LlamaConfig& c);

// The sizes of the model's plans: M tokens in B sequences, d, F, H, G, hd, V, S. Error if tokens don't divide, or a
// sequence is longer than the context.
Sizes llama_sizes(const LlamaConfig& c, std::int64_t batch, std::int64_t sequence);

// cos and sin [context, head_dim/2] of position · base^(-2j/head_dim), the product taken in fp64.
struct RopeTables {
  std::vector<float> cos, sin;
};
RopeTables rope_tables(const LlamaConfig& c);

// pos i32 [batch · sequence]: 0 … sequence-1 for every sequence.
std::vector<std::int32_t> rope_positions(std::int64_t batch, std::int64_t sequence);

}  // namespace coda
