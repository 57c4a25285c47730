// References: linear layers with biases, activations and gates, their backwards; gradients of weights and data;
// dropout.
#pragma once

#include <array>
#include <numbers>

#include "reference_math.h"

namespace reference {

// Activations and their derivatives
// ------------------------------------------------------------------------------------

struct Activation {
  double (*f)(double);
  double (*df)(double);
};

inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }
inline double normal_cdf(double x) { return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)); }
inline double normal_density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
inline double tanh_argument(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }

inline constexpr Activation kSilu = {[](double x) { return x * logistic(x); },
                                     [](double x) { return logistic(x) * (1 + x * (1 - logistic(x))); }};
inline constexpr Activation kGelu = {[](double x) { return x * normal_cdf(x); },
                                     [](double x) { return normal_cdf(x) + x * normal_density(x); }};
inline constexpr Activation kGeluTanh = {[](double x) { return 0.5 * x * (1 + std::tanh(tanh_argument(x))); },
                                         [](double x) {
                                           double t = std::tanh(tanh_argument(x));
                                           double slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
                                           return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope;
                                         }};
inline constexpr Activation kRelu = {[](double x) { return x > 0 ? x : 0; },
                                     [](double x) { return x > 0 ? 1.0 : 0.0; }};

inline Array activate(const Activation& a, const Array& z) {
  return map(z, [&](auto i, auto j) { return a.f(z.at(i, j)); });
}

// Gated linear units
// ---------------------------------------------------------------------------------------------------

inline Arrays gate(const Activation& a, const Array& g, const Array& u) {
  return {{"g", g}, {"u", u}, {"o", map(g, [&](auto i, auto j) { return a.f(g.at(i, j)) * u.at(i, j); })}};
}

template <const Activation& kAct>
Arrays gated(const In& in) {
  return gate(kAct, linear(in["x"], in["wg"]), linear(in["x"], in["wu"]));
}

inline Arrays rmsnorm_swiglu(const In& in) {
  return gate(kSilu, scale_rows(linear(in["x"], in["wg"]), in["r"]), scale_rows(linear(in["x"], in["wu"]), in["r"]));
}

// Row 2j of the packed weight is gate j, row 2j+1 is up j.
inline Arrays swiglu_pairs(const In& in) {
  Array z = linear(in["x"], in["w"]);
  return gate(kSilu, make(z.rows, z.cols / 2, [&](auto i, auto j) { return z.at(i, 2 * j); }),
              make(z.rows, z.cols / 2, [&](auto i, auto j) { return z.at(i, 2 * j + 1); }));
}

inline Arrays swiglu_halves(const In& in) {
  Array z = linear(in["x"], in["w"]);
  return gate(kSilu, columns(z, 0, z.cols / 2), columns(z, z.cols / 2, z.cols / 2));
}

template <const Activation& kAct>
Arrays gated_backward(const In& in) {
  const Array &g = in["g"], &u = in["u"];
  Array d = data_gradient(in["dy"], in["w"]);
  Array dg = map(d, [&](auto i, auto j) { return d.at(i, j) * u.at(i, j) * kAct.df(g.at(i, j)); });
  Array du = map(d, [&](auto i, auto j) { return d.at(i, j) * kAct.f(g.at(i, j)); });
  Array s = row_sum(d, [&](auto i, auto j) { return g.at(i, j) * dg.at(i, j) + u.at(i, j) * du.at(i, j); });
  return {{"dg", dg}, {"du", du}, {"o", gate(kAct, g, u)["o"]}, {"s", s}};
}

inline Arrays swiglu_backward_scaled(const In& in) {
  Arrays out = gated_backward<kSilu>(in);
  for (const char* name : {"dg", "du"}) out[name] = scale_rows(out[name], in["r"]);
  return out;
}

inline Arrays swiglu_pairs_backward(const In& in) {
  Arrays out = gated_backward<kSilu>(in);
  Array dz = make(out["dg"].rows, 2 * out["dg"].cols,
                  [&](auto i, auto j) { return j % 2 == 0 ? out["dg"].at(i, j / 2) : out["du"].at(i, j / 2); });
  return {{"dz", dz}, {"o", out["o"]}};
}

