// The text form: round trips (of written texts, of graphs built in C++, of random graphs), what the printer writes,
// every mistake of tests/errors with its position and message, the manual's examples and its list of operations, and
// mutations of valid texts, which may fail with Error only.
#include "coda/text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "coda/builder.h"

using namespace coda;

namespace {

const std::filesystem::path kRoot = CODA_SOURCE_DIR;

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE_MESSAGE(in, path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

// The design's four, which fix the flavour.
const char* const kFour[] = {
    R"(program rmsnorm_swiglu
in x: bf16[M,K]
in wg, wu: bf16[F,K]
in r: f32[M,1]
g = (x @ wg) * r
u = (x @ wu) * r
out g: bf16[M,F], u: bf16[M,F], o: bf16[M,F] = silu(g)*u
)",
    R"(program residual_rmsnorm_partial
in y: bf16[M,K]
in w: bf16[N,K]
in x0: bf16[M,N]
in gamma: bf16[1,N]
const eps: f32
x1 = y @ w + x0
out x1: bf16[M,N], h: bf16[M,N] = x1*gamma, r: f32[M,1] = rsqrt(sum_n(x1*x1)/N + eps)
)",
    R"(program qknorm_rope
where N = H*hd
in x: bf16[M,K]
in w: bf16[N,K]
in r: f32[M,1]
in pos: i32[M,1]
in cos, sin: f32[S,hd/2]
in gh: bf16[1,1,hd]
const eps: f32
h = group((x @ w) * r, hd)
k = h * rsqrt(sum_c(h*h)/hd + eps) * gh
a, b = halves(k)
c = cos[pos]
s = sin[pos]
out y: bf16[M,N] = flat(concat(a*c - b*s, a*s + b*c))
)",
    R"(program rmsnorm_cross_entropy
in x: bf16[M,K]
in w: bf16[V,K]
in r: f32[M,1]
in t: i32[M,1]
const ignore: i32
z = (x @ w) * r
m, l = logsumexp_n(z)
zt = sum_n(where(col() == t, z, 0))
out m: f32[M,1], l: f32[M,1], loss: f32[M,1] = where(t == ignore, 0, m - zt + l)
)"};

void check_round_trip(const Graph& g) {
  std::string text = print(g);
  CAPTURE(text);
  std::vector<Graph> again;
  try {
    again = parse(text, "printed");
  } catch (const Error& e) {
    FAIL(std::string(e.what()));
  }
  REQUIRE(again.size() == 1);
  CHECK(again[0].hash() == g.hash());
  CHECK(again[0].is_program() == g.is_program());

  CHECK(print(again[0]) == text);
}

// A graph over f32 a, b [M,N], r [M,1], i32 t [M,1] from one expression.
Graph of_expression(const std::string& e, const std::string& type = "f32[M,N]") {
  std::string text = "graph g\nin a, b: f32[M,N], r: f32[M,1], t: i32[M,1], w: f32[N,K], v: f32[J,N]\nout y: " + type +
                     " = " + e + "\nout used: f32[M,N] = a + b + r + cast(t, f32), w: f32[N,K], v: f32[J,N]\n";
  return parse(text)[0];
}

std::string expression_of(const Graph& g) {
  std::string text = print(g);
  std::size_t begin = text.find("out y: ");
  begin = text.find(" = ", begin) + 3;
  return text.substr(begin, std::min(text.find('\n', begin), text.find(", used:", begin)) - begin);
}

}  // namespace

TEST_CASE("the four programs of the design print as they are written") {
  for (const char* text : kFour) {
    Program p = parse_program(text);
    CHECK(print(p.graph()) == text);
    check_round_trip(p.graph());
  }
}

