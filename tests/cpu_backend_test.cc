// The CPU backend beyond the conformance table: operands and tiles as 1 to 3 segments, as views into stacked tensors
// and as attention's four-stride tensors; accumulation; NaN; threads; plans with loops, temporaries and opaque calls.
// What the backend refuses is in tests/cpu_input_test.cc.
#include <doctest/doctest.h>

#include <cstring>

#include "base/thread_pool.h"
#include "coda/error.h"
#include "cpu/kernels/tile_gemm.h"
#include "cpu_stack.h"
#include "plan/program_library.h"
#include "plan/reference.h"
#include "programs_data.h"

using namespace coda;
using cpu_run::Layout;
using cpu_run::Setup;
using cpu_run::Stack;

namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Widths of segments that are no multiple of a tile (16 columns here), of a micro-panel, or of anything.
const std::vector<std::vector<std::int64_t>> kSegments = {{37}, {19, 30}, {5, 17, 41}, {1, 33, 16}};

const Program& with_dtype(const std::string& text, DType dtype) {
  static std::map<std::pair<std::string, DType>, Program> programs;
  auto it = programs.find({text, dtype});
  if (it == programs.end())
    it = programs
             .emplace(std::pair(text, dtype), Program(with_storage(cpu_run::parsed(text).graph(), DType::kBF16, dtype)))
             .first;
  return it->second;
}

Arrays integer_inputs(const Program& p, const Sizes& sizes) {
  Arrays in;
  auto add = [&](const std::string& name, ValueId v) {
    const Type& t = p.graph().value(v).type;
    in[name] = cpu_run::integers(name, t.rows.eval(sizes), t.width().eval(sizes));
    in[name].groups = t.groups.eval(sizes);
    in[name].cols = t.cols.eval(sizes);
  };
  for (const Input& i : p.graph().inputs()) add(i.name, i.value);
  for (const Output& o : p.graph().outputs())
    if (o.accumulate) add(o.name, o.value);
  return in;
}

std::string number(std::size_t i) { return std::to_string(i); }
std::vector<std::string> numbered(const std::string& stem, std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(stem + number(i));
  return names;
}
// "a0, a1, a2"
std::string list(const std::string& stem, std::size_t count) {
  std::string text;
  for (const std::string& name : numbered(stem, count)) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Tensors apart, and in stacks, in every dtype and tile: exact, as every number is a small integer.
void check_segments(const std::string& text, Sizes sizes, const std::vector<std::int64_t>& widths,
                    const std::vector<Stack>& stacks) {
  for (std::size_t i = 0; i < widths.size(); ++i) sizes["N" + number(i)] = widths[i];
  for (DType dtype : kDTypes) {
    const Program& p = with_dtype(text, dtype);
    Arrays in = integer_inputs(p, sizes), right = cpu_run::expected(p, in, sizes);
    INFO(text << "\nwidths " << widths.size() << ", " << name(dtype));
    for (Layout layout : {Layout::kPlain, Layout::kPitched, Layout::kStrided})
      for (int threads : {1, 2}) {
        Setup setup = cpu_run::small_tiles(8, 16, threads);
        setup.layout = layout;
        CHECK(cpu_run::difference(cpu_run::Rig(p, in, sizes, setup).run(in), right) == "");
        CHECK(cpu_run::difference(cpu_run::StackedRun(p, in, sizes, stacks, setup).run(), right) == "");
      }
    CHECK(cpu_run::difference(cpu_run::StackedRun(p, in, sizes, stacks, Setup()).run(), right) == "");
  }
}

}  // namespace

