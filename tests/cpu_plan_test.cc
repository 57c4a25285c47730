// Plans on the CPU backend against the interpreter of plans: steps on temporaries, column ranges of buffers, loops over
// chunks of rows with a tail, accumulation inside them, outputs left out, `over`, opaque calls, indices made by the
// plan.
#include <doctest/doctest.h>

#include "check_error.h"
#include "coda/error.h"
#include "cpu_run.h"
#include "plan/arena.h"
#include "plan/program_library.h"
#include "plan/reference.h"
#include "programs_data.h"

using namespace coda;
using cpu_run::parsed;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A plan prepared on the CPU, its buffers in guarded memory.
struct PlanRig {
  Plan plan;
  Sizes sizes;
  std::unique_ptr<Executable> executable;
  std::map<std::string, check::Tensor> tensors;

  PlanRig(const Plan& p, const Sizes& s, const CpuOptions& options = {2, "", 8, 16})
      : plan(p), sizes(s), executable(make_cpu_backend(options)->prepare(p, s)) {
    for (const Buffer& b : plan.buffers())
      if (b.role != BufferRole::kTemp)
        tensors.emplace(b.name,
                        check::Tensor(b.dtype, b.rows.eval(sizes), b.cols.eval(sizes), check::Layout::kPitched));
  }
  Bindings bindings() {
    Bindings b;
    for (auto& [name, t] : tensors) b[name] = t.view();
    return b;
  }
  void fill(const Arrays& inputs) {
    for (const Buffer& b : plan.buffers()) {
      if (b.role == BufferRole::kTemp) continue;
      if (b.role == BufferRole::kOutput)
        tensors.at(b.name).fill(kNaN);
      else
        tensors.at(b.name).write(inputs.at(b.name));
    }
  }
  Arrays run(const Arrays& inputs) {
    fill(inputs);
    executable->poison();
    executable->run(bindings());
    Arrays out;
    for (const Buffer& b : plan.buffers()) {
      if (b.role == BufferRole::kTemp) continue;
      CHECK(tensors.at(b.name).guards_intact());
      if (b.role != BufferRole::kInput) out[b.name] = tensors.at(b.name).read();
    }
    return out;
  }
};

Arrays random_inputs(const Plan& plan, const Sizes& sizes, const std::map<std::string, std::int64_t>& bounds = {}) {
  Arrays in;
  for (const Buffer& b : plan.buffers()) {
    if (b.role != BufferRole::kInput && b.role != BufferRole::kInOut) continue;
    in[b.name] = cpu_run::integers(b.name, b.rows.eval(sizes), b.cols.eval(sizes));
    if (auto it = bounds.find(b.name); it != bounds.end())
      for (std::size_t i = 0; i < in[b.name].data.size(); ++i)
        in[b.name].data[i] = static_cast<double>((i * 7 + 3) % static_cast<std::size_t>(it->second));
  }
  return in;
}

// Several tiles, threads and two runs against the interpreter of plans.
void check_plan(const Plan& plan, const Sizes& sizes, const std::map<std::string, std::int64_t>& bounds = {},
                double tolerance = 0) {
  Arrays in = random_inputs(plan, sizes, bounds);
  Arrays right = interpret_plan(plan, in, sizes, {Rounding::kStores, DType::kBF16}), first;
  for (CpuOptions options : {CpuOptions{1, "", 8, 16}, CpuOptions{3, "", 8, 16}, CpuOptions{2, "", 0, 0}}) {
    PlanRig rig(plan, sizes, options);
    Arrays got = rig.run(in);
    CHECK(programs::difference(got, right, tolerance) == "");
    CHECK(cpu_run::difference(rig.run(in), got) == "");
    if (first.empty()) first = got;
    if (options.tile_rows == 8) CHECK(cpu_run::difference(got, first) == "");
  }
}

const Program& linear() {
  return parsed("program linear\nin x: f32[M,K]\nin w: f32[N,K]\nout y: f32[M,N] = x @ w, s: f32[1,N] = sum_m(x @ w)");
}
const Program& scaled() { return parsed("program scaled\nin x: f32[M,N]\nconst a: f32\nout y: f32[M,N] = x*a"); }
const Program& sums() {
  return parsed("program sums\nin x: f32[M,N]\nout s: f32[1,N] += sum_m(x), q: f32[1,1] += sum_mn(x)");
}
const Program& in_place() {
  return parsed("program in_place\nin x: f32[M,N]\nin b: f32[1,N]\nout y: f32[M,N] over x = x + b");
}

}  // namespace

