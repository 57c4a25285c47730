// Unfused execution of a plan's programs; see unfused.h.
#include "bench/unfused.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "coda/builder.h"
#include "coda/error.h"
#include "plan/cost.h"

namespace coda::bench {
namespace {

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

// A tensor in memory: the caller's, or our own.
struct Slot {
  DType dtype = DType::kF32;
  std::int64_t rows = 0, cols = 0;
  std::string buffer;  // a plan buffer's name, or empty
  std::int64_t first_col = 0;
  std::vector<std::byte> memory;
};

struct Call {
  // A GEMM …
  bool is_gemm = false;
  int a = -1, b = -1, c = -1;
  int a_axis = 1, b_axis = 1;
  bool accumulate = false;
  // … or a pass.
  std::unique_ptr<Executable> pass;
  std::vector<std::pair<std::string, int>> bindings;
};

// Operations that cost a framework nothing or next to nothing are made part of whoever reads them: views, constants,
// indices, comparisons (their bool tensor), broadcasts.
bool is_inlined(const Graph& g, const Node& n) {
  switch (n.op) {
    case Op::kLiteral:
    case Op::kSize:
    case Op::kRow:
    case Op::kCol:
    case Op::kGroup:
    case Op::kFlat:
    case Op::kPairs:
    case Op::kHalves:
    case Op::kSplit:
    case Op::kGather: return true;
    case Op::kInput: return g.as_input(n.results[0])->is_const;
    default: return g.value(n.results[0]).type.elem == Elem::kBool;
  }
}

}  // namespace

struct Unfused::Impl {
  Impl(const Plan& p, const Sizes& s, LibraryGemm& g, Backend& b) : plan(p), sizes(s), gemm(g), backend(b) {
    for (std::size_t i = 0; i < plan.buffers().size(); ++i) {
      const Buffer& buffer = plan.buffers()[i];
      Slot slot;
      slot.dtype = buffer.dtype;
      slot.rows = buffer.rows.eval(sizes);
      slot.cols = buffer.cols.eval(sizes);
      if (buffer.role == BufferRole::kTemp)
        slot.memory.resize(bytes(slot));
      else
        slot.buffer = buffer.name;
      slots.push_back(std::move(slot));
    }
    for (const Step& step : plan.steps()) {
      const auto* program = std::get_if<ProgramStep>(&step.what);
      if (program == nullptr || !plan.loops().empty())
        throw Error({plan.name(), "a plan with opaque calls or loops", "program steps only", "Time those apart."});
      add_program(*program);
    }
  }

  static std::size_t bytes(const Slot& s) { return idx(s.rows * s.cols * size_of(s.dtype)) + 64; }

  int add_slot(DType dtype, std::int64_t rows, std::int64_t cols) {
    Slot s;
    s.dtype = dtype;
    s.rows = rows;
    s.cols = cols;
    s.memory.resize(bytes(s));
    slots.push_back(std::move(s));
    return static_cast<int>(slots.size()) - 1;
  }

  // A column range of a plan buffer as a slot of its own.
  int slot_of(const BufferRef& r) {
    std::int64_t first = r.first_col.eval(sizes);
    std::int64_t cols = r.cols ? r.cols->eval(sizes) : plan.at(r.buffer).cols.eval(sizes) - first;
    if (first == 0 && cols == slots[idx(r.buffer)].cols) return r.buffer;
    throw Error({plan.name(), "a step on a column range", "whole buffers", ""});
  }

