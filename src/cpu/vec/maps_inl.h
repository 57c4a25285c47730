// Elementwise maps over blocks: one loop per function and pattern of operands, the table from Op to loop, and casts.
// Included once per instruction set (simd_inl.h). Invariant: an element's result depends on its operands alone, never
// on where in a vector it lies: the tail of a row goes through the same function as the rest.
#pragma once

#include "cpu/vec/math_inl.h"
#include "cpu/vec/storage_inl.h"
#include "cpu/vec/vec_ops.h"

namespace coda::cpu {
namespace {

// --- the functions: Float for f32, Bits for wrapping integers and truth values, Int for ordered integers

CODA_SIMD Float neg_f32(Float a) { return -a; }
CODA_SIMD Float rsqrt_f32(Float a) { return 1.0f / sqrt(a); }
CODA_SIMD Float relu_f32(Float a) { return quick_max(Float{}, a); }
CODA_SIMD Float square_f32(Float a) { return a * a; }
CODA_SIMD Float add_f32(Float a, Float b) { return a + b; }
CODA_SIMD Float sub_f32(Float a, Float b) { return a - b; }
CODA_SIMD Float mul_f32(Float a, Float b) { return a * b; }
CODA_SIMD Float div_f32(Float a, Float b) { return a / b; }
// Two operations in one pass, each rounded on its own.
CODA_SIMD Float add_add_f32(Float a, Float b, Float c) { return (a + b) + c; }
CODA_SIMD Float sub_add_f32(Float a, Float b, Float c) { return (a - b) + c; }
CODA_SIMD Float mul_add_f32(Float a, Float b, Float c) { return (a * b) + c; }
CODA_SIMD Float add_sub_f32(Float a, Float b, Float c) { return (a + b) - c; }
CODA_SIMD Float sub_sub_f32(Float a, Float b, Float c) { return (a - b) - c; }
CODA_SIMD Float mul_sub_f32(Float a, Float b, Float c) { return (a * b) - c; }
CODA_SIMD Float add_from_f32(Float a, Float b, Float c) { return c - (a + b); }
CODA_SIMD Float sub_from_f32(Float a, Float b, Float c) { return c - (a - b); }
CODA_SIMD Float mul_from_f32(Float a, Float b, Float c) { return c - (a * b); }
CODA_SIMD Float add_mul_f32(Float a, Float b, Float c) { return (a + b) * c; }
CODA_SIMD Float sub_mul_f32(Float a, Float b, Float c) { return (a - b) * c; }
CODA_SIMD Float mul_mul_f32(Float a, Float b, Float c) { return (a * b) * c; }
CODA_SIMD Int eq_f32(Float a, Float b) { return a == b; }
CODA_SIMD Int ne_f32(Float a, Float b) { return a != b; }
CODA_SIMD Int lt_f32(Float a, Float b) { return a < b; }
CODA_SIMD Int le_f32(Float a, Float b) { return a <= b; }
CODA_SIMD Int gt_f32(Float a, Float b) { return a > b; }
CODA_SIMD Int ge_f32(Float a, Float b) { return a >= b; }

CODA_SIMD Bits neg_i32(Bits a) { return -a; }
CODA_SIMD Bits abs_i32(Bits a) { return (Int)a < 0 ? -a : a; }
CODA_SIMD Bits square_i32(Bits a) { return a * a; }
CODA_SIMD Bits add_i32(Bits a, Bits b) { return a + b; }
CODA_SIMD Bits sub_i32(Bits a, Bits b) { return a - b; }
CODA_SIMD Bits mul_i32(Bits a, Bits b) { return a * b; }
CODA_SIMD Int min_i32(Int a, Int b) { return a < b ? a : b; }
CODA_SIMD Int max_i32(Int a, Int b) { return a > b ? a : b; }
CODA_SIMD Int eq_i32(Int a, Int b) { return a == b; }
CODA_SIMD Int ne_i32(Int a, Int b) { return a != b; }
CODA_SIMD Int lt_i32(Int a, Int b) { return a < b; }
CODA_SIMD Int le_i32(Int a, Int b) { return a <= b; }
CODA_SIMD Int gt_i32(Int a, Int b) { return a > b; }
CODA_SIMD Int ge_i32(Int a, Int b) { return a >= b; }

CODA_SIMD Bits not_bool(Bits a) { return ~a; }
CODA_SIMD Bits and_bool(Bits a, Bits b) { return a & b; }
CODA_SIMD Bits or_bool(Bits a, Bits b) { return a | b; }
CODA_SIMD Bits where_any(Int condition, Bits a, Bits b) { return condition ? a : b; }

CODA_SIMD Bits copy_any(Bits a) { return a; }
CODA_SIMD Float cast_f32_bf16(Float a) { return (Float)BF16Storage::decode(BF16Storage::encode((Bits)a)); }
CODA_SIMD Float cast_f32_f16(Float a) { return (Float)F16Storage::decode(F16Storage::encode((Bits)a)); }
CODA_SIMD Int cast_f32_i32(Float a) {
  Int saturated = a >= 0x1p31f ? (Int)splat_bits(0x7fffffffu) : truncate(a);
  return is_nan(a) ? Int{} : saturated;
}
CODA_SIMD Float cast_i32_f32(Int a) { return from_int(a); }
CODA_SIMD Float cast_i32_f16(Int a) { return cast_f32_f16(from_int(a)); }  // exact, or too large for fp16 anyway
CODA_SIMD Float cast_i32_bf16(Int a) {
  // From 2^24 on the conversion to float would round before bf16 does. Rounding to a multiple of 128 first, to an odd
  // one if inexact, makes it exact and leaves the tie-breaking right.
  Int odd = (a & ~127) | ((a & 127) != 0 ? Int{} + 128 : Int{});
  Int large = (a >= 1 << 24) | (a <= -(1 << 24));
  return cast_f32_bf16(from_int(large ? odd : a));
}

// --- the loop

// Rows that follow each other without gaps, in the result and in every operand, are one long row.
CODA_SIMD void join_rows(MapArgs& a, int operands) {
  if (a.rows == 1 || a.dst_pitch != a.n) return;
  BlockOperand joined[3];
  for (int i = 0; i < operands; ++i) {
    const BlockOperand& in = a.in[i];
    bool contiguous = in.row_step == a.n && (in.col_step == 1 || a.n == 1);
    bool scalar = in.row_step == 0 && (in.col_step == 0 || a.n == 1);
    if (!contiguous && !scalar) return;
    joined[i] = {in.base, 0, contiguous ? 1 : 0};
  }
  for (int i = 0; i < operands; ++i) a.in[i] = joined[i];
  a.n *= a.rows;
  a.rows = 1;
}

template <bool varies, class V, class Extent>
CODA_SIMD V fetch(const char* row, Bits same, std::int64_t j, Extent extent) {
  if constexpr (varies)
    return load<V>(row + 4 * j, extent);
  else
    return (V)same;
}

template <auto function>
struct Map;

template <class Result, class... Operand, Result (*function)(Operand...)>
struct Map<function> {
  static constexpr int kOperands = sizeof...(Operand);

