// Graph: look-ups, the stable hash, and rebuilding (other storage, composites expanded); see include/coda/graph.h.
#include "coda/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/hash.h"
#include "coda/builder.h"
#include "coda/error.h"
#include "ir/composites.h"

namespace coda {
namespace {

// One line per value in the order in which the outputs reach them: text that names no local.
class CanonicalText {
 public:
  explicit CanonicalText(const Graph& g) : g_(g), number_(g.values().size(), -1) {}

  std::string text() {
    out_ = g_.is_program() ? "program" : "graph";
    out_ += g_.reassociate() ? " reassociate\n" : "\n";
    for (const Output& o : g_.outputs()) {
      visit(o.value);
      out_ += fmt::format("out {} {} %{} {} {}\n", o.name, name(o.dtype), number_[index(o.value)],
                          o.accumulate ? "+=" : "=", o.over);
    }
    return out_;
  }

 private:
  static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }

  // Depth first with an explicit stack: graphs of whole models are deep.
  void visit(ValueId root) {
    std::vector<std::pair<ValueId, std::size_t>> stack{{root, 0}};
    while (!stack.empty()) {
      auto& [v, next] = stack.back();
      const Node& n = g_.def(v);
      if (number_[index(v)] >= 0) {
        stack.pop_back();
      } else if (next < n.operands.size()) {
        ValueId operand = n.operands[next++];
        if (number_[index(operand)] < 0) stack.emplace_back(operand, 0);
      } else {
        emit(n);
        stack.pop_back();
      }
    }
  }

  void emit(const Node& n) {
    out_ += fmt::format("{}", row(n.op).name);
    if (n.op == Op::kInput) {
      const Input* in = g_.as_input(n.results[0]);
      out_ += fmt::format(" {} {}{}", in->name, name(in->dtype), in->is_const ? " const" : "");
    }
    const Attrs& a = n.attrs;
    if (n.op == Op::kLiteral) out_ += fmt::format(" {:a}", a.number);
    if (n.op == Op::kLiteral || n.op == Op::kCast) out_ += fmt::format(" {}", name(a.dtype));
    if (row(n.op).has(kReduceTrait)) out_ += fmt::format(" {}", suffix(a.axis));
    if (n.op == Op::kMatmul) out_ += fmt::format(" {}{}", a.a_axis, a.b_axis);
    for (const Dim& d : a.dims) out_ += " <" + d.str() + ">";
    for (ValueId v : n.operands) out_ += fmt::format(" %{}", number_[index(v)]);
    for (ValueId v : n.results) {
      number_[index(v)] = count_++;
      out_ += " -> " + g_.value(v).type.str();
    }
    out_ += '\n';
  }

  const Graph& g_;
  std::vector<int> number_;
  int count_ = 0;
  std::string out_;
};

// Rebuilds `g` node by node; `make` returns the results of a node, given its operands.
using MakeNode = std::function<std::vector<Val>(GraphBuilder&, const Node&, const std::vector<Val>&)>;

Graph rebuild(const Graph& g, const std::function<DType(DType)>& storage, const MakeNode& make) {
  std::unique_ptr<GraphBuilder> b =
      g.is_program() ? std::make_unique<ProgramBuilder>(g.name()) : std::make_unique<GraphBuilder>(g.name());
  b->set_reassociate(g.reassociate());
  for (const Where& w : g.wheres()) b->where(w.size, w.value);
  std::vector<Val> values(g.values().size());
  auto at = [&](ValueId v) -> Val& { return values[static_cast<std::size_t>(v)]; };
  for (const Input& in : g.inputs()) {
    std::vector<DimArg> dims(in.dims.begin(), in.dims.end());
    at(in.value) = in.is_const ? b->launch_const(in.name, in.dtype) : b->input(in.name, storage(in.dtype), dims);
  }
  for (const Node& n : g.nodes()) {
    if (n.op == Op::kInput) continue;
    std::vector<Val> operands;
    for (ValueId v : n.operands) operands.push_back(at(v));
    std::vector<Val> results = make(*b, n, operands);
    CODA_CHECK(results.size() == n.results.size(), "a rebuilt node has other results: " + std::string(row(n.op).name));
    for (std::size_t i = 0; i < results.size(); ++i) {
      at(n.results[i]) = results[i];
      const Value& old = g.value(n.results[i]);
      if (!old.name.empty()) b->set_name(results[i], old.name);
      if (!old.scope.empty()) b->set_scope(results[i], old.scope);
    }
  }
  for (const Output& o : g.outputs()) b->output(o.name, storage(o.dtype), at(o.value), o.accumulate, o.over);
  return b->build_graph();
}

}  // namespace

const Input* Graph::find_input(const std::string& input_name) const {
  for (const Input& i : inputs())
    if (i.name == input_name) return &i;
  return nullptr;
}

