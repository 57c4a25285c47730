// The cost model against bytes and FLOPs counted by hand, and what explain prints.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "coda/error.h"
#include "coda/machine.h"
#include "coda/text.h"
#include "plan/program_library.h"

using namespace coda;

namespace {

const Machine kUnit{"unit", 1, 1e30, 1e30};  // a second a byte

StepCost cost_of(const std::string& text, const Sizes& sizes, const Machine& machine = kUnit) {
  PlanCost c = cost(single_program_plan(parse_program(text), {}), sizes, machine);
  REQUIRE(c.steps.size() == 1);
  CHECK(c.total.fused.bytes == c.steps[0].bytes);
  return c.steps[0];
}

}  // namespace

TEST_CASE("bytes and FLOPs of a GEMM with an epilogue") {
  // M 100, N 300, K 50: x1 = y w + x0, h, r: 3 partials of a row (300 columns), each written and read.
  StepCost c = cost(single_program_plan(library_program("residual_rmsnorm_partial", DType::kBF16), {{"eps", 1e-5}}),
                    {{"M", 100}, {"N", 300}, {"K", 50}}, kUnit)
                   .steps[0];
  std::int64_t tile = 2 * 100 * 300;
  CHECK(c.bytes == 2 * (100 * 50 + 300 * 50) + tile + 2 * 300 + tile + tile + 4 * 100 + 2 * 4 * 100 * 3);
  CHECK(c.flops == 2 * 100 * 300 * 50);
  CHECK(c.seconds == doctest::Approx(static_cast<double>(c.bytes)));
  CHECK(c.gemms == 1);
  CHECK(c.passes == 0);
  CHECK(c.finishes == 1);
  CHECK(c.runs == 1);
  // Unfused: product, + x0, x1·x1, sum, /N, + eps, rsqrt, · gamma.
  std::vector<std::string> names;
  std::int64_t bytes = 0;
  int passes = 0;
  for (const StepCost& op : c.unfused) names.push_back(op.name), bytes += op.bytes, passes += op.passes;
  CHECK(names == std::vector<std::string>{"matmul", "add", "mul", "mul", "sum_n", "div", "add", "rsqrt"});
  CHECK(passes == 4);
  std::int64_t row = 4 * 100;
  CHECK(bytes ==
        2 * (100 * 50 + 300 * 50) + tile + 3 * tile + (tile + 600 + tile) + 2 * tile + (tile + row) + 3 * 2 * row);
}

TEST_CASE("one roofline: memory or arithmetic") {
  std::string text = "program p\nin x: bf16[M,K]\nin w: bf16[N,K]\nout y: bf16[M,N] = x @ w";
  Sizes sizes{{"M", 64}, {"N", 32}, {"K", 16}};
  Machine m{"m", 1e3, 1e3, 2e3};
  CHECK(cost_of(text, sizes, m).seconds == doctest::Approx(2.0 * 64 * 32 * 16 / 2e3));
  CHECK(cost(single_program_plan(Program(with_storage(parse(text)[0], DType::kBF16, DType::kF32)), {}), sizes, m)
            .total.fused.seconds == doctest::Approx(2.0 * 64 * 32 * 16 / 1e3));
  m.flops_16 = 1e9;
  CHECK(cost_of(text, sizes, m).seconds == doctest::Approx(2.0 * (64 * 16 + 32 * 16 + 64 * 32) / 1e3));
}

TEST_CASE("gathers read the rows they need; accumulation reads and writes; views cost nothing") {
  Sizes sizes{{"M", 10}, {"N", 8}, {"V", 1000}};
  StepCost c = cost_of("program p\nin ids: i32[M,1]\nin table: bf16[V,N]\nout x: bf16[M,N] = table[ids]*2", sizes);
  CHECK(c.bytes == 4 * 10 + 2 * 10 * 8 + 2 * 10 * 8);
  CHECK(c.passes == 1);
  sizes["V"] = 3;
  CHECK(cost_of("program p\nin ids: i32[M,1]\nin table: bf16[V,N]\nout x: bf16[M,N] = table[ids]*2", sizes).bytes ==
        4 * 10 + 2 * 3 * 8 + 2 * 10 * 8);
  StepCost acc = cost_of("program p\nin a: bf16[M,N]\nin x: bf16[M,K]\nout dw: f32[N,K] += a @ x",
                         {{"M", 10}, {"N", 8}, {"K", 4}});
  CHECK(acc.bytes == 2 * (80 + 40) + 2 * 4 * 32);
  REQUIRE(acc.unfused.size() == 1);
  CHECK(acc.unfused[0].bytes == acc.bytes);
  StepCost view =
      cost_of("program p\nin x: f32[M,N]\na, b = halves(x)\nout y: f32[M,N/2] = a*b", {{"M", 10}, {"N", 8}});
  REQUIRE(view.unfused.size() == 1);
  CHECK(view.unfused[0].bytes == 3 * 4 * 10 * 4);
}

TEST_CASE("a plan over weights is no pass over tokens; sums down columns have partials") {
  StepCost row = cost_of("program p\nin g: f32[1,N]\nout y: f32[1,N] = g*2", {{"N", 8}});
  CHECK(row.passes == 0);
  CHECK(row.unfused[0].passes == 0);
  StepCost sums = cost_of("program p\nin x: f32[M,N]\nout s: f32[1,N] = sum_m(x)", {{"M", 300}, {"N", 8}});
  CHECK(sums.bytes == 4 * 300 * 8 + 4 * 8 + 2 * 4 * 8 * 3);
  CHECK(sums.finishes == 1);
}