  // Bit i of `varies`: operand i has an element per column; the others are broadcast once per row.
  template <unsigned varies, std::size_t... i>
  static CODA_SIMD void loop(const MapArgs& a, std::index_sequence<i...>) {
    for (std::int64_t r = 0; r < a.rows; ++r) {
      const char* row[] = {static_cast<const char*>(a.in[i].base) + 4 * r * a.in[i].row_step...};
      const Bits same[] = {(varies >> i & 1) ? Bits{} : broadcast(row[i])...};
      char* dst = static_cast<char*>(a.dst) + 4 * r * a.dst_pitch;
      each_vector(
          a.n, [&](std::int64_t j, auto extent) __attribute__((always_inline)) {
            store(dst + 4 * j, function(fetch<(varies >> i & 1) != 0, Operand>(row[i], same[i], j, extent)...), extent);
          });
    }
  }

  template <unsigned varies>
  static void loop_for(const MapArgs& a) {
    loop<varies>(a, std::make_index_sequence<kOperands>());
  }

  template <unsigned... varies>
  static CODA_SIMD void choose(unsigned wanted, const MapArgs& a, std::integer_sequence<unsigned, varies...>) {
    static constexpr MapFn kLoops[] = {loop_for<varies>...};
    kLoops[wanted](a);
  }

