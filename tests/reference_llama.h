// A whole Llama in fp64 as a textbook writes it: every norm, rotation and product on its own, and its reverse by hand,
// layer by layer. Shares no formula with the library (no deferred scales, no recomputation): the oracle of plans and of
// the trainer's gradients. Itself compared with finite differences in tests/llama_plan_test.cc. With `storage` set,
// every operator's result is rounded to it, forward and backward, as an eager framework does: the yardstick of low
// precision.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "reference_math.h"

namespace reference {

struct LlamaNumbers {
  std::int64_t layers, heads, kv_heads, head_dim, batch, sequence;
  bool tied;
  double eps, rope_base;
  double ignore;
  coda::DType storage = coda::DType::kI32;  // kI32: nothing is rounded
};

// What an operator leaves in memory.
inline Array stored(Array a, const LlamaNumbers& c) {
  if (c.storage != coda::DType::kI32)
    for (double& x : a.data) x = coda::round_to(c.storage, x);
  return a;
}

struct LlamaLayer {  // every value of one layer's forward
  Array x, h, q, k, v, y, x1, h1, g, u, o, x2;
};

struct LlamaRun {
  Array loss;       // per token, 0 where ignored
  Arrays gradient;  // by the parameter's name, of Σ dloss · loss
};

inline Array rms_normalise(const Array& x, const Array& gamma, double eps) {
  Array y = x;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    double q = 0;
    for (std::int64_t j = 0; j < x.cols; ++j) q += x.at(i, j) * x.at(i, j);
    double r = 1 / std::sqrt(q / double(x.cols) + eps);
    for (std::int64_t j = 0; j < x.cols; ++j) y.at(i, j) = x.at(i, j) * r * gamma.at(0, j);
  }
  return y;
}

// Adds the gradient of γ to `dgamma` and returns that of x.
inline Array rms_normalise_backward(const Array& x, const Array& gamma, double eps, const Array& dy, Array& dgamma) {
  Array dx = x;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    double q = 0, inner = 0;
    for (std::int64_t j = 0; j < x.cols; ++j) {
      q += x.at(i, j) * x.at(i, j);
      inner += dy.at(i, j) * gamma.at(0, j) * x.at(i, j);
    }
    double n = double(x.cols), r = 1 / std::sqrt(q / n + eps);
    for (std::int64_t j = 0; j < x.cols; ++j) {
      dgamma.at(0, j) += dy.at(i, j) * x.at(i, j) * r;
      dx.at(i, j) = r * dy.at(i, j) * gamma.at(0, j) - r * r * r * x.at(i, j) * inner / n;
    }
  }
  return dx;
}

// Rotates columns (j, j + head_dim/2) of every head by position · base^(-2j/head_dim); `sign` -1 is the reverse.
inline Array rotate_heads(const Array& x, const LlamaNumbers& c, double sign) {
  Array y = x;
  for (std::int64_t t = 0; t < x.rows; ++t)
    for (std::int64_t first = 0; first < x.cols; first += c.head_dim)
      for (std::int64_t j = 0; j < c.head_dim / 2; ++j) {
        double frequency = std::pow(c.rope_base, -2.0 * double(j) / double(c.head_dim));
        double angle = double(t % c.sequence) * frequency;
        // The model's tables are fp32.
        double co = double(float(std::cos(angle))), si = sign * double(float(std::sin(angle)));
        double a = x.at(t, first + j), b = x.at(t, first + j + c.head_dim / 2);
        y.at(t, first + j) = a * co - b * si;
        y.at(t, first + j + c.head_dim / 2) = a * si + b * co;
      }
  return y;
}

// visit(query row, first query column, first key column, first key row, probabilities of keys 0 … i)
template <class Visit>
void each_query(const Array& q, const Array& k, const LlamaNumbers& c, Visit visit) {
  double scale = 1 / std::sqrt(double(c.head_dim));
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t head = 0; head < c.heads; ++head)
      for (std::int64_t i = 0; i < c.sequence; ++i) {
        std::int64_t row = b * c.sequence + i, qc = head * c.head_dim;
        std::int64_t kc = head * c.kv_heads / c.heads * c.head_dim;
        std::vector<double> p;
        double total = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          double s = 0;
          for (std::int64_t e = 0; e < c.head_dim; ++e) s += q.at(row, qc + e) * k.at(b * c.sequence + j, kc + e);
          p.push_back(std::exp(s * scale));
          total += p.back();
        }
        for (double& x : p) x /= total;
        visit(row, qc, kc, b * c.sequence, p);
      }
}

