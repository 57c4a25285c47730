// Philox 4x32-10, the counter-based generator behind uniform(seed, offset). Header-only: interpreter and CPU backend
// share it, generated device code repeats it. The number depends on the element index alone, never on tiles or threads.
//
// Definition. Element (row, column) of a value whose whole row is `width` columns wide has index e = row·width +
// column.
//   key     = (seed, 0)
//   counter = (low 32 bits of e/4, high 32 bits of e/4, offset, 0)
//   uniform = (word e mod 4 of philox(counter, key) >> 8) · 2^-24,   in [0, 1) with 24 bits, exact in fp32
// seed and offset are taken as the 32 bits of their i32.
#pragma once

#include <array>
#include <cstdint>

namespace coda::philox {

using Block = std::array<std::uint32_t, 4>;

inline Block generate(Block counter, std::array<std::uint32_t, 2> key) {
  constexpr std::uint64_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    std::uint64_t p0 = kMul0 * counter[0], p1 = kMul1 * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// The four words of elements 4·block … 4·block + 3.
inline Block block_of(std::uint64_t block, std::int32_t seed, std::int32_t offset) {
  return generate({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                   static_cast<std::uint32_t>(offset), 0u},
                  {static_cast<std::uint32_t>(seed), 0u});
}

inline float to_unit(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

inline float uniform(std::uint64_t element, std::int32_t seed, std::int32_t offset) {
  return to_unit(block_of(element / 4, seed, offset)[element % 4]);
}

}  // namespace coda::philox
