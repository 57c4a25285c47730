// gradient(): the reverse of a graph as a graph; see include/coda/grad.h.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "coda/error.h"
#include "coda/grad.h"
#include "ir/grad_tools.h"
#include "ir/type_rules.h"

namespace coda {
namespace {

// Copies the inputs and nodes of a graph into a builder; its values there, by their ids in the graph.
std::vector<Val> copy_into(GraphBuilder& b, const Graph& g) {
  std::vector<Val> values(g.values().size());
  auto at = [&](ValueId v) -> Val& { return values[static_cast<std::size_t>(v)]; };
  b.set_reassociate(g.reassociate());
  for (const Where& w : g.wheres()) b.where(w.size, w.value);
  for (const Input& in : g.inputs())
    at(in.value) = in.is_const ? b.launch_const(in.name, in.dtype)
                               : b.input(in.name, in.dtype, std::vector<DimArg>(in.dims.begin(), in.dims.end()));
  for (const Node& n : g.nodes()) {
    if (n.op == Op::kInput) continue;
    std::vector<Val> operands;
    for (ValueId v : n.operands) operands.push_back(at(v));
    std::vector<Val> results = b.apply(n.op, operands, n.attrs);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Value& old = g.value(n.results[i]);
      // row(), col() and uniform() are of open size until something fixes it; the graph knows it already.
      TypeQuery q{b, row(n.op), n.attrs, {}};
      const Type made = results[i].type();
      q.same(made.rows, old.type.rows, "rows");
      q.same(made.cols, old.type.cols, "columns");
      if (!old.name.empty()) b.set_name(results[i], old.name);
      if (!old.scope.empty()) b.set_scope(results[i], old.scope);
      at(n.results[i]) = results[i];
    }
  }
  return values;
}

std::string list(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

// The names of a graph's float inputs or outputs.
template <class Ports>
std::vector<std::string> float_names(const Ports& ports) {
  std::vector<std::string> names;
  for (const auto& p : ports)
    if (is_float(p.dtype)) names.push_back(p.name);
  return names;
}

void check_names(const std::vector<std::string>& asked, const std::vector<std::string>& allowed,
                 const std::string& what) {
  std::set<std::string> seen;
  for (const std::string& name : asked) {
    if (std::find(allowed.begin(), allowed.end(), name) == allowed.end())
      throw Error({what + " " + name, "no float " + what + " of that name", list(allowed), ""});
    if (!seen.insert(name).second) throw Error({what + " " + name, "asked for twice", "each name once", ""});
  }
}

}  // namespace

Graph gradient(const Graph& g, const std::vector<std::string>& wrt, const std::vector<std::string>& outputs) {
  std::vector<std::string> from = outputs.empty() ? float_names(g.outputs()) : outputs;
  check_names(wrt, float_names(g.inputs()), "input");
  check_names(from, float_names(g.outputs()), "output");
  if (wrt.empty())
    throw Error({"gradient of " + g.name(), "no inputs to differentiate by", list(float_names(g.inputs())), ""});
  if (from.empty()) throw Error({"gradient of " + g.name(), "no float outputs", "at least one", ""});
  GraphBuilder b(g.name() + "_gradient");
  std::vector<Val> values = copy_into(b, g);
  auto at = [&](ValueId v) { return values[static_cast<std::size_t>(v)]; };
  std::vector<Seed> seeds;
  for (const std::string& name : from) {
    const Output& o = *g.find_output(name);
    if (g.find_input("d_" + name) != nullptr)
      throw Error(
          {"input d_" + name, "a name that the gradient of " + name + " needs", "other names", "Rename that input."});
    const Type& t = g.value(o.value).type;
    std::vector<DimArg> dims =
        t.groups.is_one() ? std::vector<DimArg>{t.rows, t.cols} : std::vector<DimArg>{t.rows, t.groups, t.cols};
    seeds.push_back({at(o.value), b.input("d_" + name, o.dtype, dims)});
  }
  std::vector<Val> by;
  for (const std::string& name : wrt) by.push_back(at(g.find_input(name)->value));
  std::vector<std::optional<Val>> found = backpropagate(b, seeds, by);
  for (std::size_t i = 0; i < wrt.size(); ++i) {
    const Type type = by[i].type();
    b.output("d_" + wrt[i], DType::kF32, found[i] ? *found[i] : grads::broadcast_to(b.literal(0), type));
  }
  return b.build_graph();
}

}  // namespace coda