inline Array attend(const Array& q, const Array& k, const Array& v, const LlamaNumbers& c) {
  Array y(q.rows, 1, q.cols);
  each_query(q, k, c, [&](auto row, auto qc, auto kc, auto first, const std::vector<double>& p) {
    for (std::size_t j = 0; j < p.size(); ++j)
      for (std::int64_t e = 0; e < c.head_dim; ++e) y.at(row, qc + e) += p[j] * v.at(first + std::int64_t(j), kc + e);
  });
  return y;
}

inline void attend_backward(const Array& q, const Array& k, const Array& v, const Array& dy, const LlamaNumbers& c,
                            Array& dq, Array& dk, Array& dv) {
  dq = Array(q.rows, 1, q.cols), dk = Array(k.rows, 1, k.cols), dv = Array(v.rows, 1, v.cols);
  double scale = 1 / std::sqrt(double(c.head_dim));
  each_query(q, k, c, [&](auto row, auto qc, auto kc, auto first, const std::vector<double>& p) {
    std::vector<double> dp(p.size(), 0);
    double mean = 0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      for (std::int64_t e = 0; e < c.head_dim; ++e) dp[j] += dy.at(row, qc + e) * v.at(first + std::int64_t(j), kc + e);
      mean += p[j] * dp[j];
    }
    for (std::size_t j = 0; j < p.size(); ++j) {
      std::int64_t key = first + std::int64_t(j);
      double ds = p[j] * (dp[j] - mean) * scale;
      for (std::int64_t e = 0; e < c.head_dim; ++e) {
        dq.at(row, qc + e) += ds * k.at(key, kc + e);
        dk.at(key, kc + e) += ds * q.at(row, qc + e);
        dv.at(key, kc + e) += p[j] * dy.at(row, qc + e);
      }
    }
  });
}

// Parameters by name with a prefix: at("wq") is parameters["layer1.wq"].
struct Named {
  const Arrays& arrays;
  std::string prefix;
  const Array& operator()(const char* name) const { return arrays.at(prefix + name); }
};

inline void qkv_from(const Named& p, const LlamaNumbers& c, LlamaLayer& f) {
  f.h = stored(rms_normalise(f.x, p("norm1"), c.eps), c);
  f.q = stored(rotate_heads(stored(linear(f.h, p("wq")), c), c, 1), c);
  f.k = stored(rotate_heads(stored(linear(f.h, p("wk")), c), c, 1), c);
  f.v = stored(linear(f.h, p("wv")), c);
}

// From x and y.
inline void block_from(const Named& p, const LlamaNumbers& c, LlamaLayer& f) {
  f.x1 = stored(add(f.x, stored(linear(f.y, p("wo")), c)), c);
  f.h1 = stored(rms_normalise(f.x1, p("norm2"), c.eps), c);
  f.g = stored(linear(f.h1, p("wg")), c);
  f.u = stored(linear(f.h1, p("wu")), c);
  Array silu = stored(map(f.g, [&](auto i, auto j) { return f.g.at(i, j) / (1 + std::exp(-f.g.at(i, j))); }), c);
  f.o = stored(map(f.g, [&](auto i, auto j) { return silu.at(i, j) * f.u.at(i, j); }), c);
  f.x2 = stored(add(f.x1, stored(linear(f.o, p("w2")), c)), c);
}

// Gradients add up under prefix + name in `grads`. Returns the gradient of x from the norm's side only.
inline Array qkv_reverse(const Named& p, const LlamaNumbers& c, const LlamaLayer& f, const Array& dq, const Array& dk,
                         const Array& dv, Arrays& grads) {
  Array dzq = stored(rotate_heads(dq, c, -1), c), dzk = stored(rotate_heads(dk, c, -1), c);
  auto accumulate = [&](const char* name, const Array& g) {
    grads[p.prefix + name] = add(grads.at(p.prefix + name), g);
  };
  accumulate("wq", weight_gradient(dzq, f.h));
  accumulate("wk", weight_gradient(dzk, f.h));
  accumulate("wv", weight_gradient(dv, f.h));
  Array dhq = stored(data_gradient(dzq, p("wq")), c), dhk = stored(data_gradient(dzk, p("wk")), c);
  Array dh = stored(add(stored(add(dhq, dhk), c), stored(data_gradient(dv, p("wv")), c)), c);
  return stored(rms_normalise_backward(f.x, p("norm1"), c.eps, dh, grads.at(p.prefix + "norm1")), c);
}

