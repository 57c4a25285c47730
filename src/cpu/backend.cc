// The CPU backend: prepares every step of a plan as a ProgramKernel or an opaque call, places the plan's temporaries in
// one arena, and runs the steps in order.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/align.h"
#include "base/thread_pool.h"
#include "coda/cpu.h"
#include "coda/error.h"
#include "cpu/checks.h"
#include "cpu/kernel.h"
#include "cpu/opaque.h"
#include "ir/index_rules.h"
#include "plan/arena.h"

namespace coda {
namespace {

using cpu::Isa;
using cpu::ProgramKernel;
using cpu::RunArgs;

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

Isa parse_isa(const std::string& text) {
  if (text.empty()) return cpu::best_isa();
  std::string allowed;
  for (Isa isa : cpu::supported_isas()) {
    if (text == cpu::name(isa)) return isa;
    allowed += (allowed.empty() ? "" : ", ") + std::string(cpu::name(isa));
  }
  throw Error({"isa", "'" + text + "'", allowed + " (what this processor has)", ""});
}

// A buffer reference at concrete sizes.
struct Ref {
  BufferId buffer = -1;
  std::int64_t first_col = 0, cols = 0;
  bool chunk = false;
  bool scratch = false;  // a chunk of the loop's scratch: its first rows
};

struct IndexCheck {
  Ref ref;
  std::string called, of;
  std::int64_t bound = 0;
  std::vector<std::int64_t> ignored;
  bool at_start = false;  // the caller's tensor: checked before anything is written
};

struct PreparedStep {
  const ProgramStep* program = nullptr;
  const OpaqueStep* opaque = nullptr;
  std::map<std::int64_t, std::unique_ptr<ProgramKernel>> kernels;  // by rows of the chunk (0: no loop)
  std::vector<std::optional<Ref>> inputs, outputs;                 // by index in the graph; opaque: in order
  std::vector<double> consts;
  std::vector<std::int64_t> sizes;  // of an opaque call
  std::vector<IndexCheck> checks;
};

class CpuExecutable : public Executable {
 public:
  CpuExecutable(const Plan& plan, const Sizes& sizes, const CpuOptions& options, Isa isa,
                std::shared_ptr<ThreadPool> pool)
      : plan_(plan), sizes_(sizes), pool_(std::move(pool)), arena_(plan_arena(plan_, sizes)) {
    kernel_options_ = {isa, options.tile_rows, options.tile_cols};
    for (const std::string& s : plan_.free_sizes())
      if (!sizes_.count(s)) throw Error({"size " + s, "no value", "a value for every size of the plan", ""});
    for (std::size_t i = 0; i < plan_.steps().size(); ++i) steps_.push_back(prepare(static_cast<int>(i)));
    memory_.resize(idx(arena_.bytes) + 64);
  }

  void run(const Bindings& bindings) override {
    cpu::check_bindings(plan_, sizes_, bindings);
    place_buffers(bindings);
    for (const PreparedStep& s : steps_)
      for (const IndexCheck& c : s.checks)
        if (c.at_start) check(c, 0, 0);
    for (int i = 0; i < static_cast<int>(steps_.size());) {
      const RowLoop* loop = plan_.loop_of(i);
      if (loop == nullptr) {
        run_step(steps_[idx(i++)], 0, 0);
        continue;
      }
      std::int64_t rows = loop->rows.eval(sizes_);
      for (std::int64_t r = 0; r < rows; r += loop->chunk)
        for (int s = loop->first; s < loop->last; ++s) run_step(steps_[idx(s)], r, std::min(loop->chunk, rows - r));
      i = loop->last;
    }
  }

  void poison() override {
    std::fill(memory_.begin(), memory_.end(), std::byte{0xff});
    for (PreparedStep& s : steps_)
      for (auto& [rows, kernel] : s.kernels) kernel->poison();
  }

  std::string configuration() const override {
    std::string text = fmt::format("cpu, {} threads, temporaries {} bytes\n", pool_->size(), arena_.bytes);
    for (std::size_t i = 0; i < steps_.size(); ++i)
      for (const auto& [rows, kernel] : steps_[i].kernels)
        text += fmt::format("{} {} {}: {}\n", i, plan_.steps()[i].scope, steps_[i].program->program.name(),
                            kernel->configuration());
    return text;
  }

