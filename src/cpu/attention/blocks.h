// What the forward and backward share: heads of a tensor moved to and from fp32 blocks, scratch memory of a worker, and
// products over the triangle of a diagonal block. Blocks are row-major with padded(head_dim) columns; padding is zero.
#pragma once

#include <cstdint>
#include <memory>

#include "coda/tensor.h"
#include "cpu/attention/attention.h"
#include "cpu/attention/kernels.h"

namespace coda::cpu {

inline std::int64_t padded(std::int64_t head_dim) { return (head_dim + kPadding - 1) / kPadding * kPadding; }
inline std::int64_t block_count(std::int64_t seq) { return (seq + kBlock - 1) / kBlock; }

// Sizes after checking, with everything the units of work need.
struct AttentionContext {
  AttentionSizes sizes;
  float scale;
  const AttentionKernels& kernels;
  std::int64_t width() const { return padded(sizes.head_dim); }
  std::int64_t group() const { return sizes.heads / sizes.kv_heads; }
};

// One head of one batch entry of a tensor: rows are positions.
struct HeadView {
  const AttentionContext& context;
  const TensorView& tensor;
  std::int64_t batch, head;

  // Positions [first, first + count) to or from rows of context.width() floats; load fills the padding with zeros.
  void load(std::int64_t first, std::int64_t count, float* rows) const;
  void store(std::int64_t first, std::int64_t count, const float* rows) const;

 private:
  std::int64_t row(std::int64_t position) const { return batch * context.sizes.seq + position; }
  bool is_one_run() const;  // the head's columns have one stride
};

// columns[c * kBlock + r] = rows[r * width + c] for r < count, 0 for r ≥ count; c < head_dim.
void transpose(const AttentionContext& context, const float* rows, std::int64_t count, float* columns);

// `floats` floats for each worker, 64-byte aligned, uninitialised.
class Scratch {
 public:
  Scratch(int workers, std::int64_t floats);
  float* of(int worker) const { return data_.get() + worker * pitch_; }

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::int64_t pitch_;
  std::unique_ptr<float[], Free> data_;
};

// Rows of the product that meet only a part of k, as on a diagonal block: row i takes p ≤ i (kLower) or p ≥ i (kUpper).
// The rest of `a` is zero there; it is left out because zero times another row's NaN would be NaN.
enum class Part : std::uint8_t { kAll, kLower, kUpper };
void multiply(const AttentionKernels& kernels, SmallGemm g, Part part);

}  // namespace coda::cpu