TEST_CASE("steps on temporaries that share memory, a step in place, an output left out") {
  Plan plan("chain");
  BufferId x = plan.buffer("x", DType::kF32, "M", "K", BufferRole::kInput);
  BufferId w = plan.buffer("w", DType::kF32, "K", "K", BufferRole::kInput);
  BufferId b = plan.buffer("b", DType::kF32, 1, "K", BufferRole::kInput);
  BufferId y = plan.buffer("y", DType::kF32, "M", "K", BufferRole::kOutput);
  BufferId last = x;
  for (int i = 0; i < 6; ++i) {
    BufferId t = plan.buffer("t" + std::to_string(i), DType::kF32, "M", "K", BufferRole::kTemp);
    plan.run({scaled(), {{"x", last}}, {{"y", t}}, {{"a", i % 2 == 0 ? 2.0 : -0.5}}, {}});
    if (i % 2 == 1) plan.run({in_place(), {{"x", t}, {"b", b}}, {{"y", t}}, {}, {}});
    last = t;
  }
  plan.run({linear(), {{"x", last}, {"w", w}}, {{"y", y}}, {}, {}});  // s is left out
  Sizes sizes = {{"M", 21}, {"K", 19}};
  CHECK(plan_arena(plan, sizes).bytes < 3 * 21 * 19 * 4);  // six temporaries, two alive at once
  check_plan(plan, sizes);
}

TEST_CASE("only some outputs of a program: no reduction, no tile, no finish") {
  const Program& p = parsed(
      "program parts\nin x: f32[M,K]\nin w: f32[N,K]\nz = x @ w\nout z: f32[M,N], a: f32[M,N] += z, s: f32[M,1] = "
      "sum_n(z), "
      "c: f32[1,N] = sum_m(z)");
  struct Wanted {
    std::string name;
    DimArg rows, cols;
  };
  const Wanted all[] = {{"z", "M", "N"}, {"a", "M", "N"}, {"s", "M", 1}, {"c", 1, "N"}};
  for (unsigned mask = 1; mask < 16; ++mask) {
    Plan plan("some");
    BufferId x = plan.buffer("x", DType::kF32, "M", "K", BufferRole::kInput);
    BufferId w = plan.buffer("w", DType::kF32, "N", "K", BufferRole::kInput);
    ProgramStep step{p, {{"x", x}, {"w", w}}, {}, {}, {}};
    for (unsigned i = 0; i < 4; ++i)
      if ((mask >> i & 1) != 0)
        step.outputs[all[i].name] = plan.buffer(all[i].name, DType::kF32, all[i].rows, all[i].cols,
                                                all[i].name == "a" ? BufferRole::kInOut : BufferRole::kOutput);
    plan.run(step);
    CAPTURE(mask);
    check_plan(plan, {{"M", 21}, {"N", 35}, {"K", 6}});
  }
}

TEST_CASE("column ranges of buffers: in, out, and of temporaries") {
  Plan plan("ranges");
  Dim n = Dim::symbol("N"), k = Dim::symbol("K");
  BufferId x = plan.buffer("x", DType::kF32, "M", k * Dim(2), BufferRole::kInput);
  BufferId w = plan.buffer("w", DType::kF32, "N", k * Dim(2), BufferRole::kInput);
  BufferId t = plan.buffer("t", DType::kF32, "M", n * Dim(3), BufferRole::kTemp);
  BufferId y = plan.buffer("y", DType::kF32, "M", n * Dim(3), BufferRole::kOutput);
  for (int half = 0; half < 2; ++half)
    plan.run({linear(),
              {{"x", BufferRef(x, k * Dim(half), k)}, {"w", BufferRef(w, k * Dim(1 - half), k)}},
              {{"y", BufferRef(t, n * Dim(2 * half), n)}},
              {},
              {}});
  plan.run({scaled(), {{"x", BufferRef(t, 0, n)}}, {{"y", BufferRef(t, n, n)}}, {{"a", -3}}, {}});
  plan.run({scaled(), {{"x", BufferRef(t, n, n)}}, {{"y", BufferRef(y, n * Dim(2), n)}}, {{"a", 2}}, {}});
  plan.run({scaled(), {{"x", BufferRef(t, 0, n * Dim(2))}}, {{"y", BufferRef(y, 0, n * Dim(2))}}, {{"a", 1}}, {}});
  check_plan(plan, {{"M", 21}, {"N", 19}, {"K", 7}});
}