TEST_CASE("the hash ignores names of locals, comments, order of independent statements; sees the rest") {
  auto hash = [](const std::string& body) {
    return parse("program p\nin x: bf16[M,N], y: bf16[M,N]\n" + body)[0].hash();
  };
  std::uint64_t h = hash("a = x*2\nb = y + 1\nout z: bf16[M,N] = a - b");
  CHECK(h == hash("one = x * 2  # twice\n\nother = y + 1\nout z: bf16[M,N] = one - other"));
  CHECK(h == hash("b = y + 1\na = x*2\nout z: bf16[M,N] = a - b"));
  CHECK(h == hash("out z: bf16[M,N] = x*2 - (y + 1)"));
  CHECK(h != hash("out z: bf16[M,N] = x*2 - (y + 2)"));
  CHECK(h != hash("out z: bf16[M,N] = x*2 - y + 1"));
  CHECK(h != hash("out zz: bf16[M,N] = x*2 - (y + 1)"));
  CHECK(h != hash("out z: f32[M,N] = x*2 - (y + 1)"));
  CHECK(h != hash("out z: bf16[M,N] over x = x*2 - (y + 1)"));
  auto square = [](const std::string& text) {
    return parse(text + " g\nin x: f32[M,M]\nout y: f32[M,M] = " + "matmul(x, x, 0, 0)")[0].hash();
  };
  auto of_type = [](const std::string& type) {
    return parse("graph g\nin x: " + type + "\nout y: " + type + " = x*2")[0].hash();
  };
  CHECK(of_type("f32[M,N]") != of_type("f32[M,2*N]"));
  CHECK(of_type("f32[M,2,N]") != of_type("f32[M,2*N]"));
  CHECK(square("program") != square("graph"));
  CHECK(parse("graph g\nin x: f32[M,M]\nout y: f32[M,M] = matmul(x, x, 1, 1)")[0].hash() != square("graph"));
  CHECK(h != hash("reassociate\nout z: bf16[M,N] = x*2 - (y + 1)"));
}

TEST_CASE("precedence: minimal parentheses, and the same graph again") {
  // Written, printed.
  const std::pair<const char*, const char*> cases[] = {
      {"a+b*r", "a + b*r"},
      {"(a+b)*r", "(a + b) * r"},
      {"(a - b) - r", "a - b - r"},
      {"a - (b - r)", "a - (b - r)"},
      {"a*(b/r)", "a*(b/r)"},
      {"(a*b)/r", "a*b/r"},
      {"-a*b", "-a*b"},
      {"-(a*b)", "-(a*b)"},
      {"- -a", "--a"},
      {"-1*a", "-1*a"},
      {"neg(1)*a", "neg(1)*a"},
      {"a - -1", "a - -1"},
      {"a*-b", "a*-b"},
      {"add(a, mul(b, r))", "a + b*r"},
      {"where(a < b and not a == r or b >= 1, a, -inf)", "where(a < b and not a == r or b >= 1, a, -inf)"},
      {"where(a < b and (not (a == r) or b >= 1), a, nan)", "where(a < b and (not a == r or b >= 1), a, nan)"},
      {"where((not (a < b)) == (a < b) or a < b, a, b)", nullptr},
      {"where(t == -100, 0, a)", "where(t == -100, 0, a)"},
      {"where(t == 1, a, 0.5) + 1e-5", "where(t == 1, a, 0.5) + 1e-05"},
      {"cast(where(a < b, literal(1, i32), literal(2, i32)), f32)",
       "cast(where(a < b, literal(1, i32), literal(2, i32)), f32)"},
      {"where(t + 1 == 2*t, a, b)", "where(t + 1 == 2*t, a, b)"},
      {"a*N", "a*N"},
      {"a*(2*N)", "a*(2*N)"},
      {"2*N*a", "2*N*a"},
      {"a/(N + K*M)", "a / (N + K*M)"},
      {"a*size(N/2)", "a*size(N/2)"},
      {"a*(N/2)", "a*(N/2)"},
      {"a*(1/N)", "a*(1/N)"},
      {"a*mul(2, N)", "a * mul(2, N)"},
      {"a*(M/N)", "a*(M/N)"},
      {"a*(M*N/N)", "a*M"},
      {"a + (1 + 2)", "a + (1 + 2)"},
      {"a + 340282000000000000000000000000000000000", "a + 3.40282e+38"},
      {"max(a, min(b, 0))", "max(a, min(b, 0))"},
      {"flat(group(a, N))", "flat(group(a, N))"},
      {"cast(cast(a, bf16), f32)", "cast(cast(a, bf16), f32)"},
      {"a + sum_n(a*b)", "a + sum_n(a*b)"},
      {"a*max_mn(abs(a))", "a*max_mn(abs(a))"},
      {"a[t]", "a[t]"},
      {"(a + b)[t]", "(a + b)[t]"},
      {"a*cast(row() + col(), f32)", "a * cast(row() + col(), f32)"},
      {"a*square(a) - cast(a, f16)/b", "a*square(a) - cast(a, f16) / b"},
  };
  for (const auto& entry : cases) {
    const std::string written = entry.first;
    const char* printed = entry.second;
    CAPTURE(written);
    if (printed == nullptr) {
      CHECK_THROWS_AS(of_expression(written), SourceError);
      continue;
    }
    Graph g = of_expression(written);
    CHECK(expression_of(g) == printed);
    check_round_trip(g);
  }
}

