// The benchmark; see bench.h.
#include "cuda/bench/bench.h"

#include <fmt/format.h>

#include "coda/error.h"
#include "cuda/bench/cases.h"
#include "cuda/bench/tensors.h"
#include "model/llama_plan.h"
#include "plan/program_library.h"

namespace coda::cuda {
namespace {

std::map<std::string, double> consts_of(const Program& p) {
  std::map<std::string, double> consts;
  for (const Input& in : p.expanded().inputs())
    if (in.is_const) consts[in.name] = in.dtype == DType::kI32 ? -100 : in.name == "eps" ? 1e-5 : 1;
  return consts;
}

class Bench {
 public:
  Bench(const BenchOptions& options, Gpu& gpu, Cublas& cublas, Nvml* nvml, const MakeContenders& make)
      : options_(options), gpu_(gpu), cublas_(cublas), nvml_(nvml), make_(make) {}

  BenchResult run() {
    say(table_head());
    for (std::int64_t n : options_.sizes) {
      for (GemmLayout layout : options_.bare) {
        bare(layout, n, n, n, options_.dtype, false);
        if (layout == GemmLayout::kWeightGradient) bare(layout, n, n, n, DType::kF32, true);
      }
      for (const ProgramCase& c : program_cases(options_.programs)) program(c, n);
    }
    if (options_.bare_layer_shapes)
      for (const GemmShape& s : layer_gemms(options_.tokens))
        bare(GemmLayout::kForward, s.m, s.n, s.k, options_.dtype, false);
    for (std::int64_t d : options_.layers) layer(d);
    return std::move(result_);
  }

 private:
  void say(const std::string& line) const {
    if (options_.progress) options_.progress(line);
  }

  // A case that cannot be prepared, launched or verified is named in the end; the others still count.
  void guarded(const std::string& name, const std::string& shape, const std::function<void()>& body) {
    try {
      body();
    } catch (const std::exception& e) {
      result_.failed.push_back(fmt::format("{} {}: {}", name, shape, e.what()));
      say("failed: " + result_.failed.back());
    }
  }

  static void add_baseline(std::vector<Candidate>& candidates, BareGemms& gemms) {
    for (const char* name : {"cublas", "cublas again"}) candidates.push_back({{name, [&gemms] { gemms.run(); }}, {}});
  }

  // The tiles alone against the GEMM alone; with the finishes under a name of its own.
  static void add(std::vector<Candidate>& candidates, Contender& c, const std::function<void()>& verify) {
    if (!c.has_finishes()) {
      candidates.push_back({{c.name(), [&c] { c.run(RunPart::kAll); }}, verify});
      return;
    }
    candidates.push_back({{c.name(), [&c] { c.run(RunPart::kTiles); }}, [&c, verify] {
                            c.run(RunPart::kFinishes);
                            verify();
                          }});
    candidates.push_back({{c.name() + " + finishes", [&c] { c.run(RunPart::kAll); }}, verify});
  }

  void time(Group group, std::vector<Candidate>& candidates) {
    HarnessOptions h;
    h.rounds = options_.rounds;
    h.warm_up_s = options_.warm_up_s;
    h.seed = options_.seed;
    if (nvml_ != nullptr) nvml_->start();
    measure(candidates, h, gpu_);
    if (nvml_ != nullptr) group.chip = nvml_->stop();
    group.dtype = std::string(name(options_.dtype));
    for (Row& row : rows_of(std::move(group), candidates)) {
      say(table_line(row));
      result_.rows.push_back(std::move(row));
    }
  }

  void bare(GemmLayout layout, std::int64_t m, std::int64_t n, std::int64_t k, DType result, bool accumulate) {
    std::string title = fmt::format("bare {}{}", name(layout), accumulate ? " f32 +=" : "");
    guarded(title, fmt::format("{}x{}x{}", m, n, k), [&] {
      Program p = bare_program(layout, options_.dtype, result, accumulate);
      Plan plan = single_program_plan(p, {});
      const Sizes sizes = {{"M", m}, {"N", n}, {"K", k}};
      PlanTensors tensors(gpu_, plan, sizes, options_.seed), ruler(gpu_, plan, sizes, options_.seed);
      const Bindings& r = ruler.bindings();
      GemmShape shape = gemm_of(p, sizes).value();
      cublas_.gemm(shape, r.at("a").data, r.at("b").data, r.at("c").data);
      BareGemms gemms(gpu_, cublas_, {shape}, options_.seed);
      std::vector<Candidate> candidates;
      add_baseline(candidates, gemms);
      auto contenders = make_(plan, sizes, tensors.bindings(), gpu_.stream());
      for (auto& c : contenders)
        add(candidates, *c, [&tensors, &ruler, result, m, n, called = c->name()] {
          check_distance(called, "c", distance(tensors.read("c").data(), ruler.read("c").data(), result, m * n));
          tensors.renew_outputs();
        });
      Group g;
      g.name = title;
      g.shape = shape.str();
      g.baseline = "cuBLAS, same shape and layouts";
      g.flops = gemms.flops();
      time(g, candidates);
    });
  }

