// Reverse mode inside a builder: walks the nodes backwards and lets each op's derivative row hand the gradients of its
// results to its operands. Composites use their own row, else their expansion. Gradients may stay narrower than their
// value (constant along an axis) until somebody needs them whole. See include/coda/grad.h.
#include <map>
#include <set>

#include "coda/error.h"
#include "coda/grad.h"
#include "ir/composites.h"
#include "ir/grad_tools.h"

namespace coda {
namespace {

using Gradients = std::map<ValueId, Val>;

class Reverse {
 public:
  // Differentiates the nodes [first, last) of the builder with respect to `wrt`.
  Reverse(GraphBuilder& b, std::size_t first, std::size_t last, const std::set<ValueId>& wrt)
      : b_(b), first_(first), last_(last), active_(wrt) {
    for (std::size_t i = first; i < last; ++i) {
      const Node& n = node(i);
      for (ValueId v : n.results)
        if (depends(n) && is_float(v)) active_.insert(v);
    }
  }

  bool active(ValueId v) const { return active_.count(v) != 0; }

  void add(ValueId v, Val gradient) {
    auto [place, fresh] = gradients_.emplace(v, gradient);
    if (!fresh) place->second = place->second + gradient;
  }

  Gradients run() {
    for (std::size_t i = last_; i-- > first_;) {
      Node n = node(i);  // a copy: derivative rows add nodes
      GradFrame f{b_, n.attrs, {}, {}, {}, std::vector<std::optional<Val>>(n.operands.size())};
      bool reached = false;
      for (ValueId v : n.results) {
        auto found = gradients_.find(v);
        f.out.push_back({&b_, v});
        f.dout.push_back(found == gradients_.end() ? std::nullopt : std::optional<Val>(found->second));
        reached = reached || f.dout.back().has_value();
      }
      if (!reached || !depends(n)) continue;
      for (ValueId v : n.operands) f.in.push_back({&b_, v});
      differentiate(n, f);
      hand_on(n, f);
    }
    return std::move(gradients_);
  }

 private:
  const Node& node(std::size_t i) const { return b_.data().nodes[i]; }
  bool is_float(ValueId v) const { return b_.value(v).type.elem == Elem::kF32; }
  bool depends(const Node& n) const {
    for (ValueId v : n.operands)
      if (active(v)) return true;
    return false;
  }

  void differentiate(const Node& n, GradFrame& f) {
    const OpRow& r = row(n.op);
    if (r.grad != nullptr)
      r.grad(f);
    else if (r.has(kCompositeTrait))
      differentiate_expansion(n, f);
    else
      throw Error({std::string(r.name), "a gradient through it", "operations that have a derivative",
                   "Freeze what is before it."});
  }

  void differentiate_expansion(const Node& n, GradFrame& f) {
    std::size_t first = b_.data().nodes.size();
    ExpandFrame expansion{b_, n.attrs, f.in, {}};
    row(n.op).expand(expansion);
    std::set<ValueId> wrt;
    for (ValueId v : n.operands)
      if (active(v)) wrt.insert(v);
    Reverse inner(b_, first, b_.data().nodes.size(), wrt);
    for (std::size_t i = 0; i < f.out.size(); ++i)
      if (f.dout[i]) inner.add(expansion.out[i].id, *f.dout[i]);
    Gradients found = inner.run();
    for (std::size_t i = 0; i < n.operands.size(); ++i)
      if (auto it = found.find(n.operands[i]); it != found.end()) {
        f.din[i] = it->second;
        found.erase(it);  // an operand given twice has got all of its gradient
      }
  }

  void hand_on(const Node& n, const GradFrame& f) {
    for (std::size_t i = 0; i < n.operands.size(); ++i) {
      ValueId v = n.operands[i];
      if (!f.din[i] || !active(v) || !is_float(v)) continue;
      // A map's operand may be broadcast and its gradient constant along the same axis; others come whole there.
      const Type extent = row(n.op).has(kMapTrait) ? f.out[0].type() : f.din[i]->type();
      add(v, grads::sum_to(*f.din[i], extent, b_.value(v).type));
    }
  }

  GraphBuilder& b_;
  std::size_t first_, last_;
  std::set<ValueId> active_;
  Gradients gradients_;
};

}  // namespace

std::vector<std::optional<Val>> backpropagate(GraphBuilder& b, const std::vector<Seed>& seeds,
                                              const std::vector<Val>& wrt) {
  std::set<ValueId> ids;
  for (const Val& v : wrt) ids.insert(v.id);
  Reverse reverse(b, 0, b.data().nodes.size(), ids);
  for (const Seed& s : seeds)
    if (reverse.active(s.of.id)) {
      const Type type = s.of.type();
      reverse.add(s.of.id, grads::broadcast_to(s.gradient, type));
    }
  Gradients found = reverse.run();
  std::vector<std::optional<Val>> result;
  for (const Val& v : wrt) {
    auto it = found.find(v.id);
    if (it == found.end()) {
      result.emplace_back();
    } else {
      const Type type = v.type();
      result.emplace_back(grads::broadcast_to(it->second, type));
    }
  }
  return result;
}

}  // namespace coda
