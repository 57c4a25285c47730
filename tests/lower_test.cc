// Lowering: which columns share a strip, what lanes and terms come out of a program, units; what is refused. Then
// random programs of every shape operation nested in any order, lowered and run on the CPU backend against the
// interpreter.
#include "plan/lower.h"

#include <doctest/doctest.h>

#include "check/case.h"
#include "check_error.h"
#include "coda/error.h"
#include "cpu_run.h"
#include "plan/program_library.h"
#include "random_program.h"

using namespace coda;

namespace {

LoweredProgram lowered(const std::string& text, const Sizes& sizes) { return lower(cpu_run::parsed(text), sizes); }
LoweredProgram library(const std::string& name, const Sizes& sizes) {
  return lower(library_program(name, DType::kBF16), sizes);
}

const Input& input(const Program& p, int index) { return p.expanded().inputs()[static_cast<std::size_t>(index)]; }
const Output& output(const Program& p, int index) { return p.expanded().outputs()[static_cast<std::size_t>(index)]; }

// "a@b + c@d" for a lane: what it multiplies, and "[first" its column in the product.
std::string lane_text(const Program& p, const Lane& lane) {
  std::string text;
  for (const LaneTerm& t : lane.terms)
    text += (text.empty() ? "" : " + ") + input(p, t.a_input).name + "@" + input(p, t.b_input).name;
  return text + " from " + std::to_string(lane.first_col);
}

std::string stores_text(const Program& p, const Strip& s) {
  std::string text;
  for (const LoweredStore& store : s.stores) {
    const LoweredValue& v = s.values[static_cast<std::size_t>(store.value)];
    text += (text.empty() ? "" : ", ") + output(p, store.output).name + "[" + std::to_string(store.first_col) + "," +
            std::to_string(store.first_col + v.width()) + ")";
  }
  return text;
}

std::string strip_text(const Program& p, const Strip& s) {
  std::string text = std::to_string(s.rows) + "x" + std::to_string(s.units) + ":";
  for (const Lane& lane : s.lanes) text += " " + lane_text(p, lane) + ";";
  return text + " " + stores_text(p, s);
}

std::vector<std::string> strips_text(const Program& p, const Sizes& sizes) {
  std::vector<std::string> list;
  for (const Strip& s : lower(p, sizes).strips) list.push_back(strip_text(p, s));
  return list;
}

using Texts = std::vector<std::string>;

int count_ops(const LoweredProgram& p, Op op) {
  int n = 0;
  for (const Strip& s : p.strips)
    for (const LoweredOp& o : s.ops) n += o.op == op ? 1 : 0;
  return n;
}

}  // namespace

TEST_CASE("gate and up are lanes over one column index") {
  const Program& p = library_program("rmsnorm_swiglu", DType::kBF16);
  CHECK(strips_text(p, {{"M", 5}, {"F", 33}, {"K", 7}}) ==
        Texts{"5x33: x@wg from 0; x@wu from 0; g[0,33), u[0,33), o[0,33)"});
}

TEST_CASE("q, k and v lie side by side: a strip each, units are heads where they rotate and columns where not") {
  const Program& p = library_program("rope", DType::kBF16);
  CHECK(strips_text(p, {{"M", 5}, {"K", 7}, {"H", 6}, {"G", 2}, {"hd", 8}, {"S", 9}}) ==
        Texts{"5x6: x@wq from 0; q[0,48)", "5x2: x@wk from 0; k[0,16)", "5x16: x@wv from 0; v[0,16)"});
}

TEST_CASE("one packed product is cut where its parts are stored; the split itself is gone") {
  const Program& p = library_program("rmsnorm_rope_packed", DType::kBF16);
  Sizes sizes = {{"M", 5}, {"K", 7}, {"H", 6}, {"G", 2}, {"hd", 8}, {"S", 9}};
  CHECK(strips_text(p, sizes) ==
        Texts{"5x6: x@w from 0; q[0,48)", "5x2: x@w from 48; k[0,16)", "5x16: x@w from 64; v[0,16)"});
  CHECK(count_ops(lower(p, sizes), Op::kSplit) == 0);
}

TEST_CASE("halves of a packed product meet: two lanes of one product") {
  const Program& p = library_program("swiglu_halves", DType::kBF16);
  Sizes sizes = {{"M", 5}, {"F", 20}, {"K", 7}};
  CHECK(strips_text(p, sizes) == Texts{"5x20: x@w from 0; x@w from 20; g[0,20), u[0,20), o[0,20)"});
  CHECK(count_ops(lower(p, sizes), Op::kHalves) == 0);
}