// From dx2 to the gradient of x by the residual path, and of y.
inline Array block_reverse(const Named& p, const LlamaNumbers& c, const LlamaLayer& f, const Array& dx2, Array& dy,
                           Arrays& grads) {
  auto accumulate = [&](const char* name, const Array& g) {
    grads[p.prefix + name] = add(grads.at(p.prefix + name), g);
  };
  accumulate("w2", weight_gradient(dx2, f.o));
  Array d_o = stored(data_gradient(dx2, p("w2")), c);
  Array dg = map(f.g, [&](auto i, auto j) {
    double x = f.g.at(i, j), e = std::exp(-x), slope = (1 + e + x * e) / ((1 + e) * (1 + e));
    return d_o.at(i, j) * f.u.at(i, j) * slope;
  });
  Array du = map(f.g, [&](auto i, auto j) { return d_o.at(i, j) * f.g.at(i, j) / (1 + std::exp(-f.g.at(i, j))); });
  dg = stored(dg, c), du = stored(du, c);
  accumulate("wg", weight_gradient(dg, f.h1));
  accumulate("wu", weight_gradient(du, f.h1));
  Array dh1 = stored(add(stored(data_gradient(dg, p("wg")), c), stored(data_gradient(du, p("wu")), c)), c);
  Array dn = stored(rms_normalise_backward(f.x1, p("norm2"), c.eps, dh1, grads.at(p.prefix + "norm2")), c);
  Array dx1 = stored(add(dx2, dn), c);
  accumulate("wo", weight_gradient(dx1, f.y));
  dy = stored(data_gradient(dx1, p("wo")), c);
  return dx1;
}

inline Arrays zeros_like(const Arrays& parameters) {
  Arrays zeros;
  for (const auto& [name, a] : parameters) zeros[name] = Array(a.rows, 1, a.width());
  return zeros;
}

// Loss of every token and dz of the logits for dloss.
inline Array losses(const Array& z, const Array& targets, const LlamaNumbers& c, const Array& dloss, Array& dz) {
  Array loss(z.rows, 1, 1);
  dz = Array(z.rows, 1, z.cols);
  for (std::int64_t i = 0; i < z.rows; ++i) {
    if (targets.at(i, 0) == c.ignore) continue;
    double total = 0;
    for (std::int64_t j = 0; j < z.cols; ++j) total += std::exp(z.at(i, j));
    auto t = std::int64_t(targets.at(i, 0));
    loss.at(i, 0) = std::log(total) - z.at(i, t);
    for (std::int64_t j = 0; j < z.cols; ++j)
      dz.at(i, j) = dloss.at(i, 0) * (std::exp(z.at(i, j)) / total - (j == t ? 1 : 0));
  }
  return loss;
}

// ids, targets, dloss: one a row. Parameters by the names of llama_parameters.
inline LlamaRun llama(const Arrays& parameters, const Array& ids, const Array& targets, const Array& dloss,
                      const LlamaNumbers& c) {
  std::vector<LlamaLayer> layers(static_cast<std::size_t>(c.layers));
  Array x = gather(parameters.at("embedding"), ids);
  auto named = [&](std::size_t l) { return Named{parameters, "layer" + std::to_string(l) + "."}; };
  for (std::size_t l = 0; l < layers.size(); ++l) {
    LlamaLayer& f = layers[l];
    f.x = x;
    qkv_from(named(l), c, f);
    f.y = stored(attend(f.q, f.k, f.v, c), c);
    block_from(named(l), c, f);
    x = f.x2;
  }
  const Array& head = parameters.at(c.tied ? "embedding" : "head");
  Array h = stored(rms_normalise(x, parameters.at("norm"), c.eps), c), dz;
  LlamaRun run;
  run.gradient = zeros_like(parameters);
  run.loss = losses(stored(linear(h, head), c), targets, c, dloss, dz);
  dz = stored(dz, c);
  Array& dhead = run.gradient.at(c.tied ? "embedding" : "head");
  dhead = add(dhead, weight_gradient(dz, h));
  Array dh = stored(data_gradient(dz, head), c);
  Array dx = stored(rms_normalise_backward(x, parameters.at("norm"), c.eps, dh, run.gradient.at("norm")), c);
  for (std::size_t l = layers.size(); l-- > 0;) {
    Array dy, dq, dk, dv;
    dx = block_reverse(named(l), c, layers[l], dx, dy, run.gradient);
    attend_backward(layers[l].q, layers[l].k, layers[l].v, dy, c, dq, dk, dv);
    dq = stored(dq, c), dk = stored(dk, c), dv = stored(dv, c);
    dx = stored(add(dx, qkv_reverse(named(l), c, layers[l], dq, dk, dv, run.gradient)), c);
  }
  Array& table = run.gradient.at("embedding");
  for (std::int64_t i = 0; i < dx.rows; ++i)
    for (std::int64_t j = 0; j < dx.cols; ++j) table.at(std::int64_t(ids.at(i, 0)), j) += dx.at(i, j);
  return run;
}

}  // namespace reference
