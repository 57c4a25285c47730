// Sizes, the verifier and the hash, from C++: what tests/text_test.cc does not reach through texts.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "coda/builder.h"
#include "coda/error.h"
#include "coda/text.h"

using namespace coda;

namespace {

template <typename F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Dim sym(const char* name) { return Dim::symbol(name); }

std::uint64_t hash(const std::string& body) { return parse("program p\n" + body)[0].hash(); }

// program p with x: f32[M,K], w: f32[N,K] and the statements of `body`.
Program gemm(const std::string& body) { return parse_program("program p\nin x: f32[M,K]\nin w: f32[N,K]\n" + body); }

}  // namespace

TEST_CASE("sizes are equal exactly if they are equal for all values") {
  CHECK(sym("N") / 2 + sym("N") / 2 == sym("N"));
  CHECK(sym("N") / 3 + sym("N") / 6 == sym("N") / 2);
  CHECK((sym("H") * sym("hd")) / sym("hd") == sym("H"));
  CHECK((sym("A") + sym("B")) * (sym("A") - sym("B")) == sym("A") * sym("A") - sym("B") * sym("B"));
  CHECK((sym("A") + sym("B")) / (sym("A") + sym("B")) == Dim(1));
  CHECK(sym("N") - sym("N") == Dim(0));
  CHECK(sym("N") != sym("M"));
  CHECK(sym("N") / 2 != sym("N") / 3);
  CHECK((sym("H") * sym("hd")).substitute("H", sym("N") / sym("hd")) == sym("N"));
  CHECK((sym("N") * sym("N")).substitute("N", Dim(3)) == Dim(9));
  CHECK(sym("N").as_symbol() == "N");
  CHECK((2 * sym("N")).as_symbol().empty());
  CHECK((sym("N") * sym("M") + 1).symbols() == std::vector<std::string>{"M", "N"});
}

TEST_CASE("sizes: values agree with arithmetic, on random polynomials") {
  std::mt19937 random(1);
  Sizes sizes{{"A", 6}, {"B", 10}, {"C", 35}};
  for (int round = 0; round < 300; ++round) {
    Dim d(static_cast<int>(random() % 7));
    std::int64_t value = d.eval(sizes);
    for (int step = 0; step < 6; ++step) {
      const char* name = std::vector<const char*>{"A", "B", "C"}[random() % 3];
      std::int64_t x = sizes.at(name);
      switch (random() % 3) {
        case 0: d = d + sym(name), value += x; break;
        case 1: d = d * sym(name), value *= x; break;
        default: d = d * sym(name) / sym(name) + sym(name) * 3 / 1 - sym(name) - sym(name), value += x; break;
      }
    }
    CHECK(d.eval(sizes) == value);
  }
}

TEST_CASE("sizes without a value, or with one that is no whole number ≥ 0, are refused") {
  CHECK(contains(message_of([] { sym("N").eval({}); }), "size N: no value"));
  CHECK(contains(message_of([] { (sym("N") / 2).eval({{"N", 7}}); }), "size N/2: 7/2; allowed: a whole number ≥ 0"));
  CHECK(contains(message_of([] { (sym("N") - 8).eval({{"N", 7}}); }), "size N - 8: -1"));
  CHECK(contains(message_of([] { (Dim(4) / sym("N")).eval({{"N", 0}}); }), "0 in"));
  CHECK(contains(message_of([] { sym("N") / (sym("M") + 1); }), "division"));
  CHECK(contains(message_of([] { sym("N") / Dim(0); }), "division"));
}

TEST_CASE("sizes are found from shapes, and contradictions are named") {
  Graph g = parse(
      "program p\nwhere N = H*hd\nin x: f32[M,N]\nin gh: f32[1,1,hd]\nin half: f32[M,N/2]\n"
      "out y: f32[M,N] = flat(group(x, hd) * gh)\nout z: f32[M,N/2] = half")[0];
  Sizes s = solve_sizes(g, {{"x", {3, 1, 24}}, {"gh", {1, 1, 4}}, {"half", {3, 1, 12}}});
  CHECK(s.at("M") == 3);
  CHECK(s.at("H") == 6);
  CHECK(s.at("hd") == 4);
  CHECK(contains(message_of([&] {
                   solve_sizes(g, {{"x", {3, 1, 24}}, {"gh", {1, 1, 4}}, {"half", {2, 1, 12}}});
                 }),
                 "half: size 2"));
  CHECK(contains(message_of([&] {
                   solve_sizes(g, {{"x", {3, 1, 26}}, {"gh", {1, 1, 4}}, {"half", {3, 1, 13}}});
                 }),
                 "size 13 for H*hd/2; allowed: a size that solves for H"));
  CHECK(contains(message_of([&] { solve_sizes(g, {{"x", {3, 1, 24}}}); }), "no value"));
  CHECK(contains(message_of([&] { solve_sizes(g, {{"nobody", {3, 1, 24}}}); }), "no such input"));
}

TEST_CASE("the hash is the same on every machine and in every version of the compiler") {
  // Written down once; a change of it invalidates what users have stored under it, so it is a decision, not an
  // accident.
  CHECK(gemm("out y: bf16[M,N] = silu(x @ w) * 2").hash() == 14748739790889506976u);
}