TEST_CASE("adjacent pairs stay in one lane, two columns to a unit") {
  const Program& p = library_program("swiglu_pairs", DType::kBF16);
  Sizes sizes = {{"M", 5}, {"F", 20}, {"K", 7}};
  CHECK(strips_text(p, sizes) == Texts{"5x20: x@w from 0; g[0,20), u[0,20), o[0,20)"});
  LoweredProgram l = lower(p, sizes);
  const Strip& s = l.strips[0];
  CHECK(s.values[static_cast<std::size_t>(s.lanes[0].value)].width() == 40);
  CHECK(count_ops(l, Op::kPairs) == 1);
}

TEST_CASE("a concat of products is stored piece by piece") {
  const Program& p = library_program("qkv_concat", DType::kBF16);
  Sizes sizes = {{"M", 5}, {"NQ", 12}, {"NK", 5}, {"K", 7}};
  CHECK(strips_text(p, sizes) ==
        Texts{"5x12: x@wq from 0; qkv[0,12)", "5x5: x@wk from 0; qkv[12,17)", "5x5: x@wv from 0; qkv[17,22)"});
  CHECK(count_ops(lower(p, sizes), Op::kConcat) == 0);
}

TEST_CASE("a concat of loads cuts the product it is added to") {
  const Program& p = library_program("residual_concat", DType::kBF16);
  LoweredProgram l = lower(p, {{"M", 5}, {"NA", 12}, {"NB", 5}, {"K", 7}});
  REQUIRE(l.strips.size() == 2);
  CHECK(strip_text(p, l.strips[0]) == "5x12: y@w from 0; x1[0,12)");
  CHECK(strip_text(p, l.strips[1]) == "5x5: y@w from 12; x1[12,17)");
  for (const Strip& s : l.strips)
    for (const LoweredOp& op : s.ops)
      if (op.op == Op::kInput) CHECK(op.first_col == 0);  // each part begins at its own tensor's first column
}

TEST_CASE("operands of a cut product are loaded from where the piece begins") {
  const Program& p = cpu_run::parsed(
      "program cut\nin x: f32[M,K]\nin w: f32[NA + NB,K]\nin b: f32[1,NA + NB]\nin t: f32[M,NA + NB]\n"
      "p, q = split(x @ w + b + t, NA, NB)\nout p: f32[M,NA], q: f32[M,NB]");
  LoweredProgram l = lower(p, {{"M", 5}, {"NA", 12}, {"NB", 5}, {"K", 7}});
  REQUIRE(l.strips.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    int loads = 0;
    for (const LoweredOp& op : l.strips[i].ops) {
      if (op.op != Op::kInput) continue;
      ++loads;
      CHECK(op.first_col == (i == 0 ? 0 : 12));
    }
    CHECK(loads == 2);
    CHECK(l.strips[i].stores[0].first_col == 0);
  }
}

TEST_CASE("terms along K are one lane; their depths are their own") {
  const Program& p = library_program("residual_rmsnorm_backward_qkv", DType::kBF16);
  Sizes sizes = {{"M", 5}, {"N", 9}, {"NQ", 12}, {"NK", 4}};
  LoweredProgram l = lower(p, sizes);
  REQUIRE(l.strips.size() == 1);
  REQUIRE(l.strips[0].lanes.size() == 1);
  CHECK(lane_text(p, l.strips[0].lanes[0]) == "dq@wq + dk@wk + dv@wv from 0");
  std::vector<std::int64_t> depths;
  for (const LaneTerm& t : l.strips[0].lanes[0].terms) {
    depths.push_back(t.k);
    CHECK(t.a_axis == 1);
    CHECK(t.b_axis == 0);
  }
  CHECK(depths == std::vector<std::int64_t>{12, 4, 4});
}

TEST_CASE("products of one right operand: strips with rows of their own") {
  const Program& p = library_program("weight_gradient_qkv", DType::kBF16);
  CHECK(strips_text(p, {{"M", 5}, {"NQ", 12}, {"NK", 4}, {"K", 7}}) ==
        Texts{"12x7: dq@x from 0; dwq[0,7)", "4x7: dk@x from 0; dwk[0,7)", "4x7: dv@x from 0; dwv[0,7)"});
  // dWg and dWu have the same shape and meet nowhere.
  CHECK(library("weight_gradient_glu", {{"M", 5}, {"F", 12}, {"K", 7}}).strips.size() == 2);
}

