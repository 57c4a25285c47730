// Plans on the interpreter; see reference.h.
#include "plan/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "coda/error.h"

namespace coda {
namespace {

class PlanRun {
 public:
  PlanRun(const Plan& plan, const Arrays& inputs, const Sizes& sizes, const InterpretOptions& options)
      : plan_(plan), sizes_(sizes), options_(options), memory_(plan.buffers().size()) {
    plan.check_complete();
    for (const std::string& s : plan.free_sizes())
      if (!sizes.count(s)) throw Error({"size " + s, "no value", "a value for every size of plan " + plan.name(), ""});
    for (const auto& [name, array] : inputs) {
      BufferId b = plan.find(name);
      if (b < 0 || !is_given(plan.at(b)))
        throw Error({name, "no input of plan " + plan.name(), "its inputs and in-outs", ""});
    }
    for (std::size_t b = 0; b < memory_.size(); ++b) load(plan.buffers()[b], memory_[b], inputs);
  }

  Arrays run(bool all) {
    for (int i = 0; i < static_cast<int>(plan_.steps().size());) {
      const RowLoop* loop = plan_.loop_of(i);
      if (loop == nullptr) {
        step(i++, nullptr, 0, 0);
        continue;
      }
      std::int64_t rows = loop->rows.eval(sizes_);
      for (std::int64_t r = 0; r < rows; r += loop->chunk)
        for (int s = loop->first; s < loop->last; ++s) step(s, loop, r, std::min(loop->chunk, rows - r));
      i = loop->last;
    }
    Arrays result;
    for (std::size_t b = 0; b < memory_.size(); ++b) {
      BufferRole role = plan_.buffers()[b].role;
      if (role == BufferRole::kOutput || role == BufferRole::kInOut || (all && role == BufferRole::kTemp))
        result[plan_.buffers()[b].name] = std::move(memory_[b]);
    }
    return result;
  }

 private:
  struct Window {
    const RowLoop* loop;
    std::int64_t row0, rows;
  };
  struct Range {
    std::int64_t row0, rows, col0, cols;
  };

  static bool is_given(const Buffer& b) { return b.role == BufferRole::kInput || b.role == BufferRole::kInOut; }

  // What nobody wrote yet is NaN, so that reading it shows.
  void load(const Buffer& b, Array& memory, const Arrays& inputs) {
    Array own(b.rows.eval(sizes_), 1, b.cols.eval(sizes_), std::nan(""));
    if (is_given(b)) {
      auto it = inputs.find(b.name);
      if (it == inputs.end())
        throw Error({b.name, "missing", "a value for every input and in-out of plan " + plan_.name(), ""});
      if (it->second.rows != own.rows || it->second.width() != own.cols)
        throw Error({b.name, fmt::format("[{},{}]", it->second.rows, it->second.width()),
                     fmt::format("[{},{}]", own.rows, own.cols), ""});
      own.data = it->second.data;
    }
    memory = std::move(own);
  }

  Range range(const BufferRef& r, const Window& w) const {
    const Array& m = memory_[static_cast<std::size_t>(r.buffer)];
    std::int64_t col0 = r.first_col.eval(sizes_);
    std::int64_t cols = r.cols ? r.cols->eval(sizes_) : m.cols - col0;
    if (!r.chunk) return {0, m.rows, col0, cols};
    return {plan_.is_scratch(r, *w.loop) ? 0 : w.row0, w.rows, col0, cols};
  }

  Array read(const BufferRef& r, const Window& w) const {
    const Array& m = memory_[static_cast<std::size_t>(r.buffer)];
    Range at = range(r, w);
    Array a(at.rows, 1, at.cols);
    for (std::int64_t i = 0; i < at.rows; ++i)
      for (std::int64_t j = 0; j < at.cols; ++j) a.at(i, j) = m.at(at.row0 + i, at.col0 + j);
    return a;
  }

