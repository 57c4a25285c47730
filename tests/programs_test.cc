// Every file of programs/: found by listing the folder, parsed, verified, printed, parsed again, evaluated by the
// interpreter and compared with an independent fp64 implementation (references.h).
#include <doctest/doctest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "coda/error.h"
#include "programs_data.h"
#include "references.h"

using namespace coda;

namespace {

constexpr double kTolerance = 1e-11;

// Small and odd; one of everything; a partial rotation of all columns; no rows; no products.
const std::vector<Sizes> kSizes = {
    {{"M", 5},
     {"N", 9},
     {"K", 7},
     {"F", 6},
     {"V", 11},
     {"S", 6},
     {"H", 3},
     {"G", 1},
     {"hd", 6},
     {"rd", 2},
     {"NQ", 5},
     {"NK", 3},
     {"NA", 4},
     {"NB", 3},
     {"R", 2}},
    {{"M", 1},
     {"N", 1},
     {"K", 1},
     {"F", 1},
     {"V", 1},
     {"S", 1},
     {"H", 1},
     {"G", 1},
     {"hd", 2},
     {"rd", 2},
     {"NQ", 1},
     {"NK", 1},
     {"NA", 1},
     {"NB", 1},
     {"R", 1}},
    {{"M", 9},
     {"N", 4},
     {"K", 3},
     {"F", 5},
     {"V", 6},
     {"S", 13},
     {"H", 4},
     {"G", 2},
     {"hd", 4},
     {"rd", 4},
     {"NQ", 6},
     {"NK", 2},
     {"NA", 1},
     {"NB", 5},
     {"R", 3}},
    {{"M", 0},
     {"N", 3},
     {"K", 2},
     {"F", 4},
     {"V", 3},
     {"S", 2},
     {"H", 2},
     {"G", 1},
     {"hd", 2},
     {"rd", 2},
     {"NQ", 2},
     {"NK", 1},
     {"NA", 1},
     {"NB", 2},
     {"R", 1}},
    {{"M", 3},
     {"N", 3},
     {"K", 0},
     {"F", 4},
     {"V", 3},
     {"S", 4},
     {"H", 2},
     {"G", 1},
     {"hd", 2},
     {"rd", 2},
     {"NQ", 2},
     {"NK", 1},
     {"NA", 1},
     {"NB", 2},
     {"R", 1}},
};

std::string first_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// How the interpreter's outputs differ from the reference; empty if they do not.
std::string judge(const Graph& g, const Sizes& all_sizes) {
  Sizes sizes = programs::sizes_for(g, all_sizes);
  Arrays inputs = programs::inputs(g, sizes);
  return programs::difference(interpret(g, inputs, sizes), reference::evaluate(g.name(), inputs, sizes), kTolerance);
}

}  // namespace

TEST_CASE("programs/ and the references have the same names") {
  std::vector<std::string> names = programs::names();
  CHECK(names.size() > 100);
  for (const std::string& name : names) {
    INFO("programs/", name, ".coda has no reference in tests/references.h");
    CHECK(reference::all().count(name) == 1);
  }
  for (const auto& entry : reference::all()) {
    const std::string& name = entry.first;
    INFO("the reference ", name, " has no file in programs/");
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  }
}

TEST_CASE("every file holds one program of its name and begins with its number and a sentence") {
  const std::regex kFirst("# (P[0-9]|B([1-9]|10)): .+\\.");
  for (const std::string& name : programs::names()) {
    CAPTURE(name);
    CHECK(programs::load(name).name() == name);
    CHECK(std::regex_match(first_line(programs::folder() / (name + ".coda")), kFirst));
  }
}

TEST_CASE("the table in programs/README.md lists every program with its inputs and outputs, and nothing else") {
  std::ifstream in(programs::folder() / "README.md");
  std::map<std::string, std::string> rows;
  const std::regex kRow("\\| \\[(\\w+)\\]\\((\\w+)\\.coda\\) \\|.*");
  for (std::string line; std::getline(in, line);)
    if (std::smatch match; std::regex_match(line, match, kRow)) {
      CHECK(match[1] == match[2]);
      CHECK(rows.emplace(match[1], line).second);
    }
  std::vector<std::string> names = programs::names();
  CHECK(rows.size() == names.size());
  for (const std::string& name : names) {
    CAPTURE(name);
    REQUIRE(rows.count(name) == 1);
    const Graph& g = programs::load(name).graph();
    std::string ins, outs;
    for (const Input& i : g.inputs()) ins += (ins.empty() ? "" : ", ") + i.name;
    for (const Output& o : g.outputs()) outs += (outs.empty() ? "" : ", ") + o.name;
    CHECK(rows[name].find("| " + ins + " | " + outs + " |") != std::string::npos);
  }
}

