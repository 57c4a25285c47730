// FNV-1a in 64 bits: hashes that are the same on every machine and in every version. Used for the hash of graphs, seeds
// that depend on a name, and the fingerprint of training data.
#pragma once

#include <cstdint>
#include <string_view>

namespace coda {

inline constexpr std::uint64_t kFnvStart = 0xcbf29ce484222325u;

constexpr std::uint64_t fnv1a(std::uint64_t h, std::uint64_t next) { return (h ^ next) * 0x100000001b3u; }

constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t h = kFnvStart) {
  for (char c : text) h = fnv1a(h, static_cast<unsigned char>(c));
  return h;
}

// A seed of its own for each name.
constexpr std::uint64_t seed_of(std::string_view name, std::uint64_t seed) {
  return fnv1a(name, kFnvStart ^ (seed * 0x9e3779b97f4a7c15u));
}

}  // namespace coda