TEST_CASE("matmul: @ contracts the shared size, the call names the axes") {
  CHECK(expression_of(of_expression("a @ w", "f32[M,K]")) == "a @ w");
  CHECK(expression_of(of_expression("-a @ w @ w", "f32[M,N]")) == "-(a @ w @ w)");
  CHECK(expression_of(of_expression("matmul(a, w)", "f32[M,K]")) == "a @ w");
  CHECK(expression_of(of_expression("matmul(a, 2*a, 0, 0)", "f32[N,N]")) == "matmul(a, 2*a, 0, 0)");
  CHECK(expression_of(of_expression("matmul(a, w, 1, 0)", "f32[M,K]")) == "a @ w");
  CHECK_THROWS_AS(of_expression("matmul(a, w, 2, 0)", "f32[M,K]"), SourceError);
  for (const char* e : {"a @ v", "(a @ v) * r", "(a + b) @ v", "a @ (v*2)", "(a*r) @ v + r"})
    check_round_trip(of_expression(e, "f32[M,J]"));
}

TEST_CASE("statements") {
  auto body = [](const std::string& text) { return parse("graph g\nin x: bf16[M,N]\n" + text)[0]; };
  // A `where` may be odd, and its size is still printed where it fits.
  for (const std::string value : {"-hd", "1", "7", "hd/2", "3*hd", "a + hd"}) {
    CAPTURE(value);
    std::string text =
        "where P = " + value + "\nin v: f32[1,P], u: f32[1,hd], t: f32[1,7]\nin z: f32[M,hd*a], s: f32[1,a]\n";
    check_round_trip(
        body(text +
             "out y: f32[M,1] = sum_n(x) + sum_n(v)*sum_n(u) + hd*P + size(3*P/2) + sum_n(t) + sum_mn(z) + sum_n(s)"));
  }
  // Lines go on inside brackets and after operators; `_` discards; locals of several results in one statement.
  Graph g = body("a, _ = split(x,\n  N/2, N/2)\nb, c = a +\n 1, a *\n 2\nout y: f32[M,N/2] =\n b -\n c");
  check_round_trip(g);
  check_round_trip(body("in x2: f32[M,N]\nout y: f32[M,N] over x2 = x + x2"));
  CHECK(print(body("a, _ = split(x, N/2, N/2)\nout y: f32[M,N/2] = a")).find("a, _ = split(x, N/2, N/2)") !=
        std::string::npos);
}

TEST_CASE("statements: accumulate, over, several where, sizes that no type mentions, reassociate") {
  Graph g = parse(R"(graph g
reassociate
where N = H*hd, F = 2*N
where M = B*S
size batch2
in x: bf16[M,N]
in w: bf16[F,N]
in ids: i32[M,1]
in q, k, v: bf16[M,N]
z = x @ w
y, lse = attention(q, k, v, B, H, H)
out dw: f32[F,N] += z @ x
out e: f32[V,N] = scatter_sum(x, ids, V)
out q: bf16[M,N] over q = y
out n: f32[1,1] = 1.0*batch2
)")[0];
  CHECK(g.reassociate());
  std::string text = print(g);
  CAPTURE(text);
  CHECK(text.find("where N = H*hd\nwhere F = 2*H*hd\nwhere M = B*S\nsize V, batch2\n") != std::string::npos);
  CHECK(text.find("in x: bf16[M,N]\nin w: bf16[F,N]\n") != std::string::npos);
  CHECK(text.find("out dw: f32[F,N] += z @ x") != std::string::npos);
  CHECK(text.find("q: bf16[M,N] over q = y") != std::string::npos);
  check_round_trip(g);
}