 private:
  Ref resolve(const BufferRef& r, int step, const RowLoop* loop) const {
    std::int64_t first = r.first_col.eval(sizes_), all = plan_.at(r.buffer).cols.eval(sizes_);
    std::int64_t cols = r.cols ? r.cols->eval(sizes_) : all - first;
    if (cols < 0 || first + cols > all)  // a plan compares sizes by name only
      throw Error({fmt::format("step {}, buffer {}", step, plan_.at(r.buffer).name),
                   fmt::format("columns {} to {}", first, first + cols), fmt::format("columns within its {}", all),
                   ""});
    return {r.buffer, first, cols, r.chunk, loop != nullptr && plan_.is_scratch(r, *loop)};
  }

  PreparedStep prepare(int number) const {
    const Step& step = plan_.steps()[idx(number)];
    const RowLoop* loop = plan_.loop_of(number);
    PreparedStep p;
    if (const auto* opaque = std::get_if<OpaqueStep>(&step.what)) {
      p.opaque = opaque;
      for (const BufferRef& r : opaque->inputs) p.inputs.emplace_back(resolve(r, number, loop));
      for (const BufferRef& r : opaque->outputs) p.outputs.emplace_back(resolve(r, number, loop));
      for (const Dim& d : opaque->sizes) p.sizes.push_back(d.eval(sizes_));
      if (opaque->kind == OpaqueKind::kAttention || opaque->kind == OpaqueKind::kAttentionGrad)
        check_attention(p, number);
      if (opaque->kind == OpaqueKind::kScatterSum)
        add_check(p, {*p.inputs[1],
                      plan_.at(p.inputs[1]->buffer).name,
                      "rows of " + plan_.at(p.outputs[0]->buffer).name,
                      plan_.at(p.outputs[0]->buffer).rows.eval(sizes_),
                      {}});
      return p;
    }
    const auto& program = std::get<ProgramStep>(step.what);
    p.program = &program;
    const Graph& g = program.program.expanded();
    for (const Input& in : g.inputs()) {
      auto it = program.inputs.find(in.name);
      p.inputs.push_back(it == program.inputs.end() ? std::optional<Ref>() : resolve(it->second, number, loop));
      auto c = program.consts.find(in.name);
      p.consts.push_back(c == program.consts.end() ? 0 : c->second);
    }
    for (const Output& out : g.outputs()) {
      auto it = program.outputs.find(out.name);
      p.outputs.push_back(it == program.outputs.end() ? std::optional<Ref>() : resolve(it->second, number, loop));
    }
    std::set<std::int64_t> rows{0};
    if (loop != nullptr) {
      std::int64_t total = loop->rows.eval(sizes_);
      rows.clear();
      if (total >= loop->chunk) rows.insert(loop->chunk);
      if (total % loop->chunk != 0) rows.insert(total % loop->chunk);
    }
    for (std::int64_t r : rows)
      p.kernels[r] =
          std::make_unique<ProgramKernel>(program.program, step_sizes(plan_, program, sizes_, r), kernel_options_);
    for (const IndexRule& rule : index_rules(g)) {
      const Input& in = g.inputs()[idx(rule.input)];
      Ref ref = *p.inputs[idx(rule.input)];
      std::int64_t any_rows = rows.empty() ? 0 : *rows.begin();
      IndexCheck c{ref, fmt::format("{} (input {} of {})", plan_.at(ref.buffer).name, in.name, program.program.name()),
                   rule.of, rule.bound.eval(step_sizes(plan_, program, sizes_, any_rows)), rule.ignore_values};
      for (int k : rule.ignore_inputs) c.ignored.push_back(static_cast<std::int64_t>(p.consts[idx(k)]));
      add_check(p, std::move(c));
    }
    return p;
  }

  void add_check(PreparedStep& p, IndexCheck c) const {
    c.at_start = plan_.at(c.ref.buffer).role == BufferRole::kInput;
    if (c.at_start) c.ref.chunk = false;  // every chunk's rows at once
    p.checks.push_back(std::move(c));
  }

