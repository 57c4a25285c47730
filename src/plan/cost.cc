// What a plan costs: its steps, summed over loops and phases; see include/coda/machine.h.
#include "plan/cost.h"

#include <algorithm>

#include "coda/error.h"
#include "plan/arena.h"

namespace coda {
namespace {

void add(StepCost& sum, const StepCost& c) {
  sum.bytes += c.bytes;
  sum.flops += c.flops;
  sum.seconds += c.seconds;
  sum.gemms += c.gemms;
  sum.passes += c.passes;
  sum.finishes += c.finishes;
}

// One more run of the same step, in a loop: counts stay, traffic adds up.
void add_run(StepCost& sum, const StepCost& c, std::int64_t times) {
  auto scaled = [&](StepCost& to, const StepCost& from) {
    to.bytes += times * from.bytes;
    to.flops += times * from.flops;
    to.seconds += static_cast<double>(times) * from.seconds;
  };
  scaled(sum, c);
  sum.runs += times;
  for (std::size_t i = 0; i < c.unfused.size(); ++i) scaled(sum.unfused[i], c.unfused[i]);
}

class PlanCoster {
 public:
  PlanCoster(const Plan& plan, const Sizes& sizes, const Machine& machine)
      : plan_(plan), sizes_(sizes), machine_(machine) {}

  PlanCost run() {
    PlanCost total;
    for (int i = 0; i < static_cast<int>(plan_.steps().size()); ++i) {
      total.steps.push_back(step(i));
      const StepCost& c = total.steps.back();
      PhaseCost& phase = i < plan_.backward_start() ? total.forward : total.backward;
      for (PhaseCost* p : {&phase, &total.total}) {
        add(p->fused, c);
        if (c.unfused.empty()) add(p->unfused, c);
        for (const StepCost& op : c.unfused) add(p->unfused, op);
      }
    }
    add_memory(total);
    return total;
  }

 private:
  StepCost step(int number) const {
    const Step& s = plan_.steps()[static_cast<std::size_t>(number)];
    const RowLoop* loop = plan_.loop_of(number);
    StepCost c;
    if (loop == nullptr) {
      c = once(s, 0);
    } else {
      std::int64_t rows = loop->rows.eval(sizes_), whole = rows / loop->chunk, tail = rows % loop->chunk;
      c = once(s, loop->chunk);
      StepCost one = c;
      c.runs = 1;
      add_run(c, one, whole - 1);
      if (tail > 0) add_run(c, once(s, tail), 1);
    }
    c.scope = s.scope;
    return c;
  }

  StepCost once(const Step& s, std::int64_t chunk_rows) const {
    if (const auto* program = std::get_if<ProgramStep>(&s.what))
      return program_cost(*program, step_sizes(plan_, *program, sizes_, chunk_rows), machine_);
    return opaque(std::get<OpaqueStep>(s.what), chunk_rows);
  }

  std::int64_t bytes(const BufferRef& r, std::int64_t chunk_rows) const {
    const Buffer& b = plan_.at(r.buffer);
    std::int64_t rows = r.chunk ? chunk_rows : b.rows.eval(sizes_);
    std::int64_t cols = r.cols ? r.cols->eval(sizes_) : b.cols.eval(sizes_) - r.first_col.eval(sizes_);
    return rows * cols * size_of(b.dtype);
  }

  StepCost opaque(const OpaqueStep& s, std::int64_t chunk_rows) const {
    StepCost c;
    c.name = std::string(name(s.kind));
    DType dtype = DType::kF32;
    for (const BufferRef& r : s.inputs) c.bytes += bytes(r, chunk_rows);
    if (s.kind == OpaqueKind::kScatterSum) {
      // Rows that are hit are read and written.
      const Buffer& g = plan_.at(s.inputs[0].buffer);
      std::int64_t hit = bytes(s.inputs[0], chunk_rows) / size_of(g.dtype) * 4;
      c.bytes += 2 * std::min(hit, bytes(s.outputs[0], chunk_rows));
      c.passes = 1;
    } else {
      for (const BufferRef& r : s.outputs) c.bytes += bytes(r, chunk_rows);
    }
    if (s.kind == OpaqueKind::kAttention || s.kind == OpaqueKind::kAttentionGrad) {
      // Causal: half of 2 products forward, of 5 backward.
      const Buffer& q = plan_.at(s.inputs[0].buffer);
      dtype = q.dtype;
      std::int64_t rows = q.rows.eval(sizes_), batch = s.sizes[0].eval(sizes_);
      std::int64_t width = bytes(s.inputs[0], 0) / std::max<std::int64_t>(1, rows * size_of(q.dtype));
      c.flops = (s.kind == OpaqueKind::kAttention ? 2 : 5) * rows * (batch == 0 ? 0 : rows / batch) * width;
    }
    double peak = size_of(dtype) == 2 ? machine_.flops_16 : machine_.flops_f32;
    c.seconds = std::max(static_cast<double>(c.bytes) / machine_.bytes_per_second, static_cast<double>(c.flops) / peak);
    return c;
  }

  void add_memory(PlanCost& total) const {
    std::vector<Lifetime> lives = plan_.lifetimes();
    int boundary = plan_.backward_start(), steps = static_cast<int>(plan_.steps().size());
    for (std::size_t b = 0; b < lives.size(); ++b) {
      const Buffer& buffer = plan_.buffers()[b];
      bool has_backward = boundary > 0 && boundary < steps;
      bool crosses = buffer.role == BufferRole::kTemp && lives[b].first < boundary && lives[b].last >= boundary &&
                     lives[b].first >= 0;
      if (has_backward ? crosses : buffer.role == BufferRole::kOutput) total.kept_bytes += bytes_of(buffer, sizes_);
      if (buffer.role != BufferRole::kTemp) total.caller_bytes += bytes_of(buffer, sizes_);
    }
    total.temp_bytes = plan_arena(plan_, sizes_).bytes;
  }

  const Plan& plan_;
  const Sizes& sizes_;
  const Machine& machine_;
};

}  // namespace

PlanCost cost(const Plan& plan, const Sizes& sizes, const Machine& machine) {
  plan.check_complete();
  return PlanCoster(plan, sizes, machine).run();
}

}  // namespace coda
