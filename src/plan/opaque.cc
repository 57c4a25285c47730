// What an opaque call needs: number, dtypes and shapes of its buffers. Part of Plan's checks; see include/coda/plan.h.
#include <fmt/format.h>

#include "coda/error.h"
#include "coda/plan.h"

namespace coda {
namespace {

struct Signature {
  int inputs, outputs, sizes;  // outputs 0: any number ≥ 1
  const char* text;
};

Signature signature(OpaqueKind k) {
  switch (k) {
    case OpaqueKind::kAttention: return {3, 2, 3, "q, k, v → o, lse; sizes batch, heads, kv_heads"};
    case OpaqueKind::kAttentionGrad: return {6, 3, 3, "q, k, v, o, lse, do → dq, dk, dv; sizes batch, heads, kv_heads"};
    case OpaqueKind::kScatterSum: return {2, 1, 0, "g, index → table"};
    case OpaqueKind::kZero: return {0, 0, 0, "→ any number of buffers"};
  }
  throw InternalError(__FILE__, __LINE__, "an opaque call of no kind");
}

}  // namespace

void Plan::check_opaque(const std::string& step, const OpaqueStep& s) const {
  Signature sig = signature(s.kind);
  auto count = [](const auto& list) { return static_cast<int>(list.size()); };
  bool right = count(s.inputs) == sig.inputs && count(s.sizes) == sig.sizes &&
               (sig.outputs == 0 ? !s.outputs.empty() : count(s.outputs) == sig.outputs);
  if (!right)
    throw Error({step,
                 fmt::format("{} inputs, {} outputs, {} sizes", s.inputs.size(), s.outputs.size(), s.sizes.size()),
                 sig.text, ""});
  for (const BufferRef& r : s.inputs) check_read(step, r);
  for (const BufferRef& r : s.outputs) {
    check_write(step, r, s.kind == OpaqueKind::kScatterSum);
    for (const BufferRef& in : s.inputs)
      if (in.buffer == r.buffer)
        throw Error(
            {step + ", buffer " + at(r.buffer).name, "read and written", "buffers of their own for outputs", ""});
  }
  auto expect = [&](const BufferRef& r, DType dtype, const Dim& rows, const Dim& cols) {
    const Buffer& b = at(r.buffer);
    if (b.dtype != dtype)
      throw Error({step + ", buffer " + b.name, std::string(coda::name(b.dtype)), std::string(coda::name(dtype)), ""});
    if (rows_of(r) != rows || cols_of(r) != cols)
      throw Error({step + ", buffer " + b.name, fmt::format("[{},{}]", rows_of(r).str(), cols_of(r).str()),
                   fmt::format("[{},{}]", rows.str(), cols.str()), ""});
  };
  if (s.kind == OpaqueKind::kZero) return;
  if (s.kind == OpaqueKind::kScatterSum) {
    expect(s.inputs[1], DType::kI32, rows_of(s.inputs[0]), 1);
    expect(s.outputs[0], DType::kF32, rows_of(s.outputs[0]), cols_of(s.inputs[0]));
    return;
  }
  for (const auto* list : {&s.inputs, &s.outputs})
    for (const BufferRef& r : *list)
      if (r.chunk)
        throw Error({step + ", buffer " + at(r.buffer).name, "a chunk of rows",
                     "whole buffers: every row attends to others", ""});
  Dim rows = rows_of(s.inputs[0]), q = cols_of(s.inputs[0]), kv = cols_of(s.inputs[1]), heads = s.sizes[1],
      kv_heads = s.sizes[2];
  DType dtype = at(s.inputs[0].buffer).dtype;
  if (!is_float(dtype))
    throw Error(
        {step + ", buffer " + at(s.inputs[0].buffer).name, std::string(coda::name(dtype)), "f32, bf16, f16", ""});
  if (q * kv_heads != kv * heads)
    throw Error(
        {step,
         fmt::format("q of {} columns for {} heads, k of {} for {}", q.str(), heads.str(), kv.str(), kv_heads.str()),
         "heads of one width", ""});
  expect(s.inputs[1], dtype, rows, kv);
  expect(s.inputs[2], dtype, rows, kv);
  bool grad = s.kind == OpaqueKind::kAttentionGrad;
  expect(grad ? s.inputs[3] : s.outputs[0], dtype, rows, q);
  expect(grad ? s.inputs[4] : s.outputs[1], DType::kF32, rows, heads);
  if (!grad) return;
  expect(s.inputs[5], dtype, rows, q);
  expect(s.outputs[0], dtype, rows, q);
  expect(s.outputs[1], dtype, rows, kv);
  expect(s.outputs[2], dtype, rows, kv);
}

}  // namespace coda