  static void run(const MapArgs& args) {
    if (args.rows <= 0 || args.n <= 0) return;
    MapArgs a = args;
    join_rows(a, kOperands);
    unsigned varies = 0;
    for (int i = 0; i < kOperands; ++i) varies |= (a.in[i].col_step != 0 ? 1u : 0u) << i;
    choose(varies, a, std::make_integer_sequence<unsigned, 1u << kOperands>());
  }
};

// --- the table

template <auto of_add, auto of_sub, auto of_mul>
MapFn after(Op first) {
  if (first == Op::kAdd) return Map<of_add>::run;
  if (first == Op::kSub) return Map<of_sub>::run;
  return first == Op::kMul ? Map<of_mul>::run : nullptr;
}

MapFn fused_map(Op first, Op second, bool on_right) {
  if (second == Op::kAdd) return after<add_add_f32, sub_add_f32, mul_add_f32>(first);
  if (second == Op::kMul) return after<add_mul_f32, sub_mul_f32, mul_mul_f32>(first);
  if (second != Op::kSub) return nullptr;
  return on_right ? after<add_from_f32, sub_from_f32, mul_from_f32>(first)
                  : after<add_sub_f32, sub_sub_f32, mul_sub_f32>(first);
}

MapFn map_f32(Op op) {
  switch (op) {
    case Op::kNeg: return Map<neg_f32>::run;
    case Op::kAbs: return Map<abs>::run;
    case Op::kExp: return Map<exp>::run;
    case Op::kLog: return Map<log>::run;
    case Op::kSqrt: return Map<sqrt>::run;
    case Op::kRsqrt: return Map<rsqrt_f32>::run;
    case Op::kTanh: return Map<tanh>::run;
    case Op::kErf: return Map<erf>::run;
    case Op::kSigmoid: return Map<sigmoid>::run;
    case Op::kSilu: return Map<silu>::run;
    case Op::kGelu: return Map<gelu>::run;
    case Op::kGeluTanh: return Map<gelu_tanh>::run;
    case Op::kRelu: return Map<relu_f32>::run;
    case Op::kSquare: return Map<square_f32>::run;
    case Op::kAdd: return Map<add_f32>::run;
    case Op::kSub: return Map<sub_f32>::run;
    case Op::kMul: return Map<mul_f32>::run;
    case Op::kDiv: return Map<div_f32>::run;
    case Op::kMin: return Map<minimum>::run;
    case Op::kMax: return Map<maximum>::run;
    case Op::kEq: return Map<eq_f32>::run;
    case Op::kNe: return Map<ne_f32>::run;
    case Op::kLt: return Map<lt_f32>::run;
    case Op::kLe: return Map<le_f32>::run;
    case Op::kGt: return Map<gt_f32>::run;
    case Op::kGe: return Map<ge_f32>::run;
    case Op::kWhere: return Map<where_any>::run;
    default: return nullptr;
  }
}

MapFn map_i32(Op op) {
  switch (op) {
    case Op::kNeg: return Map<neg_i32>::run;
    case Op::kAbs: return Map<abs_i32>::run;
    case Op::kSquare: return Map<square_i32>::run;
    case Op::kAdd: return Map<add_i32>::run;
    case Op::kSub: return Map<sub_i32>::run;
    case Op::kMul: return Map<mul_i32>::run;
    case Op::kMin: return Map<min_i32>::run;
    case Op::kMax: return Map<max_i32>::run;
    case Op::kEq: return Map<eq_i32>::run;
    case Op::kNe: return Map<ne_i32>::run;
    case Op::kLt: return Map<lt_i32>::run;
    case Op::kLe: return Map<le_i32>::run;
    case Op::kGt: return Map<gt_i32>::run;
    case Op::kGe: return Map<ge_i32>::run;
    case Op::kWhere: return Map<where_any>::run;
    default: return nullptr;
  }
}

MapFn map_bool(Op op) {
  switch (op) {
    case Op::kNot: return Map<not_bool>::run;
    case Op::kAnd: return Map<and_bool>::run;
    case Op::kOr: return Map<or_bool>::run;
    case Op::kWhere: return Map<where_any>::run;
    default: return nullptr;
  }
}

MapFn map_of(Op op, Elem elem) {
  return elem == Elem::kF32 ? map_f32(op) : elem == Elem::kI32 ? map_i32(op) : map_bool(op);
}

MapFn cast_of(Elem from, DType to) {
  if (from == Elem::kBool) return nullptr;
  bool from_f32 = from == Elem::kF32;
  switch (to) {
    case DType::kF32: return from_f32 ? Map<copy_any>::run : Map<cast_i32_f32>::run;
    case DType::kBF16: return from_f32 ? Map<cast_f32_bf16>::run : Map<cast_i32_bf16>::run;
    case DType::kF16: return from_f32 ? Map<cast_f32_f16>::run : Map<cast_i32_f16>::run;
    case DType::kI32: return from_f32 ? Map<cast_f32_i32>::run : Map<copy_any>::run;
  }
  return nullptr;
}

}  // namespace
}  // namespace coda::cpu