  // Whole sequences and heads of one width.
  void check_attention(const PreparedStep& p, int step) const {
    std::int64_t rows = plan_.at(p.inputs[0]->buffer).rows.eval(sizes_), q = p.inputs[0]->cols, kv = p.inputs[1]->cols;
    std::int64_t batch = p.sizes[0], heads = p.sizes[1], kv_heads = p.sizes[2];
    bool whole_heads =
        kv_heads > 0 && heads > 0 && heads % kv_heads == 0 && q > 0 && q % heads == 0 && q / heads * kv_heads == kv;
    if (whole_heads && (batch > 0 ? rows % batch == 0 : rows == 0)) return;
    throw Error({fmt::format("step {} (attention), buffer {}", step, plan_.at(p.inputs[0]->buffer).name),
                 fmt::format("{} rows in {} sequences, {} columns in {} heads, {} in {} of k and v", rows, batch, q,
                             heads, kv, kv_heads),
                 "rows that divide into the sequences, columns into heads of one width", ""});
  }

  void place_buffers(const Bindings& bindings) {
    views_.clear();
    char* base = line_aligned<char>(memory_.data());
    for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
      const Buffer& buffer = plan_.buffers()[b];
      if (buffer.role != BufferRole::kTemp) {
        views_.push_back(bindings.at(buffer.name));
      } else {
        void* data = base + arena_.offsets[b];
        views_.push_back(TensorView::matrix(data, buffer.dtype, buffer.rows.eval(sizes_), buffer.cols.eval(sizes_)));
      }
    }
  }

  TensorView view(const Ref& r, std::int64_t row0, std::int64_t rows) const {
    TensorView v = views_[idx(r.buffer)];
    if (r.first_col != 0 || r.cols != v.cols) v = v.col_range(r.first_col, r.cols);
    return r.chunk ? v.row_range(r.scratch ? 0 : row0, rows) : v;
  }

  void check(const IndexCheck& c, std::int64_t row0, std::int64_t rows) const {
    cpu::check_indices(c.called, view(c.ref, row0, rows), c.of, c.bound, c.ignored);
  }

  void run_step(const PreparedStep& s, std::int64_t row0, std::int64_t rows) {
    for (const IndexCheck& c : s.checks)
      if (!c.at_start) check(c, row0, rows);
    RunArgs args;
    for (const auto& r : s.inputs) args.inputs.push_back(r ? view(*r, row0, rows) : TensorView());
    for (const auto& r : s.outputs) args.outputs.push_back(r ? view(*r, row0, rows) : TensorView());
    if (s.opaque != nullptr) {
      cpu::run_opaque(s.opaque->kind, args.inputs, args.outputs, s.sizes, kernel_options_.isa, *pool_);
      return;
    }
    args.consts = s.consts;
    s.kernels.at(rows)->run(args, *pool_);
  }

  Plan plan_;
  Sizes sizes_;
  std::shared_ptr<ThreadPool> pool_;
  ArenaLayout arena_;
  cpu::KernelOptions kernel_options_;
  std::vector<PreparedStep> steps_;
  std::vector<std::byte> memory_;
  std::vector<TensorView> views_;
};

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options) : options_(options), isa_(parse_isa(options.isa)) {
    if (options.threads < 0) throw Error({"threads", std::to_string(options.threads), "0 (all cores) or more", ""});
    if (options.tile_rows < 0 || options.tile_cols < 0)
      throw Error({"tile", fmt::format("{}x{}", options.tile_rows, options.tile_cols), "sizes ≥ 0 (0: chosen)", ""});
    pool_ = std::make_shared<ThreadPool>(options.threads == 0 ? default_thread_count() : options.threads);
  }
  std::string name() const override { return "cpu"; }
  std::unique_ptr<Executable> prepare(const Plan& plan, const Sizes& sizes) override {
    return std::make_unique<CpuExecutable>(plan, sizes, options_, isa_, pool_);
  }

 private:
  CpuOptions options_;
  Isa isa_;
  std::shared_ptr<ThreadPool> pool_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) { return std::make_unique<CpuBackend>(options); }

}  // namespace coda
