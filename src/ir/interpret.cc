// The interpreter: evaluates a graph node by node with the definitions of the op table; see include/coda/interpret.h.
// Users and tests call interpret(); no backend shares code with it except philox.h.
#include "coda/interpret.h"

#include <fmt/format.h>

#include <cmath>

#include "coda/builder.h"
#include "coda/error.h"
#include "ir/composites.h"
#include "ir/eval.h"
#include "ir/index_rules.h"

namespace coda {
namespace {

std::string shape_text(const Array& a) {
  return a.groups == 1 ? fmt::format("[{},{}]", a.rows, a.cols) : fmt::format("[{},{},{}]", a.rows, a.groups, a.cols);
}

// A composite's expansion as a graph of its own: inputs and outputs are its operands and results.
Graph expansion_of(const Graph& g, const Node& n) {
  GraphBuilder b(std::string(row(n.op).name));
  ExpandFrame frame{b, n.attrs, {}, {}};
  for (std::size_t i = 0; i < n.operands.size(); ++i) {
    const Value& v = g.value(n.operands[i]);
    std::string name = fmt::format("{}{}", v.name.empty() ? "operand" : v.name, i + 1);
    DType dtype = v.type.elem == Elem::kI32 ? DType::kI32 : DType::kF32;
    frame.in.push_back(b.input(name, dtype, {v.type.rows, v.type.groups, v.type.cols}));
  }
  row(n.op).expand(frame);
  for (std::size_t i = 0; i < frame.out.size(); ++i)
    b.output(fmt::format("result{}", i + 1), DType::kF32, frame.out[i]);
  return b.build_graph();
}

class Run {
 public:
  Run(const Graph& g, const Sizes& sizes, const InterpretOptions& options)
      : g_(g), sizes_(sizes), options_(options), values_(g.values().size()) {}

  Array& value(ValueId v) { return values_[static_cast<std::size_t>(v)]; }

  std::vector<Array> run() {
    for (const Node& n : g_.nodes()) {
      if (n.op == Op::kInput) continue;
      const OpRow& r = row(n.op);
      if (r.has(kCompositeTrait))
        eval_composite(n);
      else if (r.map != nullptr)
        eval_map(n, r.map);
      else
        eval_other(n, r);
      for (ValueId v : n.results) round(v);
    }
    return std::move(values_);
  }

 private:
  Array zeros(ValueId v) const {
    const Type& t = g_.value(v).type;
    return {t.rows.eval(sizes_), t.groups.eval(sizes_), t.cols.eval(sizes_)};
  }

  void eval_map(const Node& n, double (*map)(const double*)) {
    Array y = zeros(n.results[0]);
    std::vector<Array> repeated(n.operands.size());
    std::vector<const double*> operands;
    for (std::size_t k = 0; k < n.operands.size(); ++k) {
      const Array& x = value(n.operands[k]);
      bool whole = x.rows == y.rows && x.groups == y.groups && x.cols == y.cols;
      if (!whole) repeated[k] = eval::broadcast(x, y.rows, y.groups, y.cols);
      operands.push_back(whole ? x.data.data() : repeated[k].data.data());
    }
    double x[3];
    for (std::size_t i = 0; i < y.data.size(); ++i) {
      for (std::size_t k = 0; k < operands.size(); ++k) x[k] = operands[k][i];
      y.data[i] = map(x);
    }
    value(n.results[0]) = std::move(y);
    if (g_.value(n.results[0]).type.elem == Elem::kI32) check_integers(n);
  }

  void check_integers(const Node& n) {
    for (double x : value(n.results[0]).data)
      if (std::fabs(x) > 2147483648.0 || x == 2147483648.0)
        throw Error({std::string(row(n.op).name), fmt::format("{} in i32 arithmetic", x), "results of 32 bits",
                     "cast(x, f32) computes in floating point."});
  }