TEST_CASE("chunks of rows: a tail, one chunk, no rows; scratch, accumulation, whole operands inside") {
  Plan plan("chunks");
  constexpr std::int64_t kChunk = 8;
  BufferId x = plan.buffer("x", DType::kF32, "M", "K", BufferRole::kInput);
  BufferId w = plan.buffer("w", DType::kF32, "N", "K", BufferRole::kInput);
  BufferId y = plan.buffer("y", DType::kF32, "M", "N", BufferRole::kOutput);
  BufferId s = plan.buffer("s", DType::kF32, 1, "N", BufferRole::kInOut);
  BufferId q = plan.buffer("q", DType::kF32, 1, 1, BufferRole::kInOut);
  BufferId dw = plan.buffer("dw", DType::kF32, "N", "K", BufferRole::kInOut);
  BufferId scratch = plan.buffer("scratch", DType::kF32, kChunk, "N", BufferRole::kTemp);
  BufferId whole = plan.buffer("whole", DType::kF32, "M", "N", BufferRole::kTemp);
  BufferId after = plan.buffer("after", DType::kF32, "M", "N", BufferRole::kOutput);
  auto part = [](BufferId b) { return BufferRef(b).by_chunk(); };
  plan.begin_rows(Dim::symbol("M"), kChunk);
  plan.run({linear(), {{"x", part(x)}, {"w", w}}, {{"y", part(scratch)}}, {}, {}});
  plan.run({scaled(), {{"x", part(scratch)}}, {{"y", part(whole)}}, {{"a", 2}}, {}});
  plan.run({sums(), {{"x", part(scratch)}}, {{"s", s}, {"q", q}}, {}, {}});
  plan.run({parsed("program grad\nin dz: f32[M,N]\nin x: f32[M,K]\nout dw: f32[N,K] += dz @ x"),
            {{"dz", part(scratch)}, {"x", part(x)}},
            {{"dw", dw}},
            {},
            {}});
  plan.run({scaled(), {{"x", part(whole)}}, {{"y", part(y)}}, {{"a", -1}}, {}});
  plan.end_rows();
  plan.run({scaled(), {{"x", whole}}, {{"y", after}}, {{"a", 3}}, {}});
  for (std::int64_t m : {0, 1, 7, 8, 9, 16, 29}) {
    CAPTURE(m);
    check_plan(plan, {{"M", m}, {"N", 19}, {"K", 7}});
  }
}

