// The benchmark; see bench.h.
#include "bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <random>

#include "base/align.h"
#include "base/thread_pool.h"
#include "bench/library_gemm.h"
#include "bench/measure.h"
#include "bench/unfused.h"
#include "coda/builder.h"
#include "coda/cpu.h"
#include "coda/error.h"
#include "ir/index_rules.h"
#include "model/llama_plan.h"
#include "plan/program_library.h"

namespace coda::bench {
namespace {

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

// The ten of the paper by the names of programs/, at n³ in all: products of one operand share the n columns.
struct Entry {
  const char* label;
  const char* program;
};
constexpr Entry kPrograms[] = {
    {"P0", "residual_rmsnorm_partial"},
    {"P1", "rmsnorm_linear"},
    {"P2", "rmsnorm_swiglu"},
    {"P3", "rope"},
    {"P4", "rmsnorm_rope"},
    {"P5", "rmsnorm_cross_entropy"},
    {"P6", "residual_rmsnorm_backward"},
    {"P7", "swiglu_backward"},
    {"P8", "swiglu"},
    {"P9", "cross_entropy"},
};

Sizes cube_sizes(const Program& p, std::int64_t n) {
  constexpr std::int64_t kHead = 128;
  Sizes sizes;
  bool two_products = p.accumulators().size() == 2;
  for (const std::string& s : p.expanded().free_sizes()) {
    if (s == "hd")
      sizes[s] = kHead;
    else if (s == "H")
      sizes[s] = std::max<std::int64_t>(n / kHead / 2, 1);
    else if (s == "G")
      sizes[s] = std::max<std::int64_t>(n / kHead / 4, 1);
    else if (s == "F" && two_products)
      sizes[s] = n / 2;
    else
      sizes[s] = n;
  }
  return sizes;
}

// The program's GEMM alone: every product stored in the storage dtype, nothing else.
Program bare(const Program& p, DType storage) {
  const Graph& g = p.expanded();
  ProgramBuilder b("bare_" + p.name());
  std::map<ValueId, Val> inputs;
  auto input = [&](ValueId v) {
    if (auto it = inputs.find(v); it != inputs.end()) return it->second;
    const Input* in = g.as_input(v);
    return inputs[v] = b.input(in->name, in->dtype, {in->dims.begin(), in->dims.end()});
  };
  int number = 0;
  for (const Accumulator& acc : p.accumulators()) {
    std::optional<Val> sum;
    for (int t : acc.matmul_nodes) {
      const Node& n = g.nodes()[idx(t)];
      Val product = matmul(input(n.operands[0]), n.attrs.a_axis, input(n.operands[1]), n.attrs.b_axis);
      sum = sum ? *sum + product : product;
    }
    b.output("bare" + std::to_string(number++), storage, *sum);
  }
  return b.build();
}

// Memory for a plan's caller-owned buffers, filled with values that suit their programs.
class Tensors {
 public:
  Tensors(const Plan& plan, const Sizes& sizes) {
    std::map<BufferId, std::int64_t> bounds;  // of integer buffers
    for (const Step& s : plan.steps())
      if (const auto* step = std::get_if<ProgramStep>(&s.what))
        for (const IndexRule& r : index_rules(step->program.expanded())) {
          const Input& in = step->program.expanded().inputs()[idx(r.input)];
          BufferId b = step->inputs.at(in.name).buffer;
          std::int64_t bound = r.bound.eval(step_sizes(plan, *step, sizes, 0));
          bounds[b] = bounds.count(b) ? std::min(bounds[b], bound) : bound;
        }
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (BufferId b = 0; b < static_cast<BufferId>(plan.buffers().size()); ++b) {
      const Buffer& buffer = plan.at(b);
      if (buffer.role == BufferRole::kTemp) continue;
      std::int64_t rows = buffer.rows.eval(sizes), cols = buffer.cols.eval(sizes);
      memory_.emplace_back(idx(rows * cols * size_of(buffer.dtype)) + 64);
      char* base = line_aligned<char>(memory_.back().data());
      bindings_[buffer.name] = TensorView::matrix(base, buffer.dtype, rows, cols);
      float scale = cols > 1 && rows > 1 ? 1 / std::sqrt(static_cast<float>(cols)) : 1;
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        if (buffer.dtype == DType::kI32)
          reinterpret_cast<std::int32_t*>(base)[i] =
              static_cast<std::int32_t>(random() % static_cast<unsigned>(bounds.count(b) ? bounds[b] : 1));
        else
          store_element(base, i, buffer.dtype, cols == 1 ? std::fabs(normal(random)) + 0.5f : normal(random) * scale);
      }
    }
  }
  const Bindings& bindings() const { return bindings_; }

 private:
  std::vector<std::vector<char>> memory_;
  Bindings bindings_;
};

std::map<std::string, double> consts_of(const Program& p) {
  std::map<std::string, double> consts;
  for (const Input& in : p.expanded().inputs())
    if (in.is_const) consts[in.name] = in.dtype == DType::kI32 ? -100 : 1e-5;
  return consts;
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options), libraries_(open_libraries()) {
    if (libraries_.empty())
      throw Error({"bench", "no GEMM library", "OpenBLAS, MKL or oneDNN 3",
                   "Install one (libopenblas0), or name it in CODA_BENCH_LIBRARIES."});
    if (options_.threads.empty()) {
      options_.threads = {1};
      if (default_thread_count() > 1) options_.threads.push_back(default_thread_count());
    }
  }

