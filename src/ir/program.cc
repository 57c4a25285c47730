// The verifier of programs: the one law, and what a GEMM source may be. See include/coda/program.h.
#include "coda/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "coda/error.h"

namespace coda {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& g) : g_(g), uses_(g.values().size(), 0), stages_(g.values().size(), Stage::kOperand) {
    for (const Node& n : g.nodes())
      for (ValueId v : n.operands) ++uses_[index(v)];
    for (const Output& o : g.outputs()) ++uses_[index(o.value)];
  }

  void run() {
    find_accumulators();
    check_source();
    for (const Node& n : g_.nodes()) set_stage(n);
    check_rows();
    check_outputs();
  }

  std::vector<Stage> stages() { return std::move(stages_); }
  std::vector<Accumulator> accumulators() { return std::move(accumulators_); }

 private:
  static std::size_t index(ValueId v) { return static_cast<std::size_t>(v); }
  Stage& stage(ValueId v) { return stages_[index(v)]; }

  // How messages call a value: its name, or the operation that makes it.
  std::string called(ValueId v) const {
    const Value& value = g_.value(v);
    if (!value.name.empty()) return value.name;
    const Node& n = g_.def(v);
    std::string op(row(n.op).name);
    return row(n.op).has(kReduceTrait) ? op + "_" + std::string(suffix(n.attrs.axis)) + "(…)" : op + "(…)";
  }

  [[noreturn]] void mistake(ValueId v, const std::string& found, const std::string& allowed,
                            const std::string& way_out) const {
    throw Error({fmt::format("program {}, {}", g_.name(), called(v)), found, allowed, way_out});
  }

  bool is_tile_shaped(const Type& t) const { return !t.rows.is_one() && !t.width().is_one(); }

  // A sum of products, each used only there, is one accumulator: Σ A_i @ B_i.
  void find_accumulators() {
    std::vector<std::vector<int>> terms(g_.values().size());  // non-empty: the value is a sum of these products
    std::vector<bool> absorbed(g_.values().size(), false);
    for (std::size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      if (n.op == Op::kMatmul) terms[index(n.results[0])] = {static_cast<int>(i)};
      if (n.op != Op::kAdd) continue;
      ValueId a = n.operands[0], b = n.operands[1];
      if (terms[index(a)].empty() || terms[index(b)].empty() || uses_[index(a)] != 1 || uses_[index(b)] != 1) continue;
      if (!(g_.value(a).type == g_.value(b).type)) continue;
      std::vector<int>& sum = terms[index(n.results[0])];
      sum = terms[index(a)];
      sum.insert(sum.end(), terms[index(b)].begin(), terms[index(b)].end());
      absorbed[index(a)] = absorbed[index(b)] = true;
    }
    for (std::size_t v = 0; v < terms.size(); ++v)
      if (!terms[v].empty() && !absorbed[v]) accumulators_.push_back({static_cast<ValueId>(v), terms[v]});
  }

  void check_source() {
    for (const Accumulator& acc : accumulators_)
      for (int t : acc.matmul_nodes)
        for (ValueId v : g_.nodes()[static_cast<std::size_t>(t)].operands)
          if (g_.as_input(v) == nullptr)
            mistake(v, "a computed value as an operand of @", "inputs of the program",
                    "Store it in one program and multiply it in the next.");
    auto operands = [&](const Accumulator& acc, std::size_t which) {
      std::vector<std::pair<ValueId, int>> list;
      for (int t : acc.matmul_nodes) {
        const Node& n = g_.nodes()[static_cast<std::size_t>(t)];
        list.emplace_back(n.operands[which], which == 0 ? n.attrs.a_axis : n.attrs.b_axis);
      }
      return list;
    };
    bool same_a = true, same_b = true;
    for (const Accumulator& acc : accumulators_) {
      same_a = same_a && operands(acc, 0) == operands(accumulators_[0], 0);
      same_b = same_b && operands(acc, 1) == operands(accumulators_[0], 1);
    }
    if (!same_a && !same_b)
      mistake(accumulators_.back().value,
              "a second source: its products share neither their left nor their right operands with those of " +
                  called(accumulators_[0].value),
              "one source: a sum of products, several products of one left operand, or of one right operand",
              "Make it a program of its own.");
  }

  void set_stage(const Node& n) {
    const OpRow& r = row(n.op);
    if (r.has(kOpaqueTrait))
      mistake(n.results[0], std::string(r.name) + " in a program", "table operations",
              "Opaque operations live in graphs.");
    Stage s = Stage::kOperand;
    ValueId finish = -1, tile = -1;
    for (ValueId v : n.operands) {
      s = std::max(s, stage(v));
      if (stage(v) == Stage::kFinish) finish = v;
      if (stage(v) == Stage::kTile) tile = v;
    }
    if (n.op == Op::kMatmul) s = Stage::kTile;
    if (n.op == Op::kGather) check_gather(n);
    bool reduces_whole = r.has(kReduceTrait) && n.attrs.axis != Axis::kC && n.attrs.axis != Axis::kG;
    if (r.has(kReduceTrait) && n.attrs.axis == Axis::kG && s != Stage::kFinish)
      mistake(n.results[0], "a sum over the groups of a tile", "sums over groups of a finish value",
              "Reduce along m first.");
    if (reduces_whole) s = Stage::kFinish;
    for (ValueId v : n.results) {
      const Type& t = g_.value(v).type;
      stage(v) = s == Stage::kOperand && is_tile_shaped(t) ? Stage::kTile : s;
      if (s == Stage::kFinish && !reduces_whole && (is_tile_shaped(t) || tile >= 0))
        mistake(v,
                fmt::format("a tile value {} that depends on {}, a finish value of its own program", t.str(),
                            called(finish)),
                "finish values only in per-row, per-column and scalar values",
                fmt::format("Store {} here and apply it in the next program.", called(finish)));
    }
  }

  void check_gather(const Node& n) {
    if (g_.as_input(n.operands[0]) == nullptr)
      mistake(n.operands[0], "a computed table", "an input as the table of [index]", "");
    if (g_.as_input(n.operands[1]) == nullptr)
      mistake(n.operands[1], "a computed index", "an i32 input as the index", "Store it first.");
  }

  // All tiles of a program run over the same rows; products of one right operand (side by side along m) have their own.
  void check_rows() {
    std::set<std::string> used_as_operand;
    std::vector<bool> product_only(g_.values().size(), true);
    for (const Node& n : g_.nodes())
      if (n.op != Op::kMatmul && n.op != Op::kGather)
        for (ValueId v : n.operands) product_only[index(v)] = false;
    for (const Output& o : g_.outputs()) product_only[index(o.value)] = false;
    std::vector<Dim> rows;
    auto add = [&](const Dim& d) {
      if (std::find(rows.begin(), rows.end(), d) == rows.end()) rows.push_back(d);
    };
    for (const Accumulator& acc : accumulators_) add(g_.value(acc.value).type.rows);
    std::size_t own = rows.size();
    for (const Value& v : g_.values()) {
      ValueId id = static_cast<ValueId>(&v - g_.values().data());
      bool is_input = g_.nodes()[static_cast<std::size_t>(v.node)].op == Op::kInput;
      if (v.type.rows.is_one() || (is_input && product_only[index(id)])) continue;
      std::size_t before = rows.size();
      add(v.type.rows);
      if (rows.size() > before && (own > 0 || rows.size() > 1))
        mistake(id, fmt::format("{} rows beside tiles of {} rows", v.type.rows.str(), rows[0].str()),
                "one number of rows in a program", "Make it a program of its own.");
    }
  }

  void check_outputs() {
    for (const Output& o : g_.outputs())
      if (!o.over.empty()) {
        const Input* in = g_.find_input(o.over);
        for (const Accumulator& acc : accumulators_)
          for (int t : acc.matmul_nodes)
            for (ValueId v : g_.nodes()[static_cast<std::size_t>(t)].operands)
              if (v == in->value)
                mistake(o.value, "over " + o.over + ", an operand of @ that other tiles still read",
                        "an input loaded by the same tile", "");
      }
  }

  const Graph& g_;
  std::vector<int> uses_;
  std::vector<Stage> stages_;
  std::vector<Accumulator> accumulators_;
};

}  // namespace

Program::Program(Graph g) : written_(std::move(g)), expanded_(expand_composites(written_)) {
  Verifier v(expanded_);
  v.run();
  stages_ = v.stages();
  accumulators_ = v.accumulators();
}

}  // namespace coda