TEST_CASE("a head over chunks of rows: targets are checked for every chunk before anything is written") {
  Plan plan("head");
  const Program& head = library_program("cross_entropy", DType::kF32);
  const Program& back = library_program("linear_cross_entropy_backward", DType::kF32);
  auto in = [&](const char* name, DType d, const DimArg& r, const DimArg& c) {
    return plan.buffer(name, d, r, c, BufferRole::kInput);
  };
  BufferId x = in("x", DType::kF32, "M", "K"), w = in("w", DType::kF32, "V", "K"), t = in("t", DType::kI32, "M", 1),
           g = in("g", DType::kF32, "M", 1);
  BufferId loss = plan.buffer("loss", DType::kF32, "M", 1, BufferRole::kOutput);
  BufferId dx = plan.buffer("dx", DType::kF32, "M", "K", BufferRole::kOutput);
  BufferId dw = plan.buffer("dw", DType::kF32, "V", "K", BufferRole::kInOut);
  BufferId m = plan.buffer("m", DType::kF32, 5, 1, BufferRole::kTemp),
           l = plan.buffer("l", DType::kF32, 5, 1, BufferRole::kTemp);
  BufferId dz = plan.buffer("dz", DType::kF32, 5, "V", BufferRole::kTemp);
  auto part = [](BufferId b) { return BufferRef(b).by_chunk(); };
  plan.begin_rows(Dim::symbol("M"), 5);
  plan.run({head,
            {{"x", part(x)}, {"w", w}, {"t", part(t)}},
            {{"m", part(m)}, {"l", part(l)}, {"loss", part(loss)}},
            {{"ignore", -100}},
            {}});
  plan.run({back,
            {{"x", part(x)}, {"w", w}, {"t", part(t)}, {"m", part(m)}, {"l", part(l)}, {"g", part(g)}},
            {{"dz", part(dz)}},
            {{"ignore", -100}},
            {}});
  plan.run({library_program("data_gradient", DType::kF32), {{"dz", part(dz)}, {"w", w}}, {{"dx", part(dx)}}, {}, {}});
  plan.run({library_program("weight_gradient", DType::kF32), {{"dz", part(dz)}, {"x", part(x)}}, {{"dw", dw}}, {}, {}});
  plan.end_rows();
  Sizes sizes = {{"M", 23}, {"K", 6}, {"V", 37}};
  check_plan(plan, sizes, {{"t", 37}}, 2e-5);

  PlanRig rig(plan, sizes);
  Arrays values = random_inputs(plan, sizes, {{"t", 37}}), bad = values;
  Arrays right = rig.run(values);
  bad["t"].data[22] = 37;  // in the last chunk, which is shorter
  rig.fill(bad);
  CHECK_THROWS_WITH_AS(rig.executable->run(rig.bindings()), doctest::Contains("37 in row 22"), Error);
  for (const char* name : {"loss", "dx"}) {
    Array now = rig.tensors.at(name).read();
    CHECK(std::all_of(now.data.begin(), now.data.end(), [](double v) { return std::isnan(v); }));
  }
  CHECK(cpu_run::difference(rig.tensors.at("dw").read(), values.at("dw")) == "");
  CHECK(cpu_run::difference(rig.run(values), right) == "");
}

TEST_CASE("indices that the plan makes itself are checked when they are read") {
  Plan plan("made");
  const Program& next = parsed("program next\nin i: i32[M,1]\nout j: i32[M,1] = i + 1");
  const Program& look =
      parsed("program look\nin table: f32[S,N]\nin i: i32[M,1]\nin x: f32[M,N]\nout y: f32[M,N] = x + table[i]");
  BufferId i = plan.buffer("i", DType::kI32, "M", 1, BufferRole::kInput);
  BufferId table = plan.buffer("table", DType::kF32, "S", "N", BufferRole::kInput);
  BufferId x = plan.buffer("x", DType::kF32, "M", "N", BufferRole::kInput);
  BufferId j = plan.buffer("j", DType::kI32, "M", 1, BufferRole::kTemp);
  BufferId y = plan.buffer("y", DType::kF32, "M", "N", BufferRole::kOutput);
  plan.run({next, {{"i", i}}, {{"j", j}}, {}, {}});
  plan.run({look, {{"table", table}, {"i", j}, {"x", x}}, {{"y", y}}, {}, {}});
  Sizes sizes = {{"M", 9}, {"N", 5}, {"S", 12}};
  check_plan(plan, sizes, {{"i", 11}});
  PlanRig rig(plan, sizes);
  Arrays values = random_inputs(plan, sizes, {{"i", 11}});
  values["i"].data[4] = 11;
  rig.fill(values);
  CHECK_THROWS_WITH_AS(rig.executable->run(rig.bindings()), doctest::Contains("12 in row 4; allowed: 0 to 11"), Error);
}

