// Plan: building with checks, look-ups, lifetimes. Who assembles a plan calls run and call; who executes, costs or
// prints it only reads. Invariant: a step that was accepted is bound completely, with every size known in the plan's.
#include "coda/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "coda/error.h"
#include "plan/bind.h"

namespace coda {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

std::string step_label(std::size_t number, std::string_view what, const std::string& scope) {
  return fmt::format("step {} ({}{}{})", number, what, scope.empty() ? "" : ", ", scope);
}

// Sizes are ≥ 0, so a difference without negative terms is ≥ 0 whatever they are.
bool never_negative(const Dim& d) {
  return std::all_of(d.terms().begin(), d.terms().end(), [](const auto& term) { return term.second.num >= 0; });
}

template <class Map>
std::string keys(const Map& map) {
  std::string text;
  for (const auto& [key, value] : map) text += (text.empty() ? "" : ", ") + key;
  return text.empty() ? "none" : text;
}

template <class List>
std::string names_of(const List& list) {
  std::string text;
  for (const auto& entry : list) text += (text.empty() ? "" : ", ") + entry.name;
  return text.empty() ? "none" : text;
}

void check_consts(const std::string& step, const ProgramStep& s) {
  const Graph& g = s.program.graph();
  for (const auto& [name, value] : s.consts) {
    const Input* in = g.find_input(name);
    if (in == nullptr || !in->is_const)
      throw Error({step + ", constant " + name, "no constant of the program", "its launch constants", ""});
    if (in->dtype == DType::kI32 && value != std::trunc(value))
      throw Error({step + ", constant " + name, fmt::format("{}", value), "a whole number (i32)", ""});
  }
  for (const Input& in : g.inputs())
    if (in.is_const && !s.consts.count(in.name))
      throw Error({step + ", constant " + in.name, "no value", "a value for every launch constant",
                   "Give it in the step's consts."});
}

void check_names(const std::string& step, const ProgramStep& s) {
  const Graph& g = s.program.graph();
  for (const auto& [name, ref] : s.inputs) {
    const Input* in = g.find_input(name);
    if (in == nullptr || in->is_const)
      throw Error({step + ", input " + name, "no input of the program", names_of(g.inputs()), ""});
  }
  for (const auto& [name, ref] : s.outputs)
    if (g.find_output(name) == nullptr)
      throw Error({step + ", output " + name, "no output of the program", names_of(g.outputs()), ""});
  for (const Input& in : g.inputs())
    if (!in.is_const && !s.inputs.count(in.name))
      throw Error({step + ", input " + in.name, "bound to no buffer",
                   "a buffer for every input; bound are " + keys(s.inputs), ""});
  if (s.outputs.empty())
    throw Error({step, "no output bound to a buffer", "at least one of " + names_of(g.outputs()), ""});
}

}  // namespace

std::string_view name(OpaqueKind k) {
  switch (k) {
    case OpaqueKind::kAttention: return "attention";
    case OpaqueKind::kAttentionGrad: return "attention_grad";
    case OpaqueKind::kScatterSum: return "scatter_sum";
    case OpaqueKind::kZero: return "zero";
  }
  throw InternalError(__FILE__, __LINE__, "an opaque call of no kind");
}

BufferId Plan::buffer(const std::string& buffer_name, DType dtype, const DimArg& rows, const DimArg& cols,
                      BufferRole role) {
  if (buffer_name.empty() || find(buffer_name) >= 0)
    throw Error({"buffer '" + buffer_name + "'", buffer_name.empty() ? "no name" : "a second buffer of this name",
                 "one name a buffer of plan " + name_, ""});
  buffers_.push_back({buffer_name, dtype, rows.dim, cols.dim, role});
  written_.push_back(false);
  return static_cast<BufferId>(buffers_.size()) - 1;
}