TEST_CASE("loops multiply traffic, not counts") {
  Plan plan("p");
  BufferId x = plan.buffer("x", DType::kF32, "M", "K", BufferRole::kInput),
           w = plan.buffer("w", DType::kF32, "N", "K", BufferRole::kInput);
  BufferId y = plan.buffer("y", DType::kF32, "M", "N", BufferRole::kOutput);
  plan.begin_rows(Dim::symbol("M"), 4);
  plan.run({parse_program("program p\nin x: f32[M,K]\nin w: f32[N,K]\nout y: f32[M,N] = x @ w"),
            {{"x", BufferRef(x).by_chunk()}, {"w", w}},
            {{"y", BufferRef(y).by_chunk()}},
            {},
            {}});
  plan.end_rows();
  for (auto [m, runs] : {std::pair<std::int64_t, std::int64_t>{11, 3}, {8, 2}, {3, 1}, {0, 0}}) {
    PlanCost c = cost(plan, {{"M", m}, {"N", 5}, {"K", 6}}, kUnit);
    CHECK(c.steps[0].runs == runs);
    CHECK(c.steps[0].gemms == 1);
    CHECK(c.steps[0].flops == 2 * m * 5 * 6);
    CHECK(c.steps[0].bytes == 4 * (m * 6 + m * 5 + runs * 5 * 6));
    CHECK(c.steps[0].seconds == doctest::Approx(static_cast<double>(c.steps[0].bytes)));
    CHECK(c.steps[0].unfused[0].flops == c.steps[0].flops);
    CHECK(c.caller_bytes == 4 * (m * 6 + 5 * 6 + m * 5));
  }
}

TEST_CASE("opaque calls") {
  Plan plan("p");
  BufferId q = plan.buffer("q", DType::kBF16, "M", 8, BufferRole::kInput),
           k = plan.buffer("k", DType::kBF16, "M", 4, BufferRole::kInput);
  BufferId y = plan.buffer("y", DType::kBF16, "M", 8, BufferRole::kOutput),
           lse = plan.buffer("lse", DType::kF32, "M", 2, BufferRole::kOutput);
  BufferId ids = plan.buffer("ids", DType::kI32, "M", 1, BufferRole::kInput),
           table = plan.buffer("table", DType::kF32, 100, 8, BufferRole::kOutput);
  plan.call({OpaqueKind::kAttention, {q, k, k}, {y, lse}, {Dim::symbol("B"), 2, 1}}, "a");
  plan.call({OpaqueKind::kZero, {}, {table}, {}}, "b");
  plan.begin_backward();
  plan.call({OpaqueKind::kScatterSum, {y, ids}, {table}, {}}, "c");
  PlanCost c = cost(plan, {{"M", 30}, {"B", 3}}, kUnit);
  CHECK(c.steps[0].bytes == 2 * 30 * (8 + 4 + 4 + 8) + 4 * 30 * 2);
  CHECK(c.steps[0].flops ==
        2 * 3 * 2 * 10 * 10 * 4);  // 3 sequences, 2 heads, 10² pairs of 4 columns: half of two products
  CHECK(c.steps[0].passes == 0);
  CHECK(c.steps[1].bytes == 4 * 100 * 8);
  CHECK(c.steps[1].passes == 0);
  CHECK(c.steps[2].bytes == 2 * 30 * 8 + 4 * 30 + 2 * 4 * 30 * 8);
  CHECK(c.steps[2].passes == 1);
  CHECK(c.forward.fused.bytes == c.steps[0].bytes + c.steps[1].bytes);
  CHECK(c.backward.fused.bytes == c.steps[2].bytes);
  CHECK(c.total.unfused.bytes == c.total.fused.bytes);  // nothing to unfuse
}

TEST_CASE("explain: a line a step, totals, and the same numbers as JSON") {
  Plan plan = single_program_plan(library_program("rmsnorm_swiglu", DType::kBF16), {});
  Sizes sizes{{"M", 256}, {"K", 128}, {"F", 512}};
  Machine h200 = find_machine("h200");
  PlanCost c = cost(plan, sizes, h200);
  std::string text = explain(plan, sizes, h200);
  for (const char* words : {"plan rmsnorm_swiglu on h200", "F=512 K=128 M=256", "1 GEMM, 0 passes, 0 finishes",
                            "unfused: 2 GEMMs, 4 passes"}) {
    INFO(text);
    CHECK(text.find(words) != std::string::npos);
  }
  auto json = nlohmann::json::parse(explain_json(plan, sizes, h200));
  CHECK(json["gemms"] == 1);
  CHECK(json["passes"] == 0);
  CHECK(json["finishes"] == 0);
  CHECK(json["bytes"] == c.total.fused.bytes);
  CHECK(json["seconds"].get<double>() == doctest::Approx(c.total.fused.seconds));
  CHECK(json["unfused"]["gemms"] == 2);
  CHECK(json["forward"]["bytes"] == c.total.fused.bytes);
  CHECK(json["backward"]["gemms"] == 0);
  CHECK(json["machine"]["name"] == "h200");
  CHECK(json["sizes"]["F"] == 512);
  REQUIRE(json["steps"].size() == 1);
  CHECK(json["steps"][0]["name"] == "rmsnorm_swiglu");
  CHECK(json["steps"][0]["unfused"].size() == c.steps[0].unfused.size());
  CHECK(json["steps"][0]["backward"] == false);
}

TEST_CASE("machines by name") {
  for (const Machine& m : known_machines()) CHECK(find_machine(m.name).bytes_per_second == m.bytes_per_second);
  CHECK_THROWS_WITH_AS(find_machine("h2000"), doctest::Contains("machine: 'h2000'; allowed: h200, h100, cpu"), Error);
}
