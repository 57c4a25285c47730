// Plan: what runs. An ordered list of programs and opaque calls on named buffers, with `for chunk of rows` as its only
// loop. Tile-free and symbolic in sizes; a backend prepares it for concrete ones.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coda/builder.h"
#include "coda/dim.h"
#include "coda/dtype.h"
#include "coda/program.h"

namespace coda {

using BufferId = int;

enum class BufferRole : std::uint8_t {
  kInput,   // the caller's, read only: parameters, activations from outside
  kOutput,  // the caller's, written whole
  kInOut,   // the caller's, read and written: accumulated gradients
  kTemp,    // the plan's own, alive from its first writer to its last reader
};

struct Buffer {
  std::string name;
  DType dtype = DType::kF32;
  Dim rows, cols;
  BufferRole role = BufferRole::kTemp;
};

// A buffer as a step sees it: all of it, or a range of its columns; inside a loop optionally the current chunk's rows.
struct BufferRef {
  BufferId buffer = -1;
  Dim first_col = 0;
  std::optional<Dim> cols = std::nullopt;  // all from first_col on, if empty
  // The current chunk's rows of the loop around the step: rows [i·chunk, …) of a buffer that has the loop's rows, the
  // first rows of a buffer that has only `chunk` rows (the loop's scratch).
  bool chunk = false;
  BufferRef() = default;
  BufferRef(BufferId b) : buffer(b) {}  // NOLINT: a whole buffer is the common case
  BufferRef(BufferId b, Dim first, Dim count) : buffer(b), first_col(std::move(first)), cols(std::move(count)) {}
  BufferRef by_chunk() const {
    BufferRef r = *this;
    r.chunk = true;
    return r;
  }
};

struct ProgramStep {
  Program program;
  std::map<std::string, BufferRef> inputs;   // by the program's input name
  std::map<std::string, BufferRef> outputs;  // by output name; an output that nobody wants may be left out
  std::map<std::string, double> consts;      // launch constants
  // The program's sizes in the plan's. A caller gives those that no shape fixes; Plan::run finds the rest, so that a
  // step of a plan has them all.
  std::map<std::string, Dim> sizes;
};

enum class OpaqueKind : std::uint8_t {
  kAttention,      // q, k, v → o, lse f32[M,heads]    causal, grouped-query; sizes: batch, heads, kv_heads
  kAttentionGrad,  // q, k, v, o, lse, do → dq, dk, dv   the same sizes
  kScatterSum,     // g [T,C], index i32[T,1] → table [S,C] fp32, added to what it holds, in row order
  kZero,           // → any number of buffers, filled with zeros
};
std::string_view name(OpaqueKind k);

struct OpaqueStep {
  OpaqueKind kind;
  std::vector<BufferRef> inputs, outputs;
  std::vector<Dim> sizes;
};

struct Step {
  std::variant<ProgramStep, OpaqueStep> what;
  std::string scope;  // "layer3.mlp", for messages and explain
};

// Steps [first, last) run once per chunk of `chunk` rows of the size `rows`; the last chunk may be shorter.
struct RowLoop {
  int first = 0, last = 0;
  Dim rows;
  std::int64_t chunk = 0;
};

// From the first step that touches it to the last, inclusive; steps inside a loop live as long as the loop.
struct Lifetime {
  int first = -1, last = -1;
};

class Plan {
 public:
  explicit Plan(std::string name) : name_(std::move(name)) {}

  BufferId buffer(const std::string& buffer_name, DType dtype, const DimArg& rows, const DimArg& cols, BufferRole role);
  // Error, naming step and buffer, if a name is unknown, an input or launch constant unbound, a dtype or (symbolically)
  // a shape wrong, an input written, something read before it is written, or memory both read and written: that takes
  // an output declared `over` the input, bound to the same temporary.
  void run(ProgramStep step, const std::string& scope = "");
  void call(OpaqueStep step, const std::string& scope = "");
  void begin_rows(const Dim& rows, std::int64_t chunk);
  void end_rows();
  void begin_backward();  // the steps from here on are the backward: for costs and explain

  const std::string& name() const { return name_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<RowLoop>& loops() const { return loops_; }
  const Buffer& at(BufferId b) const { return buffers_[static_cast<std::size_t>(b)]; }
  BufferId find(const std::string& buffer_name) const;  // -1 if there is none
  const RowLoop* loop_of(int step) const;
  std::vector<Lifetime> lifetimes() const;  // by buffer
  std::vector<std::string> free_sizes() const;
  int backward_start() const { return backward_start_ < 0 ? static_cast<int>(steps_.size()) : backward_start_; }
  // Whether `r`, in a step of this loop, means the first rows of a scratch buffer.
  bool is_scratch(const BufferRef& r, const RowLoop& loop) const;
  // Error if an output is never written or a loop still open. Whoever runs, costs or prints a plan calls it.
  void check_complete() const;

 private:
  void check_ref(const std::string& step, const BufferRef& r) const;
  void check_read(const std::string& step, const BufferRef& r) const;
  void check_write(const std::string& step, const BufferRef& r, bool accumulate) const;
  void check_aliases(const std::string& step, const ProgramStep& s) const;
  void check_opaque(const std::string& step, const OpaqueStep& s) const;
  void bind(const std::string& step, ProgramStep& s) const;
  Dim rows_of(const BufferRef& r) const;  // of a step that is being added
  Dim cols_of(const BufferRef& r) const;
  void append(Step step, const std::vector<BufferRef>& written);

  std::string name_;
  std::vector<Buffer> buffers_;
  std::vector<Step> steps_;
  std::vector<RowLoop> loops_;
  std::vector<bool> written_;  // by buffer
  int backward_start_ = -1;
  bool in_loop_ = false;
};

// One program as a plan: every input and output a buffer of its name (an output that is called like an input:
// "out.<name>"), every size its own.
Plan single_program_plan(const Program& p, const std::map<std::string, double>& consts);
// What that plan calls the buffer of an output: its name, or "out.<name>" where an input has that name too.
std::string output_buffer(const Graph& g, const Output& o);

// The sizes of one program step of `plan` once the plan's sizes are known (`chunk_rows`: rows of the current chunk).
Sizes step_sizes(const Plan& plan, const ProgramStep& step, const Sizes& sizes, std::int64_t chunk_rows);

}  // namespace coda
