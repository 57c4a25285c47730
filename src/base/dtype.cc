#include "coda/dtype.h"

#include <cmath>

#include "coda/error.h"

namespace coda {

std::string_view name(DType t) {
  switch (t) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kI32: return "i32";
  }
  return "?";
}

DType parse_dtype(std::string_view text) {
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32})
    if (text == name(t)) return t;
  if (text == "fp32") return DType::kF32;
  if (text == "fp16") return DType::kF16;
  throw Error({"dtype", "'" + std::string(text) + "'", "f32, bf16, f16, i32", ""});
}

double round_to(DType t, double x) {
  // Rounding double → float → 16 bits would round twice; odd rounding of the first step makes the second one right.
  float f = static_cast<float>(x);
  if (t == DType::kF32) return f;
  if (t == DType::kI32) return std::trunc(x);
  if (std::isfinite(f) && static_cast<double>(f) != x) {
    std::uint32_t u = std::bit_cast<std::uint32_t>(f);
    bool grew = std::fabs(static_cast<double>(f)) > std::fabs(x);
    if (grew) u -= 1;  // toward zero …
    u |= 1u;           // … then sticky: to odd
    f = std::bit_cast<float>(u);
  }
  return t == DType::kBF16 ? to_float(to_bf16(f)) : to_float(to_f16(f));
}

float load_element(const void* base, std::int64_t i, DType t) {
  switch (t) {
    case DType::kF32: return static_cast<const float*>(base)[i];
    case DType::kBF16: return to_float(static_cast<const BF16*>(base)[i]);
    case DType::kF16: return to_float(static_cast<const F16*>(base)[i]);
    case DType::kI32: return static_cast<float>(static_cast<const std::int32_t*>(base)[i]);
  }
  return 0;
}

void store_element(void* base, std::int64_t i, DType t, float x) {
  switch (t) {
    case DType::kF32: static_cast<float*>(base)[i] = x; break;
    case DType::kBF16: static_cast<BF16*>(base)[i] = to_bf16(x); break;
    case DType::kF16: static_cast<F16*>(base)[i] = to_f16(x); break;
    case DType::kI32: static_cast<std::int32_t*>(base)[i] = static_cast<std::int32_t>(x); break;
  }
}

}  // namespace coda
