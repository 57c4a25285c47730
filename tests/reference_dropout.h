// References: dropout, with its own Philox 4x32-10 (Salmon et al. 2011): key (seed, 0), counter (e/4, 0, offset, 0) for
// the element of index e = row·width + column, word e mod 4, 24 bits of it.
#pragma once

#include <array>

#include "reference_norm.h"

namespace reference {

inline double uniform(std::uint64_t element, std::uint32_t seed, std::uint32_t offset) {
  using Word = std::uint32_t;
  std::array<Word, 4> c = {Word(element / 4), Word(element / 4 >> 32), offset, 0};
  Word k0 = seed, k1 = 0;
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    std::uint64_t a = std::uint64_t(0xD2511F53u) * c[0], b = std::uint64_t(0xCD9E8D57u) * c[2];
    c = {Word(b >> 32) ^ c[1] ^ k0, Word(b), Word(a >> 32) ^ c[3] ^ k1, Word(a)};
  }
  return double(c[element % 4] >> 8) / double(1 << 24);
}

inline Array dropout(const In& in, const Array& x) {
  double keep = in.number("keep");
  auto seed = std::uint32_t(std::int64_t(in.number("seed"))), offset = std::uint32_t(std::int64_t(in.number("offset")));
  return map(x, [&](auto i, auto j) {
    bool kept = uniform(std::uint64_t(i * x.cols + j), seed, offset) < keep;
    return kept ? x.at(i, j) / keep : 0;
  });
}

inline Array dropout_branch(const In& in, const Array& y) {
  return add(dropout(in, add_bias(linear(y, in["w"]), in["bias"])), in["x0"]);
}

inline Arrays dropout_residual(const In& in) { return {{"x1", dropout_branch(in, in["x"])}}; }

inline Arrays dropout_residual_layernorm_partial(const In& in) {
  return layer_partial(in, dropout_branch(in, in["y"]));
}

inline Arrays with_dropout_replayed(const In& in, Arrays out) {
  Array dy = dropout(in, out["dx"]);
  out["dbias"] = col_sum(dy, [&](auto i, auto j) { return dy.at(i, j); });
  out["dy"] = dy;
  return out;
}

inline Arrays dropout_residual_backward(const In& in) {
  return with_dropout_replayed(in, {{"dx", add(data_gradient(in["dz"], in["w"]), in["dx_in"])}});
}

inline Arrays dropout_residual_layernorm_backward(const In& in) {
  return with_dropout_replayed(in, residual_layernorm_backward(in));
}

}  // namespace reference