TEST_CASE("the hash sees what a reduction runs along, constants, split widths and contracted axes") {
  CHECK(hash("in x: f32[M,N]\nout y: f32[M,1] = sum_c(x)") != hash("in x: f32[M,N]\nout y: f32[M,1] = sum_n(x)"));
  CHECK(hash("in x: f32[M,N]\nout y: f32[M,N] = x + 0.1") != hash("in x: f32[M,N]\nout y: f32[M,N] = x + 0.1000001"));
  CHECK(hash("in x: f32[M,N]\nconst e: f32\nout y: f32[M,N] = x + e") !=
        hash("in x: f32[M,N]\nin e: f32[1,1]\nout y: f32[M,N] = x + e"));
  CHECK(hash("in x: f32[M,2*N]\na, b = split(x, N, N)\nout y: f32[M,N] = a") !=
        hash("in x: f32[M,2*N]\na, b = split(x, N, N)\nout y: f32[M,N] = b"));
  CHECK(hash("in x: bf16[M,N]\nout y: f32[M,N] = x") != hash("in x: f16[M,N]\nout y: f32[M,N] = x"));
  CHECK(hash("in x: f32[M,N]\nout y: f32[M,N] += x") != hash("in x: f32[M,N]\nout y: f32[M,N] = x"));
}

TEST_CASE("stages and the source of a program") {
  Program p = gemm("in b: f32[1,N]\ny = x @ w + b\nq = sum_n(y*y)\nr = rsqrt(q/N)\nout y: f32[M,N], r: f32[M,1]");
  CHECK(p.is_gemm());
  CHECK(p.accumulators().size() == 1);
  auto stage_of = [&](const std::string& output) { return p.stage(p.expanded().find_output(output)->value); };
  CHECK(stage_of("y") == Stage::kTile);
  CHECK(stage_of("r") == Stage::kFinish);
  CHECK(p.stage(p.expanded().find_input("b")->value) == Stage::kOperand);
  Program sum = parse_program(
      "program p\nin a: f32[M,K], b: f32[M,L]\nin u: f32[N,K]\nin v: f32[N,L]\nout y: f32[M,N] = a @ u + b @ v");
  CHECK(sum.accumulators().size() == 1);
  CHECK(sum.accumulators()[0].matmul_nodes.size() == 2);
  CHECK(gemm("in v: f32[N,K]\nout y: f32[M,N] = (x @ w) * (x @ v)").accumulators().size() == 2);
  CHECK_FALSE(parse_program("program p\nin x: f32[M,N]\nout y: f32[M,N] = 2*x").is_gemm());
}

TEST_CASE("the law, and what else a program may not do") {
  CHECK(contains(message_of([] { gemm("y = x @ w\nout z: f32[M,N] = y / sum_n(y)"); }),
                 "a finish value of its own program"));
  CHECK(contains(message_of([] { gemm("y = x @ w\nout z: f32[M,N] = y - max_mn(y)"); }),
                 "a finish value of its own program"));
  CHECK(message_of([] { gemm("y = x @ w\nout z: f32[M,1] = sum_n(y) / max_n(y)"); }) == "no error");
  CHECK(contains(message_of([] {
                   parse_program(
                       "program p\nin x: f32[M,K]\nin w: f32[K,K]\nout y: f32[M,K] over x = matmul(x, w, 1, 1)");
                 }),
                 "an operand of @ that other tiles still read"));
  CHECK(contains(message_of([] {
                   parse_program(
                       "program p\nin w: f32[K,K]\nin x: f32[K,K]\nout y: f32[K,K] over w = matmul(x, w, 1, 1)");
                 }),
                 "an operand of @ that other tiles still read"));
  CHECK(message_of([] { gemm("in b: f32[M,N]\nout y: f32[M,N] over b = x @ w + b"); }) == "no error");
  CHECK(contains(message_of([] { gemm("in a: f32[L,K]\nout y: f32[M,N] = x @ w, z: f32[L,L] = matmul(a, a, 1, 1)"); }),
                 "a second source"));
  CHECK(contains(message_of([] { gemm("y = x @ w\nin v: f32[N,P]\nout z: f32[M,P] = y @ v"); }),
                 "a computed value as an operand of @"));
}

TEST_CASE("programs in another storage dtype") {
  Graph g = parse(
      "program p\nin x: bf16[M,K]\nin w: bf16[N,K]\nin r: f32[M,1]\nout y: bf16[M,N] = cast((x @ w) * r, bf16)")[0];
  Graph f = with_storage(g, DType::kBF16, DType::kF16);
  CHECK(print(f) ==
        "program p\nin x: f16[M,K]\nin w: f16[N,K]\nin r: f32[M,1]\nout y: f16[M,N] = cast((x @ w) * r, f16)\n");
  CHECK(with_storage(f, DType::kF16, DType::kBF16).hash() == g.hash());
}

TEST_CASE("mistakes in C++ are refused like those in text") {
  ProgramBuilder b("p");
  Val x = b.input("x", DType::kF32, {"M", "K"});
  Val n = b.input("n", DType::kI32, {"M", 1});
  CHECK(contains(message_of([&] { b.input("x", DType::kF32, {"M", "K"}); }), "declared twice"));
  CHECK(contains(message_of([&] { b.input("v", DType::kF32, {"M"}); }), "1 dimensions"));
  CHECK(contains(message_of([&] { x + n; }), "f32"));
  CHECK(contains(message_of([&] { b.apply(Op::kWhere, {x, x}); }), "2 operands"));
  CHECK(contains(message_of([&] { b.output("y", DType::kBF16, {"M", "K"}, x, true); }), "+= into bf16"));
  CHECK(contains(message_of([&] { b.output("y", DType::kF32, {"K", "M"}, x); }), "declared f32[K,M]"));
  CHECK(contains(message_of([&] { b.build(); }), "no outputs"));
}
