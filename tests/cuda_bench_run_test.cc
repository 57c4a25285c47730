// The whole GPU benchmark on a pretended GPU: host memory, a slow GEMM for cuBLAS, the CPU backend for our kernels.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>

#include "coda/cpu.h"
#include "coda/error.h"
#include "cuda/bench/bench.h"
#include "cuda/bench/tensors.h"

using namespace coda;
using namespace coda::cuda;

namespace {

class HostGpu : public Gpu {
 public:
  std::string name() const override { return "host"; }
  std::string pci_bus_id() const override { return ""; }
  std::string cuda_version() const override { return ""; }
  void* stream() const override { return nullptr; }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    return std::shared_ptr<std::byte[]>(new std::byte[bytes + 1]);
  }
  void upload(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void fill(void* to, unsigned char value, std::size_t bytes) override { std::memset(to, value, bytes); }

  void flush() override {}
  void start() override { started_ = now(); }
  void stop() override { seconds_.push_back(std::max(now() - started_, 1e-9)); }
  std::vector<double> collect() override { return std::exchange(seconds_, {}); }
  double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  double started_ = 0;
  std::vector<double> seconds_;
};

// The CPU backend on the program that is the GEMM alone.
class HostCublas : public Cublas {
 public:
  std::string version() const override { return "0"; }
  void gemm(const GemmShape& s, const void* a, const void* b, void* c) override {
    GemmLayout layout = s.a_axis == 0   ? GemmLayout::kWeightGradient
                        : s.b_axis == 0 ? GemmLayout::kDataGradient
                                        : GemmLayout::kForward;
    Bindings bindings;
    auto bind = [&](const char* name, const void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
      bindings[name] = TensorView::matrix(const_cast<void*>(data), dtype, rows, cols);
    };
    bind("a", a, s.operands, s.a_axis == 1 ? s.m : s.k, s.a_axis == 1 ? s.k : s.m);
    bind("b", b, s.operands, s.b_axis == 1 ? s.n : s.k, s.b_axis == 1 ? s.k : s.n);
    bind("c", c, s.result, s.m, s.n);
    Plan plan = single_program_plan(bare_program(layout, s.operands, s.result, s.accumulate), {});
    make_cpu_backend()->prepare(plan, {{"M", s.m}, {"N", s.n}, {"K", s.k}})->run(bindings);
  }
};

class CpuContender : public Contender {
 public:
  CpuContender(const Plan& plan, const Sizes& sizes, const Bindings& bindings, bool finishes, const char* spoils)
      : executable_(make_cpu_backend()->prepare(plan, sizes)), bindings_(bindings), finishes_(finishes) {
    if (spoils != nullptr && bindings.count(spoils)) spoiled_ = bindings.at(spoils);
  }
  std::string name() const override { return finishes_ ? "coda" : "coda simple"; }
  bool has_finishes() const override { return finishes_; }
  void run(RunPart part) override {
    if (part == RunPart::kTiles) return;  // all of it in the finishes
    executable_->run(bindings_);
    if (spoiled_.data != nullptr) store_element(spoiled_.data, 0, spoiled_.dtype, NAN);
  }

