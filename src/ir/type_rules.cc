// Type rules of the op table; see type_rules.h.
#include "ir/type_rules.h"

#include <fmt/format.h>

#include "coda/error.h"

namespace coda {
namespace {

bool is_wildcard(const Dim& d) { return d.as_symbol().starts_with('?'); }

Type with_cols(const Type& t, const Dim& cols) { return {t.elem, t.rows, t.groups, cols}; }

}  // namespace

void TypeQuery::mistake(const std::string& found, const std::string& allowed, const std::string& way_out) const {
  throw Error({std::string(row.name), found, allowed, way_out});
}

Dim TypeQuery::same(const Dim& a, const Dim& b, const char* what) {
  Dim x = builder.canonical(a), y = builder.canonical(b);
  if (x == y) return x;
  if (is_wildcard(x)) return builder.bind(x.as_symbol(), y), y;
  if (is_wildcard(y)) return builder.bind(y.as_symbol(), x), x;
  mistake(fmt::format("{} {} and {}", what, x.str(), y.str()), fmt::format("the same {}", what));
}

Dim TypeQuery::broadcast(const Dim& a, const Dim& b, const char* what) {
  Dim x = builder.canonical(a), y = builder.canonical(b);
  if (x.is_one()) return y;
  if (y.is_one()) return x;
  if (x == y || is_wildcard(x) || is_wildcard(y)) return same(x, y, what);
  std::string way_out;
  if (std::string_view(what) == "groups" || in.size() < 2 || in[0].groups != in[1].groups)
    way_out = "group(x, width) and flat(x) convert between [M,N] and [M,groups,width].";
  mistake(fmt::format("{} {} and {}", what, x.str(), y.str()), fmt::format("equal {}, or 1", what), way_out);
}

void TypeQuery::need_float(std::size_t i) const {
  if (in[i].elem != Elem::kF32)
    mistake(fmt::format("operand {} of type {}", i + 1, in[i].str()), "f32", "cast(x, f32) converts integers.");
}

namespace rules {
namespace {

Type broadcast_all(TypeQuery& q, Elem elem, std::size_t first = 0) {
  Type t = q.in[first];
  t.elem = elem;
  for (std::size_t i = 0; i < q.in.size(); ++i) {
    t.rows = q.broadcast(t.rows, q.in[i].rows, "rows");
    t.groups = q.broadcast(t.groups, q.in[i].groups, "groups");
    t.cols = q.broadcast(t.cols, q.in[i].cols, "columns");
  }
  return t;
}

void need_alike(TypeQuery& q, std::size_t first) {
  for (std::size_t i = first; i < q.in.size(); ++i)
    if (q.in[i].elem != q.in[first].elem)
      q.mistake(fmt::format("{} and {}", q.in[first].str(), q.in[i].str()), "operands of one element type",
                "cast(x, f32) converts integers.");
}

void need_number(TypeQuery& q, std::size_t first) {
  if (q.in[first].elem == Elem::kBool)
    q.mistake("bool operands", "f32 or i32", "where(c, 1, 0) makes a number of a bool.");
}

Dim halved(TypeQuery& q, const Dim& cols) {
  Dim c = q.builder.canonical(cols);
  if (c.is_constant() && c.eval({}) % 2 != 0)
    q.mistake(fmt::format("an odd width of {} columns", c.str()), "an even width",
              "Pad the columns, or use split(x, a, b).");
  return c / Dim(2);
}

}  // namespace

std::vector<Type> map_float(TypeQuery& q) {
  for (std::size_t i = 0; i < q.in.size(); ++i) q.need_float(i);
  return {broadcast_all(q, Elem::kF32)};
}

std::vector<Type> map_number(TypeQuery& q) {
  need_number(q, 0);
  need_alike(q, 0);
  return {broadcast_all(q, q.in[0].elem)};
}

std::vector<Type> compare(TypeQuery& q) {
  need_number(q, 0);
  need_alike(q, 0);
  return {broadcast_all(q, Elem::kBool)};
}

std::vector<Type> logical(TypeQuery& q) {
  for (const Type& t : q.in)
    if (t.elem != Elem::kBool) q.mistake(t.str(), "bool operands", "A comparison makes a bool.");
  return {broadcast_all(q, Elem::kBool)};
}

std::vector<Type> select(TypeQuery& q) {
  if (q.in[0].elem != Elem::kBool)
    q.mistake("a condition of type " + q.in[0].str(), "bool", "Compare it with something.");
  need_alike(q, 1);
  return {broadcast_all(q, q.in[1].elem, 1)};
}

std::vector<Type> cast(TypeQuery& q) {
  if (q.in[0].elem == Elem::kBool)
    q.mistake("a bool operand", "f32 or i32", "where(c, 1, 0) makes a number of a bool.");
  Type t = q.in[0];
  t.elem = is_float(q.attrs.dtype) ? Elem::kF32 : Elem::kI32;
  return {t};
}

std::vector<Type> pairs(TypeQuery& q) {
  Type t = with_cols(q.in[0], halved(q, q.in[0].cols));
  return {t, t};
}

std::vector<Type> interleave(TypeQuery& q) {
  need_alike(q, 0);
  Type t = broadcast_all(q, q.in[0].elem);
  for (const Type& operand : q.in) q.same(operand.cols, t.cols, "columns");
  t.cols = t.cols * Dim(2);
  return {t};
}

std::vector<Type> concat(TypeQuery& q) {
  need_alike(q, 0);
  Type t = q.in[0];
  for (std::size_t i = 1; i < q.in.size(); ++i) {
    t.rows = q.broadcast(t.rows, q.in[i].rows, "rows");
    t.groups = q.broadcast(t.groups, q.in[i].groups, "groups");
    t.cols = q.builder.canonical(t.cols + q.in[i].cols);
  }
  return {t};
}

std::vector<Type> split(TypeQuery& q) {
  std::vector<Type> out;
  Dim total(0);
  for (const Dim& width : q.attrs.dims) {
    Dim w = q.builder.canonical(width);
    out.push_back(with_cols(q.in[0], w));
    total = total + w;
  }
  Dim cols = q.builder.canonical(q.in[0].cols);
  if (out.empty()) q.mistake("no widths", "split(x, width, …)");
  if (!(total == cols))
    q.mistake(fmt::format("widths that add up to {} of {} columns", total.str(), cols.str()),
              "widths that cover every column");
  return out;
}

std::vector<Type> group(TypeQuery& q) {
  Type t = q.in[0];
  if (q.attrs.dims.size() != 1) q.mistake("no group width", "group(x, width)");
  if (!t.groups.is_one())
    q.mistake("a grouped value " + t.str(), "an ungrouped one", "flat(x) removes the groups first.");
  Dim cols = q.builder.canonical(t.cols), width = q.builder.canonical(q.attrs.dims[0]);
  if (cols.is_one()) q.mistake("a value of one column", "columns to group");
  t.groups = cols / width;
  for (const auto& [monomial, c] : t.groups.terms()) {
    bool whole = c.den == 1;
    for (const auto& factor : monomial) whole = whole && factor.second > 0;
    if (!whole)
      q.mistake(fmt::format("{} columns in groups of {}", cols.str(), width.str()),
                "columns that are a multiple of the width",
                fmt::format("Declare it, e.g. `where N = H*{}`.", width.str()));
  }
  t.cols = width;
  return {t};
}

std::vector<Type> flat(TypeQuery& q) {
  const Type& t = q.in[0];
  return {{t.elem, t.rows, Dim(1), q.builder.canonical(t.groups * t.cols)}};
}

namespace {
Type reduced(const Type& t, Axis axis) {
  Type r = t;
  if (axis == Axis::kC) r.cols = 1;
  if (axis == Axis::kG) r.groups = 1;
  if (axis == Axis::kN || axis == Axis::kMN) r.groups = r.cols = 1;
  if (axis == Axis::kM || axis == Axis::kMN) r.rows = 1;
  return r;
}
}  // namespace

std::vector<Type> reduce(TypeQuery& q) {
  q.need_float(0);
  return {reduced(q.in[0], q.attrs.axis)};
}

std::vector<Type> argmax(TypeQuery& q) {
  q.need_float(0);
  if (q.attrs.axis != Axis::kN && q.attrs.axis != Axis::kM)
    q.mistake("argmax_" + std::string(suffix(q.attrs.axis)), "argmax_n or argmax_m");
  Type value = reduced(q.in[0], q.attrs.axis), index = value;
  index.elem = Elem::kI32;
  return {value, index};
}

std::vector<Type> logsumexp(TypeQuery& q) {
  for (std::size_t i = 0; i < q.in.size(); ++i) q.need_float(i);
  Type t = q.in.size() == 2 ? broadcast_all(q, Elem::kF32) : q.in[0];
  if (q.attrs.axis == Axis::kC || q.attrs.axis == Axis::kG)
    q.mistake("logsumexp_" + std::string(suffix(q.attrs.axis)), "logsumexp_n, logsumexp_m or logsumexp_mn");
  return std::vector<Type>(q.in.size() + 1, reduced(t, q.attrs.axis));
}

std::vector<Type> moments(TypeQuery& q) {
  q.need_float(0);
  if (q.attrs.axis == Axis::kC || q.attrs.axis == Axis::kG)
    q.mistake("moments_" + std::string(suffix(q.attrs.axis)), "moments_n, moments_m or moments_mn");
  return {reduced(q.in[0], q.attrs.axis), reduced(q.in[0], q.attrs.axis)};
}

std::vector<Type> literal(TypeQuery& q) { return {{is_float(q.attrs.dtype) ? Elem::kF32 : Elem::kI32, 1, 1, 1}}; }

std::vector<Type> size_value(TypeQuery& q) {
  if (q.attrs.dims.size() != 1) q.mistake("no size", "one size");
  return {{Elem::kF32, 1, 1, 1}};
}

std::vector<Type> row_index(TypeQuery& q) { return {{Elem::kI32, q.wildcard(), 1, 1}}; }
std::vector<Type> col_index(TypeQuery& q) { return {{Elem::kI32, 1, 1, q.wildcard()}}; }

std::vector<Type> uniform(TypeQuery& q) {
  for (const Type& t : q.in)
    if (t.elem != Elem::kI32 || !t.rows.is_one() || !t.width().is_one())
      q.mistake("a seed or offset of type " + t.str(), "i32[1,1]",
                "Seed and offset live in device memory, so a replay can change them.");
  return {{Elem::kF32, q.wildcard(), 1, q.wildcard()}};
}

std::vector<Type> cis(TypeQuery& q) {
  if (q.in[0].elem != Elem::kI32 || !q.in[0].width().is_one())
    q.mistake("positions of type " + q.in[0].str(), "i32[M,1]");
  q.need_float(1);
  if (!q.in[1].rows.is_one()) q.mistake("frequencies of type " + q.in[1].str(), "f32[1,hd/2]");
  Type t{Elem::kF32, q.in[0].rows, 1, q.in[1].cols};
  return {t, t};
}

std::vector<Type> gather(TypeQuery& q) {
  if (q.in[1].elem != Elem::kI32 || !q.in[1].width().is_one())
    q.mistake("an index of type " + q.in[1].str(), "i32[M,1]");
  Type t = q.in[0];
  t.rows = q.in[1].rows;
  return {t};
}

std::vector<Type> matmul(TypeQuery& q) {
  for (std::size_t i = 0; i < 2; ++i) {
    q.need_float(i);
    if (!q.in[i].groups.is_one())
      q.mistake("a grouped operand " + q.in[i].str(), "matrices", "flat(x) removes the groups.");
  }
  auto axis = [&](std::size_t i, int which) { return which == 0 ? q.in[i].rows : q.in[i].cols; };
  q.same(axis(0, q.attrs.a_axis), axis(1, q.attrs.b_axis), "contracted size");
  return {{Elem::kF32, axis(0, 1 - q.attrs.a_axis), 1, axis(1, 1 - q.attrs.b_axis)}};
}

namespace {
void need_scalar(TypeQuery& q, std::size_t i, const char* what) {
  if (!q.in[i].rows.is_one() || !q.in[i].width().is_one())
    q.mistake(fmt::format("{} of type {}", what, q.in[i].str()), "one number");
}
void need_column_vector(TypeQuery& q, std::size_t i, const char* what) {
  q.need_float(i);
  if (!q.in[i].rows.is_one()) q.mistake(fmt::format("{} of type {}", what, q.in[i].str()), "one row: [1,N]");
  q.same(q.in[i].cols, q.in[0].cols, "columns");
}
}  // namespace

std::vector<Type> rmsnorm(TypeQuery& q) {
  q.need_float(0);
  need_column_vector(q, 1, "gamma");
  need_scalar(q, 2, "eps");
  return {q.in[0]};
}

std::vector<Type> layernorm(TypeQuery& q) {
  q.need_float(0);
  need_column_vector(q, 1, "gamma");
  need_column_vector(q, 2, "beta");
  need_scalar(q, 3, "eps");
  return {q.in[0]};
}

std::vector<Type> gated(TypeQuery& q) { return map_float(q); }

std::vector<Type> rope(TypeQuery& q) {
  for (std::size_t i = 0; i < 3; ++i) q.need_float(i);
  q.same(q.in[1].cols, q.in[2].cols, "columns of cos and sin");
  Type t = q.in[0];
  t.rows = q.broadcast(q.broadcast(t.rows, q.in[1].rows, "rows"), q.in[2].rows, "rows");
  halved(q, t.cols);
  if (!q.in[1].groups.is_one() || !q.in[2].groups.is_one()) q.mistake("grouped cos or sin", "[M,rotary_dim/2]");
  return {t};
}

std::vector<Type> qk_norm(TypeQuery& q) {
  q.need_float(0);
  need_column_vector(q, 1, "gamma");
  need_scalar(q, 2, "eps");
  return {q.in[0]};
}

std::vector<Type> cross_entropy(TypeQuery& q) {
  q.need_float(0);
  if (!q.in[0].groups.is_one()) q.mistake("grouped logits", "[M,V]");
  if (q.in[1].elem != Elem::kI32 || !q.in[1].width().is_one())
    q.mistake("targets of type " + q.in[1].str(), "i32[M,1]");
  if (q.in[2].elem != Elem::kI32) q.mistake("ignore_index of type " + q.in[2].str(), "an i32 number");
  need_scalar(q, 2, "ignore_index");
  return {{Elem::kF32, q.broadcast(q.in[0].rows, q.in[1].rows, "rows"), 1, 1}};
}

namespace {
void check_attention(TypeQuery& q) {
  if (q.attrs.dims.size() != 3) q.mistake("no sizes", "attention(q, k, v, batch, heads, kv_heads)");
  for (std::size_t i = 0; i < q.in.size(); ++i) {
    q.need_float(i);
    if (!q.in[i].groups.is_one())
      q.mistake("a grouped operand " + q.in[i].str(), "[tokens, heads*head_dim]", "flat(x) removes the groups.");
    q.same(q.in[i].rows, q.in[0].rows, "rows");
  }
  Dim head = q.builder.canonical(q.in[0].cols) / q.builder.canonical(q.attrs.dims[1]);
  Dim kv = head * q.builder.canonical(q.attrs.dims[2]);
  q.same(q.in[1].cols, kv, "columns of k and kv_heads*head_dim");
  q.same(q.in[2].cols, kv, "columns of v and kv_heads*head_dim");
}
}  // namespace

std::vector<Type> attention(TypeQuery& q) {
  check_attention(q);
  return {q.in[0], {Elem::kF32, q.in[0].rows, 1, q.builder.canonical(q.attrs.dims[1])}};
}

std::vector<Type> attention_grad(TypeQuery& q) {
  check_attention(q);
  q.same(q.in[3].cols, q.in[0].cols, "columns of the gradient and of q");
  return {q.in[0], q.in[1], q.in[2]};
}

std::vector<Type> scatter_sum(TypeQuery& q) {
  q.need_float(0);
  if (q.attrs.dims.size() != 1) q.mistake("no number of rows", "scatter_sum(g, index, rows)");
  if (q.in[1].elem != Elem::kI32 || !q.in[1].width().is_one())
    q.mistake("an index of type " + q.in[1].str(), "i32[M,1]");
  q.same(q.in[0].rows, q.in[1].rows, "rows");
  Type t = q.in[0];
  t.rows = q.builder.canonical(q.attrs.dims[0]);
  return {t};
}

}  // namespace rules
}  // namespace coda