TEST_CASE("reductions take the pieces of all strips, each at its own first column; the finish hangs on them") {
  LoweredProgram l = library("layernorm_row_sums", {{"M", 5}, {"NQ", 12}, {"NK", 4}});
  REQUIRE(l.strips.size() == 3);
  REQUIRE(l.reductions.size() == 3);
  std::vector<std::int64_t> first;
  for (const Strip& s : l.strips) {
    CHECK(s.reduces.size() == 3);
    first.push_back(s.reduces[0].first_col);
    for (const LoweredReduce& r : s.reduces) CHECK(r.first_col == first.back());
  }
  CHECK(first == std::vector<std::int64_t>{0, 12, 16});
  for (const Reduction& r : l.reductions) {
    CHECK(r.rows == 5);
    CHECK(r.width == 20);
    CHECK(r.out.size() == 1);
  }
  CHECK(l.finish_stores.size() == 3);

  l = library("residual_rmsnorm_partial", {{"M", 5}, {"N", 12}, {"K", 4}});
  CHECK(l.reductions.size() == 1);
  REQUIRE(l.finish_stores.size() == 1);
  CHECK(l.finish_values[static_cast<std::size_t>(l.finish_stores[0].value)].rows == 5);
  std::vector<Op> ops;
  for (const LoweredOp& op : l.finish_ops) ops.push_back(op.op);
  CHECK(std::count(ops.begin(), ops.end(), Op::kRsqrt) == 1);
  CHECK(std::count(ops.begin(), ops.end(), Op::kReduceSum) == 0);  // that one is in the strip
}

TEST_CASE("partial rotation: the split is inside each head, so it stays") {
  LoweredProgram l = library("rope_partial", {{"M", 5}, {"K", 7}, {"H", 6}, {"G", 2}, {"hd", 8}, {"rd", 4}, {"S", 9}});
  REQUIRE(l.strips.size() == 3);
  CHECK(l.strips[0].units == 6);
  CHECK(count_ops(l, Op::kSplit) == 2);  // of q and of k
}

TEST_CASE("units: the smallest steps that keep groups, pairs and all values whole") {
  auto units = [](const std::string& body, const Sizes& sizes) {
    LoweredProgram l = lowered("program u\nin x: f32[M,24]\n" + body, sizes);
    REQUIRE(l.strips.size() == 1);
    return l.strips[0].units;
  };
  CHECK(units("out y: f32[M,24] = x", {{"M", 3}}) == 24);
  CHECK(units("a, b = pairs(x)\nout y: f32[M,12] = a + b", {{"M", 3}}) == 12);
  CHECK(units("a, b = halves(x)\nout y: f32[M,12] = a + b", {{"M", 3}}) == 12);
  CHECK(units("out y: f32[M,48] = interleave(x, x)", {{"M", 3}}) == 24);
  CHECK(units("h = group(x, 8)\nout y: f32[M,3,8] = h - sum_c(h)", {{"M", 3}}) == 3);
  CHECK(units("h = group(x, 8)\na, b = pairs(h)\nout y: f32[M,3,4] = a*b", {{"M", 3}}) == 3);
  CHECK(units("h = group(x, 1)\nout y: f32[M,24] = flat(h)", {{"M", 3}}) == 24);
}

TEST_CASE("no columns: no strips, but outputs that reduce nothing") {
  LoweredProgram l = library("residual_rmsnorm_partial", {{"M", 5}, {"N", 0}, {"K", 4}});
  CHECK(l.strips.empty());
  CHECK(l.reductions.size() == 1);
}