  void write(const BufferRef& r, const Window& w, const Array& a) {
    Array& m = memory_[static_cast<std::size_t>(r.buffer)];
    Range at = range(r, w);
    CODA_CHECK(a.rows == at.rows && a.width() == at.cols,
               "a step's output has another shape than " + plan_.at(r.buffer).name);
    for (std::int64_t i = 0; i < at.rows; ++i)
      for (std::int64_t j = 0; j < at.cols; ++j) m.at(at.row0 + i, at.col0 + j) = a.at(i, j);
  }

  void step(int number, const RowLoop* loop, std::int64_t row0, std::int64_t rows) {
    const Step& s = plan_.steps()[static_cast<std::size_t>(number)];
    Window w{loop, row0, rows};
    if (const auto* program = std::get_if<ProgramStep>(&s.what))
      run_program(*program, w);
    else
      run_opaque(std::get<OpaqueStep>(s.what), w);
  }

  void run_program(const ProgramStep& s, const Window& w) {
    const Graph& g = s.program.graph();
    Arrays in;
    for (const auto& [name, value] : s.consts) in[name] = Array(1, 1, 1, value);
    for (const auto& [name, r] : s.inputs) in[name] = read(r, w);
    Sizes sizes = step_sizes(plan_, s, sizes_, w.rows);
    for (const Output& o : g.outputs()) {
      if (!o.accumulate) continue;
      const Type& t = g.value(o.value).type;
      auto bound = s.outputs.find(o.name);
      in[o.name] =
          bound == s.outputs.end() ? Array(t.rows.eval(sizes), 1, t.width().eval(sizes)) : read(bound->second, w);
    }
    Arrays out = interpret(g, in, sizes, options_);
    for (const auto& [name, r] : s.outputs) write(r, w, out.at(name));
  }

  void run_opaque(const OpaqueStep& s, const Window& w) {
    if (s.kind == OpaqueKind::kZero) {
      for (const BufferRef& r : s.outputs) write(r, w, Array(range(r, w).rows, 1, range(r, w).cols));
      return;
    }
    static constexpr const char* kResults[] = {"a", "b", "c"};
    GraphBuilder b{std::string(name(s.kind))};
    Arrays in;
    auto input = [&](std::size_t i) {
      Array a = read(s.inputs[i], w);
      std::string called = "operand" + std::to_string(i + 1);
      Val v = b.input(called, plan_.at(s.inputs[i].buffer).dtype, {Dim(a.rows), Dim(a.cols)});
      in[called] = std::move(a);
      return v;
    };
    std::vector<Val> results;
    Attrs attrs;
    for (const Dim& d : s.sizes) attrs.dims.push_back(Dim(d.eval(sizes_)));
    switch (s.kind) {
      case OpaqueKind::kAttention: results = b.apply(Op::kAttention, {input(0), input(1), input(2)}, attrs); break;
      case OpaqueKind::kAttentionGrad: {
        Val q = input(0), k = input(1), v = input(2);
        results = b.apply(Op::kAttentionGrad, {q, k, v, input(5)}, attrs);
        break;
      }
      case OpaqueKind::kScatterSum: {
        attrs.dims = {Dim(range(s.outputs[0], w).rows)};
        Val g = input(0);
        results = b.apply(Op::kScatterSum, {g, input(1)}, attrs);
        in[kResults[0]] = read(s.outputs[0], w);
        break;
      }
      case OpaqueKind::kZero: break;
    }
    bool adds = s.kind == OpaqueKind::kScatterSum;
    for (std::size_t i = 0; i < results.size(); ++i)
      b.output(kResults[i], plan_.at(s.outputs[i].buffer).dtype, results[i], adds);
    Arrays out = interpret(b.build_graph(), in, {}, options_);
    for (std::size_t i = 0; i < results.size(); ++i) write(s.outputs[i], w, out.at(kResults[i]));
  }

  const Plan& plan_;
  const Sizes& sizes_;
  const InterpretOptions& options_;
  std::vector<Array> memory_;
};

}  // namespace

Arrays interpret_plan(const Plan& plan, const Arrays& inputs, const Sizes& sizes, const InterpretOptions& options,
                      bool all) {
  return PlanRun(plan, inputs, sizes, options).run(all);
}

}  // namespace coda
