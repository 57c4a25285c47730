// Plan: every mistake by its message, lifetimes, loops, the arena, sizes of steps, the library of programs, and plans
// on the interpreter against the interpreter alone. Costs are in tests/cost_test.cc.
#include "coda/plan.h"

#include <doctest/doctest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "coda/error.h"
#include "plan/arena.h"
#include "plan/program_library.h"
#include "plan/reference.h"
#include "programs_data.h"

using namespace coda;

namespace {

const Program& text_program(const std::string& text) {
  static std::map<std::string, Program> parsed;
  auto it = parsed.find(text);
  if (it == parsed.end()) it = parsed.emplace(text, parse_program(text)).first;
  return it->second;
}

// y = x wᵀ, f32.
const Program& linear() {
  return text_program("program linear\nin x: f32[M,K]\nin w: f32[N,K]\nout y: f32[M,N] = x @ w");
}
const Program& scaled() { return text_program("program scaled\nin x: f32[M,N]\nconst a: f32\nout y: f32[M,N] = x*a"); }
const Program& in_place() {
  return text_program("program in_place\nin x: f32[M,N]\nin b: f32[1,N]\nout y: f32[M,N] over x = x + b");
}
const Program& column_sums() {
  return text_program("program column_sums\nin x: f32[M,N]\nout s: f32[1,N] += sum_m(x)");
}
const Program& heads() {
  return text_program("program heads\nwhere N = H*hd\nin x: f32[M,N]\nout y: f32[M,H] = flat(sum_c(group(x, hd)))");
}

// Buffers of a small plan: a, b inputs; t a temporary; o an output.
struct Fixture {
  Plan plan{"p"};
  BufferId x = plan.buffer("x", DType::kF32, "M", "K", BufferRole::kInput);
  BufferId w = plan.buffer("w", DType::kF32, "N", "K", BufferRole::kInput);
  BufferId t = plan.buffer("t", DType::kF32, "M", "N", BufferRole::kTemp);
  BufferId o = plan.buffer("o", DType::kF32, "M", "N", BufferRole::kOutput);
  BufferId half = plan.buffer("half", DType::kBF16, "M", "N", BufferRole::kOutput);
  BufferId sum = plan.buffer("sum", DType::kF32, 1, "N", BufferRole::kInOut);
  BufferId bias = plan.buffer("bias", DType::kF32, 1, "N", BufferRole::kInput);

