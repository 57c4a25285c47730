// What the CPU backend refuses: each mistake a coda::Error that names the argument, what was found and what is allowed;
// nothing is written, and the next right call works.
#include <doctest/doctest.h>

#include <cstdlib>

#include "base/thread_pool.h"
#include "check_error.h"
#include "cpu_run.h"
#include "plan/program_library.h"
#include "programs_data.h"

using namespace coda;

namespace {

// A head with gathered targets: f32, bf16, i32 operands, four outputs of a finish and a stored tile.
struct Head {
  const Program& p = library_program("rmsnorm_cross_entropy_logits", DType::kBF16);
  Sizes sizes = {{"M", 9}, {"K", 6}, {"V", 21}};
  Arrays in = programs::inputs(p.graph(), sizes);
  cpu_run::Rig rig{p, in, sizes, cpu_run::small_tiles(4, 8, 2)};
  Arrays right = rig.run(in);
  Bindings good = rig.bindings();

  Head() { poison(); }

  void poison() {
    for (const Output& o : p.graph().outputs()) rig.tensor(o.name).fill(-77);
  }
  std::vector<std::vector<std::byte>> memory() {
    std::vector<std::vector<std::byte>> all;
    for (const auto& [name, view] : good) all.push_back(rig.tensor(name).bytes());
    return all;
  }
  // `b` is refused about `argument`; no byte of any tensor changes; then the right call works.
  void refused(const Bindings& b, const std::string& argument, const std::string& found) {
    CAPTURE(argument);
    auto before = memory();
    check_error(argument, found, [&] { rig.executable().run(b); });
    CHECK(memory() == before);
    rig.executable().run(good);
    for (const Output& o : p.graph().outputs())
      CHECK(cpu_run::difference(rig.tensor(o.name).read(), right.at(o.name)) == "");
    poison();
  }
  Bindings with(const std::string& name, const TensorView& view) const {
    Bindings b = good;
    b[name] = view;
    return b;
  }
};

}  // namespace

TEST_CASE("bindings that are missing or unknown") {
  Head h;
  for (const char* name : {"x", "t", "loss"}) {
    Bindings b = h.good;
    b.erase(name);
    h.refused(b, name, "missing");
  }
  h.refused(h.with("weights", h.good["w"]), "weights", "no such tensor");
  h.refused({}, "x", "missing");
}

TEST_CASE("tensors of another shape or dtype") {
  Head h;
  for (const char* name : {"x", "w", "r", "t", "m", "z"}) {
    TensorView v = h.good[name];
    if (v.cols > 1) h.refused(h.with(name, v.col_range(0, v.cols - 1)), name, std::to_string(v.cols - 1) + "]");
    h.refused(h.with(name, v.row_range(0, v.rows - 1)), name, "[" + std::to_string(v.rows - 1) + ",");
    TensorView more = v;
    more.rows += 1;
    h.refused(h.with(name, more), name, "[" + std::to_string(v.rows + 1) + ",");
    TensorView negative = v;
    negative.rows = -v.rows;
    h.refused(h.with(name, negative), name, "[-");
    for (DType t : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32}) {
      TensorView other = v;
      other.dtype = t;
      if (t != v.dtype) h.refused(h.with(name, other), name, std::string(coda::name(t)));
    }
  }
}

TEST_CASE("null and misaligned pointers, blocks of no size") {
  Head h;
  for (const char* name : {"x", "w", "r", "t", "m", "z"}) {
    TensorView v = h.good[name];
    v.data = nullptr;
    h.refused(h.with(name, v), name, "a null pointer");
    v = h.good[name];
    v.data = static_cast<char*>(v.data) + 1;
    h.refused(h.with(name, v), name, "address");
    if (size_of(v.dtype) == 4) {
      v.data = static_cast<char*>(v.data) + 1;
      h.refused(h.with(name, v), name, "address");
    }
    v = h.good[name];
    v.col_block = 0;
    h.refused(h.with(name, v), name, "blocks");
  }
}

TEST_CASE("outputs that share memory") {
  Head h;
  TensorView z = h.good["z"], loss = h.good["loss"];
  h.refused(h.with("m", loss), "m", "overlaps");                         // two outputs
  h.refused(h.with("l", h.good["r"]), "l", "overlaps r");                // an output and an input
  h.refused(h.with("w", z.col_range(0, 6)), "w", "[9,6]");               // (shape first)
  TensorView rows = TensorView::matrix(z.data, DType::kBF16, 9, 6, 21);  // x inside z
  h.refused(h.with("x", rows), "z", "overlaps x");
  TensorView shared = z;
  shared.row_stride = 20;  // rows of an output that overlap each other
  h.refused(h.with("z", shared), "z", "share memory");
  shared.row_stride = 0;
  h.refused(h.with("z", shared), "z", "share memory");
  // One element is enough: m ends where l begins, and one further.
  std::vector<float> memory(17, -77);
  Bindings b = h.with("m", TensorView::matrix(memory.data(), DType::kF32, 9, 1));
  b["l"] = TensorView::matrix(memory.data() + 8, DType::kF32, 9, 1);
  h.refused(b, "m", "overlaps l");
  CHECK(memory == std::vector<float>(17, -77));
}