  void add_program(const ProgramStep& step) {
    const Graph& g = step.program.expanded();
    Sizes local = step_sizes(plan, step, sizes, 0);
    DType storage = tile_storage(step.program);
    std::vector<int> slot(g.values().size(), -1);
    for (const Input& in : g.inputs())
      if (!in.is_const) slot[idx(in.value)] = slot_of(step.inputs.at(in.name));
    // A value that is an output is written straight to its tensor.
    for (const Output& o : g.outputs()) {
      auto it = step.outputs.find(o.name);
      bool input = g.def(o.value).op == Op::kInput;
      if (it != step.outputs.end() && !o.accumulate && !input && slot[idx(o.value)] < 0)
        slot[idx(o.value)] = slot_of(it->second);
    }
    auto place = [&](ValueId v) {
      if (slot[idx(v)] >= 0) return slot[idx(v)];
      const Type& t = g.value(v).type;
      bool tile = !t.rows.is_one() && !t.width().is_one();
      DType dtype = t.elem == Elem::kI32 ? DType::kI32 : tile ? storage : DType::kF32;
      return slot[idx(v)] = add_slot(dtype, t.rows.eval(local), t.width().eval(local));
    };
    std::set<int> product_nodes;
    std::map<ValueId, const Output*> accumulated;  // products that go straight into an accumulated output
    for (const Accumulator& acc : step.program.accumulators()) {
      for (int t : acc.matmul_nodes) product_nodes.insert(t);
      if (g.def(acc.value).op == Op::kAdd) product_nodes.insert(g.value(acc.value).node);
      for (const Output& o : g.outputs())
        if (o.accumulate && o.value == acc.value) accumulated[acc.value] = &o;
      bool first = true;
      for (int t : acc.matmul_nodes) {
        const Node& n = g.nodes()[idx(t)];
        Call c;
        c.is_gemm = true;
        c.a = slot[idx(n.operands[0])];
        c.b = slot[idx(n.operands[1])];
        c.a_axis = n.attrs.a_axis;
        c.b_axis = n.attrs.b_axis;
        c.c = accumulated.count(acc.value) ? slot_of(step.outputs.at(accumulated[acc.value]->name)) : place(acc.value);
        c.accumulate = accumulated.count(acc.value) || !first;
        first = false;
        calls.push_back(std::move(c));
      }
    }
    mark_inner_adds(g, step.program, product_nodes);
    for (std::size_t i = 0; i < g.nodes().size(); ++i) {
      const Node& n = g.nodes()[i];
      if (product_nodes.count(static_cast<int>(i)) || n.op == Op::kInput || is_inlined(g, n)) continue;
      add_pass(g, n, local, step.consts, slot, place);
    }
    for (const Output& o : g.outputs()) {
      auto it = step.outputs.find(o.name);
      if (it == step.outputs.end() || accumulated.count(o.value)) continue;
      int to = slot_of(it->second);
      if (slot[idx(o.value)] != to) add_copy(g, o, local, step.consts, slot, to);
    }
  }

  // Sums of more than two products: the additions in between belong to the GEMM too.
  static void mark_inner_adds(const Graph& g, const Program& p, std::set<int>& nodes) {
    for (const Accumulator& acc : p.accumulators()) {
      std::function<void(ValueId)> mark = [&](ValueId v) {
        if (g.def(v).op != Op::kAdd) return;
        nodes.insert(g.value(v).node);
        for (ValueId operand : g.def(v).operands) mark(operand);
      };
      if (acc.matmul_nodes.size() > 1) mark(acc.value);
    }
  }

  // Builds one-operation programs: tensors in memory become inputs, inlined operations are rebuilt.
  class PassBuilder {
   public:
    PassBuilder(Impl& impl, const Graph& g, const Sizes& local, const std::vector<int>& slot)
        : impl_(impl), g_(g), local_(local), slot_(slot), builder_("pass") {}

    Val value(ValueId v) {
      if (auto it = made_.find(v); it != made_.end()) return it->second;
      const Node& n = g_.def(v);
      const Type& t = g_.value(v).type;
      if (n.op == Op::kInput && g_.as_input(v)->is_const) {
        const Input* in = g_.as_input(v);
        return made_[v] = builder_.launch_const(in->name, in->dtype);
      }
      if (n.op == Op::kInput || !is_inlined(g_, n)) {
        std::string name = "v" + std::to_string(v);
        const Slot& s = impl_.slots[idx(slot_[idx(v)])];
        bindings.emplace_back(name, slot_[idx(v)]);
        std::vector<DimArg> dims{DimArg(t.rows), DimArg(t.groups), DimArg(t.cols)};
        if (t.groups.is_one()) dims.erase(dims.begin() + 1);
        return made_[v] = builder_.input(name, s.dtype, dims);
      }
      std::vector<Val> operands;
      for (ValueId operand : n.operands) operands.push_back(value(operand));
      std::vector<Val> results = builder_.apply(n.op, operands, n.attrs);
      for (std::size_t i = 0; i < results.size(); ++i) made_[n.results[i]] = results[i];
      return made_.at(v);
    }