TEST_CASE("segments along N: several products; weights stacked, outputs side by side in one tensor") {
  for (const auto& widths : kSegments) {
    std::size_t n = widths.size();
    std::string text = "program several\nin x: bf16[M,K]\nin r: f32[M,1]\n";
    for (std::size_t i = 0; i < n; ++i)
      text += "in w" + number(i) + ": bf16[N" + number(i) + ",K], b" + number(i) + ": bf16[1,N" + number(i) + "]\n";
    for (std::size_t i = 0; i < n; ++i)
      text += "z" + number(i) + " = (x @ w" + number(i) + ")*r + b" + number(i) + "\nout z" + number(i) + ": bf16[M,N" +
              number(i) + "]\nout c" + number(i) + ": f32[1,N" + number(i) + "] = sum_m(z" + number(i) + ")\n";
    text += "out s: f32[M,1] = sum_n(z0)";
    for (std::size_t i = 1; i < n; ++i) text += " + sum_n(z" + number(i) + ")";
    check_segments(
        text, {{"M", 21}, {"K", 19}}, widths,
        {{numbered("w", n), false}, {numbered("z", n), true}, {numbered("b", n), true}, {numbered("c", n), true}});
  }
}

TEST_CASE("segments along N: one product split into outputs, loads and vectors joined") {
  for (const auto& widths : kSegments) {
    std::size_t n = widths.size();
    std::string total, loads, biases;
    for (std::size_t i = 0; i < n; ++i) {
      total += (i == 0 ? "" : " + ") + ("N" + number(i));
      loads += "in t" + number(i) + ": bf16[M,N" + number(i) + "], b" + number(i) + ": bf16[1,N" + number(i) + "]\n";
    }
    std::string text = "program joined\nin x: bf16[M,K]\nin w: bf16[" + total + ",K]\n" + loads +
                       "z = x @ w + concat(" + list("t", n) + ") + concat(" + list("b", n) + ")\n";
    std::string parts;
    for (std::size_t i = 0; i < n; ++i) parts += ", N" + number(i);
    text += n > 1 ? list("y", n) + " = split(z" + parts + ")\n" : "y0 = z\n";
    for (std::size_t i = 0; i < n; ++i) text += "out y" + number(i) + ": bf16[M,N" + number(i) + "]\n";
    text += "v, i = argmax_n(z)\nout v: f32[M,1], i: i32[M,1], all: bf16[M," + total + "] = concat(" + list("y", n) +
            ")\nout c: f32[1," + total + "] = sum_m(z), s: f32[M,1] = sum_n(z), p: f32[M,1] = max_n(z)";
    check_segments(text, {{"M", 21}, {"K", 19}}, widths,
                   {{numbered("t", n), true}, {numbered("b", n), true}, {numbered("y", n), true}});
  }
}

TEST_CASE("segments along K: terms of one sum, operands ranges of stacked tensors") {
  for (const auto& widths : kSegments) {
    std::size_t n = widths.size();
    std::string text = "program terms\n", sum;
    for (std::size_t i = 0; i < n; ++i) {
      text += "in a" + number(i) + ": bf16[M,N" + number(i) + "], w" + number(i) + ": bf16[N" + number(i) + ",P]\n";
      sum += (i == 0 ? "" : " + ") + ("a" + number(i) + " @ w" + number(i));
    }
    text += "in x0: bf16[M,P]\nd = " + sum + "\nout y: bf16[M,P] = d + x0, s: f32[M,1] = sum_n(d)";
    check_segments(text, {{"M", 21}, {"P", 35}}, widths, {{numbered("a", n), true}, {numbered("w", n), false}});
    // The same with weights as nn.Linear keeps them, [P,N]: side by side.
    std::string other = text;
    for (std::size_t i = 0; i < n; ++i) {
      std::string from = "w" + number(i) + ": bf16[N" + number(i) + ",P]",
                  to = "w" + number(i) + ": bf16[P,N" + number(i) + "]";
      other.replace(other.find(from), from.size(), to);
    }
    check_segments(other, {{"M", 21}, {"P", 35}}, widths, {{numbered("a", n), true}, {numbered("w", n), true}});
  }
}

TEST_CASE("segments along M: products of one right operand, accumulated into stacked gradients") {
  for (const auto& widths : kSegments) {
    std::size_t n = widths.size();
    std::string text = "program rows\nin x: bf16[T,P]\n";
    for (std::size_t i = 0; i < n; ++i)
      text += "in d" + number(i) + ": bf16[T,N" + number(i) + "]\nout g" + number(i) + ": f32[N" + number(i) +
              ",P] += d" + number(i) + " @ x\n";
    check_segments(text, {{"T", 23}, {"P", 35}}, widths, {{numbered("d", n), true}, {numbered("g", n), false}});
  }
}