TEST_CASE("refused: what no strip can hold") {
  auto refused = [](const std::string& body, const std::string& found) {
    CAPTURE(body);
    try {
      lowered("program r\n" + body, {{"M", 4}, {"N", 20}, {"K", 3}, {"H", 5}, {"hd", 4}});
      FAIL_CHECK("accepted");
    } catch (const Error& e) {
      INFO(std::string(e.what()));
      CHECK(e.parts().argument.starts_with("program r"));
      CHECK(e.parts().found.find(found) != std::string::npos);
      CHECK(!e.parts().allowed.empty());
    }
  };
  const std::string one = "one column";
  refused("in x: f32[M,K]\nin w: f32[1,K]\nout y: f32[M,1] = x @ w", one);
  refused("in x: f32[M,N]\nout y: f32[M,N] = x - sum_c(x)", one);
  refused("in x: f32[M,N]\nout y: f32[M,1] = max_c(x)", one);
  refused("in x: f32[M,N]\nin b: f32[1,N]\nout y: f32[M,N] = (x + b)*sum_c(b)", one);
  refused("in x: f32[M,N]\nin p: f32[M,2]\na, b = pairs(p)\nout y: f32[M,N] = x*a + b", one);
  refused("in x: f32[M,N]\nin p: f32[M,2]\na, b = split(p, 1, 1)\nout y: f32[M,N] = x*a + b", one);
  refused("in a, b: f32[M,1]\nout y: f32[M,2] = interleave(a, b)", one);
  refused(
      "in x: f32[M,24]\na, b = split(group(x, 4), 1, 3)\nc, d = split(x, 6, 18)\n"
      "out e: f32[M,6] = flat(a), f: f32[M,18] = flat(b), c: f32[M,6], d: f32[M,18]",
      "inside a group or pair of 4");
  refused("in x: f32[M,24]\na, b = pairs(x)\nc, d = split(x, 3, 21)\nout y: f32[M,12] = a*b, c: f32[M,3], d: f32[M,21]",
          "inside a group or pair of 2");
  refused("in x: f32[M,20]\nin y: f32[M,4]\nout z: f32[M,4,6] = group(concat(x, y), 6)", "inside a group or pair of 6");
  refused("in x: f32[M,K]\nin w: f32[hd,K]\nin y: f32[M,H,hd]\nout o: f32[M,H,hd] = (x @ w)*y",
          "repeated for every group");
  refused("in x: f32[M,N]\nin y: f32[M,1]\nm, l, e = logsumexp_n(x, y)\nout m: f32[M,1], l: f32[M,1], e: f32[M,1]",
          "a payload");
}

TEST_CASE("over: a tile may read of an input only what it overwrites itself") {
  const Sizes sizes = {{"M", 4}, {"N", 20}, {"H", 5}, {"hd", 4}};
  auto over = [&](const std::string& body) { return lowered("program r\n" + body, sizes); };
  for (const char* body : {
           "in x: f32[M,N]\nin b: f32[1,N]\nout y: f32[M,N] over x = x*b, s: f32[M,1] = sum_n(x)",
           "in x: f32[M,20]\na, b = halves(x)\nout y: f32[M,20] over x = concat(a - b, a + b)",
           "in x: f32[M,20]\na, b = pairs(x)\nout y: f32[M,20] over x = interleave(b, a)",
           "in x: f32[M,20]\na, b = pairs(group(x, 4))\nout y: f32[M,20] over x = flat(concat(a, b))",
           "in x: f32[M,H,hd]\nout y: f32[M,H,hd] over x = x - max_c(x)",
           "in x: f32[M,N]\nin r: f32[M,1]\nout y: f32[M,N] = x*r, s: f32[M,1] over r = sum_n(x)",
           "in x: f32[M,N]\nin g: f32[1,N]\nout d: f32[1,N] over g = sum_m(x*g)",
       }) {
    CAPTURE(body);
    CHECK_NOTHROW(over(body));
  }
  for (const char* body : {
           "in x: f32[M,20]\na, b = halves(x)\nout y: f32[M,20] over x = concat(b, a)",
           "in x: f32[M,20]\na, b = split(x, 6, 14)\nout y: f32[M,20] over x = concat(b, a)",
           "in x: f32[M,20]\na, b = halves(x)\nout y: f32[M,20] over x = interleave(a, b)",
           "in x: f32[M,20]\na, b = pairs(x)\nout y: f32[M,20] over x = concat(a, b)",
           "in x: f32[M,N]\nin t: f32[M,N]\nin i: i32[M,1]\nout y: f32[M,N] over t = x*t[i]",
           "in x: f32[M,8]\nin z: f32[M,H,8]\nout y: f32[M,8] over x = 2*x, w: f32[M,H,8] = z*x",
       }) {
    CAPTURE(body);
    try {
      over(body);
      FAIL_CHECK("accepted");
    } catch (const Error& e) {
      CHECK(e.parts().argument == "program r, output y");
      CHECK(e.parts().found.find("other tiles still read") != std::string::npos);
    }
  }
}