    void output(Val v, int slot, bool accumulate) {
      std::string name = "o" + std::to_string(bindings.size());
      builder_.output(name, impl_.slots[idx(slot)].dtype, v, accumulate);
      bindings.emplace_back(name, slot);
    }

    void finish(const std::map<std::string, double>& consts) {
      Call c;
      Program p = builder_.build();
      std::map<std::string, double> used;
      for (const Input& in : p.graph().inputs())
        if (in.is_const) used[in.name] = consts.at(in.name);
      c.pass = impl_.backend.prepare(single_program_plan(p, used), local_);
      c.bindings = bindings;
      impl_.calls.push_back(std::move(c));
    }

    ProgramBuilder& builder() { return builder_; }
    std::vector<std::pair<std::string, int>> bindings;

   private:
    Impl& impl_;
    const Graph& g_;
    const Sizes& local_;
    const std::vector<int>& slot_;
    ProgramBuilder builder_;
    std::map<ValueId, Val> made_;
  };

  template <class Place>
  void add_pass(const Graph& g, const Node& n, const Sizes& local, const std::map<std::string, double>& consts,
                std::vector<int>& slot, Place place) {
    PassBuilder b(*this, g, local, slot);
    std::vector<Val> operands;
    for (ValueId v : n.operands) operands.push_back(b.value(v));
    std::vector<Val> results = b.builder().apply(n.op, operands, n.attrs);
    for (std::size_t i = 0; i < results.size(); ++i) b.output(results[i], place(n.results[i]), false);
    b.finish(consts);
  }

  void add_copy(const Graph& g, const Output& o, const Sizes& local, const std::map<std::string, double>& consts,
                const std::vector<int>& slot, int to) {
    PassBuilder b(*this, g, local, slot);
    b.output(b.value(o.value), to, o.accumulate);
    b.finish(consts);
  }

  TensorView view(int s, const Bindings& bindings) {
    Slot& slot = slots[idx(s)];
    if (!slot.buffer.empty()) return bindings.at(slot.buffer);
    return TensorView::matrix(slot.memory.data(), slot.dtype, slot.rows, slot.cols);
  }

  void run(const Bindings& bindings, bool with_passes) {
    for (Call& c : calls) {
      if (c.is_gemm) {
        gemm.run({view(c.a, bindings), view(c.b, bindings), view(c.c, bindings), c.a_axis, c.b_axis, c.accumulate});
      } else if (with_passes) {
        Bindings b;
        for (const auto& [name, s] : c.bindings) b[name] = view(s, bindings);
        c.pass->run(b);
      }
    }
  }

  const Plan& plan;
  Sizes sizes;
  LibraryGemm& gemm;
  Backend& backend;
  std::vector<Slot> slots;
  std::vector<Call> calls;
};

Unfused::Unfused(const Plan& plan, const Sizes& sizes, LibraryGemm& gemm, Backend& passes)
    : impl_(std::make_unique<Impl>(plan, sizes, gemm, passes)) {}
Unfused::~Unfused() = default;
void Unfused::run(const Bindings& bindings) { impl_->run(bindings, true); }
void Unfused::run_gemms(const Bindings& bindings) { impl_->run(bindings, false); }

std::size_t Unfused::passes() const {
  return static_cast<std::size_t>(
      std::count_if(impl_->calls.begin(), impl_->calls.end(), [](const Call& c) { return !c.is_gemm; }));
}

}  // namespace coda::bench
