// Storage types and tensor views: conversions against a definition in fp64 (every 16-bit pattern, and the floats around
// every rounding boundary), addresses against counting, and what check_view refuses.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "coda/dtype.h"
#include "coda/error.h"
#include "coda/tensor.h"

using namespace coda;

namespace {

// Value of a 16-bit float from its fields, by the book.
double value_of(std::uint16_t bits, int exponent_bits) {
  int mantissa_bits = 15 - exponent_bits;
  int mantissa = bits & ((1 << mantissa_bits) - 1);
  int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  int bias = (1 << (exponent_bits - 1)) - 1;
  double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(1 + std::ldexp(mantissa, -mantissa_bits), exponent - bias);
}

template <typename T, T (*kNarrow)(float)>
void check_16_bit(int exponent_bits, DType dtype) {
  auto widen = [](std::uint16_t bits) { return to_float(T{bits}); };
  int infinity = ((1 << exponent_bits) - 1) << (15 - exponent_bits);
  for (int b = 0; b < 0x10000; ++b) {
    auto bits = static_cast<std::uint16_t>(b);
    double v = value_of(bits, exponent_bits);
    float f = widen(bits);
    INFO("bits ", b);
    if (std::isnan(v)) {
      REQUIRE(std::isnan(f));
      REQUIRE(std::isnan(widen(kNarrow(f).bits)));
      continue;
    }
    REQUIRE(static_cast<double>(f) == v);
    REQUIRE(kNarrow(f).bits == bits);
    // Halfway to the next pattern away from zero goes to the even one; a hair to either side goes to the nearer one.
    if ((b & 0x7fff) >= infinity) continue;
    bool last = (b & 0x7fff) == infinity - 1;
    double step =
        std::fabs(value_of(static_cast<std::uint16_t>(bits), exponent_bits) -
                  value_of(static_cast<std::uint16_t>((b & 0x7fff) == 0 ? bits + 1 : bits - 1), exponent_bits));
    double above =
        last ? std::fabs(v) + step : std::fabs(value_of(static_cast<std::uint16_t>(bits + 1), exponent_bits));
    double middle = std::copysign((std::fabs(v) + above) / 2, v);
    auto next = static_cast<std::uint16_t>(bits + 1);
    std::uint16_t even = b & 1 ? next : bits;
    auto half = static_cast<float>(middle);
    if (static_cast<double>(half) == middle) {
      REQUIRE(kNarrow(half).bits == even);
      float out = std::copysign(std::numeric_limits<float>::infinity(), half);
      REQUIRE(kNarrow(std::nextafter(half, out)).bits == next);
      REQUIRE(kNarrow(std::nextafter(half, 0.0f)).bits == bits);
    }
    // From fp64 there is one rounding, not two.
    double far = std::copysign(std::numeric_limits<double>::infinity(), middle);
    REQUIRE(round_to(dtype, middle) == static_cast<double>(widen(even)));
    REQUIRE(round_to(dtype, std::nextafter(middle, far)) == static_cast<double>(widen(next)));
    REQUIRE(round_to(dtype, std::nextafter(middle, 0.0)) == static_cast<double>(f));
  }
}

template <typename F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("bf16 conversions round to nearest even") { check_16_bit<BF16, to_bf16>(8, DType::kBF16); }
TEST_CASE("f16 conversions round to nearest even") { check_16_bit<F16, to_f16>(5, DType::kF16); }

TEST_CASE("NaN stays NaN, whatever its payload") {
  for (std::uint32_t payload : {0x1u, 0x1fffu, 0x2000u, 0x7fffffu, 0x400000u})
    for (std::uint32_t sign : {0u, 0x80000000u}) {
      float nan = std::bit_cast<float>(sign | 0x7f800000u | payload);
      CHECK(std::isnan(to_float(to_bf16(nan))));
      CHECK(std::isnan(to_float(to_f16(nan))));
    }
}

TEST_CASE("round_to f32 and i32") {
  CHECK(round_to(DType::kF32, 1.0 + 0x1p-25) == 1.0);
  CHECK(round_to(DType::kF32, 1.0 + 0x1p-24 + 0x1p-50) == 1.0 + 0x1p-23);
  CHECK(round_to(DType::kI32, -2.9) == -2.0);
  CHECK(round_to(DType::kI32, 2.9) == 2.0);
}

TEST_CASE("names of storage types") {
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32}) CHECK(parse_dtype(name(t)) == t);
  CHECK(parse_dtype("fp32") == DType::kF32);
  CHECK(parse_dtype("fp16") == DType::kF16);
  CHECK(message_of([] { parse_dtype("f64"); }) == "dtype: 'f64'; allowed: f32, bf16, f16, i32");
}

TEST_CASE("elements are stored and loaded in their own place") {
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32}) {
    std::vector<char> memory(static_cast<std::size_t>(5 * size_of(t)), char(0x11));
    store_element(memory.data(), 2, t, -3.0f);
    CHECK(load_element(memory.data(), 2, t) == -3.0f);
    for (int i = 0; i < 5 * size_of(t); ++i)
      if (i < 2 * size_of(t) || i >= 3 * size_of(t)) CHECK(memory[static_cast<std::size_t>(i)] == char(0x11));
  }
}