TEST_CASE("indices that a loop makes: only the rows of the current chunk are looked at") {
  const Program& next = parsed("program next\nin i: i32[M,1]\nout j: i32[M,1] = i + 1");
  const Program& look =
      parsed("program look\nin table: f32[S,N]\nin i: i32[M,1]\nin x: f32[M,N]\nout y: f32[M,N] = x + table[i]");
  for (bool scratch : {true, false}) {
    Plan plan("made");
    BufferId i = plan.buffer("i", DType::kI32, "M", 1, BufferRole::kInput);
    BufferId table = plan.buffer("table", DType::kF32, "S", "N", BufferRole::kInput);
    BufferId x = plan.buffer("x", DType::kF32, "M", "N", BufferRole::kInput);
    BufferId j = plan.buffer("j", DType::kI32, scratch ? DimArg(4) : DimArg("M"), 1, BufferRole::kTemp);
    BufferId y = plan.buffer("y", DType::kF32, "M", "N", BufferRole::kOutput);
    auto part = [](BufferId b) { return BufferRef(b).by_chunk(); };
    plan.begin_rows(Dim::symbol("M"), 4);
    plan.run({next, {{"i", part(i)}}, {{"j", part(j)}}, {}, {}});
    plan.run({look, {{"table", table}, {"i", part(j)}, {"x", part(x)}}, {{"y", part(y)}}, {}, {}});
    plan.end_rows();
    for (std::int64_t m : {3, 4, 10}) check_plan(plan, {{"M", m}, {"N", 5}, {"S", 12}}, {{"i", 11}});
  }
}

TEST_CASE("opaque calls: attention forward and backward, scatter_sum, zero") {
  Plan plan("block");
  Dim heads = Dim::symbol("H"), kv = Dim::symbol("G"), hd = Dim::symbol("hd"), q_width = heads * hd, k_width = kv * hd;
  auto in = [&](const char* name, DType d, const DimArg& r, const DimArg& c) {
    return plan.buffer(name, d, r, c, BufferRole::kInput);
  };
  BufferId qkv = in("qkv", DType::kF32, "M", q_width + k_width * Dim(2)), dy = in("dy", DType::kF32, "M", q_width),
           ids = in("ids", DType::kI32, "M", 1);
  BufferId y = plan.buffer("y", DType::kF32, "M", q_width, BufferRole::kOutput);
  BufferId lse = plan.buffer("lse", DType::kF32, "M", heads, BufferRole::kTemp);
  BufferId d = plan.buffer("d", DType::kF32, "M", q_width + k_width * Dim(2), BufferRole::kOutput);
  BufferId table = plan.buffer("table", DType::kF32, "S", q_width, BufferRole::kInOut);
  BufferId zeroed = plan.buffer("zeroed", DType::kF32, 1, "M", BufferRole::kOutput);
  BufferId half = plan.buffer("half", DType::kBF16, "M", "M", BufferRole::kOutput);
  auto parts = [&](BufferId b) {
    return std::vector<BufferRef>{BufferRef(b, 0, q_width), BufferRef(b, q_width, k_width),
                                  BufferRef(b, q_width + k_width, k_width)};
  };
  auto q = parts(qkv);
  plan.call({OpaqueKind::kAttention, {q[0], q[1], q[2]}, {y, lse}, {Dim::symbol("B"), heads, kv}});
  plan.call({OpaqueKind::kAttentionGrad, {q[0], q[1], q[2], y, lse, dy}, parts(d), {Dim::symbol("B"), heads, kv}});
  plan.call({OpaqueKind::kScatterSum, {y, ids}, {table}, {}});
  plan.call({OpaqueKind::kZero, {}, {zeroed, half}, {}});
  Sizes sizes = {{"B", 2}, {"M", 34}, {"H", 6}, {"G", 2}, {"hd", 5}, {"S", 7}};
  check_plan(plan, sizes, {{"ids", 7}}, 2e-5);

  PlanRig rig(plan, sizes);
  Arrays values = random_inputs(plan, sizes, {{"ids", 7}});
  values["ids"].data[33] = 7;
  rig.fill(values);
  CHECK_THROWS_WITH_AS(rig.executable->run(rig.bindings()), doctest::Contains("7 in row 33; allowed: 0 to 6"), Error);
  CHECK(std::isnan(rig.tensors.at("y").read().at(0, 0)));
  auto backend = make_cpu_backend({1, "", 0, 0});
  sizes["B"] = 3;
  CHECK_THROWS_WITH_AS(backend->prepare(plan, sizes), doctest::Contains("34 rows"), Error);
  sizes["B"] = 0;
  CHECK_THROWS_WITH_AS(backend->prepare(plan, sizes), doctest::Contains("34 rows"), Error);
  sizes["B"] = 2, sizes["H"] = 3;
  CHECK_THROWS_WITH_AS(backend->prepare(plan, sizes), doctest::Contains("15 columns in 3 heads, 10 in 2"), Error);
}