namespace {

// [B,H,S,D] in memory: rows (batch, position), columns (head, element).
struct HeadsTensor {
  std::vector<std::uint16_t> memory;
  TensorView view;
  std::int64_t b, h, s, d;

  HeadsTensor(std::int64_t batch, std::int64_t heads, std::int64_t seq, std::int64_t width)
      : memory(static_cast<std::size_t>(batch * heads * seq * width), 0xffff), b(batch), h(heads), s(seq), d(width) {
    view = TensorView::matrix(memory.data(), DType::kBF16, b * s, h * d, d);
    view.row_block = s;
    view.row_outer = h * s * d;
    view.col_block = d;
    view.col_outer = s * d;
  }
  // By its place in memory, not through the view.
  double at(std::int64_t row, std::int64_t col) const {
    std::int64_t place = ((row / s * h + col / d) * s + row % s) * d + col % d;
    return static_cast<double>(to_float(BF16{memory[static_cast<std::size_t>(place)]}));
  }
  void write(const Array& a) {
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t j = 0; j < a.width(); ++j)
        memory[static_cast<std::size_t>(((i / s * h + j / d) * s + i % s) * d + j % d)] =
            to_bf16(static_cast<float>(a.at(i, j))).bits;
  }
  Array read() const {
    Array a(b * s, 1, h * d);
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t j = 0; j < a.cols; ++j) a.at(i, j) = at(i, j);
    return a;
  }
};

}  // namespace

TEST_CASE("q, k and v go to attention's [B,H,S,D] tensors and come back from them without a copy") {
  const std::int64_t batch = 3, seq = 7, heads = 6, kv = 2, hd = 8;
  const Sizes sizes = {{"M", batch * seq}, {"K", 13}, {"H", heads}, {"G", kv}, {"hd", hd}, {"S", 11}};
  const Program& p = library_program("rmsnorm_rope", DType::kBF16);
  Arrays in = programs::inputs(p.graph(), sizes);
  for (int threads : {1, 2}) {
    Setup setup = cpu_run::small_tiles(8, 16, threads);
    cpu_run::Rig rig(p, in, sizes, setup);
    Arrays flat = rig.run(in);
    HeadsTensor q(batch, heads, seq, hd), k(batch, kv, seq, hd), v(batch, kv, seq, hd);
    Bindings b = rig.bindings();
    b["q"] = q.view, b["k"] = k.view, b["v"] = v.view;
    rig.executable().run(b);
    CHECK(cpu_run::difference(q.read(), flat.at("q")) == "");
    CHECK(cpu_run::difference(k.read(), flat.at("k")) == "");
    CHECK(cpu_run::difference(v.read(), flat.at("v")) == "");

    const Program& back = library_program("rope_backward", DType::kBF16);
    Sizes back_sizes = sizes;
    back_sizes.erase("K");
    Arrays gradients = programs::inputs(back.graph(), back_sizes);
    cpu_run::Rig back_rig(back, gradients, back_sizes, setup);
    Arrays expected = back_rig.run(gradients);
    HeadsTensor dq(batch, heads, seq, hd), dk(batch, kv, seq, hd), dv(batch, kv, seq, hd);
    q.write(gradients.at("q")), k.write(gradients.at("k")), v.write(gradients.at("v"));
    dq.write(gradients.at("dq")), dk.write(gradients.at("dk")), dv.write(gradients.at("dv"));
    b = back_rig.bindings();
    b["q"] = q.view, b["k"] = k.view, b["v"] = v.view;
    b["dq"] = dq.view, b["dk"] = dk.view, b["dv"] = dv.view;
    for (const char* name : {"dzq", "dzk", "s"}) back_rig.tensor(name).fill(kNaN);
    back_rig.executable().run(b);
    for (const char* name : {"dzq", "dzk", "s"})
      CHECK(cpu_run::difference(back_rig.tensor(name).read(), expected.at(name)) == "");
  }
}