  std::vector<BenchRow> run() {
    for (DType dtype : options_.dtypes)
      for (int threads : options_.threads) {
        LibraryGemm* library = best_library(libraries_, dtype, threads, options_.n);
        if (library == nullptr)
          throw Error({"bench", "no library GEMM for " + std::string(name(dtype)), "a library that has one", ""});
        CpuOptions cpu;
        cpu.threads = threads;
        backend_ = make_cpu_backend(cpu);
        for (const Entry& e : kPrograms) program(e, dtype, threads, *library);
        layer(dtype, threads, *library);
      }
    if (rows_.empty())
      throw Error({"--filter", "'" + options_.filter + "', which no row's name contains",
                   "a part of P0 … P9, a program's name, or layer", ""});
    return std::move(rows_);
  }

 private:
  bool wanted(const std::string& name) const { return name.find(options_.filter) != std::string::npos; }

  void add(const std::string& name, const std::string& shape, DType dtype, int threads, const Candidate& c,
           const std::string& baseline, const Candidate& against) {
    BenchRow r{name,
               "cpu",
               shape,
               std::string(coda::name(dtype)),
               threads,
               c.quantile(0.5),
               c.quantile(0.25),
               c.quantile(0.75),
               baseline,
               against.quantile(0.5),
               0};
    r.ratio = r.median_s / r.baseline_s;
    rows_.push_back(r);
    if (options_.progress)
      options_.progress(fmt::format("{:34} {:5} {}T {:9.2f} ms  {:.3f} × {} ({:.2f} ms)", name, coda::name(dtype),
                                    threads, r.median_s * 1e3, r.ratio, baseline, r.baseline_s * 1e3));
  }

  void program(const Entry& e, DType dtype, int threads, LibraryGemm& library) {
    std::string name = fmt::format("{} {}", e.label, e.program);
    if (!wanted(name)) return;
    const Program& p = library_program(e.program, dtype);
    Program gemm = bare(p, dtype);
    Sizes sizes = cube_sizes(p, options_.n);
    Plan fused_plan = single_program_plan(p, consts_of(p)), bare_plan = single_program_plan(gemm, {});
    Tensors tensors(fused_plan, sizes), bare_tensors(bare_plan, sizes);
    auto fused = backend_->prepare(fused_plan, sizes), plain = backend_->prepare(bare_plan, sizes);
    Unfused unfused(fused_plan, sizes, library, *backend_), library_bare(bare_plan, sizes, library, *backend_);
    std::vector<Candidate> c;
    c.push_back({"coda", [&] { fused->run(tensors.bindings()); }});
    c.push_back({"bare", [&] { plain->run(bare_tensors.bindings()); }});
    c.push_back({"library", [&] { library_bare.run_gemms(bare_tensors.bindings()); }});
    c.push_back({"unfused", [&] { unfused.run(tensors.bindings()); }});
    measure(c, options_.rounds);
    std::string shape = fmt::format("{0}x{0}x{0}", options_.n);
    add(name, shape, dtype, threads, c[0], "coda's tiled bare GEMM, result stored", c[1]);
    add(name, shape, dtype, threads, c[0], "bare GEMM of " + library.name(), c[2]);
    add(name, shape, dtype, threads, c[0], fmt::format("unfused: {} and {} passes", library.name(), unfused.passes()),
        c[3]);
    add(fmt::format("{} bare", e.label), shape, dtype, threads, c[1], "bare GEMM of " + library.name(), c[2]);
  }

  void layer(DType dtype, int threads, LibraryGemm& library) {
    if (!wanted("layer forward") && !wanted("layer forward+backward")) return;
    LlamaShape shape;
    shape.dtype = dtype;
    Sizes sizes = llama_layer_sizes(options_.tokens, options_.d, options_.ff, options_.heads, options_.kv_heads);
    Plan forward = llama_layer_forward(shape), backward = llama_layer_backward(shape);
    Tensors forward_tensors(forward, sizes), backward_tensors(backward, sizes);
    auto f = backend_->prepare(forward, sizes), b = backend_->prepare(backward, sizes);
    Unfused uf(forward, sizes, library, *backend_), ub(backward, sizes, library, *backend_);
    const Bindings &fb = forward_tensors.bindings(), &bb = backward_tensors.bindings();
    std::vector<Candidate> c;
    c.push_back({"forward", [&] { f->run(fb); }});
    c.push_back({"unfused forward", [&] { uf.run(fb); }});
    c.push_back({"gemms forward", [&] { uf.run_gemms(fb); }});
    c.push_back({"both", [&] { f->run(fb), b->run(bb); }});
    c.push_back({"unfused both", [&] { uf.run(fb), ub.run(bb); }});
    c.push_back({"gemms both", [&] { uf.run_gemms(fb), ub.run_gemms(bb); }});
    measure(c, options_.rounds);
    std::string text = fmt::format("{} tokens, d {}, ff {}, no attention", options_.tokens, options_.d, options_.ff);
    for (int i : {0, 3}) {
      std::string name = i == 0 ? "layer forward" : "layer forward+backward";
      std::size_t passes = uf.passes() + (i == 0 ? 0 : ub.passes());
      add(name, text, dtype, threads, c[idx(i)], fmt::format("unfused: {} and {} passes", library.name(), passes),
          c[idx(i + 1)]);
      add(name, text, dtype, threads, c[idx(i)], "bare GEMMs of " + library.name(), c[idx(i + 2)]);
    }
  }

  BenchOptions options_;
  std::vector<std::unique_ptr<LibraryGemm>> libraries_;
  std::unique_ptr<Backend> backend_;
  std::vector<BenchRow> rows_;
};

}  // namespace

std::vector<BenchRow> run_bench(const BenchOptions& options) { return Bench(options).run(); }

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

}  // namespace coda::bench