TEST_CASE("scatter_sum over chunks of rows: every index is checked before the first is used") {
  Plan plan("scatter");
  BufferId g = plan.buffer("g", DType::kF32, "M", "N", BufferRole::kInput);
  BufferId ids = plan.buffer("ids", DType::kI32, "M", 1, BufferRole::kInput);
  BufferId table = plan.buffer("table", DType::kF32, "S", "N", BufferRole::kInOut);
  plan.begin_rows(Dim::symbol("M"), 4);
  plan.call({OpaqueKind::kScatterSum, {BufferRef(g).by_chunk(), BufferRef(ids).by_chunk()}, {table}, {}});
  plan.end_rows();
  Sizes sizes = {{"M", 10}, {"N", 150}, {"S", 3}};
  check_plan(plan, sizes, {{"ids", 3}});
  PlanRig rig(plan, sizes);
  Arrays values = random_inputs(plan, sizes, {{"ids", 3}});
  values["ids"].data[9] = -1;
  rig.fill(values);
  CHECK_THROWS_WITH_AS(rig.executable->run(rig.bindings()), doctest::Contains("-1 in row 9; allowed: 0 to 2"), Error);
  CHECK(cpu_run::difference(rig.tensors.at("table").read(), values.at("table")) == "");
}

TEST_CASE("a plan of a size that its steps do not fit is refused when it is prepared") {
  Plan plan("ranges");
  BufferId x = plan.buffer("x", DType::kF32, "M", "K", BufferRole::kInput);
  BufferId y = plan.buffer("y", DType::kF32, "M", "N", BufferRole::kOutput);
  plan.run({scaled(), {{"x", BufferRef(x, 0, Dim::symbol("N"))}}, {{"y", y}}, {{"a", 1}}, {}});
  auto backend = make_cpu_backend({1, "", 0, 0});
  CHECK_NOTHROW(backend->prepare(plan, {{"M", 2}, {"K", 7}, {"N", 7}}));
  CHECK_THROWS_WITH_AS(backend->prepare(plan, {{"M", 2}, {"K", 7}, {"N", 8}}), doctest::Contains("columns 0 to 8"),
                       Error);
}

TEST_CASE("inputs and outputs that are column ranges of one tensor, beside the plan's own ranges") {
  Plan plan("beside");
  BufferId x = plan.buffer("x", DType::kF32, "M", "N", BufferRole::kInput);
  BufferId y = plan.buffer("y", DType::kF32, "M", "N", BufferRole::kOutput);
  BufferId s = plan.buffer("s", DType::kF32, 1, "N", BufferRole::kInOut);
  BufferId q = plan.buffer("q", DType::kF32, 1, 1, BufferRole::kInOut);
  plan.run({scaled(), {{"x", x}}, {{"y", y}}, {{"a", 2}}, {}});
  plan.run({sums(), {{"x", y}}, {{"s", s}, {"q", q}}, {}, {}});
  auto executable = make_cpu_backend({2, "", 4, 8})->prepare(plan, {{"M", 9}, {"N", 11}});
  std::vector<float> memory(9 * 25, -1), sum(11, 1), total(1, 1);
  for (std::size_t i = 0; i < 9; ++i)
    for (std::size_t j = 0; j < 11; ++j) memory[i * 25 + j] = static_cast<float>(i * 11 + j);
  TensorView all = TensorView::matrix(memory.data(), DType::kF32, 9, 25);
  executable->run({{"x", all.col_range(0, 11)},
                   {"y", all.col_range(12, 11)},
                   {"s", TensorView::matrix(sum.data(), DType::kF32, 1, 11)},
                   {"q", TensorView::matrix(total.data(), DType::kF32, 1, 1)}});
  for (std::size_t i = 0; i < 9; ++i) {
    for (std::size_t j = 0; j < 11; ++j) CHECK(memory[i * 25 + 12 + j] == static_cast<float>(2 * (i * 11 + j)));
    for (std::size_t j : {11u, 23u, 24u}) CHECK(memory[i * 25 + j] == -1);
  }
  CHECK(total[0] == 1 + 98 * 99);
}
