// The units of work that attention.cc hands to the pool: everything of one batch entry and one head of k and v (and its
// group of query heads), or a range of its query blocks. Units write disjoint outputs.
#pragma once

#include "cpu/attention/blocks.h"

namespace coda::cpu {

std::int64_t forward_scratch(const AttentionContext& context);  // floats a worker needs
std::int64_t backward_scratch(const AttentionContext& context);

// Query blocks [first, end). The result of a block does not depend on the range it is computed in.
void forward_unit(const AttentionContext& context, const AttentionForward& t, std::int64_t batch, std::int64_t kv_head,
                  std::int64_t first, std::int64_t end, float* scratch);
void backward_unit(const AttentionContext& context, const AttentionBackward& t, std::int64_t batch,
                   std::int64_t kv_head, float* scratch);

}  // namespace coda::cpu
