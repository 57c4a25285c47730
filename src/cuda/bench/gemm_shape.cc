// The GEMM inside a program; see gemm_shape.h.
#include "cuda/bench/gemm_shape.h"

#include <fmt/format.h>

#include "coda/builder.h"
#include "coda/error.h"

namespace coda::cuda {
namespace {

const Node& node(const Graph& g, int number) { return g.nodes()[static_cast<std::size_t>(number)]; }

std::int64_t rows_of(const Graph& g, ValueId v, const Sizes& sizes) { return g.value(v).type.rows.eval(sizes); }
std::int64_t cols_of(const Graph& g, ValueId v, const Sizes& sizes) { return g.value(v).type.width().eval(sizes); }

}  // namespace

std::string GemmShape::str() const { return fmt::format("{}x{}x{}", m, n, k); }

std::optional<GemmShape> gemm_of(const Program& p, const Sizes& sizes) {
  if (!p.is_gemm()) return std::nullopt;
  const Graph& g = p.expanded();
  const std::vector<Accumulator>& all = p.accumulators();
  const Node& first = node(g, all[0].matmul_nodes[0]);
  GemmShape s;
  s.a_axis = first.attrs.a_axis;
  s.b_axis = first.attrs.b_axis;
  const Input* a = g.as_input(first.operands[0]);
  CODA_CHECK(a != nullptr, "a GEMM operand of " + p.name() + " is no input");
  s.operands = s.result = a->dtype;
  for (int t : all[0].matmul_nodes) {
    const Node& term = node(g, t);
    s.k += term.attrs.a_axis == 1 ? cols_of(g, term.operands[0], sizes) : rows_of(g, term.operands[0], sizes);
  }
  bool one_a = true;
  for (const Accumulator& acc : all) one_a = one_a && node(g, acc.matmul_nodes[0]).operands[0] == first.operands[0];
  s.m = rows_of(g, all[0].value, sizes);
  s.n = cols_of(g, all[0].value, sizes);
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (one_a)
      s.n += cols_of(g, all[i].value, sizes);
    else
      s.m += rows_of(g, all[i].value, sizes);
  }
  for (const Output& o : g.outputs())
    if (o.value == all[0].value) s.result = o.dtype, s.accumulate = o.accumulate;
  return s;
}

std::vector<GemmShape> gemms_of(const Plan& plan, const Sizes& sizes) {
  if (!plan.loops().empty()) throw Error({plan.name(), "a plan with loops over rows", "steps that run once", ""});
  std::vector<GemmShape> shapes;
  for (const Step& s : plan.steps())
    if (const auto* step = std::get_if<ProgramStep>(&s.what))
      if (auto shape = gemm_of(step->program, step_sizes(plan, *step, sizes, 0))) shapes.push_back(*shape);
  return shapes;
}

GemmLayout parse_layout(const std::string& text) {
  for (GemmLayout l : {GemmLayout::kForward, GemmLayout::kDataGradient, GemmLayout::kWeightGradient})
    if (text == name(l)) return l;
  throw Error({"--bare", "'" + text + "'", "forward, dgrad, wgrad", ""});
}

std::string_view name(GemmLayout l) {
  switch (l) {
    case GemmLayout::kForward: return "forward";
    case GemmLayout::kDataGradient: return "dgrad";
    case GemmLayout::kWeightGradient: return "wgrad";
  }
  throw InternalError(__FILE__, __LINE__, "an unknown layout");
}

Program bare_program(GemmLayout layout, DType operands, DType result, bool accumulate) {
  const bool a_by_k = layout == GemmLayout::kWeightGradient, b_by_k = layout != GemmLayout::kForward;
  ProgramBuilder b(fmt::format("bare_{}", name(layout)));
  Val x = a_by_k ? b.input("a", operands, {"K", "M"}) : b.input("a", operands, {"M", "K"});
  Val w = b_by_k ? b.input("b", operands, {"K", "N"}) : b.input("b", operands, {"N", "K"});
  b.output("c", result, matmul(x, a_by_k ? 0 : 1, w, b_by_k ? 0 : 1), accumulate);
  return b.build();
}

}  // namespace coda::cuda
