// Which instruction sets this processor has and the operating system lets us use. Asked once per process; called by
// whoever chooses kernels. Invariant: each listed set contains all those before it.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "coda/error.h"
#include "cpu/kernels/tile_gemm.h"

namespace coda::cpu {
namespace {

constexpr std::array kAll{Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx};

struct CpuId {
  unsigned a = 0, b = 0, c = 0, d = 0;
  CpuId(unsigned leaf, unsigned sub) { __get_cpuid_count(leaf, sub, &a, &b, &c, &d); }
};

constexpr bool has(unsigned word, std::initializer_list<int> bits) {
  for (int bit : bits)
    if ((word >> bit & 1u) == 0) return false;
  return true;
}

// The register states that the operating system saves (XCR0); the caller has seen OSXSAVE.
unsigned saved_states() {
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// Linux hands out the 8 KiB of tile data only to processes that ask; the answer holds for all threads.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::size_t count_supported() {
  CpuId one(1, 0), seven(7, 0), seven1(7, 1);
  if (!has(one.c, {12, 27, 28, 29}) || !has(seven.b, {5})) return 1;  // FMA OSXSAVE AVX F16C, AVX2
  unsigned states = saved_states();
  if (!has(states, {1, 2})) return 1;                                                   // SSE, AVX
  if (!has(seven.b, {16, 17, 30, 31}) || !has(states, {5, 6, 7})) return 2;             // AVX512 F DQ BW VL
  if (!has(seven1.a, {5})) return 3;                                                    // AVX512_BF16
  if (!has(seven.d, {22, 24}) || !has(states, {17, 18}) || !may_use_tiles()) return 4;  // AMX BF16, TILE
  return 5;
}

std::string names(std::span<const Isa> isas) {
  std::string text;
  for (Isa isa : isas) text += (text.empty() ? "" : ", ") + std::string(name(isa));
  return text;
}

Isa choose() {
  std::span<const Isa> supported = supported_isas();
  const char* wanted = std::getenv("CODA_ISA");
  if (wanted == nullptr || *wanted == '\0') return supported.back();
  for (Isa isa : supported)
    if (name(isa) == wanted) return isa;
  for (Isa isa : kAll)
    if (name(isa) == wanted)
      throw Error({"CODA_ISA", "'" + std::string(wanted) + "', which this processor lacks", names(supported),
                   "Unset CODA_ISA to use the best of them."});
  throw Error({"CODA_ISA", "'" + std::string(wanted) + "'", names(kAll), "Unset CODA_ISA to use the best supported."});
}

}  // namespace

std::string_view name(Isa isa) {
  constexpr std::array<std::string_view, kAll.size()> kNames{"baseline", "avx2", "avx512", "avx512bf16", "amx"};
  return kNames[static_cast<std::size_t>(isa)];
}

std::span<const Isa> supported_isas() {
  static const std::size_t count = count_supported();
  return std::span(kAll).first(count);
}

Isa best_isa() { return choose(); }

}  // namespace coda::cpu