TEST_CASE("values beside a tile that are accepted") {
  for (const char* body : {
           "in x: f32[M,N]\nin r, s: f32[M,1]\nout y: f32[M,N + 2] = concat(r, x, s)*2, q: f32[1,N + 2] = "
           "sum_m(concat(r, x, s))",
           "in x: f32[M,N]\nin r: f32[1,1]\nout y: f32[M,N + 1] = concat(x, r)",
           "in x: f32[M,N]\nin b: f32[1,2]\np, q = pairs(b)\nout y: f32[M,N] = x*p*q",
           "in z: f32[M,F]\nin b: f32[1,N]\nout y: f32[M,F] = z*sum_c(b)",
           "in z: f32[M,H,hd]\nin g: f32[1,1,hd]\nout y: f32[M,H,hd] = z*g*sum_c(g)",
           "in z: f32[M,H,hd]\nin b: f32[1,H,hd]\nout y: f32[M,H,hd] = z*b*sum_c(b)",
           "in z: f32[M,H,hd]\nin r: f32[M,1]\nout y: f32[M,H,hd + 1] = concat(z, r)",
           "in z: f32[M,H,hd]\nin x: f32[M,hd]\nout y: f32[M,H,hd] = z*x, s: f32[M,1] = sum_n(x)",
           "in z: f32[M,H,hd]\nin x: f32[M,H,1]\nout y: f32[M,H,hd] = z*x, t: f32[M,H] = flat(x), s: f32[M,1] = "
           "sum_n(x)",
           "in x: f32[M,N]\nin b: f32[1,N]\nin r: f32[M,1]\nout y: f32[M,N] = x, q: f32[1,N] = b*2, p: f32[M,1] = r*3",
           "in b: f32[1,N]\nin r: f32[M,1]\nout y: f32[M,N] = b*r, z: f32[1,1] = sum_n(b), w: f32[1,1] = max_m(r)",
           "in x: f32[M,M]\nout g: f32[M,M] = matmul(x, x, 0, 0)",
           "in x, y: f32[M,K]\nout g: f32[M,M] = matmul(x, x, 1, 1) + matmul(y, x, 1, 1)",
           "in x: f32[M,N]\nin s: i32[1,1]\nu = uniform(s, s)\nout y: f32[M,N] = where(u < 0.5, x, 0), v: f32[M,N] = u",
           "in x: i32[M,N]\nout y: i32[M,N] = x + 1, z: f32[M,N] = cast(x, f32)",
       }) {
    CAPTURE(body);
    const Program& p = cpu_run::parsed(std::string("program a\n") + body);
    Sizes sizes;
    const Sizes all = {{"M", 19}, {"N", 37}, {"K", 3}, {"H", 9}, {"hd", 4}, {"F", 23}};
    for (const std::string& s : p.graph().free_sizes()) sizes[s] = all.at(s);
    Arrays in = check::make_values(p.expanded(), sizes, check::Values::kIntegers, 1);
    Arrays got = cpu_run::Rig(p, in, sizes, cpu_run::small_tiles(4, 8, 2)).run(in);
    CHECK(cpu_run::difference(got, cpu_run::expected(p, in, sizes)) == "");
  }
}

TEST_CASE("random programs give on the CPU what the interpreter gives") {
  constexpr int kPrograms = 400;
  int ran = 0, exact = 0;
  for (int seed = 0; seed < kPrograms; ++seed) {
    random_program::Maker maker(static_cast<std::uint64_t>(seed));
    Program p = maker.make();
    Sizes sizes = maker.sizes(p);
    cpu_run::Setup setup = cpu_run::small_tiles(3 + seed % 14, 5 + seed % 40, 1 + seed % 3);
    if (seed % 7 == 0) setup.options.tile_rows = setup.options.tile_cols = 0;
    constexpr cpu_run::Layout kLayouts[] = {cpu_run::Layout::kPlain, cpu_run::Layout::kPitched,
                                            cpu_run::Layout::kBlocked, cpu_run::Layout::kStrided};
    setup.layout = kLayouts[seed % 4];
    for (check::Values kind : {check::Values::kIntegers, check::Values::kRandom}) {
      INFO("seed " << seed << ", " << check::name(kind) << ":\n" << print(p.graph()));
      Arrays in = check::make_values(p.expanded(), sizes, kind, static_cast<std::uint64_t>(seed)), got;
      try {
        got = cpu_run::Rig(p, in, sizes, setup).run(in);
      } catch (const Error& e) {  // the one thing of these that strips cannot hold
        CHECK(e.parts().found.find("inside a group or pair") != std::string::npos);
        continue;
      }
      check::Reference right = check::make_reference(p, in, sizes, DType::kBF16);
      for (const Output& o : p.expanded().outputs()) {
        if (o.dtype == DType::kI32 && !right.whole.at(o.name)) continue;  // argmax of values that may tie
        CHECK(check::judge(right, o, got.at(o.name)) == "");
        exact += right.whole.at(o.name) ? 1 : 0;
      }
      ++ran;
    }
  }
  CHECK(ran > kPrograms * 17 / 10);  // most are accepted …
  CHECK(exact > kPrograms);          // … and many judged exactly
}