 private:
  std::unique_ptr<Executable> executable_;
  Bindings bindings_;
  bool finishes_;
  TensorView spoiled_;
};

BenchResult pretend(BenchOptions options, const char* spoils = nullptr) {
  HostGpu gpu;
  HostCublas cublas;
  options.rounds = 2;
  options.warm_up_s = 0;
  return run_bench(options, gpu, cublas, nullptr,
                   [&](const Plan& plan, const Sizes& sizes, const Bindings& bindings, void*) {
                     std::vector<std::unique_ptr<Contender>> list;
                     for (bool finishes : {true, false})
                       list.push_back(std::make_unique<CpuContender>(plan, sizes, bindings, finishes, spoils));
                     return list;
                   });
}

std::vector<std::string> candidates(const BenchResult& r, const std::string& name) {
  std::vector<std::string> list;
  for (const Row& row : r.rows)
    if (row.group.name == name) list.push_back(row.candidate);
  return list;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("every program is prepared, verified and timed beside cuBLAS") {
  BenchOptions o;
  o.programs = {"all"};
  o.sizes = {128};
  BenchResult r = pretend(o);
  for (const std::string& f : r.failed) FAIL_CHECK(f);
  std::set<std::string> groups;
  for (const Row& row : r.rows) groups.insert(row.group.name);
  CHECK(groups.size() == 10);
  CHECK(candidates(r, "P0 residual_rmsnorm_partial") ==
        Names{"cublas", "cublas again", "coda", "coda + finishes", "coda simple"});
  for (const Row& row : r.rows) {
    CHECK(row.group.rounds == 2);
    CHECK(row.timing.ratio > 0);
    if (row.candidate == "cublas") CHECK(row.timing.ratio == 1);
  }
}

TEST_CASE("bare GEMMs in three layouts, and summed into fp32") {
  BenchOptions o;
  o.bare = {GemmLayout::kForward, GemmLayout::kDataGradient, GemmLayout::kWeightGradient};
  o.sizes = {64, 96};
  std::vector<std::string> lines;
  o.progress = [&](const std::string& line) { lines.push_back(line); };
  BenchResult r = pretend(o);
  for (const std::string& f : r.failed) FAIL_CHECK(f);
  CHECK(r.rows.size() == 2 * 4 * 5);
  CHECK(lines.size() == 1 + r.rows.size());
  CHECK(candidates(r, "bare wgrad f32 +=").size() == 10);
}

TEST_CASE("a Llama layer, forward and backward") {
  BenchOptions o;
  o.layers = {128};
  o.tokens = 72;
  BenchResult r = pretend(o);
  for (const std::string& f : r.failed) FAIL_CHECK(f);
  CHECK(candidates(r, "layer forward") == Names{"cublas", "cublas again", "coda", "coda simple"});
  CHECK(candidates(r, "layer forward+backward").size() == 4);
  REQUIRE(r.rows.size() == 8);
  CHECK(r.rows[0].group.baseline == "4 GEMMs of cuBLAS back to back");
  CHECK(r.rows[4].group.baseline == "12 GEMMs of cuBLAS back to back");
  CHECK(r.rows[4].group.flops == doctest::Approx(3 * r.rows[0].group.flops));
}

TEST_CASE("a wrong result is named, not timed; the other cases go on") {
  BenchOptions o;
  o.programs = {"P1", "P2", "rmsnorm_partial"};
  o.sizes = {128};
  BenchResult r = pretend(o, "z");  // only P1 has a z
  REQUIRE(r.failed.size() == 2);
  CHECK(r.failed[0].find("P1 rmsnorm_linear 128x128x128: coda: output z is off") != std::string::npos);
  CHECK(r.failed[1].find("tile source") != std::string::npos);
  CHECK(candidates(r, "P1 rmsnorm_linear").empty());
  CHECK(candidates(r, "P2 rmsnorm_swiglu").size() == 5);
  o.programs.clear();
  o.bare = {GemmLayout::kForward};
  CHECK(pretend(o, "c").failed.size() == 1);
}

TEST_CASE("a tensor repeats its block to the end") {
  HostGpu gpu;
  std::vector<std::byte> block(7);
  for (std::size_t i = 0; i < 7; ++i) block[i] = static_cast<std::byte>(i);
  std::shared_ptr<void> memory = allocate_filled(gpu, block, 100);
  for (std::size_t i = 0; i < 100; ++i) CHECK(static_cast<const std::byte*>(memory.get())[i] == block[i % 7]);
  CHECK(static_cast<const std::byte*>(allocate_filled(gpu, block, 3).get())[2] == block[2]);
  CHECK(allocate_filled(gpu, {}, 0) != nullptr);
}