// Biases
// ---------------------------------------------------------------------------------------------------------------

inline Array biased(const In& in) { return add_bias(linear(in["x"], in["w"]), in["bias"]); }

inline Arrays bias(const In& in) { return {{"y", biased(in)}}; }

inline Arrays bias_backward(const In& in) {
  Array dz = data_gradient(in["dy"], in["w"]);
  return {{"dz", dz}, {"dbias", col_sum(dz, [&](auto i, auto j) { return dz.at(i, j); })}};
}

template <const Activation& kAct>
Arrays bias_activation(const In& in) {
  return {{"z", biased(in)}, {"y", activate(kAct, biased(in))}};
}

template <const Activation& kAct>
Arrays bias_activation_backward(const In& in) {
  const Array& z = in["z"];
  Array d = data_gradient(in["dy"], in["w"]);
  Array dz = map(d, [&](auto i, auto j) { return d.at(i, j) * kAct.df(z.at(i, j)); });
  return {{"dz", dz}, {"dbias", col_sum(dz, [&](auto i, auto j) { return dz.at(i, j); })}, {"y", activate(kAct, z)}};
}

inline Arrays softcap(const In& in) {
  Array z = linear(in["x"], in["w"]);
  double cap = in.number("cap");
  return {{"y", map(z, [&](auto i, auto j) { return cap * std::tanh(z.at(i, j) / cap); })}};
}

// The residual stream and segments
// -------------------------------------------------------------------------------------

inline Arrays residual(const In& in) { return {{"x1", add(linear(in["y"], in["w"]), in["x0"])}}; }

inline Arrays bias_residual(const In& in) {
  return {{"x1", add(add_bias(linear(in["y"], in["w"]), in["bias"]), in["x0"])}};
}

inline Arrays residual_concat(const In& in) {
  return {{"x1", add(linear(in["y"], in["w"]), side_by_side(in["xa"], in["xb"]))}};
}

inline Arrays qkv_concat(const In& in) {
  Array qk = side_by_side(linear(in["x"], in["wq"]), linear(in["x"], in["wk"]));
  return {{"qkv", side_by_side(qk, linear(in["x"], in["wv"]))}};
}

inline Arrays bias_qkv_split(const In& in) {
  Array z = biased(in);
  std::int64_t nq = in.size("NQ"), nk = in.size("NK");
  return {{"q", columns(z, 0, nq)}, {"k", columns(z, nq, nk)}, {"v", columns(z, nq + nk, nk)}};
}

// Gradients
// ------------------------------------------------------------------------------------------------------------

inline Arrays data_gradient_plain(const In& in) { return {{"dx", data_gradient(in["dz"], in["w"])}}; }

inline Arrays weight_gradient_into(const In& in) { return {{"dw", add(weight_gradient(in["dz"], in["x"]), in["dw"])}}; }

inline Arrays weight_gradient_store(const In& in) { return {{"dw", weight_gradient(in["dz"], in["x"])}}; }

inline Arrays weight_gradient_glu(const In& in) {
  return {{"dwg", add(weight_gradient(in["dg"], in["x"]), in["dwg"])},
          {"dwu", add(weight_gradient(in["du"], in["x"]), in["dwu"])}};
}

inline Arrays weight_gradient_qkv(const In& in) {
  Arrays out;
  for (const char* name : {"q", "k", "v"}) {
    std::string dw = std::string("dw") + name;
    out[dw] = add(weight_gradient(in[std::string("d") + name], in["x"]), in[dw]);
  }
  return out;
}

inline Arrays lora_down(const In& in) {
  Array z = linear(in["x"], in["wa"]);
  return {{"xa", map(z, [&](auto i, auto j) { return z.at(i, j) * in.number("scale"); })}};
}

inline Arrays lora_linear(const In& in) { return {{"z", add(linear(in["x"], in["w"]), linear(in["xa"], in["wb"]))}}; }

inline Arrays lora_data_gradient(const In& in) {
  return {{"dx", add(data_gradient(in["dz"], in["w"]), data_gradient(in["dxa"], in["wa"]))}};
}

}  // namespace reference