TEST_CASE("operands of @ in four strides") {
  const Program& p = library_program("data_gradient", DType::kBF16);
  const Sizes sizes = {{"M", 21}, {"N", 48}, {"K", 33}};
  Arrays in = integer_inputs(p, sizes), right = cpu_run::expected(p, in, sizes);
  HeadsTensor dz(3, 6, 7, 8), w(6, 3, 8, 11), dx(3, 3, 7, 11);
  dz.write(in.at("dz")), w.write(in.at("w"));
  for (Setup setup : {cpu_run::small_tiles(5, 7), cpu_run::small_tiles(16, 32, 2), Setup()}) {
    cpu_run::Rig rig(p, in, sizes, setup);
    std::fill(dx.memory.begin(), dx.memory.end(), std::uint16_t{0xffff});
    rig.executable().run({{"dz", dz.view}, {"w", w.view}, {"dx", dx.view}});
    CHECK(cpu_run::difference(dx.read(), right.at("dx")) == "");
  }
}

TEST_CASE("operands of different dtypes multiply in f32") {
  for (const char* dtypes : {"f32 bf16", "bf16 f32", "f16 f32", "bf16 f16"}) {
    std::string a(dtypes, std::strchr(dtypes, ' ')), b = std::strchr(dtypes, ' ') + 1;
    const Program& p = cpu_run::parsed("program mixed\nin x: " + a + "[M,K]\nin w: " + b + "[K,N]\nin v: " + b +
                                       "[N,K]\nout y: f32[M,N] = x @ w, z: f32[M,N] = x @ v");
    Sizes sizes = {{"M", 21}, {"N", 37}, {"K", 19}};
    CAPTURE(dtypes);
    Arrays in = integer_inputs(p, sizes);
    in["x"].at(3, 4) = a == "f32" ? 1 + 0x1p-12 : 1 + 0x1p-7;  // as stored, not rounded to the other's dtype
    for (Layout layout : {Layout::kPlain, Layout::kPitched, Layout::kBlocked, Layout::kStrided}) {
      Setup setup = cpu_run::small_tiles(8, 16, 2);
      setup.layout = layout;
      Arrays right = interpret(p.graph(), in, sizes);
      Arrays got = cpu_run::Rig(p, in, sizes, setup).run(in);
      for (const char* y : {"y", "z"}) CHECK(programs::difference(got.at(y), right.at(y), 1e-7) == "");
    }
  }
}

TEST_CASE("the same bits for any number of threads, run after run") {
  struct Case {
    std::string program;
    Sizes sizes;
  };
  for (const Case& c : {Case{"residual_rmsnorm_backward", {{"M", 300}, {"F", 70}, {"N", 520}}},
                        Case{"rmsnorm_cross_entropy", {{"M", 150}, {"K", 40}, {"V", 1030}}},
                        Case{"weight_gradient_qkv", {{"M", 90}, {"NQ", 250}, {"NK", 130}, {"K", 300}}},
                        Case{"dropout_residual_layernorm_backward", {{"M", 200}, {"F", 20}, {"N", 700}}}}) {
    CAPTURE(c.program);
    const Program& p = library_program(c.program, DType::kF32);
    Sizes sizes = programs::sizes_for(p.graph(), c.sizes);
    Arrays in = programs::inputs(p.graph(), sizes), first;
    for (int threads : {1, 2, 3, 4}) {
      Setup setup;
      setup.options.threads = threads;
      cpu_run::Rig rig(p, in, sizes, setup);
      for (int again = 0; again < 3; ++again) {
        Arrays out = rig.run(in);
        if (first.empty()) first = out;
        CAPTURE(threads);
        CHECK(cpu_run::difference(out, first) == "");
      }
    }
  }
}