void Plan::check_ref(const std::string& step, const BufferRef& r) const {
  if (r.buffer < 0 || r.buffer >= static_cast<BufferId>(buffers_.size()))
    throw Error({step, fmt::format("buffer {}", r.buffer),
                 fmt::format("buffers of plan {}: 0 to {}", name_, static_cast<int>(buffers_.size()) - 1), ""});
  const Buffer& b = at(r.buffer);
  Dim beyond = r.first_col + cols_of(r) - b.cols;
  if (beyond.terms().size() > 0 && never_negative(beyond))
    throw Error({step + ", buffer " + b.name,
                 fmt::format("columns {} to {}", r.first_col.str(), (r.first_col + cols_of(r)).str()),
                 "columns within its " + b.cols.str(), ""});
  if (!r.chunk) return;
  if (!in_loop_)
    throw Error({step + ", buffer " + b.name, "a chunk of rows outside a loop",
                 "whole buffers, or steps between begin_rows and end_rows", ""});
  const RowLoop& loop = loops_.back();
  if (b.rows != loop.rows && !is_scratch(r, loop))
    throw Error({step + ", buffer " + b.name, "a chunk of its " + b.rows.str() + " rows",
                 fmt::format("the loop's {} rows, or its scratch of {}", loop.rows.str(), loop.chunk), ""});
}

void Plan::check_read(const std::string& step, const BufferRef& r) const {
  check_ref(step, r);
  const Buffer& b = at(r.buffer);
  bool holds_something = b.role == BufferRole::kInput || b.role == BufferRole::kInOut || written_[index(r.buffer)];
  if (!holds_something)
    throw Error({step + ", buffer " + b.name, "read before it is written",
                 "a buffer that an earlier step writes, or an input", ""});
}

void Plan::check_write(const std::string& step, const BufferRef& r, bool accumulate) const {
  if (accumulate)
    check_read(step, r);
  else
    check_ref(step, r);
  const Buffer& b = at(r.buffer);
  if (b.role == BufferRole::kInput)
    throw Error({step + ", buffer " + b.name, "an input that is written", "inputs are read only",
                 "Give it the role kInOut, or write to another buffer."});
  if (in_loop_ && !r.chunk && !accumulate && b.role != BufferRole::kTemp)
    throw Error({step + ", buffer " + b.name, "written anew by every chunk",
                 "by_chunk(), or an output that accumulates (+=)", ""});
}

// Memory that a step both reads and writes, or writes twice.
void Plan::check_aliases(const std::string& step, const ProgramStep& s) const {
  auto apart = [&](const BufferRef& a, const BufferRef& b) {
    return a.buffer != b.buffer || never_negative(b.first_col - a.first_col - cols_of(a)) ||
           never_negative(a.first_col - b.first_col - cols_of(b));
  };
  for (auto it = s.outputs.begin(); it != s.outputs.end(); ++it) {
    const auto& [out_name, out] = *it;
    const Buffer& b = at(out.buffer);
    for (auto other = std::next(it); other != s.outputs.end(); ++other)
      if (!apart(out, other->second))
        throw Error({step + ", buffer " + b.name,
                     fmt::format("outputs {} and {} both write it", out_name, other->first),
                     "columns apart, or buffers of their own", ""});
    const Output& o = *s.program.graph().find_output(out_name);
    for (const auto& [in_name, in] : s.inputs) {
      if (apart(out, in)) continue;
      bool same = in.chunk == out.chunk && in.first_col == out.first_col && cols_of(in) == cols_of(out);
      if (o.over != in_name || b.role != BufferRole::kTemp || !same)
        throw Error({step + ", buffer " + b.name, fmt::format("read as {} and written as {}", in_name, out_name),
                     "memory of its own for an output, unless the program says `over` and the buffer is a temporary of "
                     "the plan",
                     ""});
    }
  }
}

Dim Plan::rows_of(const BufferRef& r) const { return r.chunk ? Dim::symbol(kChunkRows) : at(r.buffer).rows; }
Dim Plan::cols_of(const BufferRef& r) const { return r.cols ? *r.cols : at(r.buffer).cols - r.first_col; }