TEST_CASE("addresses of a [batch, heads, positions, width] tensor seen as a matrix") {
  // B=2, H=3, S=4, D=5 in the order [B,H,S,D]; rows (b, s), columns (h, d).
  TensorView v;
  v.rows = 8, v.cols = 15;
  v.row_block = 4, v.row_stride = 5, v.row_outer = 60;
  v.col_block = 5, v.col_stride = 1, v.col_outer = 20;
  std::vector<float> memory(120);
  v.data = memory.data();
  for (int b = 0; b < 2; ++b)
    for (int h = 0; h < 3; ++h)
      for (int s = 0; s < 4; ++s)
        for (int d = 0; d < 5; ++d) CHECK(v.offset(b * 4 + s, h * 5 + d) == ((b * 3 + h) * 4 + s) * 5 + d);
  CHECK_FALSE(v.is_plain());
  ByteRange range = byte_range(v);
  CHECK(range.begin == reinterpret_cast<char*>(memory.data()));
  CHECK(range.end == range.begin + 480);
  TensorView second = v.row_range(4, 4);
  CHECK(static_cast<float*>(second.data) == memory.data() + 60);
  CHECK(second.rows == 4);
  CHECK_THROWS_AS(v.row_range(2, 3), InternalError);
  TensorView inner = v.row_range(5, 2);  // inside one block
  for (int r = 0; r < 2; ++r)
    for (int c = 0; c < 15; ++c)
      CHECK(static_cast<float*>(inner.data) + inner.offset(r, c) == memory.data() + v.offset(5 + r, c));
  CHECK_NOTHROW(check_view("q", v, true));
}

TEST_CASE("plain matrices: pitch, ranges, bytes") {
  std::vector<BF16> memory(100);
  TensorView v = TensorView::matrix(memory.data(), DType::kBF16, 4, 6, 10);
  CHECK(v.is_plain());
  CHECK(v.offset(3, 5) == 35);
  CHECK(v.str() == "bf16[4,6] strides (10,1)");
  CHECK(byte_range(v).end - byte_range(v).begin == 72);
  CHECK(static_cast<BF16*>(v.row_range(1, 2).data) == memory.data() + 10);
  CHECK(TensorView::matrix(memory.data(), DType::kBF16, 4, 6).row_stride == 6);
  TensorView backwards = TensorView::matrix(memory.data() + 30, DType::kBF16, 4, 6, 0);
  backwards.row_stride = -10;
  CHECK(byte_range(backwards).begin == reinterpret_cast<char*>(memory.data()));
  CHECK(byte_range(backwards).end == reinterpret_cast<char*>(memory.data() + 36));
  TensorView nothing = TensorView::matrix(nullptr, DType::kF32, 0, 7);
  CHECK(nothing.empty());
  CHECK(byte_range(nothing).begin == byte_range(nothing).end);
  CHECK_NOTHROW(check_view("x", nothing, true));
}

TEST_CASE("views that are refused name the argument, what was found and what is allowed") {
  std::vector<float> memory(64);
  auto refused = [](TensorView v, bool writable = false) { return message_of([&] { check_view("x", v, writable); }); };
  CHECK(contains(refused(TensorView::matrix(nullptr, DType::kF32, 2, 3)),
                 "x: a null pointer; allowed: memory for f32[2,3]"));
  CHECK(contains(refused(TensorView::matrix(reinterpret_cast<char*>(memory.data()) + 2, DType::kF32, 2, 3)),
                 "allowed: a multiple of 4 bytes for f32"));
  CHECK(contains(refused(TensorView::matrix(memory.data(), DType::kF32, -2, 3)), "size [-2,3]; allowed: sizes ≥ 0"));
  TensorView blocks = TensorView::matrix(memory.data(), DType::kF32, 2, 3);
  blocks.col_block = 0;
  CHECK(contains(refused(blocks), "blocks ≥ 1"));
  TensorView folded = TensorView::matrix(memory.data(), DType::kF32, 4, 8, 7);
  CHECK(refused(folded) == "no error");  // an input may overlap itself
  CHECK(contains(refused(folded, true), "share memory"));
  CHECK(contains(refused(TensorView::matrix(memory.data(), DType::kF32, 4, 8, 0), true), "share memory"));
  CHECK(refused(TensorView::matrix(memory.data(), DType::kF32, 8, 8, 8), true) == "no error");
  CHECK(refused(TensorView::matrix(memory.data(), DType::kF32, 1, 8, 0), true) == "no error");
  TensorView transposed = TensorView::matrix(memory.data(), DType::kF32, 8, 8, 1);
  transposed.col_stride = 8;
  CHECK(refused(transposed, true) == "no error");
}

TEST_CASE("an Error leaves out its empty parts") {
  CHECK(std::string(Error({"--steps", "-1", "numbers ≥ 1", "Choose more."}).what()) ==
        "--steps: -1; allowed: numbers ≥ 1. Choose more.");
  CHECK(std::string(Error({"", "nothing", "", ""}).what()) == "nothing");
  CHECK(Error({"a", "b", "c", "d"}).parts().way_out == "d");
  CHECK(contains(InternalError("file.cc", 7, "odd").what(), "file.cc:7: odd"));
}