TEST_CASE("outputs that are ranges of one tensor but apart, and inputs that share memory, are accepted") {
  Head h;
  // m, l, zt and loss as columns 3, 1, 0, 2 of one [9,4] matrix: their byte ranges interleave.
  std::vector<float> memory(36, -77);
  TensorView all = TensorView::matrix(memory.data(), DType::kF32, 9, 4);
  Bindings b = h.good;
  std::map<std::string, std::int64_t> column = {{"m", 3}, {"l", 1}, {"zt", 0}, {"loss", 2}};
  for (const auto& [name, c] : column) b[name] = all.col_range(c, 1);
  h.rig.executable().run(b);
  for (const auto& [name, c] : column)
    for (std::int64_t i = 0; i < 9; ++i)
      CHECK(static_cast<double>(memory[static_cast<std::size_t>(4 * i + c)]) == h.right.at(name).at(i, 0));

  const Program& p = library_program("swiglu", DType::kBF16);
  Sizes sizes = {{"M", 9}, {"F", 11}, {"K", 6}};
  Arrays in = programs::inputs(p.graph(), sizes);
  in["wu"] = in["wg"];
  cpu_run::Rig rig(p, in, sizes);
  Arrays right = rig.run(in);
  Bindings same = rig.bindings();
  same["wu"] = same["wg"];
  rig.executable().run(same);
  CHECK(cpu_run::difference(rig.tensor("o").read(), right.at("o")) == "");
}

TEST_CASE("targets out of range; the ignored value is none") {
  Head h;
  auto t = static_cast<std::int32_t*>(h.good["t"].data);
  for (std::int32_t wrong :
       {21, 22, -1, -101, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()})
    for (std::size_t at : {std::size_t{0}, std::size_t{4}, std::size_t{8}}) {
      std::int32_t before = t[at];
      t[at] = wrong;
      auto memory = h.memory();
      try {
        h.rig.executable().run(h.good);
        FAIL_CHECK("accepted");
      } catch (const Error& e) {
        INFO(std::string(e.what()));
        CHECK(e.parts().argument.starts_with("t (input t of rmsnorm_cross_entropy_logits"));
        CHECK(e.parts().found == std::to_string(wrong) + " in row " + std::to_string(at));
        CHECK(e.parts().allowed == "0 to 20 (21 columns), or -100");
      }
      CHECK(h.memory() == memory);
      t[at] = before;
    }
  h.rig.executable().run(h.good);
  CHECK(cpu_run::difference(h.rig.tensor("loss").read(), h.right.at("loss")) == "");
  for (std::int32_t fine : {0, 20, -100}) {
    t[4] = fine;
    h.rig.executable().run(h.good);
    CHECK((h.rig.tensor("loss").read().at(4, 0) == 0) == (fine == -100));
  }
  // Without an ignore_index no negative target is allowed.
  const Program& p = library_program("cross_entropy_weighted", DType::kF32);
  Sizes sizes = {{"M", 3}, {"K", 2}, {"V", 5}};
  Arrays in = programs::inputs(p.graph(), sizes);
  cpu_run::Rig rig(p, in, sizes);
  rig.run(in);
  in["t"].data[1] = -100;
  rig.tensor("t").write(in["t"]);
  CHECK_THROWS_WITH_AS(rig.executable().run(rig.bindings()), doctest::Contains("-100 in row 1; allowed: 0 to 4"),
                       Error);
}

TEST_CASE("indices of gathers: positions and token ids") {
  struct Case {
    std::string program, index;
    std::int64_t bound;
  };
  for (const Case& c :
       {Case{"rope", "pos", 7}, Case{"rope_backward", "pos", 7}, Case{"embedding_rmsnorm_partial", "ids", 13}}) {
    CAPTURE(c.program);
    const Program& p = library_program(c.program, DType::kBF16);
    Sizes sizes = programs::sizes_for(
        p.graph(), {{"M", 5}, {"K", 3}, {"H", 2}, {"G", 1}, {"hd", 4}, {"S", 7}, {"V", 13}, {"N", 9}});
    Arrays in = programs::inputs(p.graph(), sizes);
    cpu_run::Rig rig(p, in, sizes);
    Arrays right = rig.run(in);
    for (double wrong : {static_cast<double>(c.bound), -1.0, -100.0}) {
      Arrays bad = in;
      bad[c.index].data[3] = wrong;
      rig.tensor(c.index).write(bad[c.index]);
      for (const Output& o : p.graph().outputs()) rig.tensor(o.name).fill(-77);
      CHECK_THROWS_WITH_AS(rig.executable().run(rig.bindings()), doctest::Contains("in row 3"), Error);
      for (const Output& o : p.graph().outputs()) {
        Array now = rig.tensor(o.name).read();
        CHECK(std::all_of(now.data.begin(), now.data.end(), [](double x) { return x == -77; }));
      }
      CHECK(cpu_run::difference(rig.run(in), right) == "");
    }
    in[c.index].data[3] = static_cast<double>(c.bound - 1);
    rig.run(in);
  }
}