TEST_CASE("graphs built in C++ print readably and come back") {
  ProgramBuilder b("residual.norm");
  Val y = b.input("y", DType::kBF16, {"M", "K"}), w = b.input("w", DType::kBF16, {"N", "K"});
  Val x0 = b.input("x0", DType::kBF16, {"M", "N"}), gamma = b.input("gamma", DType::kBF16, {1, "N"});
  Val eps = b.launch_const("eps", DType::kF32);
  Val x1 = matmul(y, w) + x0;
  b.output("x1", DType::kBF16, x1);
  b.output("h", DType::kBF16, x1 * gamma);
  b.output("r", DType::kF32, unary(Op::kRsqrt, sum(Axis::kN, x1 * x1) / b.size("N") + eps));
  Program p = b.build();
  CHECK(print(p.graph()) == R"(program residual.norm
in y: bf16[M,K]
in w: bf16[N,K]
in x0: bf16[M,N]
in gamma: bf16[1,N]
const eps: f32
x1 = y @ w + x0
out x1: bf16[M,N], h: bf16[M,N] = x1*gamma, r: f32[M,1] = rsqrt(sum_n(x1*x1)/N + eps)
)");
  CHECK(p.hash() == parse_program(kFour[1]).hash());
  check_round_trip(p.graph());
}

TEST_CASE("awkward names and shared values come back with the same hash") {
  GraphBuilder b("in");  // a reserved word
  Val x = b.input("x", DType::kF32, {"M", "N"}), unread = b.input("unread", DType::kF32, {"M", "N"});
  CHECK(unread.id >= 0);
  Val two = b.literal(2), big = b.literal(12345678), i = b.integer(3);
  Val a = x * two, c = two * x, d = a + big;
  b.set_name(a, "x");  // an input's name
  b.set_name(c, "M");  // a size's name
  b.set_name(d, "not a name");
  Val e = unary(Op::kExp, d) + unary(Op::kExp, d);
  b.set_name(e, "y");  // the name of another output's value
  Val f = unary(Op::kTanh, e);
  b.set_name(f, "x_2");  // what the second x would be called next
  Val row = cast(b.apply1(Op::kRow, {}) + i, DType::kF32);
  b.output("y", DType::kF32, c + e + d + row + a + f);
  b.output("z", DType::kF32, e);
  b.output("t0", DType::kF32, b.size(Dim::symbol("N") / Dim(2)) * unary(Op::kExp, b.size("Q")));
  b.output("i", DType::kI32, i);
  Graph g = b.build_graph();
  check_round_trip(g);
  std::string text = print(g);
  CHECK(text.find("unread") == std::string::npos);
  CHECK(text.find("\nx_2 = tanh(y_2)\n") != std::string::npos);
  CHECK(text.find("\nx_3 = ") != std::string::npos);
}

TEST_CASE("a long chain of inner values is cut into statements") {
  GraphBuilder b("chain");
  Val x = b.input("x", DType::kF32, {"M", "N"}), y = x;
  for (int i = 0; i < 20000; ++i) y = unary(Op::kTanh, y + x);
  b.output("y", DType::kF32, y);
  Graph g = b.build_graph();
  std::string text = print(g);
  CHECK(parse(text)[0].hash() == g.hash());
  std::size_t longest = 0;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    longest = std::max(longest, end - at);
  CHECK(longest <= 120);
}

