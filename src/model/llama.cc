// Numbers, parameters and tables of a Llama; see llama.h.
#include "model/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "coda/error.h"

namespace coda {
namespace {

void at_least(const char* what, std::int64_t value, std::int64_t least) {
  if (value < least) throw Error({what, std::to_string(value), fmt::format("at least {}", least), ""});
}

}  // namespace

void check_llama(const LlamaConfig& c) {
  at_least("layers", c.layers, 1);
  at_least("dim", c.dim, 1);
  at_least("ff", c.ff, 1);
  at_least("heads", c.heads, 1);
  at_least("kv_heads", c.kv_heads, 1);
  at_least("head_dim", c.head_dim, 2);
  at_least("vocab", c.vocab, 1);
  at_least("context", c.context, 1);
  at_least("head_chunk", c.head_chunk, 0);
  if (c.head_dim % 2 != 0)
    throw Error({"head_dim", std::to_string(c.head_dim), "an even number: rotations pair its columns", ""});
  if (c.heads % c.kv_heads != 0)
    throw Error({"kv_heads", fmt::format("{} for {} heads", c.kv_heads, c.heads), "a divisor of heads", ""});
  if (!(c.eps > 0) || !std::isfinite(c.eps)) throw Error({"eps", fmt::format("{}", c.eps), "a number above 0", ""});
  if (!(c.rope_base > 0) || !std::isfinite(c.rope_base))
    throw Error({"rope_base", fmt::format("{}", c.rope_base), "a number above 0", ""});
  if (c.ignore >= 0 && c.ignore < c.vocab)
    throw Error({"ignore", std::to_string(c.ignore), "no class: below 0 or at least vocab", ""});
  if (!is_float(c.storage)) throw Error({"storage", std::string(name(c.storage)), "f32, bf16, f16", ""});
}

std::vector<LlamaParameter> llama_parameters(const LlamaConfig& c) {
  auto size = [](const char* s) { return Dim::symbol(s); };
  Dim d = size("d"), f = size("F"), nq = size("H") * size("hd"), nk = size("G") * size("hd");
  std::vector<LlamaParameter> list{{"embedding", size("V"), d}};
  for (std::int64_t l = 0; l < c.layers; ++l) {
    auto add = [&](const char* name, const Dim& rows, const Dim& cols, bool is_norm = false) {
      list.push_back({fmt::format("layer{}.{}", l, name), rows, cols, is_norm});
    };
    add("norm1", 1, d, true);
    add("wq", nq, d);
    add("wk", nk, d);
    add("wv", nk, d);
    add("wo", d, nq);
    add("norm2", 1, d, true);
    add("wg", f, d);
    add("wu", f, d);
    add("w2", d, f);
  }
  list.push_back({"norm", 1, d, true});
  if (!c.tied) list.push_back({"head", size("V"), d});
  return list;
}

Sizes llama_sizes(const LlamaConfig& c, std::int64_t batch, std::int64_t sequence) {
  at_least("batch", batch, 1);
  at_least("sequence", sequence, 1);
  if (sequence > c.context)
    throw Error(
        {"sequence", fmt::format("{} positions", sequence), fmt::format("at most the context of {}", c.context), ""});
  return {{"M", batch * sequence}, {"B", batch},       {"d", c.dim},   {"F", c.ff},     {"H", c.heads},
          {"G", c.kv_heads},       {"hd", c.head_dim}, {"V", c.vocab}, {"S", c.context}};
}

RopeTables rope_tables(const LlamaConfig& c) {
  RopeTables t;
  for (std::int64_t p = 0; p < c.context; ++p)
    for (std::int64_t j = 0; j < c.head_dim / 2; ++j) {
      double frequency = std::pow(c.rope_base, -2.0 * static_cast<double>(j) / static_cast<double>(c.head_dim));
      t.cos.push_back(static_cast<float>(std::cos(static_cast<double>(p) * frequency)));
      t.sin.push_back(static_cast<float>(std::sin(static_cast<double>(p) * frequency)));
    }
  return t;
}

std::vector<std::int32_t> rope_positions(std::int64_t batch, std::int64_t sequence) {
  std::vector<std::int32_t> pos;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t p = 0; p < sequence; ++p) pos.push_back(static_cast<std::int32_t>(p));
  return pos;
}

}  // namespace coda