  void program(const ProgramCase& c, std::int64_t n) {
    const Program& p = library_program(c.program, options_.dtype);
    Sizes sizes = cube_sizes(p, n);
    std::optional<GemmShape> shape = gemm_of(p, sizes);
    guarded(c.str(), shape ? shape->str() : fmt::format("{0}x{0}", n), [&] {
      if (!shape) throw Error({c.program, "a tile source", "programs with a GEMM", "It has no GEMM to compare with."});
      Plan plan = single_program_plan(p, consts_of(p));
      PlanTensors tensors(gpu_, plan, sizes, options_.seed);
      BareGemms gemms(gpu_, cublas_, {*shape}, options_.seed);
      std::vector<Candidate> candidates;
      add_baseline(candidates, gemms);
      auto contenders = make_(plan, sizes, tensors.bindings(), gpu_.stream());
      for (auto& contender : contenders)
        add(candidates, *contender, [&, called = contender->name()] {
          verify_rows(called, plan, sizes, tensors.reader());
          tensors.renew_outputs();
        });
      Group g;
      g.name = c.str();
      g.shape = shape->str();
      g.baseline = "bare GEMM of cuBLAS with all columns";
      g.flops = gemms.flops();
      time(g, candidates);
    });
  }

  void layer(std::int64_t d) {
    const LayerShape l = llama_shape(d);
    LlamaShape shape;
    shape.dtype = options_.dtype;
    Sizes sizes = llama_layer_sizes(options_.tokens, l.d, l.ff, l.heads, l.heads);
    Plan forward = llama_layer_forward(shape), backward = llama_layer_backward(shape);
    std::string text = fmt::format("{} x {} ({})", options_.tokens, l.d, l.ff);
    for (bool both : {false, true}) {
      std::string title = both ? "layer forward+backward" : "layer forward";
      guarded(title, text, [&] {
        std::vector<const Plan*> plans{&forward};
        if (both) plans.push_back(&backward);
        layer_group(title, text, plans, sizes);
      });
    }
  }

  // The plans one after another as one candidate, finishes included; so are the GEMMs of all of them.
  void layer_group(const std::string& title, const std::string& text, const std::vector<const Plan*>& plans,
                   const Sizes& sizes) {
    std::vector<GemmShape> shapes;
    std::vector<std::unique_ptr<PlanTensors>> tensors;
    std::vector<std::vector<std::unique_ptr<Contender>>> contenders;  // by plan
    std::size_t common = SIZE_MAX;                                    // configurations that every plan has
    for (const Plan* plan : plans) {
      for (const GemmShape& s : gemms_of(*plan, sizes)) shapes.push_back(s);
      tensors.push_back(std::make_unique<PlanTensors>(gpu_, *plan, sizes, options_.seed));
      contenders.push_back(make_(*plan, sizes, tensors.back()->bindings(), gpu_.stream()));
      common = std::min(common, contenders.back().size());
    }
    BareGemms gemms(gpu_, cublas_, shapes, options_.seed);
    std::vector<Candidate> candidates;
    add_baseline(candidates, gemms);
    for (std::size_t i = 0; i < common; ++i) {
      std::string called = contenders[0][i]->name();
      candidates.push_back({{called,
                             [&contenders, i] {
                               for (auto& of_plan : contenders) of_plan[i]->run(RunPart::kAll);
                             }},
                            [&plans, &tensors, &sizes, called] {
                              for (std::size_t p = 0; p < plans.size(); ++p) {
                                verify_rows(called, *plans[p], sizes, tensors[p]->reader());
                                tensors[p]->renew_outputs();
                              }
                            }});
    }
    Group g;
    g.name = title;
    g.shape = text;
    g.baseline = fmt::format("{} GEMMs of cuBLAS back to back", shapes.size());
    g.flops = gemms.flops();
    time(g, candidates);
  }

  const BenchOptions& options_;
  Gpu& gpu_;
  Cublas& cublas_;
  Nvml* nvml_;
  const MakeContenders& make_;
  BenchResult result_;
};

}  // namespace

BenchResult run_bench(const BenchOptions& options, Gpu& gpu, Cublas& cublas, Nvml* nvml, const MakeContenders& make) {
  return Bench(options, gpu, cublas, nvml, make).run();
}

}  // namespace coda::cuda