namespace {

// A random well-typed graph over [M,N] tiles with shared, named and unnamed values, numbers and sizes of both types.
Graph random_graph(std::mt19937& random) {
  GraphBuilder b("random");
  auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<Val> floats = {b.input("x", DType::kBF16, {"M", "N"}), b.input("r", DType::kF32, {"M", 1}),
                             b.launch_const("eps", DType::kF32)};
  std::vector<Val> ints = {b.input("t", DType::kI32, {"M", 1}), b.launch_const("k", DType::kI32)};
  std::vector<Val> bools;
  auto any = [&](const std::vector<Val>& from) {
    return from[static_cast<std::size_t>(pick(static_cast<int>(from.size())))];
  };
  constexpr Op kMaps[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kMin, Op::kMax};
  constexpr Op kUnary[] = {Op::kNeg, Op::kExp, Op::kSilu, Op::kSquare};
  constexpr Op kCompares[] = {Op::kEq, Op::kLt, Op::kGe};
  constexpr double kNumbers[] = {0, 1, -1, 2, 0.5, 1e-5, 3e9, -0.0, 1e20};
  for (int i = 0, n = 3 + pick(20); i < n; ++i) {
    switch (pick(12)) {
      case 0: floats.push_back(b.literal(kNumbers[pick(9)])); break;
      case 1:
        floats.push_back(b.size(pick(2) ? DimArg("N") : DimArg(Dim::symbol("N") * Dim(2) + Dim::symbol("M"))));
        break;
      case 2: ints.push_back(b.integer(pick(5) - 2)); break;
      case 3: ints.push_back(binary(kMaps[pick(3)], any(ints), any(ints))); break;
      case 4: bools.push_back(binary(kCompares[pick(3)], any(ints), any(ints))); break;
      case 5: bools.push_back(binary(kCompares[pick(3)], any(floats), any(floats))); break;
      case 6:
        if (!bools.empty()) floats.push_back(where(any(bools), any(floats), any(floats)));
        break;
      case 7:
        if (!bools.empty())
          bools.push_back(pick(2) ? unary(Op::kNot, any(bools))
                                  : binary(pick(2) ? Op::kAnd : Op::kOr, any(bools), any(bools)));
        break;
      case 8:
        if (!bools.empty()) ints.push_back(where(any(bools), any(ints), any(ints)));
        break;
      case 9: floats.push_back(unary(kUnary[pick(4)], any(floats))); break;
      case 10: floats.push_back(cast(any(ints), DType::kF32)); break;
      default: floats.push_back(binary(kMaps[pick(6)], any(floats), any(floats)));
    }
    constexpr const char* kNames[] = {"a", "b", "t0", "y0", "x", "where"};
    if (pick(4) == 0) b.set_name(any(floats), kNames[pick(6)]);
  }
  for (int i = 0, n = 1 + pick(3); i < n; ++i) {
    Val v = pick(4) ? floats.back() : any(floats);
    b.output("y" + std::to_string(i), DType::kF32, v, pick(4) == 0);
  }
  if (pick(2)) b.output("n", DType::kI32, ints.back());
  return b.build_graph();
}

}  // namespace

TEST_CASE("random graphs come back") {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    check_round_trip(random_graph(random));
  }
}

// Mistakes -----------------------------------------------------------------------------------------------------------

namespace {

void check_mistake(const std::string& text, const std::string& file, int line, int column, const std::string& message) {
  CAPTURE(file);
  try {
    parse(text, file);
    FAIL("no mistake found; expected " << message);
  } catch (const SourceError& e) {
    std::string what = e.what();
    CAPTURE(what);
    CHECK(e.line() == line);
    CHECK(e.column() == column);
    std::string position = file + ":" + std::to_string(line) + ":" + std::to_string(column) + ": ";
    CHECK(what.starts_with(position + message));
    CHECK(what.find("; allowed: ") != std::string::npos);
  }
}

}  // namespace

TEST_CASE("every text of tests/errors fails as its first line says") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "tests/errors")) {
    std::string text = read(entry.path()), name = entry.path().filename().string();
    CAPTURE(name);
    std::string first = text.substr(0, text.find('\n'));  // "# 4:20: message"
    REQUIRE(first.starts_with("# "));
    std::size_t colon = first.find(':'), second = first.find(':', colon + 1);
    REQUIRE(second != std::string::npos);
    check_mistake(text, name, std::stoi(first.substr(2, colon - 2)),
                  std::stoi(first.substr(colon + 1, second - colon - 1)), first.substr(second + 2));
    ++count;
  }
  CHECK(count >= 60);
}