TEST_CASE("sizes: missing, negative, that don't divide") {
  auto backend = make_cpu_backend({1, "", 0, 0});
  Plan plan = single_program_plan(library_program("swiglu_halves", DType::kF32), {});
  check_error("size K", "no value", [&] { backend->prepare(plan, {{"M", 2}, {"F", 3}}); });
  check_error("size F", "no value", [&] { backend->prepare(plan, {}); });
  auto refused = [&](const Plan& plan_of, const Sizes& sizes, const std::string& words) {
    CHECK_THROWS_WITH_AS(backend->prepare(plan_of, sizes), doctest::Contains(words.c_str()), Error);
  };
  refused(plan, {{"M", -2}, {"F", 3}, {"K", 4}}, "-2");
  Plan odd =
      single_program_plan(cpu_run::parsed("program odd\nin x: f32[M,N]\na, b = pairs(x)\nout y: f32[M,N/2] = a*b"), {});
  refused(odd, {{"M", 2}, {"N", 5}}, "N/2");
  CHECK_NOTHROW(backend->prepare(odd, {{"M", 2}, {"N", 6}}));
  Plan heads = single_program_plan(library_program("rope", DType::kF32), {});
  refused(heads, {{"M", 2}, {"K", 3}, {"H", 2}, {"G", 1}, {"hd", 5}, {"S", 3}}, "hd/2");
}

TEST_CASE("options of the backend") {
  check_error("threads", "-1", [] { make_cpu_backend({-1, "", 0, 0}); });
  check_error("threads", std::to_string(ThreadPool::kMaxThreads + 1), [] {
    make_cpu_backend({ThreadPool::kMaxThreads + 1, "", 0, 0});
  });
  check_error("isa", "'sse9'", [] { make_cpu_backend({1, "sse9", 0, 0}); });
  check_error("tile", "-8x0", [] { make_cpu_backend({1, "", -8, 0}); });
  check_error("tile", "0x-1", [] { make_cpu_backend({1, "", 0, -1}); });
  try {
    make_cpu_backend({1, "sse9", 0, 0});
  } catch (const Error& e) {
    CHECK(e.parts().allowed.find("baseline") != std::string::npos);
  }
  CHECK(make_cpu_backend({0, "", 0, 0})->name() == "cpu");
  auto executable =
      make_cpu_backend({3, "baseline", 8, 16})
          ->prepare(single_program_plan(library_program("swiglu", DType::kF32), {}), {{"M", 20}, {"F", 20}, {"K", 3}});
  CHECK(executable->configuration().find("3 threads") != std::string::npos);
  CHECK(executable->configuration().find("baseline 8x16") != std::string::npos);
}

TEST_CASE("the environment names threads and instruction set, the options win") {
  auto configuration = [](const CpuOptions& options) {
    return make_cpu_backend(options)
        ->prepare(single_program_plan(library_program("residual", DType::kF32), {}), {{"M", 4}, {"N", 4}, {"K", 3}})
        ->configuration();
  };
  setenv("CODA_THREADS", "3", 1);
  CHECK(configuration({0, "", 0, 0}).find("cpu, 3 threads") == 0);
  CHECK(configuration({2, "", 0, 0}).find("cpu, 2 threads") == 0);
  setenv("CODA_THREADS", "many", 1);
  CHECK_THROWS_WITH_AS(configuration({0, "", 0, 0}), doctest::Contains("CODA_THREADS"), Error);
  unsetenv("CODA_THREADS");
  setenv("CODA_ISA", "baseline", 1);
  CHECK(configuration({1, "", 0, 0}).find(": baseline") != std::string::npos);
  setenv("CODA_ISA", "sse9", 1);
  CHECK_THROWS_WITH_AS(configuration({1, "", 0, 0}), doctest::Contains("CODA_ISA"), Error);
  CHECK(configuration({1, "baseline", 0, 0}).find(": baseline") != std::string::npos);
  unsetenv("CODA_ISA");
}
