// The GEMM inside a program, as a library that knows nothing of epilogues would compute it in one call: products of one
// A side by side, products of one B below each other, terms along K in a row. Pure. Called by the benchmark for its
// baselines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coda/plan.h"

namespace coda::cuda {

// C[m,n] = or += Σ over k of A and B, all row-major. A is [m,k] where its columns are contracted (a_axis 1), else
// [k,m]; B is [n,k] where its columns are contracted, else [k,n].
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  int a_axis = 1, b_axis = 1;
  DType operands = DType::kBF16, result = DType::kBF16;
  bool accumulate = false;  // fp32 results only

  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  std::string str() const;  // "4096x4096x2048"
  bool operator==(const GemmShape&) const = default;
};

// Of a program with known sizes; nothing for a tile source. The result is accumulated in fp32 where the program adds
// the bare product to an output, stored in fp32 where it stores it so, else stored in the operands' type.
std::optional<GemmShape> gemm_of(const Program& p, const Sizes& sizes);
// Of every step of a plan, in order. Error for a plan with loops.
std::vector<GemmShape> gemms_of(const Plan& plan, const Sizes& sizes);

// The bare GEMM itself as a program: forward A [M,K] B [N,K], dgrad A [M,K] B [K,N], wgrad A [K,M] B [K,N].
enum class GemmLayout : std::uint8_t { kForward, kDataGradient, kWeightGradient };
GemmLayout parse_layout(const std::string& text);  // Error that names them for anything else
std::string_view name(GemmLayout l);               // "forward", "dgrad", "wgrad"
// result f32: `+=` with `accumulate`.
Program bare_program(GemmLayout layout, DType operands, DType result, bool accumulate);

}  // namespace coda::cuda