TEST_CASE("every instruction set of this processor") {
  for (cpu::Isa isa : cpu::supported_isas())
    for (DType dtype : kDTypes) {
      CAPTURE(cpu::name(isa));
      Setup setup = cpu_run::small_tiles(16, 32, 2);
      setup.options.isa = std::string(cpu::name(isa));
      for (const char* name : {"data_gradient", "weight_gradient", "residual_concat"}) {
        const Program& p = library_program(name, dtype);
        Sizes sizes = programs::sizes_for(p.graph(), {{"M", 37}, {"N", 53}, {"K", 41}, {"NA", 21}, {"NB", 34}});
        Arrays in = integer_inputs(p, sizes);
        cpu_run::Rig rig(p, in, sizes, setup);
        CHECK(cpu_run::difference(rig.run(in), cpu_run::expected(p, in, sizes)) == "");
        CHECK(rig.executable().configuration().find(std::string(cpu::name(isa))) != std::string::npos);
      }
    }
}

TEST_CASE("+= adds once: over K blocks, column chunks, threads; also what a finish adds") {
  const Program& tile = library_program("weight_gradient", DType::kBF16);
  const Program& finish = library_program("residual_rmsnorm_backward", DType::kF32, {"dgamma"});
  for (int threads : {1, 3}) {
    Setup setup = cpu_run::small_tiles(16, 32, threads);
    Sizes sizes = {{"M", 1100}, {"N", 40}, {"K", 70}};  // K blocks of the product: M is what is contracted
    Arrays in = integer_inputs(tile, sizes), right = cpu_run::expected(tile, in, sizes);
    cpu_run::Rig rig(tile, in, sizes, setup);
    CHECK(cpu_run::difference(rig.run(in), right) == "");
    rig.executable().run(rig.bindings());  // once more, onto the first
    Array twice = rig.tensor("dw").read();
    for (std::size_t i = 0; i < twice.data.size(); ++i)
      CHECK(twice.data[i] == 2 * right.at("dw").data[i] - in.at("dw").data[i]);

    sizes = {{"M", 50}, {"F", 9}, {"N", 70}};
    in = integer_inputs(finish, sizes);
    right = cpu_run::expected(finish, in, sizes);
    Arrays got = cpu_run::Rig(finish, in, sizes, setup).run(in);
    CHECK(cpu_run::difference(got.at("dgamma"), right.at("dgamma")) == "");
    in["dgamma"] = Array(1, 1, 70);
    Arrays from_zero = cpu_run::Rig(finish, in, sizes, setup).run(in);
    CHECK(cpu_run::difference(got.at("dgamma"), from_zero.at("dgamma")) != "");
  }
}

TEST_CASE("NaN goes only to what depends on it") {
  const Program& p = library_program("residual_rmsnorm_backward", DType::kBF16);
  const Sizes sizes = {{"M", 37}, {"F", 19}, {"N", 53}};
  Arrays in = programs::inputs(p.graph(), sizes);
  Setup setup = cpu_run::small_tiles(8, 16, 2);
  cpu_run::Rig rig(p, in, sizes, setup);
  Arrays clean = rig.run(in);
  // One column of w, one element of a vector, one row of dz: the rows and columns of each output that turn to NaN.
  struct Case {
    std::string input;
    std::int64_t row, col;                    // -1: all
    std::int64_t dx_row, dx_col, dgamma_col;  // -1: all; -2: none
    std::int64_t h_row, h_col;
  };
  for (const Case& c : {Case{"w", -1, 17, -1, 17, 17, -2, -2}, Case{"gamma", 0, 33, -1, 33, -2, -1, 33},
                        Case{"dz", 9, -1, 9, -1, -1, -2, -2}, Case{"r", 12, 0, 12, -1, -1, 12, -1},
                        Case{"s", 36, 0, 36, -1, -2, -2, -2}, Case{"dx_in", 5, 52, 5, 52, -2, -2, -2},
                        Case{"x1", 8, 0, 8, 0, 0, 8, 0}}) {
    CAPTURE(c.input);
    Arrays with = in;
    Array& a = with.at(c.input);
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t j = 0; j < a.width(); ++j)
        if ((c.row < 0 || c.row == i) && (c.col < 0 || c.col == j)) a.at(i, j) = kNaN;
    Arrays out = rig.run(with);
    auto check = [&](const std::string& name, std::int64_t row, std::int64_t col) {
      const Array &x = out.at(name), &before = clean.at(name);
      bool same = true;
      for (std::int64_t i = 0; i < x.rows; ++i)
        for (std::int64_t j = 0; j < x.width(); ++j) {
          bool hit = row != -2 && (row == -1 || row == i) && (col == -1 || col == j);
          same = same && (hit ? std::isnan(x.at(i, j)) : x.at(i, j) == before.at(i, j));
        }
      CAPTURE(name);
      CHECK(same);
    };
    check("dx", c.dx_row, c.dx_col);
    check("h", c.h_row, c.h_col);
    check("dgamma", c.dgamma_col == -2 ? -2 : 0, c.dgamma_col);
  }
}

