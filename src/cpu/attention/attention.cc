// Checks of the arguments, and the division of the work among threads.
#include "cpu/attention/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "base/overlap.h"
#include "coda/error.h"
#include "cpu/attention/units.h"

namespace coda::cpu {
namespace {

struct Argument {
  const char* name;
  const TensorView& view;
  bool written;
};

void check_size(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high)
    throw Error({fmt::format("attention {}", name), fmt::format("{}", value), fmt::format("{} to {}", low, high), ""});
}

AttentionContext checked_context(const AttentionSizes& sizes, Isa isa) {
  constexpr std::int64_t kMax = (std::int64_t{1} << 31) - 1;
  check_size("batch", sizes.batch, 0, kMax);
  check_size("seq", sizes.seq, 0, kMax);
  check_size("heads", sizes.heads, 1, kMax);
  check_size("kv_heads", sizes.kv_heads, 1, kMax);
  check_size("head_dim", sizes.head_dim, 1, 1 << 16);
  if (sizes.heads % sizes.kv_heads != 0)
    throw Error({"attention heads", fmt::format("{} with kv_heads {}", sizes.heads, sizes.kv_heads),
                 "a multiple of kv_heads", "Choose kv_heads among the divisors of heads."});
  float scale = sizes.scale.value_or(1.0f / std::sqrt(static_cast<float>(sizes.head_dim)));
  if (!std::isfinite(scale)) throw Error({"attention scale", fmt::format("{}", scale), "a finite number", ""});
  return {sizes, scale, attention_kernels(isa)};
}

void check_tensor(const Argument& a, std::int64_t rows, std::int64_t cols, const char* shape) {
  std::string argument = fmt::format("attention {}", a.name);
  if (a.view.rows != rows || a.view.cols != cols)
    throw Error({argument, a.view.str(), fmt::format("{} = [{},{}]", shape, rows, cols), ""});
  if (!is_float(a.view.dtype)) throw Error({argument, std::string(name(a.view.dtype)), "f32, bf16, f16", ""});
  check_view(argument, a.view, a.written);
}

void check_lse(const Argument& lse, const AttentionSizes& s) {
  check_tensor(lse, s.batch * s.seq, s.heads, "[batch*seq, heads]");
  if (lse.view.dtype != DType::kF32)
    throw Error(
        {"attention lse", std::string(name(lse.view.dtype)), "f32", "Half precision would spoil every probability."});
}

void check_overlap(std::span<const Argument> arguments) {
  for (const Argument& a : arguments)
    for (const Argument& b : arguments)
      if (a.written && &a != &b && views_overlap(a.view, b.view))
        throw Error({fmt::format("attention {}", a.name), fmt::format("memory that {} uses too", b.name),
                     "an output of its own memory", "Allocate it separately."});
}

}  // namespace

const AttentionKernels& attention_kernels(Isa isa) {
  if (isa == Isa::kBaseline) return attention_kernels_baseline();
  return isa == Isa::kAvx2 ? attention_kernels_avx2() : attention_kernels_avx512();
}

TensorView lse_view(float* data, const AttentionSizes& sizes) {
  TensorView v;
  v.data = data;
  v.rows = sizes.batch * sizes.seq;
  v.cols = sizes.heads;
  v.row_block = std::max<std::int64_t>(sizes.seq, 1);
  v.row_stride = 1;
  v.row_outer = sizes.heads * sizes.seq;
  v.col_block = std::max<std::int64_t>(sizes.heads, 1);
  v.col_stride = sizes.seq;
  return v;
}

void attention_forward(const AttentionSizes& sizes, const AttentionForward& t, ThreadPool& pool, Isa isa) {
  AttentionContext context = checked_context(sizes, isa);
  const Argument arguments[] = {
      {"q", t.q, false}, {"k", t.k, false}, {"v", t.v, false}, {"o", t.o, true}, {"lse", t.lse, true}};
  std::int64_t rows = sizes.batch * sizes.seq;
  for (int i : {0, 3}) check_tensor(arguments[i], rows, sizes.heads * sizes.head_dim, "[batch*seq, heads*head_dim]");
  for (int i : {1, 2})
    check_tensor(arguments[i], rows, sizes.kv_heads * sizes.head_dim, "[batch*seq, kv_heads*head_dim]");
  check_lse(arguments[4], sizes);
  check_overlap(arguments);
  if (rows == 0) return;
  // With few heads for many threads, a head's query blocks are shared out; no bit depends on how.
  std::int64_t heads = sizes.batch * sizes.kv_heads, blocks = block_count(sizes.seq);
  std::int64_t parts = std::clamp<std::int64_t>(4 * pool.size() / heads, 1, blocks);
  if (pool.size() == 1) parts = 1;
  Scratch scratch(pool.size(), forward_scratch(context));
  pool.run(heads * parts, [&](std::int64_t unit, int worker) {
    std::int64_t part = parts - 1 - unit / heads, head = unit % heads;  // the longest rows first
    forward_unit(context, t, head / sizes.kv_heads, head % sizes.kv_heads, part * blocks / parts,
                 (part + 1) * blocks / parts, scratch.of(worker));
  });
}

void attention_backward(const AttentionSizes& sizes, const AttentionBackward& t, ThreadPool& pool, Isa isa) {
  AttentionContext context = checked_context(sizes, isa);
  const Argument arguments[] = {{"q", t.q, false},  {"o", t.o, false},  {"d_o", t.d_o, false},
                                {"dq", t.dq, true}, {"k", t.k, false},  {"v", t.v, false},
                                {"dk", t.dk, true}, {"dv", t.dv, true}, {"lse", t.lse, false}};
  std::int64_t rows = sizes.batch * sizes.seq;
  for (int i : {0, 1, 2, 3})
    check_tensor(arguments[i], rows, sizes.heads * sizes.head_dim, "[batch*seq, heads*head_dim]");
  for (int i : {4, 5, 6, 7})
    check_tensor(arguments[i], rows, sizes.kv_heads * sizes.head_dim, "[batch*seq, kv_heads*head_dim]");
  check_lse(arguments[8], sizes);
  check_overlap(arguments);
  if (rows == 0) return;
  Scratch scratch(pool.size(), backward_scratch(context));
  pool.run(sizes.batch * sizes.kv_heads, [&](std::int64_t unit, int worker) {
    backward_unit(context, t, unit / sizes.kv_heads, unit % sizes.kv_heads, scratch.of(worker));
  });
}

}  // namespace coda::cpu