  void eval_other(const Node& n, const OpRow& r) {
    EvalFrame frame{g_, n, n.attrs, sizes_, options_, {}, {}};
    for (ValueId v : n.operands) frame.in.push_back(&value(v));
    for (ValueId v : n.results) frame.out.push_back(zeros(v));
    r.eval(frame);
    for (std::size_t i = 0; i < n.results.size(); ++i) value(n.results[i]) = std::move(frame.out[i]);
  }

  void eval_composite(const Node& n) {
    if (n.op == Op::kCrossEntropy) check_targets(n);
    Graph inner = expansion_of(g_, n);
    Run run(inner, sizes_, options_);
    for (std::size_t i = 0; i < n.operands.size(); ++i) run.value(inner.inputs()[i].value) = value(n.operands[i]);
    std::vector<Array> values = run.run();
    for (std::size_t i = 0; i < n.results.size(); ++i) {
      Array& result = values[static_cast<std::size_t>(inner.outputs()[i].value)];
      Array declared = zeros(n.results[i]);
      CODA_CHECK(declared.rows == result.rows && declared.groups == result.groups && declared.cols == result.cols,
                 fmt::format("{} expands to {}, its type rule says {}", row(n.op).name, shape_text(result),
                             shape_text(declared)));
      value(n.results[i]) = result;
    }
  }

  void check_targets(const Node& n) {
    const Array &z = value(n.operands[0]), &target = value(n.operands[1]);
    double ignore = value(n.operands[2]).data[0];
    const std::string& name = g_.value(n.operands[1]).name;
    for (std::size_t r = 0; r < target.data.size(); ++r) {
      double t = target.data[r];
      if (t == ignore || (t >= 0 && t < static_cast<double>(z.cols))) continue;
      throw Error({name.empty() ? "target of cross_entropy" : name, fmt::format("class {} in row {}", t, r),
                   fmt::format("0 to {}, or ignore_index {}", z.cols - 1, ignore), ""});
    }
  }

  // kEager: a tile goes through memory in the low precision, everything narrower stays fp32.
  void round(ValueId v) {
    const Type& t = g_.value(v).type;
    if (options_.rounding != Rounding::kEager || t.elem != Elem::kF32) return;
    bool tile = !t.rows.is_one() && !t.cols.is_one();
    for (double& x : value(v).data) x = round_to(tile ? options_.eager_dtype : DType::kF32, x);
  }

  const Graph& g_;
  const Sizes& sizes_;
  const InterpretOptions& options_;
  std::vector<Array> values_;
};

void check_integer_input(const Input& in, const Array& a) {
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    double x = a.data[i];
    if (x == std::trunc(x) && x >= -2147483648.0 && x <= 2147483647.0) continue;
    throw Error(
        {in.name, fmt::format("{} in row {}", x, static_cast<std::int64_t>(i) / a.width()), "integers of 32 bits", ""});
  }
}

// Targets and indices that are inputs (those of composites and gathers that are computed are checked where they are
// used).
void check_index_inputs(const Graph& g, const Arrays& inputs, const Sizes& sizes) {
  for (const IndexRule& rule : index_rules(g)) {
    std::vector<std::int64_t> ignored = rule.ignore_values;
    for (int i : rule.ignore_inputs)
      ignored.push_back(static_cast<std::int64_t>(inputs.at(g.inputs()[static_cast<std::size_t>(i)].name).data[0]));
    const std::string& name = g.inputs()[static_cast<std::size_t>(rule.input)].name;
    const Array& index = inputs.at(name);
    for (std::size_t r = 0; r < index.data.size(); ++r)
      check_index(name, rule.of, rule.bound.eval(sizes), ignored, static_cast<std::int64_t>(r),
                  static_cast<std::int64_t>(index.data[r]));
  }
}

std::string names_of(const Graph& g) {
  std::string names;
  for (const Input& in : g.inputs()) names += (names.empty() ? "" : ", ") + in.name;
  for (const Output& o : g.outputs())
    if (o.accumulate) names += (names.empty() ? "" : ", ") + o.name;
  return names.empty() ? "no inputs" : names;
}

void check_names(const Graph& g, const Arrays& inputs) {
  for (const auto& [name, array] : inputs) {
    const Output* out = g.find_output(name);
    if (g.find_input(name) == nullptr && (out == nullptr || !out->accumulate))
      throw Error({name, "no input of " + g.name(), names_of(g), ""});
    if (array.rows < 0 || array.groups < 0 || array.cols < 0 ||
        static_cast<std::int64_t>(array.data.size()) != array.rows * array.width())
      throw Error({name, fmt::format("{} elements for {}", array.data.size(), shape_text(array)),
                   "rows × groups × cols elements", ""});
  }
  for (const Input& in : g.inputs())
    if (!inputs.count(in.name)) throw Error({in.name, "missing", names_of(g), "Give a value to every input."});
  for (const Output& o : g.outputs())
    if (o.accumulate && !inputs.count(o.name))
      throw Error({o.name, "missing", "the old contents of every output that accumulates (+=)",
                   "Give zeros to start from nothing."});
}

Sizes sizes_of(const Graph& g, const Arrays& inputs, const Sizes& given) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const Input& in : g.inputs()) {
    const Array& a = inputs.at(in.name);
    if (!in.is_const)
      shapes.push_back({in.name, {a.rows, a.groups, a.cols}});
    else if (a.data.size() != 1)
      throw Error({in.name, shape_text(a), "one number: it is a launch constant", ""});
  }
  return solve_sizes(g, shapes, given);
}

