// Storage types of tensors and the conversions between them and float. All conversions to a narrower float round to
// nearest, ties to even (the precision contract, docs/precision.md); NaN stays NaN, overflow becomes infinity.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace coda {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kI32 };

constexpr int size_of(DType t) { return t == DType::kBF16 || t == DType::kF16 ? 2 : 4; }
constexpr bool is_float(DType t) { return t != DType::kI32; }
std::string_view name(DType t);            // "f32", "bf16", "f16", "i32"
DType parse_dtype(std::string_view text);  // throws Error listing the names above

// 16-bit storage; no arithmetic on purpose: everything is computed in float.
struct BF16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

inline float to_float(BF16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

inline BF16 to_bf16(float x) {
  std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};  // quiet NaN
  u += 0x7fffu + ((u >> 16) & 1u);
  return {static_cast<std::uint16_t>(u >> 16)};
}

inline float to_float(F16 x) {
  std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  std::uint32_t rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));  // inf, NaN
  if (rest >= 0x400u) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
  float magnitude = static_cast<float>(rest) * 0x1p-24f;  // subnormal: exact
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

inline F16 to_f16(float x) {
  std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  std::uint32_t sign = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (u >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // rounds to at least 2^16
  if (u < 0x38800000u) {
    // Subnormal result: adding 0.5 aligns the last kept bit with the float's last bit, so the addition rounds for us.
    float magic = std::bit_cast<float>(u) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(magic) - 0x3f000000u))};
  }
  u += 0xfffu + ((u >> 13) & 1u) - 0x38000000u;
  return {static_cast<std::uint16_t>(sign | (u >> 13))};
}

// The value that storing x as `t` keeps. For kI32: truncation toward zero.
double round_to(DType t, double x);
float load_element(const void* base, std::int64_t index, DType t);  // i32 is converted
void store_element(void* base, std::int64_t index, DType t, float x);

}  // namespace coda