TEST_CASE("printed and parsed again: same hash, same text") {
  for (const std::string& name : programs::names()) {
    CAPTURE(name);
    const Graph& g = programs::load(name).graph();
    std::string text = print(g);
    Program again = parse_program(text, name);
    CHECK(again.hash() == g.hash());
    CHECK(print(again.graph()) == text);
  }
}

TEST_CASE("no two programs have the same hash") {
  std::map<std::uint64_t, std::string> seen;
  for (const std::string& name : programs::names()) {
    auto added = seen.emplace(programs::load(name).hash(), name);
    INFO(name, " and ", added.first->second);
    CHECK(added.second);
  }
}

TEST_CASE("the interpreter gives what the references give") {
  for (const std::string& name : programs::names())
    for (const Sizes& sizes : kSizes) {
      CAPTURE(name);
      CAPTURE(sizes.at("M"));
      CAPTURE(sizes.at("K"));
      CHECK(judge(programs::load(name).graph(), sizes) == "");
    }
}

TEST_CASE("composites expanded and other storage give the same numbers") {
  for (const std::string& name : programs::names()) {
    CAPTURE(name);
    CHECK(judge(programs::load(name).expanded(), kSizes[0]) == "");
    for (DType dtype : {DType::kF32, DType::kF16})
      CHECK(judge(Program(with_storage(programs::load(name).graph(), DType::kBF16, dtype)).graph(), kSizes[2]) == "");
  }
}

TEST_CASE("stores round once, to the declared dtype, and nothing else rounds") {
  int rounded = 0;
  for (const std::string& name : programs::names())
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      CAPTURE(name);
      Graph g = with_storage(programs::load(name).graph(), DType::kBF16, dtype);
      Sizes sizes = programs::sizes_for(g, kSizes[0]);
      Arrays inputs = programs::inputs(g, sizes), exact = interpret(g, inputs, sizes);
      InterpretOptions options;
      options.rounding = Rounding::kStores;
      Arrays stored = interpret(g, inputs, sizes, options);
      for (const Output& o : g.outputs()) {
        CAPTURE(o.name);
        Array expected = exact[o.name];
        for (double& x : expected.data) x = round_to(o.dtype, x);
        rounded += expected.data == exact[o.name].data ? 0 : 1;
        // Literals are fp32 numbers here: what is stored in fp32 may move by an ulp.
        CHECK(programs::difference(stored[o.name], expected, o.dtype == DType::kF32 ? 0x1p-22 : 0) == "");
        for (double x : stored[o.name].data) CHECK(programs::close(round_to(o.dtype, x), x, 0));
      }
    }
  CHECK(rounded > 200);
}

// The comparison notices mistakes: every + of every program as −, every − as +, every * as +.
TEST_CASE("an operator changed anywhere is noticed") {
  int mutants = 0;
  for (const std::string& name : programs::names()) {
    std::string text = print(programs::load(name).graph());
    std::size_t body = text.rfind("\nin ");
    for (auto [from, to] : {std::pair{" + ", " - "}, {" - ", " + "}, {"*", " + "}})
      for (std::size_t at = text.find(from, body); at != std::string::npos; at = text.find(from, at + 1)) {
        std::string mutant = text;
        mutant.replace(at, std::string(from).size(), to);
        std::string verdict;
        try {
          verdict = judge(parse_program(mutant).graph(), kSizes[0]);
        } catch (const Error&) {
          continue;  // it no longer types
        } catch (const std::runtime_error&) {
          continue;  // sizes changed: no such output any more
        }
        ++mutants;
        INFO(name, "\n", mutant);
        CHECK(verdict != "");
      }
  }
  CHECK(mutants > 300);
}