  std::string refused(const ProgramStep& step) {
    std::size_t before = plan.steps().size();
    std::string message = "accepted";
    try {
      plan.run(step, "scope");
    } catch (const Error& e) {
      message = e.what();
      CHECK(plan.steps().size() == before);
    }
    return message;
  }
  std::string refused(const OpaqueStep& step) {
    try {
      plan.call(step, "scope");
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }
  void make_t() { plan.run({linear(), {{"x", x}, {"w", w}}, {{"y", t}}, {}, {}}); }
};

#define CHECK_SAYS(message, ...)                    \
  do {                                              \
    std::string said = (message);                   \
    for (const char* words : {__VA_ARGS__}) {       \
      INFO(said);                                   \
      CHECK(said.find(words) != std::string::npos); \
    }                                               \
  } while (false)

}  // namespace

TEST_CASE("mistakes of names, constants and dtypes") {
  Fixture f;
  CHECK_SAYS(f.refused(ProgramStep{linear(), {{"x", f.x}, {"v", f.w}}, {{"y", f.o}}, {}, {}}),
             "step 0 (linear, scope), input v", "no input of the program", "x, w");
  CHECK_SAYS(f.refused(ProgramStep{linear(), {{"x", f.x}, {"w", f.w}}, {{"z", f.o}}, {}, {}}),
             "output z: no output of the program; allowed: y");
  CHECK_SAYS(f.refused(ProgramStep{linear(), {{"x", f.x}}, {{"y", f.o}}, {}, {}}), "input w: bound to no buffer",
             "bound are x");
  CHECK_SAYS(f.refused(ProgramStep{linear(), {{"x", f.x}, {"w", f.w}}, {}, {}, {}}), "no output bound to a buffer");
  CHECK_SAYS(f.refused(ProgramStep{linear(), {{"x", f.x}, {"w", f.w}}, {{"y", f.half}}, {}, {}}),
             "step 0 (linear, scope), output y = buffer half: bf16; allowed: f32");
  f.make_t();
  CHECK_SAYS(f.refused(ProgramStep{scaled(), {{"x", f.t}}, {{"y", f.o}}, {}, {}}),
             "step 1 (scaled, scope), constant a: no value");
  CHECK_SAYS(f.refused(ProgramStep{scaled(), {{"x", f.t}}, {{"y", f.o}}, {{"b", 1.0}, {"a", 1.0}}, {}}),
             "constant b: no constant of the program");
  CHECK_SAYS(f.refused(ProgramStep{scaled(), {{"x", f.t}, {"a", f.sum}}, {{"y", f.o}}, {{"a", 1.0}}, {}}),
             "input a: no input of the program");
  const Program& p = text_program("program ints\nin t: i32[M,1]\nconst k: i32\nout y: i32[M,1] = t + k");
  BufferId ids = f.plan.buffer("ids", DType::kI32, "M", 1, BufferRole::kInput),
           out = f.plan.buffer("out", DType::kI32, "M", 1, BufferRole::kOutput);
  CHECK_SAYS(f.refused(ProgramStep{p, {{"t", ids}}, {{"y", out}}, {{"k", 0.5}}, {}}),
             "constant k: 0.5; allowed: a whole number");
  CHECK(f.refused(ProgramStep{p, {{"t", ids}}, {{"y", out}}, {{"k", -100}}, {}}) == "accepted");
  CHECK_THROWS_WITH_AS(f.plan.buffer("x", DType::kF32, 1, 1, BufferRole::kTemp),
                       doctest::Contains("a second buffer of this name"), Error);
  CHECK_THROWS_WITH_AS(f.plan.buffer("", DType::kF32, 1, 1, BufferRole::kTemp), doctest::Contains("no name"), Error);
  CHECK_SAYS(f.refused(ProgramStep{linear(), {{"x", BufferRef(99)}, {"w", f.w}}, {{"y", f.o}}, {}, {}}), "buffer 99",
             "0 to ");
}

TEST_CASE("mistakes of shapes are found by names of sizes") {
  Fixture f;
  BufferId other = f.plan.buffer("other", DType::kF32, "N", "K2", BufferRole::kInput);
  CHECK_SAYS(f.refused(ProgramStep{linear(), {{"x", f.x}, {"w", other}}, {{"y", f.o}}, {}, {}}),
             "step 0 (linear, scope), input x = buffer x: size K for K; allowed: K2");
  BufferId narrow = f.plan.buffer("narrow", DType::kF32, "M", Dim::symbol("N") - 1, BufferRole::kOutput);
  CHECK_SAYS(f.refused(ProgramStep{linear(), {{"x", f.x}, {"w", f.w}}, {{"y", narrow}}, {}, {}}), "buffer narrow",
             "size N - 1 for N; allowed: N");
  f.make_t();
  BufferId y = f.plan.buffer("y", DType::kF32, "M", "heads", BufferRole::kOutput);
  const Program& p = text_program("program twice\nin x: f32[M,N]\nsize Q\nout y: f32[M,N] = x*size(Q)");
  CHECK_SAYS(f.refused(ProgramStep{p, {{"x", f.t}}, {{"y", f.o}}, {}, {}}), "size Q: fixed by no buffer",
             "Give it in the step's sizes");
  CHECK_SAYS(f.refused(ProgramStep{p, {{"x", f.t}}, {{"y", f.o}}, {}, {{"Q", 2}, {"R", 3}}}),
             "size R: no size of twice");
  CHECK(f.refused(ProgramStep{p, {{"x", f.t}}, {{"y", f.o}}, {}, {{"Q", Dim::symbol("M") + 1}}}) == "accepted");
  CHECK(f.refused(ProgramStep{heads(), {{"x", f.t}}, {{"y", y}}, {}, {}}) == "accepted");
  const auto& step = std::get<ProgramStep>(f.plan.steps().back().what);
  CHECK(step.sizes.at("hd") == Dim::symbol("N") / Dim::symbol("heads"));
  CHECK(step_sizes(f.plan, step, {{"M", 3}, {"N", 8}, {"heads", 2}, {"K", 1}}, 0) ==
        Sizes{{"M", 3}, {"H", 2}, {"hd", 4}});
  CHECK_THROWS_WITH_AS(step_sizes(f.plan, step, {{"M", 3}, {"N", 9}, {"heads", 2}}, 0),
                       doctest::Contains("size hd of heads"), Error);
  CHECK_SAYS(f.refused(ProgramStep{heads(), {{"x", f.t}}, {{"y", y}}, {}, {{"N", Dim::symbol("F")}}}),
             "size N for H*hd; allowed: F");
}

TEST_CASE("sizes of sums are solved; the program's names do not mix with the plan's") {
  Plan plan("p");
  const Program& p = text_program(
      "program cat\nin a: f32[M,A]\nin b: f32[M,B]\nin c: f32[M,A + B]\nout y: f32[M,A + B] = concat(a, b) + c");
  // The plan calls A what the program calls B, and the other way round.
  BufferId a = plan.buffer("a", DType::kF32, "M", "B", BufferRole::kInput),
           c = plan.buffer("c", DType::kF32, "M", Dim::symbol("A") + Dim::symbol("B"), BufferRole::kInput);
  BufferId b = plan.buffer("b", DType::kF32, "M", "A", BufferRole::kInput),
           y = plan.buffer("y", DType::kF32, "M", Dim::symbol("A") + Dim::symbol("B"), BufferRole::kOutput);
  plan.run({p, {{"a", a}, {"b", b}, {"c", c}}, {{"y", y}}, {}, {}});
  CHECK(step_sizes(plan, std::get<ProgramStep>(plan.steps()[0].what), {{"M", 1}, {"A", 5}, {"B", 2}}, 0) ==
        Sizes{{"M", 1}, {"A", 2}, {"B", 5}});
  CHECK(plan.free_sizes() == std::vector<std::string>{"A", "B", "M"});
}

TEST_CASE("mistakes of reading and writing") {
  Fixture f;
  CHECK_SAYS(f.refused(ProgramStep{scaled(), {{"x", f.t}}, {{"y", f.o}}, {{"a", 1}}, {}}),
             "step 0 (scaled, scope), buffer t: read before it is written");
  CHECK_SAYS(f.refused(ProgramStep{scaled(), {{"x", f.o}}, {{"y", f.t}}, {{"a", 1}}, {}}),
             "buffer o: read before it is written");
  BufferId acc = f.plan.buffer("acc", DType::kF32, 1, "N", BufferRole::kTemp);
  f.make_t();
  CHECK_SAYS(f.refused(ProgramStep{column_sums(), {{"x", f.t}}, {{"s", acc}}, {}, {}}),
             "buffer acc: read before it is written");
  CHECK_SAYS(f.refused(ProgramStep{column_sums(), {{"x", f.t}}, {{"s", f.bias}}, {}, {}}),
             "buffer bias: an input that is written");
  CHECK(f.refused(ProgramStep{column_sums(), {{"x", f.t}}, {{"s", f.sum}}, {}, {}}) == "accepted");
  f.plan.call({OpaqueKind::kZero, {}, {acc}, {}});
  CHECK(f.refused(ProgramStep{column_sums(), {{"x", f.t}}, {{"s", acc}}, {}, {}}) == "accepted");
  CHECK_THROWS_WITH_AS(f.plan.check_complete(), doctest::Contains("buffer o: an output that no step writes"), Error);
  CHECK_THROWS_WITH_AS(interpret_plan(f.plan, {}, {}), doctest::Contains("an output that no step writes"), Error);
  CHECK_THROWS_WITH_AS(plan_arena(f.plan, {}), doctest::Contains("an output that no step writes"), Error);
}

TEST_CASE("over: the same temporary in and out, nothing else") {
  Fixture f;
  f.make_t();
  CHECK_SAYS(f.refused(ProgramStep{scaled(), {{"x", f.t}}, {{"y", f.t}}, {{"a", 1}}, {}}),
             "buffer t: read as x and written as y", "unless the program says `over`");
  BufferId io = f.plan.buffer("io", DType::kF32, "M", "N", BufferRole::kInOut);
  CHECK_SAYS(f.refused(ProgramStep{in_place(), {{"x", io}, {"b", f.bias}}, {{"y", io}}, {}, {}}),
             "buffer io: read as x and written as y", "a temporary of the plan");
  BufferId square = f.plan.buffer("square", DType::kF32, 1, "N", BufferRole::kTemp);
  f.plan.call({OpaqueKind::kZero, {}, {square}, {}});
  CHECK_SAYS(f.refused(ProgramStep{in_place(), {{"x", square}, {"b", square}}, {{"y", square}}, {}, {}}),
             "buffer square: read as b and written as y");
  CHECK(f.refused(ProgramStep{in_place(), {{"x", f.t}, {"b", f.bias}}, {{"y", f.t}}, {}, {}}) == "accepted");
  f.plan.run({scaled(), {{"x", f.t}}, {{"y", f.o}}, {{"a", 2}}, {}});
  Plan& plan = f.plan;
  BufferId half_out = f.half;
  const Program& narrow = text_program("program narrow\nin x: f32[M,N]\nout y: bf16[M,N] = x");
  plan.run({narrow, {{"x", f.t}}, {{"y", half_out}}, {}, {}});
  Arrays in{{"x", programs::random("x", 3, 2)},
            {"w", programs::random("w", 4, 2)},
            {"bias", programs::random("bias", 1, 4)},
            {"io", Array(3, 1, 4)},
            {"sum", Array(1, 1, 4)}};
  Arrays out = interpret_plan(plan, in, {{"M", 3}, {"N", 4}, {"K", 2}});
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 4; ++j) {
      double y = in["x"].at(i, 0) * in["w"].at(j, 0) + in["x"].at(i, 1) * in["w"].at(j, 1) + in["bias"].at(0, j);
      CHECK(out.at("o").at(i, j) == doctest::Approx(2 * y));
    }
}