TEST_CASE("no rows, no columns, no products") {
  for (const char* name :
       {"residual_rmsnorm_partial", "bias_gelu_backward", "swiglu", "rmsnorm_argmax", "rmsnorm_entropy",
        "residual_layernorm_partial", "dropout_residual_layernorm_backward", "weight_gradient_glu"})
    for (const char* empty : {"M", "N", "K", "F", "V"}) {
      const Program& p = library_program(name, DType::kF32);
      Sizes sizes;
      for (const std::string& s : p.graph().free_sizes()) sizes[s] = s == empty ? 0 : 21;
      CAPTURE(name);
      CAPTURE(empty);
      Arrays in = programs::inputs(p.graph(), sizes);
      Arrays got = cpu_run::Rig(p, in, sizes, cpu_run::small_tiles(8, 16, 2)).run(in);
      CHECK(programs::difference(got, cpu_run::expected(p, in, sizes), 1e-5) == "");
    }
}

TEST_CASE("poisoned scratch between runs changes nothing; inputs stay as they were") {
  const Program& p = library_program("layernorm_linear_gelu_backward", DType::kBF16);
  const Sizes sizes = {{"M", 37}, {"N", 19}, {"F", 53}};
  Arrays in = programs::inputs(p.graph(), sizes), other = programs::inputs(p.graph(), sizes, 7);
  cpu_run::Rig rig(p, in, sizes, cpu_run::small_tiles(8, 16, 2));
  Arrays first = rig.run(in);
  CHECK(cpu_run::difference(rig.run(other), first) != "");
  std::map<std::string, std::vector<std::byte>> bytes;
  CHECK(cpu_run::difference(rig.run(in), first) == "");
  for (const Input& i : p.graph().inputs()) bytes[i.name] = rig.tensor(i.name).bytes();
  rig.executable().run(rig.bindings());
  for (const Input& i : p.graph().inputs()) CHECK(rig.tensor(i.name).bytes() == bytes[i.name]);
}

TEST_CASE("pieces of no columns, first and last") {
  const Program& p = cpu_run::parsed(
      "program a\nwhere N = A+B\nin x: f32[M,N]\nh, g = split(x, A, B)\nv = concat(g, h)\np, q = pairs(v)\n"
      "out y: f32[M,N] = v, z: f32[M,N] = interleave(-q, p), s: f32[M,1] = sum_n(v)\n");
  for (std::int64_t a : {0, 4, 6}) {
    Sizes sizes = {{"M", 3}, {"A", a}, {"B", a == 4 ? 0 : 2}};
    Arrays in = programs::inputs(p.graph(), sizes);
    CHECK(programs::difference(cpu_run::Rig(p, in, sizes).run(in), cpu_run::expected(p, in, sizes), 1e-6) == "");
  }
}

TEST_CASE("a program of very many operations is refused, not a crash") {
  coda::ProgramBuilder b("long");
  coda::Val x = b.input("x", DType::kF32, {"M", "N"});
  for (int i = 0; i < 20000; ++i) x = x * 0.5;
  b.output("y", DType::kF32, x);
  coda::Plan plan = coda::single_program_plan(b.build(), {});
  CHECK_THROWS_WITH_AS(coda::make_cpu_backend()->prepare(plan, {{"M", 2}, {"N", 2}}), doctest::Contains("at most 4096"),
                       coda::Error);
}
