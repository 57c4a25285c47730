// References: RMSNorm and LayerNorm around GEMMs and alone, their backwards, embeddings, dropout.
#pragma once

#include <array>

#include "reference_linear.h"
#include "reference_math.h"

namespace reference {

// Statistics
// -----------------------------------------------------------------------------------------------------------

inline Array rms_scale(const Array& x, double eps) {
  Array q = row_sum(x, [&](auto i, auto j) { return x.at(i, j) * x.at(i, j); });
  return map(q, [&](auto i, auto) { return 1 / std::sqrt(q.at(i, 0) / double(x.cols) + eps); });
}

inline Array mean_of(const Array& x) {
  return row_sum(x, [&](auto i, auto j) { return x.at(i, j) / double(x.cols); });
}

inline Array deviation_scale(const Array& x, double eps) {
  Array mean = mean_of(x);
  return rms_scale(map(x, [&](auto i, auto j) { return x.at(i, j) - mean.at(i, 0); }), eps);
}

// x ⊙ (offset + γ): the left operand of the GEMM after a norm whose statistic is applied later.
inline Array weighted(const Array& x, const Array& gamma, double offset = 0) {
  return map(x, [&](auto i, auto j) { return x.at(i, j) * (offset + gamma.at(0, j)); });
}

// RMSNorm
// --------------------------------------------------------------------------------------------------------------

inline Arrays rms_partial(const In& in, const Array& x, double offset = 0) {
  return {{"x1", x}, {"h", weighted(x, in["gamma"], offset)}, {"r", rms_scale(x, in.number("eps"))}};
}

template <int kOffset>
Arrays residual_rmsnorm_partial(const In& in) {
  return rms_partial(in, add(linear(in["y"], in["w"]), in["x0"]), kOffset);
}

inline Arrays rmsnorm_partial(const In& in) {
  Arrays out = rms_partial(in, in["x"]);
  out.erase("x1");
  return out;
}

inline Arrays rmsnorm_statistic(const In& in) { return {{"r", rms_scale(in["x"], in.number("eps"))}}; }

template <int kOffset>
Arrays rmsnorm_apply(const In& in) {
  return {{"y", weighted(scale_rows(in["x"], in["r"]), in["gamma"], kOffset)}};
}

inline Arrays rmsnorm_linear(const In& in) { return {{"z", scale_rows(linear(in["x"], in["w"]), in["r"])}}; }

inline Arrays linear_rmsnorm_statistic(const In& in) {
  Array z = linear(in["y"], in["w"]);
  return {{"z", z}, {"r", rms_scale(z, in.number("eps"))}};
}

inline Arrays postnorm_residual_rmsnorm_partial(const In& in) {
  Array x1 = add(in["x0"], weighted(scale_rows(in["z"], in["r"]), in["gamma_post"], 1));
  return {{"x1", x1}, {"h", weighted(x1, in["gamma"], 1)}, {"r1", rms_scale(x1, in.number("eps"))}};
}

// dx and dγ from d = ∂/∂h, h = x r (offset + γ), when s = ⟨d, h⟩ per row is known.
inline Arrays rms_backward(const In& in, const Array& d, const Array& x, double offset = 0) {
  const Array &gamma = in["gamma"], &r = in["r"], &s = in["s"];
  Array dx = map(x, [&](auto i, auto j) {
    double xh = x.at(i, j) * r.at(i, 0);
    double own = in.has("dx_in") ? in["dx_in"].at(i, j) : 0;
    return own + r.at(i, 0) * (d.at(i, j) * (offset + gamma.at(0, j)) - xh * s.at(i, 0) / double(x.cols));
  });
  Array dgamma = col_sum(x, [&](auto i, auto j) { return d.at(i, j) * x.at(i, j) * r.at(i, 0); });
  return {{"dx", dx}, {"dgamma", dgamma}, {"h", weighted(scale_rows(x, r), gamma, offset)}};
}

// D = Σ dz w over the products that the program has.
inline Array gradient_of_products(const In& in) {
  if (in.has("dz")) return data_gradient(in["dz"], in["w"]);
  if (in.has("dg")) return add(data_gradient(in["dg"], in["wg"]), data_gradient(in["du"], in["wu"]));
  Array qk = add(data_gradient(in["dq"], in["wq"]), data_gradient(in["dk"], in["wk"]));
  return add(qk, data_gradient(in["dv"], in["wv"]));
}

template <int kOffset>
Arrays residual_rmsnorm_backward(const In& in) {
  return rms_backward(in, gradient_of_products(in), in["x1"], kOffset);
}

// dz comes scaled by r: divided out here, so that this is the first form again.
inline Arrays residual_rmsnorm_backward_scaled(const In& in) {
  Array d = gradient_of_products(in);
  Arrays out = rms_backward(in, map(d, [&](auto i, auto j) { return d.at(i, j) / in["r"].at(i, 0); }), in["x1"]);
  out.erase("h");
  return out;
}

inline Arrays rmsnorm_row_sum(const In& in) {
  Array y = rmsnorm_apply<0>(in)["y"];
  return {{"s", row_sum(y, [&](auto i, auto j) { return in["dy"].at(i, j) * y.at(i, j); })}};
}

inline Arrays rmsnorm_backward(const In& in) {
  Arrays out = rms_backward(in, in["dy"], in["x"]);
  out.erase("h");
  return out;
}

inline Arrays postnorm_row_sum(const In& in) {
  Array y = weighted(scale_rows(in["z"], in["r"]), in["gamma"], 1);
  return {{"s", row_sum(y, [&](auto i, auto j) { return in["dx"].at(i, j) * y.at(i, j); })}};
}

inline Arrays postnorm_backward(const In& in) {
  Arrays out = rms_backward(in, in["dx"], in["z"], 1);
  return {{"dz", out["dx"]}, {"dgamma", out["dgamma"]}};
}

// LayerNorm
// ------------------------------------------------------------------------------------------------------------

inline Arrays layer_partial(const In& in, const Array& x) {
  return {
      {"x1", x}, {"h", weighted(x, in["gamma"])}, {"mean", mean_of(x)}, {"r", deviation_scale(x, in.number("eps"))}};
}

inline Arrays residual_layernorm_partial(const In& in) { return layer_partial(in, bias_residual(in)["x1"]); }

inline Arrays layernorm_partial(const In& in) {
  Arrays out = layer_partial(in, in["x"]);
  out.erase("x1");
  return out;
}

inline Array normalised(const In& in, const Array& x) {
  return map(x, [&](auto i, auto j) { return (x.at(i, j) - in["mean"].at(i, 0)) * in["r"].at(i, 0); });
}

inline Arrays layernorm_apply(const In& in) {
  return {{"y", add_bias(weighted(normalised(in, in["x"]), in["gamma"]), in["beta"])}};
}

inline Array layernorm_product(const In& in) {
  Array acc = linear(in["x"], in["w"]);
  return map(acc, [&](auto i, auto j) {
    return in["r"].at(i, 0) * (acc.at(i, j) - in["mean"].at(i, 0) * in["c"].at(0, j)) + in["e"].at(0, j);
  });
}

inline Arrays layernorm_linear(const In& in) { return {{"z", layernorm_product(in)}}; }

template <const Activation& kAct>
Arrays layernorm_linear_activation(const In& in) {
  return {{"z", layernorm_product(in)}, {"y", activate(kAct, layernorm_product(in))}};
}

inline Arrays layernorm_weight_scale(const In& in) { return {{"c", linear(in["gamma"], in["w"])}}; }
inline Arrays layernorm_weight_shift(const In& in) {
  return {{"e", add_bias(linear(in["beta"], in["w"]), in["bias"])}};
}

// s1 = ⟨c, dz⟩ and s2 = ⟨z − e, dz⟩ per row, and the bias's gradient.
inline Arrays layer_sums(const In& in, const Array& z, const Array& dz) {
  return {{"s1", row_sum(z, [&](auto i, auto j) { return in["c"].at(0, j) * dz.at(i, j); })},
          {"s2", row_sum(z, [&](auto i, auto j) { return (z.at(i, j) - in["e"].at(0, j)) * dz.at(i, j); })},
          {"dbias", col_sum(z, [&](auto i, auto j) { return dz.at(i, j); })}};
}

inline Arrays layernorm_row_sums(const In& in) {
  Array z = side_by_side(side_by_side(in["q"], in["k"]), in["v"]);
  return layer_sums(in, z, side_by_side(side_by_side(in["dq"], in["dk"]), in["dv"]));
}

template <const Activation& kAct>
Arrays layernorm_linear_activation_backward(const In& in) {
  Arrays out = bias_activation_backward<kAct>(in);
  Arrays sums = layer_sums(in, in["z"], out["dz"]);
  return {{"dz", out["dz"]}, {"y", out["y"]}, {"dbias", sums["dbias"]}, {"s1", sums["s1"]}, {"s2", sums["s2"]}};
}

// dx, dγ, dβ from d = ∂/∂h, h = x̂ γ + β, when s1 = ⟨d, γ⟩ and s2 = ⟨d, x̂ γ⟩ per row are known.
inline Arrays layer_backward(const In& in, const Array& d, const Array& x) {
  const Array &gamma = in["gamma"], &r = in["r"], &s1 = in["s1"], &s2 = in["s2"];
  Array xh = normalised(in, x);
  auto n = double(x.cols);
  Array dx = map(x, [&](auto i, auto j) {
    double inner = d.at(i, j) * gamma.at(0, j) - s1.at(i, 0) / n - xh.at(i, j) * s2.at(i, 0) / n;
    return in["dx_in"].at(i, j) + r.at(i, 0) * inner;
  });
  return {{"dx", dx},
          {"dgamma", col_sum(x, [&](auto i, auto j) { return d.at(i, j) * xh.at(i, j); })},
          {"dbeta", col_sum(x, [&](auto i, auto j) { return d.at(i, j); })}};
}

inline Arrays residual_layernorm_backward(const In& in) {
  Arrays out = layer_backward(in, gradient_of_products(in), in["x1"]);
  out["h"] = add_bias(weighted(normalised(in, in["x1"]), in["gamma"]), in["beta"]);
  return out;
}

inline Arrays layernorm_row_sums_alone(const In& in) {
  Array t = weighted(in["dy"], in["gamma"]), xh = normalised(in, in["x"]);
  return {{"s1", row_sum(t, [&](auto i, auto j) { return t.at(i, j); })},
          {"s2", row_sum(t, [&](auto i, auto j) { return t.at(i, j) * xh.at(i, j); })}};
}

inline Arrays layernorm_backward(const In& in) { return layer_backward(in, in["dy"], in["x"]); }

// The beginning of a stack
// ---------------------------------------------------------------------------------------------

inline Arrays embedding_rmsnorm_partial(const In& in) {
  Arrays out = rms_partial(in, gather(in["table"], in["ids"]));
  return {{"x", out["x1"]}, {"h", out["h"]}, {"r", out["r"]}};
}

inline Arrays embedding_layernorm_partial(const In& in) {
  Arrays out = layer_partial(in, add(gather(in["table"], in["ids"]), gather(in["places"], in["pos"])));
  return {{"x", out["x1"]}, {"h", out["h"]}, {"mean", out["mean"]}, {"r", out["r"]}};
}

}  // namespace reference