void Plan::bind(const std::string& step, ProgramStep& s) const {
  const Graph& g = s.program.graph();
  std::vector<BoundShape> shapes;
  auto add = [&](const std::string& kind, const std::string& called, const BufferRef& r, DType dtype, ValueId v) {
    std::string full = fmt::format("{} {} = buffer {}", kind, called, at(r.buffer).name);
    if (at(r.buffer).dtype != dtype)
      throw Error({step + ", " + full, std::string(coda::name(at(r.buffer).dtype)), std::string(coda::name(dtype)),
                   "with_storage declares a program's tensors in another dtype."});
    shapes.push_back({full, &g.value(v).type, rows_of(r), cols_of(r)});
  };
  for (const auto& [in_name, r] : s.inputs)
    add("input", in_name, r, g.find_input(in_name)->dtype, g.find_input(in_name)->value);
  for (const auto& [out_name, r] : s.outputs)
    add("output", out_name, r, g.find_output(out_name)->dtype, g.find_output(out_name)->value);
  s.sizes = bind_sizes(s.program, step, s.sizes, shapes);
}

void Plan::append(Step step, const std::vector<BufferRef>& written) {
  for (const BufferRef& r : written) written_[index(r.buffer)] = true;
  steps_.push_back(std::move(step));
}

void Plan::run(ProgramStep step, const std::string& scope) {
  std::string label = step_label(steps_.size(), step.program.name(), scope);
  check_names(label, step);
  check_consts(label, step);
  for (const auto& [in_name, r] : step.inputs) check_read(label, r);
  std::vector<BufferRef> written;
  for (const auto& [out_name, r] : step.outputs) {
    check_write(label, r, step.program.graph().find_output(out_name)->accumulate);
    written.push_back(r);
  }
  check_aliases(label, step);
  bind(label, step);
  append({std::move(step), scope}, written);
}

void Plan::call(OpaqueStep step, const std::string& scope) {
  std::string label = step_label(steps_.size(), coda::name(step.kind), scope);
  check_opaque(label, step);
  std::vector<BufferRef> written = step.outputs;
  append({std::move(step), scope}, written);
}

void Plan::begin_rows(const Dim& rows, std::int64_t chunk) {
  if (in_loop_) throw Error({"begin_rows of plan " + name_, "a loop inside a loop", "one level of loops", ""});
  if (chunk < 1)
    throw Error({"begin_rows of plan " + name_, fmt::format("chunks of {} rows", chunk), "at least 1", ""});
  loops_.push_back({static_cast<int>(steps_.size()), -1, rows, chunk});
  in_loop_ = true;
}

void Plan::end_rows() {
  if (!in_loop_) throw Error({"end_rows of plan " + name_, "no open loop", "a begin_rows before it", ""});
  in_loop_ = false;
  loops_.back().last = static_cast<int>(steps_.size());
  if (loops_.back().first == loops_.back().last)
    throw Error({"end_rows of plan " + name_, "a loop without a step", "at least one step", ""});
}

void Plan::begin_backward() {
  if (in_loop_ || backward_start_ >= 0)
    throw Error({"begin_backward of plan " + name_, in_loop_ ? "an open loop" : "a second call",
                 "one call, outside loops", ""});
  backward_start_ = static_cast<int>(steps_.size());
}

BufferId Plan::find(const std::string& buffer_name) const {
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    if (buffers_[i].name == buffer_name) return static_cast<BufferId>(i);
  return -1;
}

const RowLoop* Plan::loop_of(int step) const {
  for (const RowLoop& l : loops_)
    if (step >= l.first && (step < l.last || l.last < 0)) return &l;
  return nullptr;
}

bool Plan::is_scratch(const BufferRef& r, const RowLoop& loop) const {
  const Dim& rows = at(r.buffer).rows;
  return r.chunk && rows == Dim(loop.chunk) && rows != loop.rows;
}

