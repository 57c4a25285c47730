// References: cross-entropy with every option, its gradient, and heads that predict. An option that a program does not
// have is absent from its inputs.
#pragma once

#include "reference_math.h"

namespace reference {

struct Options {
  double scale = 1, cap = 0, smoothing = 0, z_loss = 0;
  bool capped = false;

  explicit Options(const In& in) {
    if (in.has("scale")) scale = in.number("scale");
    if (in.has("cap")) cap = in.number("cap"), capped = true;
    if (in.has("smoothing")) smoothing = in.number("smoothing");
    if (in.has("z_loss")) z_loss = in.number("z_loss");
  }
};

// The raw product; the norm's r belongs to it, bias, scale and softcap do not.
inline Array raw_logits(const In& in) {
  Array z = linear(in["x"], in["w"]);
  return in.has("r") ? scale_rows(z, in["r"]) : z;
}

inline Array logits(const In& in) {
  Options o(in);
  Array raw = raw_logits(in);
  return map(raw, [&](auto i, auto j) {
    double z = (raw.at(i, j) + (in.has("bias") ? in["bias"].at(0, j) : 0)) * o.scale;
    return o.capped ? o.cap * std::tanh(z / o.cap) : z;
  });
}

inline bool ignored(const In& in, std::int64_t i) {
  return in.has("ignore") && in["t"].at(i, 0) == in.number("ignore");
}

inline Array row_max(const Array& z) {
  return make(z.rows, 1, [&](auto i, auto) {
    double m = -INFINITY;
    for (std::int64_t j = 0; j < z.cols; ++j) m = std::max(m, z.at(i, j));
    return m;
  });
}

// ln Σ exp(z − m).
inline Array log_sum(const Array& z, const Array& m) {
  Array sum = row_sum(z, [&](auto i, auto j) { return std::exp(z.at(i, j) - m.at(i, 0)); });
  return map(sum, [&](auto i, auto) { return std::log(sum.at(i, 0)); });
}

// −Σ target ln softmax + λ lse², with the target (1−ε) onehot + ε/V.
inline Arrays cross_entropy(const In& in) {
  Options o(in);
  Array z = logits(in), m = row_max(z), l = log_sum(z, m), zt(z.rows, 1, 1), loss(z.rows, 1, 1);
  for (std::int64_t i = 0; i < z.rows; ++i) {
    double lse = m.at(i, 0) + l.at(i, 0);
    for (std::int64_t j = 0; j < z.cols; ++j) {
      bool hit = double(j) == in["t"].at(i, 0);
      if (hit) zt.at(i, 0) = z.at(i, j);
      double target = (hit ? 1 - o.smoothing : 0) + o.smoothing / double(z.cols);
      loss.at(i, 0) -= target * (z.at(i, j) - lse);
    }
    loss.at(i, 0) += o.z_loss * lse * lse;
    if (ignored(in, i)) loss.at(i, 0) = 0;
    if (in.has("weight")) loss.at(i, 0) *= in["weight"].at(std::int64_t(in["t"].at(i, 0)), 0);
  }
  return {{"m", m}, {"l", l}, {"zt", zt}, {"loss", loss}};
}

inline Arrays cross_entropy_logits(const In& in) {
  Arrays out = cross_entropy(in);
  out["z"] = logits(in);
  return out;
}

inline Arrays cross_entropy_mean(const In& in) {
  Arrays out = cross_entropy(in);
  Array total(1, 1, 1), count(1, 1, 1);
  for (std::int64_t i = 0; i < out["loss"].rows; ++i) {
    total.at(0, 0) += out["loss"].at(i, 0);
    count.at(0, 0) += ignored(in, i) ? 0 : 1;
  }
  out["mean"] = Array(1, 1, 1, total.at(0, 0) / count.at(0, 0));
  out["total"] = total;
  out["count"] = count;
  return out;
}

// The gradient of g·loss for the raw product, by the chain rule through softcap and scale.
inline Arrays cross_entropy_backward(const In& in) {
  Options o(in);
  Array raw = raw_logits(in), z = logits(in);
  Array dz = map(z, [&](auto i, auto j) {
    if (ignored(in, i)) return 0.0;
    double lse = in["m"].at(i, 0) + in["l"].at(i, 0), p = std::exp(z.at(i, j) - lse);
    double target = (double(j) == in["t"].at(i, 0) ? 1 - o.smoothing : 0) + o.smoothing / double(z.cols);
    double slope = o.capped ? 1 - std::pow(z.at(i, j) / o.cap, 2) : 1;
    return in["g"].at(i, 0) * (p - target + 2 * o.z_loss * lse * p) * slope * o.scale;
  });
  Arrays out = {{"dz", dz}};
  if (in.has("bias")) out["dbias"] = col_sum(dz, [&](auto i, auto j) { return dz.at(i, j); });
  if (in.has("r")) out["s"] = row_sum(dz, [&](auto i, auto j) { return raw.at(i, j) * dz.at(i, j); });
  return out;
}

inline Arrays cross_entropy_backward_stored(const In& in) {
  const Array& z = in["z"];
  return {{"dz", map(z, [&](auto i, auto j) {
             if (ignored(in, i)) return 0.0;
             double p = std::exp(z.at(i, j) - in["m"].at(i, 0) - in["l"].at(i, 0));
             return in["g"].at(i, 0) * (p - (double(j) == in["t"].at(i, 0) ? 1 : 0));
           })}};
}

inline Arrays rmsnorm_argmax(const In& in) {
  Array z = raw_logits(in), m = row_max(z), l = log_sum(z, m), token(z.rows, 1, 1);
  for (std::int64_t i = 0; i < z.rows; ++i)
    while (z.at(i, std::int64_t(token.at(i, 0))) != m.at(i, 0)) ++token.at(i, 0);
  return {{"token", token}, {"logprob", map(l, [&](auto i, auto) { return -l.at(i, 0); })}};
}

inline Arrays rmsnorm_entropy(const In& in) {
  Array z = raw_logits(in), m = row_max(z), l = log_sum(z, m);
  Array entropy = row_sum(z, [&](auto i, auto j) {
    double log_p = z.at(i, j) - m.at(i, 0) - l.at(i, 0);
    return -std::exp(log_p) * log_p;
  });
  return {{"m", m}, {"l", l}, {"entropy", entropy}};
}

}  // namespace reference