TEST_CASE("the message shows the line and a caret under the place") {
  try {
    parse("program p\nin ü: bf16[M,N]\n", "f.coda");
    FAIL("ü is no name");
  } catch (const SourceError& e) {
    CHECK(std::string(e.what()).ends_with("\n  in ü: bf16[M,N]\n     ^"));
  }
  try {
    parse("program p\nin x: bf16[M,N]\n\tout y: bf16[M,N] = # é\n\tx *\tz", "f.coda");
    FAIL("z is unknown");
  } catch (const SourceError& e) {
    CHECK(e.line() == 4);
    CHECK(e.column() == 6);
    CHECK(std::string(e.what()).ends_with("\n   x * z\n       ^"));
  }
  try {
    parse("program p # \u00e9\u00e9\xff", "f.coda");
    FAIL("0xff is no text");
  } catch (const SourceError& e) {
    CHECK(e.column() == 15);  // characters, not bytes
  }
  try {  // of a long line, the part around
    parse("program p\nin x: bf16[M,N]\nout y: bf16[M,N] = " + std::string(5000, ' ') + "z" + std::string(5000, ' '));
    FAIL("z is unknown");
  } catch (const SourceError& e) {
    CHECK(std::string(e.what()).size() < 500);
    CHECK(std::string(e.what()).find("…") != std::string::npos);
  }
}

TEST_CASE("deep nesting is refused, whatever nests") {
  std::string head = "program p\nin x: f32[M,N]\nout y: f32[M,N] = ";
  auto repeat = [](const std::string& s, int n) {
    std::string all;
    for (int i = 0; i < n; ++i) all += s;
    return all;
  };
  const int n = 100000;
  for (const std::string& text :
       {head + repeat("(", n) + "x" + repeat(")", n), head + repeat("-", n) + "x",
        head + repeat("exp(", n) + "x" + repeat(")", n), head + "x" + repeat("[x", n) + repeat("]", n),
        head + "where(" + repeat("not ", n) + " x < 1, x, x)",
        "program p\nin x: f32[M," + repeat("(", n) + "N" + repeat(")", n) + "]\n",
        "program p\nin x: f32[M," + repeat("-", n) + "N]\n"}) {
    try {
      parse(text);
      FAIL("not refused");
    } catch (const SourceError& e) {
      CHECK(std::string(e.what()).find("levels of nesting") != std::string::npos);
    }
  }
  CHECK_NOTHROW(parse(head + repeat("(", 150) + "x" + repeat(")", 150)));
  // Not nested: a long sum is a loop.
  CHECK_NOTHROW(parse(head + "x" + repeat(" + x", 20000)));
}

TEST_CASE("sizes that explode are refused") {
  std::string text = "program p\nwhere A0 = a + b\n";
  for (int i = 1; i < 64; ++i)
    text += "where A" + std::to_string(i) + " = A" + std::to_string(i - 1) + "*A" + std::to_string(i - 1) + "\n";
  CHECK_THROWS_AS(parse(text), SourceError);
}

TEST_CASE("files: missing, a directory, several programs") {
  auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(message([] { parse_file("/no/such/file.coda"); }).starts_with("/no/such/file.coda: cannot be read"));
  CHECK(message([] { parse_file(kRoot / "tests"); }).find("a directory") != std::string::npos);
  CHECK(message([] {
          load_program(kRoot / "tests/errors/unknown_op.coda");
        }).find("unknown_op.coda:5:9: unknown operation") != std::string::npos);
  std::string one = "program p\nin x: f32[M,N]\nout y: f32[M,N] = x\n",
              other = "graph q\nin x: f32[M,N]\nout y: f32[M,N] = 2*x";
  std::vector<Graph> both = parse(one + other);
  REQUIRE(both.size() == 2);
  CHECK(both[0].is_program());
  CHECK(both[1].name() == "q");
  CHECK(message([&] { parse_program(one + other, "f"); }).starts_with("f: 2 programs; allowed: exactly one"));
  CHECK(message([&] { parse_program(other, "f"); }).starts_with("f: graph q; allowed: a program"));
  CHECK(parse_program("\xef\xbb\xbf" + one).name() == "p");  // with a byte order mark
  CHECK(parse("program p\r\nin x: f32[M,N] # c\r\nout y: f32[M,N] = x\r\n").size() == 1);
}