// What the memory of an input holds: its shape as declared, its elements of its dtype.
Array load(const Graph& g, const Input& in, const Array& given, const Sizes& sizes, const InterpretOptions& options) {
  const Type& t = g.value(in.value).type;
  if (in.dtype == DType::kI32) check_integer_input(in, given);
  Array a(t.rows.eval(sizes), t.groups.eval(sizes), t.cols.eval(sizes));
  a.data = given.data;
  if (options.rounding != Rounding::kExact)
    for (double& x : a.data) x = round_to(in.dtype, x);
  return a;
}

Array store(const Output& o, Array value, const Arrays& inputs, const InterpretOptions& options) {
  if (o.accumulate) {
    const Array& old = inputs.at(o.name);
    if (old.rows != value.rows || old.width() != value.width())
      throw Error({o.name, shape_text(old), shape_text(value), "The old contents of += have the output's shape."});
    bool round_old = options.rounding != Rounding::kExact;
    for (std::size_t i = 0; i < value.data.size(); ++i)
      value.data[i] += round_old ? round_to(DType::kF32, old.data[i]) : old.data[i];
  }
  if (options.rounding != Rounding::kExact)
    for (double& x : value.data) x = round_to(o.dtype, x);
  return value;
}

std::vector<Array> run_graph(const Graph& g, const Arrays& inputs, const Sizes& given,
                             const InterpretOptions& options) {
  if (!is_float(options.eager_dtype)) throw Error({"eager_dtype", "i32", "f32, bf16, f16", ""});
  check_names(g, inputs);
  Sizes sizes = sizes_of(g, inputs, given);
  Run run(g, sizes, options);
  for (const Input& in : g.inputs()) run.value(in.value) = load(g, in, inputs.at(in.name), sizes, options);
  check_index_inputs(g, inputs, sizes);
  return run.run();
}

}  // namespace

Arrays interpret(const Graph& g, const Arrays& inputs, const Sizes& sizes, const InterpretOptions& options) {
  std::vector<Array> values = run_graph(g, inputs, sizes, options);
  Arrays outputs;
  for (const Output& o : g.outputs())
    outputs[o.name] = store(o, values[static_cast<std::size_t>(o.value)], inputs, options);
  return outputs;
}

std::vector<Array> interpret_values(const Graph& g, const Arrays& inputs, const Sizes& sizes,
                                    const InterpretOptions& options) {
  return run_graph(g, inputs, sizes, options);
}

}  // namespace coda