TEST_CASE("ranges of columns: apart they may share a buffer") {
  Plan plan("p");
  Dim n = Dim::symbol("N"), two = Dim(2) * n;
  BufferId x = plan.buffer("x", DType::kF32, "M", two, BufferRole::kInput);
  BufferId t = plan.buffer("t", DType::kF32, "M", two, BufferRole::kTemp),
           o = plan.buffer("o", DType::kF32, "M", two, BufferRole::kOutput);
  const Program& both = text_program("program both\nin a, b: f32[M,N]\nout s: f32[M,N] = a + b, d: f32[M,N] = a - b");
  BufferRef left(x, 0, n), right(x, n, n);
  auto refused = [&](ProgramStep s) {
    try {
      plan.run(std::move(s));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  CHECK_SAYS(
      refused({both, {{"a", left}, {"b", right}}, {{"s", BufferRef(o, 0, n)}, {"d", BufferRef(o, 0, n)}}, {}, {}}),
      "buffer o: outputs d and s both write it");
  CHECK_SAYS(refused({both, {{"a", left}, {"b", BufferRef(x, n, two)}}, {{"s", BufferRef(t, 0, n)}}, {}, {}}),
             "buffer x: columns N to 3*N; allowed: columns within its 2*N");
  CHECK(refused({both, {{"a", left}, {"b", right}}, {{"s", BufferRef(t, 0, n)}, {"d", BufferRef(t, n, n)}}, {}, {}}) ==
        "accepted");
  CHECK(refused({scaled(), {{"x", BufferRef(t, 0, n)}}, {{"y", BufferRef(t, n, n)}}, {{"a", 3}}, {}}) == "accepted");
  CHECK(refused({scaled(), {{"x", t}}, {{"y", o}}, {{"a", 1}}, {}}) == "accepted");
  Array in = programs::random("x", 3, 10);
  Array out = interpret_plan(plan, {{"x", in}}, {{"M", 3}, {"N", 5}}).at("o");
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 5; ++j) {
      CHECK(out.at(i, j) == in.at(i, j) + in.at(i, 5 + j));
      CHECK(out.at(i, 5 + j) == 3 * out.at(i, j));
    }
}

TEST_CASE("loops: mistakes") {
  Fixture f;
  f.make_t();
  auto part = [](BufferId b) { return BufferRef(b).by_chunk(); };
  CHECK_SAYS(f.refused(ProgramStep{scaled(), {{"x", part(f.t)}}, {{"y", f.o}}, {{"a", 1}}, {}}),
             "buffer t: a chunk of rows outside a loop");
  CHECK_THROWS_WITH_AS(f.plan.end_rows(), doctest::Contains("no open loop"), Error);
  CHECK_THROWS_WITH_AS(f.plan.begin_rows(Dim::symbol("M"), 0), doctest::Contains("chunks of 0 rows"), Error);
  f.plan.begin_rows(Dim::symbol("M"), 4);
  CHECK_THROWS_WITH_AS(f.plan.begin_rows(Dim::symbol("M"), 4), doctest::Contains("a loop inside a loop"), Error);
  CHECK_THROWS_WITH_AS(f.plan.begin_backward(), doctest::Contains("an open loop"), Error);
  CHECK_SAYS(f.refused(ProgramStep{scaled(), {{"x", part(f.w)}}, {{"y", part(f.o)}}, {{"a", 1}}, {}}),
             "buffer w: a chunk of its N rows", "the loop's M rows, or its scratch of 4");
  CHECK_SAYS(f.refused(ProgramStep{scaled(), {{"x", part(f.t)}}, {{"y", f.o}}, {{"a", 1}}, {}}),
             "buffer o: written anew by every chunk");
  BufferId t2 = f.plan.buffer("t2", DType::kF32, "M", "N", BufferRole::kTemp);
  CHECK_SAYS(f.refused(ProgramStep{scaled(), {{"x", part(f.t)}}, {{"y", t2}}, {{"a", 1}}, {}}), "buffer t2",
             "(rows of the chunk)");
  CHECK_THROWS_WITH_AS(f.plan.check_complete(), doctest::Contains("a loop that is still open"), Error);
  Plan empty("empty");
  empty.begin_rows(Dim::symbol("M"), 4);
  CHECK_THROWS_WITH_AS(empty.end_rows(), doctest::Contains("a loop without a step"), Error);
  Plan twice("twice");
  twice.begin_backward();
  CHECK_THROWS_WITH_AS(twice.begin_backward(), doctest::Contains("a second call"), Error);
}

TEST_CASE("loops: chunks, a tail, scratch and accumulation") {
  Plan plan("p");
  BufferId x = plan.buffer("x", DType::kF32, "M", "N", BufferRole::kInput),
           y = plan.buffer("y", DType::kF32, "M", "N", BufferRole::kOutput);
  BufferId sum = plan.buffer("sum", DType::kF32, 1, "N", BufferRole::kInOut);
  BufferId before = plan.buffer("before", DType::kF32, "M", "N", BufferRole::kTemp),
           scratch = plan.buffer("scratch", DType::kF32, 4, "N", BufferRole::kTemp);
  BufferId after = plan.buffer("after", DType::kF32, "M", "N", BufferRole::kTemp),
           last = plan.buffer("last", DType::kF32, "M", "N", BufferRole::kOutput);
  auto part = [](BufferId b) { return BufferRef(b).by_chunk(); };
  plan.run({scaled(), {{"x", x}}, {{"y", before}}, {{"a", 2}}, {}});  // 0
  plan.begin_rows(Dim::symbol("M"), 4);
  plan.run({scaled(), {{"x", part(before)}}, {{"y", part(scratch)}}, {{"a", 3}}, {}});  // 1
  plan.run({column_sums(), {{"x", part(scratch)}}, {{"s", sum}}, {}, {}});              // 2
  plan.run({scaled(), {{"x", part(scratch)}}, {{"y", part(y)}}, {{"a", 1}}, {}});       // 3
  plan.run({scaled(), {{"x", part(scratch)}}, {{"y", part(after)}}, {{"a", -1}}, {}});  // 4
  plan.end_rows();
  plan.run({scaled(), {{"x", after}}, {{"y", last}}, {{"a", 1}}, {}});  // 5
  CHECK(plan.loop_of(0) == nullptr);
  CHECK(plan.loop_of(1) == &plan.loops()[0]);
  CHECK(plan.loop_of(4) == &plan.loops()[0]);
  CHECK(plan.loop_of(5) == nullptr);
  std::vector<Lifetime> lives = plan.lifetimes();
  auto life = [&](BufferId b) {
    return std::pair(lives[static_cast<std::size_t>(b)].first, lives[static_cast<std::size_t>(b)].last);
  };
  CHECK(life(before) == std::pair(0, 4));  // read in the loop's first step, needed until its last
  CHECK(life(scratch) == std::pair(1, 4));
  CHECK(life(after) == std::pair(1, 5));
  CHECK(life(x) == std::pair(0, 0));
  for (std::int64_t m : {0, 3, 4, 8, 11}) {
    Array in = programs::random("x", m, 3);
    Arrays out = interpret_plan(plan, {{"x", in}, {"sum", Array(1, 1, 3, 100)}}, {{"M", m}, {"N", 3}});
    for (std::int64_t j = 0; j < 3; ++j) {
      double expected = 100;
      for (std::int64_t i = 0; i < m; ++i) {
        expected += 6 * in.at(i, j);
        CHECK(out.at("y").at(i, j) == 6 * in.at(i, j));
        CHECK(out.at("last").at(i, j) == -6 * in.at(i, j));
      }
      CHECK(out.at("sum").at(0, j) == expected);
    }
  }
  CHECK(step_sizes(plan, std::get<ProgramStep>(plan.steps()[1].what), {{"M", 11}, {"N", 3}}, 2) ==
        Sizes{{"M", 2}, {"N", 3}});
}

TEST_CASE("opaque calls: mistakes") {
  Plan plan("p");
  Dim q_width = Dim::symbol("H") * Dim::symbol("hd"), k_width = Dim::symbol("G") * Dim::symbol("hd");
  BufferId q = plan.buffer("q", DType::kBF16, "M", q_width, BufferRole::kInput),
           k = plan.buffer("k", DType::kBF16, "M", k_width, BufferRole::kInput);
  BufferId kf = plan.buffer("kf", DType::kF32, "M", k_width, BufferRole::kInput);
  BufferId o = plan.buffer("o", DType::kBF16, "M", q_width, BufferRole::kOutput),
           lse = plan.buffer("lse", DType::kF32, "M", "H", BufferRole::kOutput);
  std::vector<Dim> sizes{Dim::symbol("B"), Dim::symbol("H"), Dim::symbol("G")};
  auto refused = [&](const OpaqueStep& s) {
    try {
      plan.call(s, "scope");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  CHECK_SAYS(refused({OpaqueKind::kAttention, {q, k}, {o, lse}, sizes}),
             "step 0 (attention, scope): 2 inputs, 2 outputs, 3 sizes; allowed: q, k, v → o, lse");
  CHECK_SAYS(refused({OpaqueKind::kAttention, {q, k, k}, {o, lse}, {1, 2}}), "2 sizes");
  CHECK_SAYS(refused({OpaqueKind::kAttention, {q, kf, k}, {o, lse}, sizes}), "buffer kf: f32; allowed: bf16");
  CHECK_SAYS(refused({OpaqueKind::kAttention, {q, k, q}, {o, lse}, sizes}), "buffer q: [M,H*hd]; allowed: [M,G*hd]");
  CHECK_SAYS(
      refused({OpaqueKind::kAttention, {q, k, k}, {o, lse}, {Dim::symbol("B"), Dim::symbol("G"), Dim::symbol("G")}}),
      "heads of one width");
  CHECK_SAYS(refused({OpaqueKind::kAttention, {q, k, k}, {q, lse}, sizes}), "buffer q: an input that is written");
  CHECK_SAYS(refused({OpaqueKind::kAttention, {o, k, k}, {o, lse}, sizes}), "buffer o: read before it is written");
  CHECK(refused({OpaqueKind::kAttention, {q, k, k}, {o, lse}, sizes}) == "accepted");
  CHECK_SAYS(refused({OpaqueKind::kAttention, {o, k, k}, {o, lse}, sizes}), "buffer o: read and written");
  BufferId ids = plan.buffer("ids", DType::kI32, "M", 1, BufferRole::kInput),
           table = plan.buffer("table", DType::kF32, "V", q_width, BufferRole::kInOut);
  BufferId narrow = plan.buffer("narrow", DType::kBF16, "V", q_width, BufferRole::kInOut);
  CHECK_SAYS(refused({OpaqueKind::kScatterSum, {q, lse}, {table}, {}}), "buffer lse: f32; allowed: i32");
  CHECK_SAYS(refused({OpaqueKind::kScatterSum, {q, ids}, {narrow}, {}}), "buffer narrow: bf16; allowed: f32");
  CHECK_SAYS(refused({OpaqueKind::kScatterSum, {k, ids}, {table}, {}}), "buffer table: [V,H*hd]; allowed: [V,G*hd]");
  CHECK_SAYS(refused({OpaqueKind::kZero, {}, {}, {}}), "any number of buffers");
  CHECK_SAYS(refused({OpaqueKind::kZero, {}, {q}, {}}), "an input that is written");
  plan.begin_rows(Dim::symbol("M"), 2);
  auto part = [](BufferId b) { return BufferRef(b).by_chunk(); };
  CHECK_SAYS(refused({OpaqueKind::kAttention, {part(q), k, k}, {part(o), part(lse)}, sizes}), "a chunk of rows",
             "every row attends to others");
}

TEST_CASE("opaque calls on the interpreter; q, k, v side by side in one buffer") {
  Plan plan("p");
  BufferId qkv = plan.buffer("qkv", DType::kF32, "M", 8, BufferRole::kInput),
           dy = plan.buffer("dy", DType::kF32, "M", 4, BufferRole::kInput);
  BufferId y = plan.buffer("y", DType::kF32, "M", 4, BufferRole::kOutput),
           lse = plan.buffer("lse", DType::kF32, "M", 2, BufferRole::kOutput);
  BufferId d = plan.buffer("d", DType::kF32, "M", 8, BufferRole::kOutput);
  BufferRef q(qkv, 0, 4), k(qkv, 4, 2), v(qkv, 6, 2);
  std::vector<Dim> sizes{1, 2, 1};
  plan.call({OpaqueKind::kAttention, {q, k, v}, {y, lse}, sizes});
  plan.call({OpaqueKind::kAttentionGrad,
             {q, k, v, y, lse, dy},
             {BufferRef(d, 0, 4), BufferRef(d, 4, 2), BufferRef(d, 6, 2)},
             sizes});
  // One position: the output is v for each head, and only v has a gradient, the sum over heads.
  Array x = programs::random("qkv", 1, 8), g = programs::random("dy", 1, 4);
  Arrays out = interpret_plan(plan, {{"qkv", x}, {"dy", g}}, {{"M", 1}});
  for (std::int64_t j = 0; j < 4; ++j) CHECK(out.at("y").at(0, j) == x.at(0, 6 + j % 2));
  for (std::int64_t j = 0; j < 6; ++j) CHECK(out.at("d").at(0, j) == 0);
  for (std::int64_t j = 0; j < 2; ++j) CHECK(out.at("d").at(0, 6 + j) == doctest::Approx(g.at(0, j) + g.at(0, 2 + j)));
}

TEST_CASE("the interpreter of plans refuses what does not fit") {
  Plan plan = single_program_plan(linear(), {});
  Arrays in{{"x", Array(2, 1, 3)}, {"w", Array(4, 1, 3)}};
  Sizes sizes{{"M", 2}, {"N", 4}, {"K", 3}};
  CHECK(interpret_plan(plan, in, sizes).at("y").cols == 4);
  CHECK_THROWS_WITH_AS(interpret_plan(plan, in, {{"M", 2}, {"N", 4}}), doctest::Contains("size K: no value"), Error);
  CHECK_THROWS_WITH_AS(interpret_plan(plan, {{"x", in["x"]}}, sizes), doctest::Contains("w: missing"), Error);
  in["y"] = Array(2, 1, 4);
  CHECK_THROWS_WITH_AS(interpret_plan(plan, in, sizes), doctest::Contains("y: no input of plan linear"), Error);
  in.erase("y");
  in["w"] = Array(3, 1, 4);
  CHECK_THROWS_WITH_AS(interpret_plan(plan, in, sizes), doctest::Contains("w: [3,4]; allowed: [4,3]"), Error);
}

TEST_CASE("every program of the library as a plan gives the interpreter's values") {
  const Sizes all{{"M", 5},  {"N", 9},  {"K", 7},  {"F", 6},  {"V", 11}, {"S", 6},  {"H", 4}, {"G", 2},
                  {"hd", 6}, {"rd", 2}, {"NQ", 5}, {"NK", 3}, {"NA", 4}, {"NB", 5}, {"R", 2}};
  CHECK(library_names().size() > 100);
  for (const std::string& name : library_names()) {
    CAPTURE(name);
    const Program& p = library_program(name, DType::kF16);
    Sizes sizes = programs::sizes_for(p.graph(), all);
    Arrays in = programs::inputs(p.graph(), sizes), given = in;
    std::map<std::string, double> consts;
    for (const Input& i : p.graph().inputs())
      if (i.is_const) consts[i.name] = in.at(i.name).data[0], given.erase(i.name);
    for (Rounding rounding : {Rounding::kExact, Rounding::kStores})
      CHECK(programs::difference(interpret_plan(single_program_plan(p, consts), given, sizes, {rounding}),
                                 interpret(p.graph(), in, sizes, {rounding}), 0) == "");
  }
}

TEST_CASE("an output that is called like an input") {
  Plan plan = single_program_plan(text_program("program p\nin x: f32[M,N]\nout x: f32[M,N] = 2*x"), {});
  CHECK(interpret_plan(plan, {{"x", Array(1, 1, 1, 3)}}, {{"M", 1}, {"N", 1}}).at("out.x").at(0, 0) == 6);
}

TEST_CASE("the library is the folder programs/, retyped on demand") {
  CHECK(library_names() == programs::names());
  for (const std::string& name : library_names()) {
    std::ifstream file(programs::folder() / (name + ".coda"));
    std::stringstream text;
    text << file.rdbuf();
    CAPTURE(name);
    CHECK(library_text(name) == text.str());
    CHECK(library_program(name, DType::kBF16).hash() == programs::load(name).hash());
  }
  const Program& p = library_program("residual_rmsnorm_backward", DType::kF16, {"dgamma"});
  CHECK(&p == &library_program("residual_rmsnorm_backward", DType::kF16, {"dgamma"}));
  CHECK(&p != &library_program("residual_rmsnorm_backward", DType::kF16));
  CHECK(p.graph().find_output("dgamma")->accumulate);
  CHECK_FALSE(p.graph().find_output("dx")->accumulate);
  CHECK(p.graph().find_output("dx")->dtype == DType::kF16);
  CHECK(p.graph().find_output("dgamma")->dtype == DType::kF32);
  CHECK(p.graph().find_input("r")->dtype == DType::kF32);
  CHECK_THROWS_WITH_AS(library_program("rope_bakward", DType::kF32), doctest::Contains("rope"), Error);
  CHECK_THROWS_WITH_AS(library_program("rope", DType::kI32), doctest::Contains("i32; allowed: f32, bf16, f16"), Error);
  CHECK_THROWS_WITH_AS(library_program("rope", DType::kF32, {"z"}), doctest::Contains("output z"), Error);
}

namespace {

std::int64_t check_layout(const std::vector<ArenaBlock>& blocks, const ArenaLayout& layout) {
  std::int64_t sum = 0, peak = 0;
  auto padded = [](std::int64_t bytes) { return (bytes + 63) / 64 * 64; };
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    sum += padded(blocks[i].bytes);
    CHECK(layout.offsets[i] % 64 == 0);
    if (blocks[i].bytes > 0 && blocks[i].life.first >= 0) CHECK(layout.offsets[i] + blocks[i].bytes <= layout.bytes);
    std::int64_t live = 0;  // at the first step of i
    for (std::size_t j = 0; j < blocks.size(); ++j) {
      bool meets = blocks[j].life.first <= blocks[i].life.first && blocks[i].life.first <= blocks[j].life.last;
      if (meets) live += blocks[j].bytes;
      bool both = i != j && blocks[i].life.first <= blocks[j].life.last && blocks[j].life.first <= blocks[i].life.last;
      bool apart = layout.offsets[i] + blocks[i].bytes <= layout.offsets[j] ||
                   layout.offsets[j] + blocks[j].bytes <= layout.offsets[i];
      if (both && blocks[i].bytes > 0 && blocks[j].bytes > 0) CHECK(apart);
    }
    peak = std::max(peak, live);
  }
  CHECK(layout.bytes <= sum);
  CHECK(layout.bytes >= peak);
  return peak;  // of what is alive at once
}

}  // namespace

TEST_CASE("arena: live blocks never share bytes, dead ones do") {
  std::mt19937 random(7);
  auto number = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  std::int64_t used = 0, peaks = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<ArenaBlock> blocks;
    for (int i = 0; i < 30; ++i) {
      int first = number(20);
      blocks.push_back({number(5) == 0 ? 0 : number(5000), {first, first + number(6)}});
    }
    ArenaLayout layout = place(blocks);
    peaks += check_layout(blocks, layout);
    CHECK(place(blocks).offsets == layout.offsets);
    used += layout.bytes;
  }
  CHECK(used * 20 < peaks * 23);
  // A chain needs two blocks; an unused one none; the freed gap that fits best is taken.
  CHECK(place({{64, {0, 1}}, {64, {1, 2}}, {64, {2, 3}}, {64, {3, 4}}}).bytes == 128);
  CHECK(place({{64, {-1, -1}}}).bytes == 0);
  CHECK(place({}).bytes == 0);
  ArenaLayout fit = place({{640, {0, 0}}, {448, {0, 9}}, {320, {0, 0}}, {256, {0, 9}}, {128, {1, 9}}});
  CHECK(fit.bytes == 640 + 448 + 320 + 256);
  CHECK(fit.offsets[4] == 640 + 448);  // where 320 bytes came free, not where 640 did
}

TEST_CASE("arena of a plan: temporaries only") {
  Fixture f;
  f.make_t();
  f.plan.run({scaled(), {{"x", f.t}}, {{"y", f.o}}, {{"a", 1}}, {}});
  f.plan.run(
      {text_program("program narrow\nin x: f32[M,N]\nout y: bf16[M,N] = x"), {{"x", f.t}}, {{"y", f.half}}, {}, {}});
  ArenaLayout layout = plan_arena(f.plan, {{"M", 5}, {"N", 7}, {"K", 2}});
  CHECK(layout.offsets.size() == f.plan.buffers().size());
  CHECK(layout.bytes == 192);  // 5·7·4 = 140
}
