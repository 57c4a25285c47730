// Which integer inputs index something; see index_rules.h.
#include "ir/index_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "coda/error.h"

namespace coda {

std::vector<IndexRule> index_rules(const Graph& g) {
  std::vector<IndexRule> rules;
  auto input_of = [&](ValueId v) {
    for (std::size_t i = 0; i < g.inputs().size(); ++i)
      if (g.inputs()[i].value == v) return static_cast<int>(i);
    return -1;
  };
  for (const Node& n : g.nodes()) {
    if (n.op == Op::kGather) {
      const Input* table = g.as_input(n.operands[0]);
      rules.push_back({input_of(n.operands[1]), table->dims.front(), "rows of " + table->name, {}, {}});
    }
    if (n.op != Op::kEq) continue;
    for (int side : {0, 1}) {
      const Node& other = g.def(n.operands[static_cast<std::size_t>(1 - side)]);
      if (other.op != Op::kCol || input_of(n.operands[static_cast<std::size_t>(side)]) < 0) continue;
      rules.push_back({input_of(n.operands[static_cast<std::size_t>(side)]),
                       g.value(other.results[0]).type.cols,
                       "columns",
                       {},
                       {}});
    }
  }
  // Numbers that the same input is compared with are allowed too: they mean "ignored".
  for (const Node& n : g.nodes()) {
    if (n.op != Op::kEq && n.op != Op::kNe) continue;
    for (int side : {0, 1}) {
      int input = input_of(n.operands[static_cast<std::size_t>(side)]);
      ValueId other = n.operands[static_cast<std::size_t>(1 - side)];
      for (IndexRule& r : rules) {
        if (r.input != input || input < 0) continue;
        if (g.def(other).op == Op::kLiteral)
          r.ignore_values.push_back(static_cast<std::int64_t>(g.def(other).attrs.number));
        if (const Input* in = g.as_input(other); in != nullptr && in->is_const)
          r.ignore_inputs.push_back(input_of(other));
      }
    }
  }
  return rules;
}

void check_index(const std::string& called, const std::string& of, std::int64_t bound,
                 const std::vector<std::int64_t>& ignored, std::int64_t row, std::int64_t value) {
  if ((value >= 0 && value < bound) || std::find(ignored.begin(), ignored.end(), value) != ignored.end()) return;
  std::string allowed =
      bound > 0 ? fmt::format("0 to {} ({} {})", bound - 1, bound, of) : fmt::format("nothing (0 {})", of);
  if (!ignored.empty()) allowed += fmt::format(", or {}", fmt::join(ignored, ", "));
  throw Error({called, fmt::format("{} in row {}", value, row), allowed, ""});
}

}  // namespace coda
