// References: rotary embeddings in both pairings, whole and partial, per-head norms, and their backwards.
#pragma once

#include "reference_math.h"

namespace reference {

enum class Pairing { kHalves, kAdjacent };

// Rotates the first 2·width(cos) columns of every head of `hd` columns; position i is the angle's row. `sign` −1 is the
// transpose.
inline Array rotate(const Array& z, std::int64_t hd, const Array& cos, const Array& sin, Pairing pairing, double sign) {
  Array y = z;
  std::int64_t n = cos.cols;
  for (std::int64_t i = 0; i < z.rows; ++i)
    for (std::int64_t head = 0; head < z.width() / hd; ++head)
      for (std::int64_t j = 0; j < n; ++j) {
        std::int64_t a = head * hd + (pairing == Pairing::kHalves ? j : 2 * j);
        std::int64_t b = pairing == Pairing::kHalves ? a + n : a + 1;
        double c = cos.at(i, j), s = sign * sin.at(i, j);
        y.at(i, a) = z.at(i, a) * c - z.at(i, b) * s;
        y.at(i, b) = z.at(i, a) * s + z.at(i, b) * c;
      }
  return y;
}

struct Angles {
  Array cos, sin;
};

inline Angles angles(const In& in) {
  if (!in.has("freq")) return {gather(in["cos"], in["pos"]), gather(in["sin"], in["pos"])};
  const Array &pos = in["pos"], &freq = in["freq"];
  return {make(pos.rows, freq.cols, [&](auto i, auto j) { return std::cos(pos.at(i, 0) * freq.at(0, j)); }),
          make(pos.rows, freq.cols, [&](auto i, auto j) { return std::sin(pos.at(i, 0) * freq.at(0, j)); })};
}

inline Arrays rope_table(const In& in) {
  Angles a = angles(in);
  return {{"cos", a.cos}, {"sin", a.sin}};
}

// zq, zk and zv, before rotation.
inline Arrays products(const In& in) {
  Arrays z;
  if (in.has("w")) {
    Array all = linear(in["x"], in["w"]);
    std::int64_t nq = in.size("H") * in.size("hd"), nk = in.size("G") * in.size("hd");
    z = {{"q", columns(all, 0, nq)}, {"k", columns(all, nq, nk)}, {"v", columns(all, nq + nk, nk)}};
  } else {
    z = {{"q", linear(in["x"], in["wq"])}, {"k", linear(in["x"], in["wk"])}, {"v", linear(in["x"], in["wv"])}};
  }
  if (in.has("r"))
    for (auto& [name, value] : z) value = scale_rows(value, in["r"]);
  return z;
}

template <Pairing kPairing>
Arrays rope(const In& in) {
  Arrays z = products(in);
  Angles a = angles(in);
  for (const char* name : {"q", "k"}) z[name] = rotate(z[name], in.size("hd"), a.cos, a.sin, kPairing, 1);
  return z;
}

inline double dot(const Array& a, const Array& b, std::int64_t i) {
  double sum = 0;
  for (std::int64_t j = 0; j < a.width(); ++j) sum += a.at(i, j) * b.at(i, j);
  return sum;
}

template <Pairing kPairing>
Arrays rope_backward(const In& in) {
  Angles a = angles(in);
  Arrays out;
  for (const char* name : {"q", "k"})
    out[std::string("dz") + name] = rotate(in[std::string("d") + name], in.size("hd"), a.cos, a.sin, kPairing, -1);
  out["s"] = make(in["q"].rows, 1, [&](auto i, auto) {
    return dot(in["q"], in["dq"], i) + dot(in["k"], in["dk"], i) + dot(in["v"], in["dv"], i);
  });
  return out;
}

// Per-head norms
// -------------------------------------------------------------------------------------------------------

inline double head_scale(const Array& z, std::int64_t i, std::int64_t first, std::int64_t hd, double eps) {
  double q = 0;
  for (std::int64_t j = first; j < first + hd; ++j) q += z.at(i, j) * z.at(i, j);
  return 1 / std::sqrt(q / double(hd) + eps);
}

inline Array head_norm(const Array& z, const Array& gamma, double eps) {
  std::int64_t hd = gamma.width();
  return map(z,
             [&](auto i, auto j) { return z.at(i, j) * head_scale(z, i, j / hd * hd, hd, eps) * gamma.at(0, j % hd); });
}

inline Arrays qknorm_rope(const In& in) {
  Angles a = angles(in);
  Array z = head_norm(scale_rows(linear(in["x"], in["w"]), in["r"]), in["gh"], in.number("eps"));
  return {{"y", rotate(z, in["gh"].width(), a.cos, a.sin, Pairing::kHalves, 1)}};
}

inline Arrays qknorm_rope_gqa(const In& in) {
  Arrays z = products(in);
  Angles a = angles(in);
  Arrays out = {{"zq", z["q"]}, {"zk", z["k"]}, {"v", z["v"]}};
  for (const char* name : {"q", "k"})
    out[name] = rotate(head_norm(z[name], in[std::string("g") + name], in.number("eps")), in.size("hd"), a.cos, a.sin,
                       Pairing::kHalves, 1);
  return out;
}

// dz and dγ of one head after another: n = z r, e = the gradient of n γ.
inline void head_norm_backward(const Array& z, const Array& e, const Array& gamma, double eps, Array& dz,
                               Array& dgamma) {
  std::int64_t hd = gamma.width();
  dz = Array(z.rows, 1, z.width());
  dgamma = Array(1, 1, hd);
  for (std::int64_t i = 0; i < z.rows; ++i)
    for (std::int64_t first = 0; first < z.width(); first += hd) {
      double r = head_scale(z, i, first, hd, eps), along = 0;
      for (std::int64_t j = 0; j < hd; ++j) along += e.at(i, first + j) * gamma.at(0, j) * z.at(i, first + j) * r;
      for (std::int64_t j = 0; j < hd; ++j) {
        double n = z.at(i, first + j) * r;
        dz.at(i, first + j) = r * (e.at(i, first + j) * gamma.at(0, j) - n * along / double(hd));
        dgamma.at(0, j) += e.at(i, first + j) * n;
      }
    }
}

inline Arrays qknorm_rope_backward(const In& in) {
  Angles a = angles(in);
  Arrays out;
  for (const char* c : {"q", "k"}) {
    std::string name = c;
    Array e = rotate(in["d" + name], in.size("hd"), a.cos, a.sin, Pairing::kHalves, -1);
    head_norm_backward(in["z" + name], e, in["g" + name], in.number("eps"), out["dz" + name], out["dg" + name]);
  }
  out["s"] = make(in["v"].rows, 1, [&](auto i, auto) {
    return dot(in["zq"], out["dzq"], i) + dot(in["zk"], out["dzk"], i) + dot(in["v"], in["dv"], i);
  });
  return out;
}

}  // namespace reference