const Output* Graph::find_output(const std::string& output_name) const {
  for (const Output& o : outputs())
    if (o.name == output_name) return &o;
  return nullptr;
}

const Input* Graph::as_input(ValueId v) const {
  for (const Input& i : inputs())
    if (i.value == v) return &i;
  return nullptr;
}

std::vector<std::string> Graph::free_sizes() const {
  std::set<std::string> names;
  auto add = [&](const Dim& d) {
    for (const std::string& s : d.symbols()) names.insert(s);
  };
  for (const Value& v : values()) add(v.type.rows), add(v.type.groups), add(v.type.cols);
  for (const Node& n : nodes())
    for (const Dim& d : n.attrs.dims) add(d);
  for (const Input& i : inputs())
    for (const Dim& d : i.dims) add(d);
  return {names.begin(), names.end()};
}

std::uint64_t Graph::hash() const { return fnv1a(CanonicalText(*this).text()); }

Graph with_storage(const Graph& g, DType from, DType to) {
  auto storage = [&](DType t) { return t == from ? to : t; };
  return rebuild(g, storage, [&](GraphBuilder& b, const Node& n, const std::vector<Val>& operands) {
    Attrs attrs = n.attrs;
    if (n.op == Op::kCast) attrs.dtype = storage(attrs.dtype);
    return b.apply(n.op, operands, attrs);
  });
}

Graph expand_composites(const Graph& g) {
  auto same = [](DType t) { return t; };
  return rebuild(g, same, [](GraphBuilder& b, const Node& n, const std::vector<Val>& operands) {
    const OpRow& r = row(n.op);
    if (!r.has(kCompositeTrait)) return b.apply(n.op, operands, n.attrs);
    ExpandFrame frame{b, n.attrs, operands, {}};
    r.expand(frame);
    return frame.out;
  });
}

Sizes solve_sizes(const Graph& g, const std::vector<std::pair<std::string, Shape>>& shapes, const Sizes& given) {
  struct Equation {
    std::string input;
    Dim dim;
    std::int64_t value;
  };
  std::vector<Equation> equations;
  for (const auto& [input_name, shape] : shapes) {
    const Input* in = g.find_input(input_name);
    if (in == nullptr) throw Error({input_name, "no such input", "the inputs of " + g.name(), ""});
    if (in->is_const) continue;
    const Type& t = g.value(in->value).type;
    equations.push_back({input_name, t.rows, shape.rows});
    // A caller may hand [R, G*C] as a plain matrix.
    if (shape.groups == 1 && !t.groups.is_one())
      equations.push_back({input_name, t.width(), shape.cols});
    else
      equations.push_back({input_name, t.groups, shape.groups}), equations.push_back({input_name, t.cols, shape.cols});
  }
  Sizes sizes;
  std::vector<std::string> names = g.free_sizes();
  for (const auto& [size, value] : given) {
    for (const Where& w : g.wheres())
      if (w.size == size) equations.push_back({"size " + size, w.value, value});
    if (std::find(names.begin(), names.end(), size) != names.end()) {
      if (value < 0) throw Error({"size " + size, std::to_string(value), "a size ≥ 0", ""});
      sizes[size] = value;
    }
  }
  for (bool progress = true; progress;) {
    progress = false;
    for (const Equation& e : equations) {
      std::vector<std::string> unknown;
      for (const std::string& s : e.dim.symbols())
        if (!sizes.count(s)) unknown.push_back(s);
      if (unknown.size() != 1) continue;
      // Linear in the unknown: dim = a·x + b, found from its values at x = 0 and a unit step of `scale` (denominators).
      constexpr std::int64_t kScale = 720720;
      Sizes zero = sizes, one = sizes;
      zero[unknown[0]] = 0;
      one[unknown[0]] = kScale;
      std::int64_t b = e.dim.eval(zero), a = e.dim.eval(one) - b;  // a / kScale per unit
      if (a <= 0 || (e.value - b) < 0 || (e.value - b) * kScale % a != 0)
        throw Error(
            {e.input, fmt::format("size {} for {}", e.value, e.dim.str()), "a size that solves for " + unknown[0], ""});
      sizes[unknown[0]] = (e.value - b) * kScale / a;
      progress = true;
    }
  }
  for (const Equation& e : equations) {
    for (const std::string& s : e.dim.symbols())
      if (!sizes.count(s))
        throw Error(
            {"size " + s, "no value", "a value for every size of " + g.name(), "Give it, e.g. --size " + s + "=64."});
    if (std::int64_t expected = e.dim.eval(sizes); expected != e.value)
      throw Error({e.input, fmt::format("size {} for {}", e.value, e.dim.str()), fmt::format("{}", expected),
                   "The other tensors fix it."});
  }
  for (const std::string& s : names)
    if (!sizes.count(s))
      throw Error(
          {"size " + s, "no value", "a value for every size of " + g.name(), "Give it, e.g. --size " + s + "=64."});
  return sizes;
}

}  // namespace coda
