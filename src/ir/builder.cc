// GraphBuilder: the only maker of graphs. Every value is typed when it is made; see include/coda/builder.h.
#include "coda/builder.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>

#include "coda/error.h"
#include "ir/type_rules.h"

namespace coda {

const Type& Val::type() const { return builder->value(id).type; }

namespace {

// Names must survive printing: letters, digits and _, not starting with a digit.
void check_name(const std::string& what, const std::string& name) {
  bool ok = !name.empty() && (std::isalpha(static_cast<unsigned char>(name[0])) != 0 || name[0] == '_');
  for (char c : name) ok = ok && (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_');
  if (!ok) throw Error({what, "the name '" + name + "'", "letters, digits and _, not starting with a digit", ""});
}

}  // namespace

GraphBuilder::GraphBuilder(std::string name) : d_(std::make_unique<Graph::Data>()) { d_->name = std::move(name); }
GraphBuilder::~GraphBuilder() = default;

void GraphBuilder::mark_program() { d_->is_program = true; }
void GraphBuilder::set_reassociate(bool on) { d_->reassociate = on; }

const Value& GraphBuilder::value(ValueId v) const { return d_->values[static_cast<std::size_t>(v)]; }
const Node& GraphBuilder::def(ValueId v) const { return d_->nodes[static_cast<std::size_t>(value(v).node)]; }

Dim GraphBuilder::canonical(const Dim& d) const {
  Dim result = d;
  for (const Where& w : d_->wheres) result = result.substitute(w.size, w.value);
  return result;
}

void GraphBuilder::where(const std::string& size, const DimArg& value) {
  for (const Where& w : d_->wheres)
    if (w.size == size) throw Error({"where " + size, "defined twice", "one definition a size", ""});
  Dim d = canonical(value.dim);
  for (const std::string& s : d.symbols())
    if (s == size) throw Error({"where " + size, "defined by itself: " + d.str(), "an expression of other sizes", ""});
  bind(size, d);
  d_->wheres.push_back({size, d});
}

// Replaces a size by an expression everywhere: a wildcard that found its partner, or a `where`.
void GraphBuilder::bind(const std::string& symbol, const Dim& d) {
  auto replace = [&](Dim& x) { x = x.substitute(symbol, d); };
  for (Value& v : d_->values) {
    replace(v.type.rows);
    replace(v.type.groups);
    replace(v.type.cols);
  }
  for (Node& n : d_->nodes)
    for (Dim& x : n.attrs.dims) replace(x);
  for (Input& i : d_->inputs)
    for (Dim& x : i.dims) replace(x);
  for (Where& w : d_->wheres) replace(w.value);
  // A bound wildcard may still be in a caller's copy of a type; canonical() then resolves it like a `where`.
  if (symbol.starts_with('?')) d_->wheres.push_back({symbol, d});
}

Dim GraphBuilder::fresh_wildcard() { return Dim::symbol("?" + std::to_string(wildcards_++)); }

ValueId GraphBuilder::add_value(Type t, int node, int result) {
  Value v;
  v.type = std::move(t);
  v.node = node;
  v.result = result;
  d_->values.push_back(std::move(v));
  return static_cast<ValueId>(d_->values.size() - 1);
}

std::vector<Val> GraphBuilder::add_node(Op op, const std::vector<ValueId>& operands, Attrs attrs,
                                        const std::vector<Type>& types) {
  int node = static_cast<int>(d_->nodes.size());
  d_->nodes.push_back({op, operands, std::move(attrs), {}});
  std::vector<Val> results;
  for (std::size_t i = 0; i < types.size(); ++i) {
    ValueId v = add_value(types[i], node, static_cast<int>(i));
    d_->nodes.back().results.push_back(v);
    results.push_back({this, v});
  }
  return results;
}

Val GraphBuilder::input(const std::string& name, DType dtype, const std::vector<DimArg>& dims) {
  check_name("input", name);
  for (const Input& i : d_->inputs)
    if (i.name == name) throw Error({"input " + name, "declared twice", "one declaration a name", ""});
  if (dims.size() != 2 && dims.size() != 3)
    throw Error({"input " + name, fmt::format("{} dimensions", dims.size()),
                 "2 or 3: [rows, columns] or [rows, groups, columns]",
                 "A vector is [M,1] per row or [1,N] per column."});
  Input in;
  in.name = name;
  in.dtype = dtype;
  for (const DimArg& d : dims) in.dims.push_back(canonical(d.dim));
  Type t{is_float(dtype) ? Elem::kF32 : Elem::kI32, in.dims[0], dims.size() == 3 ? in.dims[1] : Dim(1), in.dims.back()};
  Val v = add_node(Op::kInput, {}, {}, {t})[0];
  in.value = v.id;
  d_->inputs.push_back(std::move(in));
  set_name(v, name);
  return v;
}

Val GraphBuilder::launch_const(const std::string& name, DType dtype) {
  if (dtype != DType::kF32 && dtype != DType::kI32)
    throw Error({"const " + name, std::string(coda::name(dtype)), "f32 or i32", ""});
  Val v = input(name, dtype, {1, 1});
  d_->inputs.back().dims.clear();
  d_->inputs.back().is_const = true;
  return v;
}

Val GraphBuilder::literal(double number) {
  Attrs a;
  a.number = number;
  return apply1(Op::kLiteral, {}, a);
}

Val GraphBuilder::integer(std::int64_t number) {
  if (number < INT32_MIN || number > INT32_MAX) throw Error({"literal", std::to_string(number), "32-bit integers", ""});
  Attrs a;
  a.number = static_cast<double>(number);
  a.dtype = DType::kI32;
  return apply1(Op::kLiteral, {}, a);
}

Val GraphBuilder::size(const DimArg& d) {
  Attrs a;
  a.dims = {canonical(d.dim)};
  return apply1(Op::kSize, {}, a);
}

std::vector<Val> GraphBuilder::apply(Op op, const std::vector<Val>& operands, Attrs attrs) {
  const OpRow& r = row(op);
  if (op == Op::kInput) throw Error({"input", "apply()", "input()", ""});
  std::size_t least = static_cast<std::size_t>(r.operands),
              most = least + static_cast<std::size_t>(r.optional_operands);
  if (operands.size() < least || (operands.size() > most && !r.has(kVariadicTrait)))
    throw Error({std::string(r.name), fmt::format("{} operands", operands.size()),
                 r.has(kVariadicTrait) ? fmt::format("at least {}", least)
                 : least == most       ? std::to_string(least)
                                       : fmt::format("{} to {}", least, most),
                 ""});
  std::vector<Val> in = operands;
  for (const Val& v : in)
    CODA_CHECK(v.builder == this, "a value of another builder was used in " + std::string(r.name));
  // A whole number written next to an integer is an integer.
  bool any_integer = false;
  for (const Val& v : in) any_integer = any_integer || v.type().elem == Elem::kI32;
  if (any_integer && r.has(kMapTrait))
    for (Val& v : in) {
      const Node& n = def(v.id);
      double x = n.attrs.number;
      if (n.op == Op::kLiteral && n.attrs.dtype == DType::kF32 && x == std::trunc(x) && std::fabs(x) < 2147483648.0)
        v = integer(static_cast<std::int64_t>(x));
    }
  for (Dim& d : attrs.dims) d = canonical(d);
  TypeQuery q{*this, r, attrs, {}};
  std::vector<ValueId> ids;
  for (const Val& v : in) {
    q.in.push_back(v.type());
    ids.push_back(v.id);
  }
  std::vector<Type> types = r.type_rule(q);
  for (Type& t : types) t = {t.elem, canonical(t.rows), canonical(t.groups), canonical(t.cols)};
  return add_node(op, ids, std::move(attrs), types);
}

Val GraphBuilder::apply1(Op op, const std::vector<Val>& operands, Attrs attrs) {
  std::vector<Val> results = apply(op, operands, std::move(attrs));
  if (results.size() != 1)
    throw Error({std::string(row(op).name), fmt::format("{} results used as one", results.size()),
                 "one name for each result", ""});
  return results[0];
}

void GraphBuilder::set_name(Val v, const std::string& name) { d_->values[static_cast<std::size_t>(v.id)].name = name; }
void GraphBuilder::set_scope(Val v, const std::string& scope) {
  d_->values[static_cast<std::size_t>(v.id)].scope = scope;
}

void GraphBuilder::output(const std::string& name, DType dtype, Val v, bool accumulate, const std::string& over) {
  const Type& t = v.type();
  auto where_it_is = "out " + name;
  check_name("out", name);
  for (const Output& o : d_->outputs)
    if (o.name == name) throw Error({where_it_is, "declared twice", "one declaration a name", ""});
  if (t.elem == Elem::kBool)
    throw Error({where_it_is, "a bool value", "f32 or i32", "where(c, 1, 0) makes a number of a bool."});
  if ((t.elem == Elem::kF32) != is_float(dtype))
    throw Error({where_it_is, fmt::format("{} stored as {}", t.str(), coda::name(dtype)),
                 t.elem == Elem::kF32 ? "f32, bf16, f16" : "i32", "cast(x, …) converts."});
  if (accumulate && dtype != DType::kF32)
    throw Error({where_it_is, fmt::format("+= into {}", coda::name(dtype)), "+= into f32",
                 "Nothing accumulates in 16 bits; declare the output f32."});
  if (!over.empty()) {
    const Input* reused = nullptr;
    for (const Input& i : d_->inputs)
      if (i.name == over) reused = &i;
    if (reused == nullptr || reused->is_const)
      throw Error({where_it_is, "over " + over, "the name of a tensor input", ""});
    const Type& old = value(reused->value).type;
    if (!(old.rows == t.rows && old.width() == t.width()) || reused->dtype != dtype)
      throw Error({where_it_is,
                   fmt::format("{} {} over {} {}", coda::name(dtype), t.str(), coda::name(reused->dtype), old.str()),
                   "an input of the same shape and dtype", ""});
    if (accumulate)
      throw Error({where_it_is, "both += and over", "one of them", "+= already adds to what the memory holds."});
  }
  for (const Output& o : d_->outputs)
    if (!over.empty() && o.over == over)
      throw Error({where_it_is, "over " + over + ", which " + o.name + " already reuses", "one output an input", ""});
  d_->outputs.push_back({name, dtype, v.id, accumulate, over});
}

void GraphBuilder::output(const std::string& name, DType dtype, const std::vector<DimArg>& dims, Val v, bool accumulate,
                          const std::string& over) {
  Type t = v.type();
  if (dims.size() != 2 && dims.size() != 3)
    throw Error({"out " + name, fmt::format("{} dimensions", dims.size()),
                 "2 or 3: [rows, columns] or [rows, groups, columns]", ""});
  Type declared{t.elem, canonical(dims[0].dim), dims.size() == 3 ? canonical(dims[1].dim) : Dim(1),
                canonical(dims.back().dim)};
  // col(), row() and uniform() alone may still be of open size: the declaration fixes it.
  auto settle = [&](const Dim& open, const Dim& fixed) {
    if (open.as_symbol().starts_with('?')) bind(open.as_symbol(), fixed);
  };
  settle(t.rows, declared.rows);
  settle(t.cols, declared.cols);
  t = v.type();
  if (!(declared == t)) {
    std::string hint = declared.width() == t.width() ? "flat(x) and group(x, width) convert between them." : "";
    throw Error(
        {"out " + name, "declared " + declared.str() + " but its value is " + t.str(), "the value's shape", hint});
  }
  output(name, dtype, v, accumulate, over);
}

Graph GraphBuilder::build_graph() {
  Graph::Data& d = *d_;
  if (d.outputs.empty()) throw Error({d.name, "no outputs", "at least one `out`", "Store something."});
  std::vector<bool> live(d.nodes.size(), false);
  for (const Output& o : d.outputs) live[static_cast<std::size_t>(value(o.value).node)] = true;
  for (std::size_t i = d.nodes.size(); i-- > 0;) {
    if (d.nodes[i].op == Op::kInput) live[i] = true;
    if (!live[i]) continue;
    for (ValueId v : d.nodes[i].operands) live[static_cast<std::size_t>(value(v).node)] = true;
  }
  auto result = std::make_shared<Graph::Data>();
  std::vector<ValueId> renumber(d.values.size(), -1);
  for (std::size_t i = 0; i < d.nodes.size(); ++i) {
    if (!live[i]) continue;
    Node n = d.nodes[i];
    for (ValueId& v : n.operands) v = renumber[static_cast<std::size_t>(v)];
    for (ValueId& v : n.results) {
      Value copy = value(v);
      for (const Dim* x : {&copy.type.rows, &copy.type.groups, &copy.type.cols})
        for (const std::string& s : x->symbols())
          if (s.starts_with('?'))
            throw Error({d.name, std::string(row(n.op).name) + "() whose size nothing fixes",
                         "a map with a tile, or an output of declared size", ""});
      copy.node = static_cast<int>(result->nodes.size());
      result->values.push_back(std::move(copy));
      v = renumber[static_cast<std::size_t>(v)] = static_cast<ValueId>(result->values.size() - 1);
    }
    result->nodes.push_back(std::move(n));
  }
  result->name = d.name;
  result->is_program = d.is_program;
  result->reassociate = d.reassociate;
  for (const Where& w : d.wheres)
    if (!w.size.starts_with('?')) result->wheres.push_back(w);
  result->inputs = d.inputs;
  for (Input& i : result->inputs) i.value = renumber[static_cast<std::size_t>(i.value)];
  result->outputs = d.outputs;
  for (Output& o : result->outputs) o.value = renumber[static_cast<std::size_t>(o.value)];
  d_ = std::make_unique<Graph::Data>();
  return Graph(std::move(result));
}

// Free functions ---------------------------------------------------------------------------------------------------

Val matmul(Val a, Val b) {
  GraphBuilder& g = *a.builder;
  const Type &ta = a.type(), &tb = b.type();
  std::vector<std::pair<int, int>> fits;
  for (int i : {1, 0})
    for (int j : {1, 0})
      if ((i ? ta.cols : ta.rows) == (j ? tb.cols : tb.rows)) fits.emplace_back(i, j);
  if (fits.size() != 1)
    throw Error(
        {"@", fmt::format("{} @ {}, which share {} size", ta.str(), tb.str(), fits.empty() ? "no" : "more than one"),
         "operands that share exactly one size",
         fits.empty()
             ? ""
             : "Name the sizes apart, or write matmul(a, b, a_axis, b_axis) with axes 0 (rows) or 1 (columns)."});
  Attrs attrs;
  attrs.a_axis = fits[0].first;
  attrs.b_axis = fits[0].second;
  return g.apply1(Op::kMatmul, {a, b}, attrs);
}

Val matmul(Val a, int a_axis, Val b, int b_axis) {
  for (int axis : {a_axis, b_axis})
    if (axis != 0 && axis != 1) throw Error({"matmul", fmt::format("axis {}", axis), "0 (rows) or 1 (columns)", ""});
  Attrs attrs;
  attrs.a_axis = a_axis;
  attrs.b_axis = b_axis;
  return a.builder->apply1(Op::kMatmul, {a, b}, attrs);
}

Val unary(Op op, Val a) { return a.builder->apply1(op, {a}); }
Val binary(Op op, Val a, Val b) { return a.builder->apply1(op, {a, b}); }
Val operator+(Val a, Val b) { return binary(Op::kAdd, a, b); }
Val operator-(Val a, Val b) { return binary(Op::kSub, a, b); }
Val operator*(Val a, Val b) { return binary(Op::kMul, a, b); }
Val operator/(Val a, Val b) { return binary(Op::kDiv, a, b); }
Val operator-(Val a) { return unary(Op::kNeg, a); }
Val operator+(Val a, double b) { return a + a.builder->literal(b); }
Val operator-(Val a, double b) { return a - a.builder->literal(b); }
Val operator*(Val a, double b) { return a * a.builder->literal(b); }
Val operator/(Val a, double b) { return a / a.builder->literal(b); }
Val operator+(double a, Val b) { return b.builder->literal(a) + b; }
Val operator-(double a, Val b) { return b.builder->literal(a) - b; }
Val operator*(double a, Val b) { return b.builder->literal(a) * b; }
Val operator/(double a, Val b) { return b.builder->literal(a) / b; }

Val where(Val condition, Val a, Val b) { return a.builder->apply1(Op::kWhere, {condition, a, b}); }

Val cast(Val a, DType dtype) {
  Attrs attrs;
  attrs.dtype = dtype;
  return a.builder->apply1(Op::kCast, {a}, attrs);
}

Val reduce(Op op, Axis axis, Val a) {
  Attrs attrs;
  attrs.axis = axis;
  return a.builder->apply1(op, {a}, attrs);
}

Val sum(Axis axis, Val a) { return reduce(Op::kReduceSum, axis, a); }
std::vector<Val> pairs(Val a) { return a.builder->apply(Op::kPairs, {a}); }
std::vector<Val> halves(Val a) { return a.builder->apply(Op::kHalves, {a}); }
Val interleave(Val a, Val b) { return binary(Op::kInterleave, a, b); }

Val concat(const std::vector<Val>& parts) {
  if (parts.empty()) throw Error({"concat", "no operands", "at least 1", ""});
  return parts[0].builder->apply1(Op::kConcat, parts);
}

std::vector<Val> split(Val a, const std::vector<DimArg>& widths) {
  Attrs attrs;
  for (const DimArg& w : widths) attrs.dims.push_back(w.dim);
  return a.builder->apply(Op::kSplit, {a}, attrs);
}

Val group(Val a, const DimArg& width) {
  Attrs attrs;
  attrs.dims = {width.dim};
  return a.builder->apply1(Op::kGroup, {a}, attrs);
}

Val flat(Val a) { return unary(Op::kFlat, a); }
Val gather(Val table, Val index) { return binary(Op::kGather, table, index); }

}  // namespace coda
