// Derivative rows of shape operations, tables, matmul, attention and the reductions. See grad_rows.h.
#include "coda/error.h"
#include "ir/grad_tools.h"

namespace coda::grads {

void pairs(GradFrame& f) { f.din[0] = coda::interleave(full(f, 0), full(f, 1)); }

void interleave(GradFrame& f) {
  std::vector<Val> parts = coda::pairs(full(f, 0));
  f.din = {parts[0], parts[1]};
}

void halves(GradFrame& f) { split(f); }

void concat(GradFrame& f) {
  std::vector<DimArg> widths;
  for (const Val& v : f.in) widths.emplace_back(v.type().cols);
  std::vector<Val> parts = coda::split(full(f, 0), widths);
  f.din.assign(parts.begin(), parts.end());
}

void split(GradFrame& f) {
  std::vector<Val> parts;
  for (std::size_t i = 0; i < f.out.size(); ++i) parts.push_back(full(f, i));
  f.din[0] = coda::concat(parts);
}

void group(GradFrame& f) { f.din[0] = coda::flat(full(f, 0)); }

void flat(GradFrame& f) {
  Val d = full(f, 0);
  f.din[0] = f.in[0].type().groups.is_one() ? d : coda::group(d, DimArg(f.in[0].type().cols));
}

void reduce_sum(GradFrame& f) { f.din[0] = *f.dout[0]; }  // constant along the reduction

void reduce_max(GradFrame& f) {
  f.din[0] = coda::where(first_maximum(f.in[0], f.out[0], f.attrs.axis), *f.dout[0], zero(f.builder));
}

// The index is an integer; the value's gradient is that of max.
void argmax(GradFrame& f) {
  if (f.dout[0]) reduce_max(f);
}

// m: the one-hot of its lowest index; l: softmax − that one-hot; payload p: softmax (w − p) and softmax.
void logsumexp(GradFrame& f) {
  GraphBuilder& b = f.builder;
  Val m = f.out[0], l = f.out[1], none = zero(b);
  Type extent = f.in[0].type();
  bool payload = f.in.size() == 2;
  if (payload) extent = (f.in[0] + f.in[1]).type();
  Val z = broadcast_to(f.in[0], extent);
  // l < 0 only where a row is empty or all −∞ (l = −∞): nothing to share out there. NaN passes.
  Val softmax = coda::where(binary(Op::kLt, l, none), none, unary(Op::kExp, (z - m) - l));
  std::optional<Val> dz;
  auto add_to_dz = [&](Val term) { dz = dz ? *dz + term : term; };
  if (f.dout[1]) add_to_dz(softmax * *f.dout[1]);
  bool lse_only = f.dout[0] && f.dout[1] && f.dout[0]->id == f.dout[1]->id;  // of m + l: the one-hots cancel
  if (!lse_only && (f.dout[0] || f.dout[1])) {
    Val dm = f.dout[0] ? *f.dout[0] : none;
    Val share = f.dout[1] ? dm - *f.dout[1] : dm;
    add_to_dz(coda::where(first_maximum(z, m, f.attrs.axis), share, none));
  }
  if (payload && f.dout[2]) {
    Val weighted = softmax * (f.in[1] - f.out[2]) * *f.dout[2];
    add_to_dz(coda::where(binary(Op::kEq, softmax, none), none, weighted));  // 0·∞ takes no part
    f.din[1] = broadcast_to(softmax * *f.dout[2], extent);
  }
  f.din[0] = dz;
}

// mean: 1/count; M2: 2 (x − mean), whose dependence on the mean sums to zero.
void moments(GradFrame& f) {
  if (f.dout[0]) f.din[0] = *f.dout[0] / count_of(f.builder, f.attrs.axis, f.in[0].type());
  if (!f.dout[1]) return;
  Val d = *f.dout[1] * 2.0 * (f.in[0] - f.out[0]);
  f.din[0] = f.din[0] ? *f.din[0] + d : d;
}

// d cos = −sin·pos, d sin = cos·pos, with respect to the frequency.
void cis(GradFrame& f) {
  Val turn = full(f, 1) * f.out[0] - full(f, 0) * f.out[1];
  f.din[1] = turn * coda::cast(f.in[0], DType::kF32);
}

void gather(GradFrame& f) {
  Attrs rows;
  rows.dims = {f.in[0].type().rows};
  f.din[0] = f.builder.apply1(Op::kScatterSum, {full(f, 0), f.in[1]}, rows);
}

void scatter_sum(GradFrame& f) { f.din[0] = coda::gather(full(f, 0), f.in[1]); }

// Z[i,j] = Σ_k A(i,k) B(k,j): dA = dZ·Bᵀ and dB = Aᵀ·dZ, laid out as A and B are.
void matmul(GradFrame& f) {
  Val d = full(f, 0), a = f.in[0], b = f.in[1];
  int a_free = 1 - f.attrs.a_axis, b_free = 1 - f.attrs.b_axis;
  f.din[0] = f.attrs.a_axis == 1 ? coda::matmul(d, 1, b, b_free) : coda::matmul(b, b_free, d, 1);
  f.din[1] = f.attrs.b_axis == 1 ? coda::matmul(d, 0, a, a_free) : coda::matmul(a, a_free, d, 0);
}

void attention(GradFrame& f) {
  if (f.dout[1])
    throw Error({"attention", "a gradient of its second result, lse", "gradients of its first result",
                 "Leave lse out of the loss."});
  std::vector<Val> d = f.builder.apply(Op::kAttentionGrad, {f.in[0], f.in[1], f.in[2], full(f, 0)}, f.attrs);
  f.din.assign(d.begin(), d.end());
}

}  // namespace coda::grads