void Plan::check_complete() const {
  if (in_loop_) throw Error({"plan " + name_, "a loop that is still open", "an end_rows for every begin_rows", ""});
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    if (buffers_[i].role == BufferRole::kOutput && !written_[i])
      throw Error({"plan " + name_ + ", buffer " + buffers_[i].name, "an output that no step writes",
                   "outputs are written whole", ""});
}

std::vector<Lifetime> Plan::lifetimes() const {
  std::vector<Lifetime> lives(buffers_.size());
  for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
    const RowLoop* loop = loop_of(i);
    int first = loop == nullptr ? i : loop->first;
    int last = loop == nullptr ? i : loop->last - 1;
    auto touch = [&](const BufferRef& r) {
      Lifetime& l = lives[index(r.buffer)];
      if (l.first < 0) l.first = first;
      l.last = std::max(l.last, last);
    };
    if (const auto* p = std::get_if<ProgramStep>(&steps_[index(i)].what)) {
      for (const auto& [in_name, r] : p->inputs) touch(r);
      for (const auto& [out_name, r] : p->outputs) touch(r);
    } else {
      const auto& o = std::get<OpaqueStep>(steps_[index(i)].what);
      for (const BufferRef& r : o.inputs) touch(r);
      for (const BufferRef& r : o.outputs) touch(r);
    }
  }
  return lives;
}

std::vector<std::string> Plan::free_sizes() const {
  std::set<std::string> names;
  auto add = [&](const Dim& d) {
    for (const std::string& s : d.symbols())
      if (s != kChunkRows) names.insert(s);
  };
  auto add_ref = [&](const BufferRef& r) {
    add(r.first_col);
    if (r.cols) add(*r.cols);
  };
  for (const Buffer& b : buffers_) add(b.rows), add(b.cols);
  for (const RowLoop& l : loops_) add(l.rows);
  for (const Step& s : steps_) {
    if (const auto* p = std::get_if<ProgramStep>(&s.what)) {
      for (const auto& [size, d] : p->sizes) add(d);
      for (const auto& [in_name, r] : p->inputs) add_ref(r);
      for (const auto& [out_name, r] : p->outputs) add_ref(r);
    } else {
      const auto& o = std::get<OpaqueStep>(s.what);
      for (const Dim& d : o.sizes) add(d);
      for (const BufferRef& r : o.inputs) add_ref(r);
      for (const BufferRef& r : o.outputs) add_ref(r);
    }
  }
  return {names.begin(), names.end()};
}

std::string output_buffer(const Graph& g, const Output& o) {
  return g.find_input(o.name) == nullptr ? o.name : "out." + o.name;
}

Plan single_program_plan(const Program& p, const std::map<std::string, double>& consts) {
  Plan plan(p.name());
  const Graph& g = p.graph();
  ProgramStep step{p, {}, {}, consts, {}};
  for (const Input& in : g.inputs()) {
    const Type& t = g.value(in.value).type;
    if (!in.is_const) step.inputs[in.name] = plan.buffer(in.name, in.dtype, t.rows, t.width(), BufferRole::kInput);
  }
  for (const Output& o : g.outputs()) {
    const Type& t = g.value(o.value).type;
    std::string called = output_buffer(g, o);
    step.outputs[o.name] =
        plan.buffer(called, o.dtype, t.rows, t.width(), o.accumulate ? BufferRole::kInOut : BufferRole::kOutput);
  }
  for (const Graph* each : {&p.graph(), &p.expanded()})
    for (const std::string& s : each->free_sizes()) step.sizes[s] = Dim::symbol(s);
  plan.run(std::move(step));
  return plan;
}

Sizes step_sizes(const Plan& plan, const ProgramStep& step, const Sizes& sizes, std::int64_t chunk_rows) {
  Sizes known = sizes, result;
  known[kChunkRows] = chunk_rows;
  for (const auto& [size, d] : step.sizes) {
    try {
      result[size] = d.eval(known);
    } catch (const Error& e) {
      throw Error({fmt::format("plan {}, size {} of {}", plan.name(), size, step.program.name()), e.what(),
                   "sizes that fit", ""});
    }
  }
  return result;
}

}  // namespace coda