// The manual ---------------------------------------------------------------------------------------------------------

namespace {

std::vector<std::string> examples_of(const std::string& manual) {
  std::vector<std::string> blocks;
  const std::string fence = "```coda\n";
  for (std::size_t at = manual.find(fence); at != std::string::npos; at = manual.find(fence, at + 1)) {
    std::size_t begin = at + fence.size();
    blocks.push_back(manual.substr(begin, manual.find("```", begin) - begin));
  }
  return blocks;
}

}  // namespace

TEST_CASE("docs/language.md: its examples are programs") {
  std::vector<std::string> blocks = examples_of(read(kRoot / "docs/language.md"));
  std::size_t count = 0;
  for (const std::string& block : blocks) {
    CAPTURE(block);
    try {
      for (const Graph& g : parse(block, "docs/language.md")) check_round_trip(g), ++count;
    } catch (const Error& e) {
      FAIL_CHECK(std::string(e.what()));
    }
  }
  CHECK(count >= 10);
}

TEST_CASE("programs/ comes back") {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / "programs")) {
    if (entry.path().extension() != ".coda") continue;
    for (const Graph& g : parse_file(entry.path())) check_round_trip(g), ++count;
  }
  CHECK(count > 50);
}

TEST_CASE("docs/language.md: its list of operations is complete") {
  std::string manual = read(kRoot / "docs/language.md");
  for (std::string op : op_names()) {
    CAPTURE(op);
    if (find_op(op)->has(kReduceTrait)) op = op.substr(0, op.size() - 1);  // "sum_" of sum_n: the manual lists the axes
    bool listed = manual.find("| `" + op) != std::string::npos;
    CHECK(listed);
  }
}

// Mutations ----------------------------------------------------------------------------------------------------------

TEST_CASE("mutations of valid texts fail with Error or parse, and what parses comes back") {
  std::vector<std::string> texts(std::begin(kFour), std::end(kFour));
  for (const std::string& block : examples_of(read(kRoot / "docs/language.md"))) texts.push_back(block);
  const std::string pieces[] = {"(",        ")",      "[",       "]",    ",",     "=",   "+=",    "@",   "*",
                                "-",        "/",      "\n",      " ",    "x",     "N",   "1",     "1e9", "size(",
                                "where(",   "sum_n(", "halves(", "not ", " and ", "f32", "over ", "in ", "out ",
                                "program ", "#",      "\xc3",    "\x01", "2*N",   "inf", "_"};
  int parsed = 0;
  for (unsigned seed = 0; seed < 8000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::string text = texts[below(texts.size())];
    for (std::size_t i = 0, n = 1 + below(3); i < n && !text.empty(); ++i) {
      std::size_t at = below(text.size()), length = std::min(text.size() - at, 1 + below(6));
      switch (below(4)) {
        case 0: text.erase(at, length); break;
        case 1: text.insert(at, pieces[below(std::size(pieces))]); break;
        case 2: text.replace(at, length, pieces[below(std::size(pieces))]); break;
        default: text.insert(below(text.size()), text.substr(at, 8 * length));
      }
    }
    CAPTURE(text);
    try {
      for (const Graph& g : parse(text, "mutation")) {
        check_round_trip(g);
        ++parsed;
      }
    } catch (const SourceError& e) {
      if (!std::string(e.what()).starts_with("mutation:")) FAIL_CHECK(std::string(e.what()));
    } catch (const std::exception& e) {
      FAIL_CHECK(std::string(e.what()));
    }
  }
  CHECK(parsed > 100);  // else the mutations are too coarse to reach the later checks
}
