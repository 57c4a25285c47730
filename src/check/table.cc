// The table of conformance cases; see case.h. Small tiles (16 × 32) put edges where the interpreter is still quick; a
// few cases per program run at the backend's own tile.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "check/case.h"
#include "coda/error.h"
#include "ir/index_rules.h"
#include "plan/program_library.h"

namespace coda::check {
namespace {

constexpr int kTileRows = 16, kTileCols = 32;

// Edges in each direction: 0, 1, odd, one below, at and above a tile, several tiles.
struct Edge {
  std::int64_t m, n, k;
};
constexpr Edge kEdges[] = {
    {1, 1, 1},   {2, 3, 5},   {15, 31, 7}, {16, 32, 8}, {17, 33, 9}, {33, 65, 16}, {48, 96, 33},
    {1, 70, 40}, {50, 1, 19}, {5, 34, 0},  {0, 33, 8},  {7, 0, 8},   {31, 64, 1},  {47, 130, 13},
};
constexpr Edge kOwnTiles[] = {{131, 270, 300}, {64, 513, 33}};

bool is_rows(const std::string& s) { return s == "M" || s == "T" || s == "B"; }
bool is_depth(const std::string& s) { return s == "K" || s == "D" || s == "d"; }

// Sizes for a program from an edge: rows, depths and widths by name, heads and their width small.
Sizes sizes_of(const Graph& g, const Edge& e) {
  Sizes sizes;
  for (const std::string& s : g.free_sizes()) {
    if (s == "hd")
      sizes[s] = e.n % 3 == 0 ? 6 : 4;
    else if (s == "rd")
      sizes[s] = 2;
    else if (s == "H")
      sizes[s] = (e.n + 5) / 6;
    else if (s == "G")
      sizes[s] = (e.n + 12) / 13;
    else if (s == "S")
      sizes[s] = 11;
    else if (is_rows(s))
      sizes[s] = e.m;
    else if (is_depth(s))
      sizes[s] = e.k;
    else
      sizes[s] = e.n;
  }
  return sizes;
}

bool sizes_fit(const Graph& g, const Sizes& sizes) {
  try {
    auto fits = [&](const Dim& d) { return d.eval(sizes) >= 0; };
    for (const Value& v : g.values())
      if (!fits(v.type.rows) || !fits(v.type.groups) || !fits(v.type.cols)) return false;
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Nudges the widths until halves and pairs come out whole.
std::optional<Sizes> fitted(const Program& p, const Edge& e) {
  const Graph& g = p.expanded();
  Sizes sizes = sizes_of(g, e);
  for (int tries = 0; tries < 2 && !sizes_fit(g, sizes); ++tries)
    for (auto& [name, value] : sizes)
      if (!is_rows(name) && name != "hd" && name != "rd" && name != "S" && value % 2 != 0) ++value;
  if (!sizes_fit(g, sizes)) return std::nullopt;
  for (const IndexRule& r : index_rules(g))  // rows that index a table of no rows can't exist
    if (r.bound.eval(sizes) == 0 &&
        g.value(g.inputs()[static_cast<std::size_t>(r.input)].value).type.rows.eval(sizes) > 0)
      return std::nullopt;
  return sizes;
}

class Table {
 public:
  explicit Table(const CheckOptions& options) : options_(options) {}

  std::vector<Case> build() {
    for (const std::string& name : library_names())
      for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) add_program(name, dtype);
    if (options_.large) add_large();
    std::erase_if(cases_, [&](const Case& c) { return c.name().find(options_.filter) == std::string::npos; });
    return std::move(cases_);
  }

 private:
  void add_program(const std::string& name, DType dtype) {
    const Program& p = library_program(name, dtype);
    Case c;
    c.program = name;
    c.dtype = dtype;
    std::size_t number = 0;
    for (const Edge& e : kEdges) {
      ++number;
      auto sizes = fitted(p, e);
      if (!sizes) continue;
      c.sizes = *sizes;
      c.setup = {static_cast<int>(1 + number % 3), "", kTileRows, kTileCols};
      c.values = number % 2 == 0 ? Values::kIntegers : Values::kRandom;
      constexpr std::array kLayouts{Layout::kPlain, Layout::kPitched, Layout::kBlocked, Layout::kStrided};
      c.layout = kLayouts[number % kLayouts.size()];
      add(c);
      if (e.m == 17 || e.m == 47) {
        c.values = c.values == Values::kRandom ? Values::kIntegers : Values::kRandom;
        for (Layout l : kLayouts) add_with(c, l);
        for (const std::string& isa : options_.isas) add_isa(c, isa);
      }
      if (e.m == 33) {
        Case probe = c;
        probe.probe = Probe::kThreads;
        add(probe);
        probe.probe = Probe::kNan;
        add(probe);
      }
    }
    for (const Edge& e : kOwnTiles)
      if (auto sizes = fitted(p, e)) {
        c.sizes = *sizes;
        c.setup = {2, "", 0, 0};
        c.layout = Layout::kPlain;
        c.values = Values::kRandom;
        add(c);
      }
  }

  void add_with(Case c, Layout l) {
    if (c.layout == l) return;
    c.layout = l;
    add(c);
  }

  void add_isa(Case c, const std::string& isa) {
    c.setup.isa = isa;
    add(c);
  }

  void add_large() {
    Case c;
    c.program = "rmsnorm_linear";
    c.dtype = DType::kBF16;
    c.probe = Probe::kLarge;
    c.sizes = {{"M", 65537}, {"N", 32770}, {"K", 1}};
    c.setup.threads = 2;
    add(c);
  }

  void add(const Case& c) { cases_.push_back(c); }

  const CheckOptions& options_;
  std::vector<Case> cases_;
};

}  // namespace

std::string Case::name() const {
  std::string text = fmt::format("{}/{}", program, coda::name(dtype));
  for (const auto& [size, value] : sizes) text += fmt::format("/{}={}", size, value);
  text += fmt::format("/{}/{}", check::name(values), check::name(layout));
  text += setup.tile_rows == 0 ? "/tile=own" : fmt::format("/tile={}x{}", setup.tile_rows, setup.tile_cols);
  text += fmt::format("/threads={}", setup.threads);
  if (!setup.isa.empty()) text += "/" + setup.isa;
  constexpr std::array kProbe{"", "/same-threads", "/nan", "/large"};
  return text + kProbe[static_cast<std::size_t>(probe)];
}

std::vector<Case> case_table(const CheckOptions& options) { return Table(options).build(); }

}  // namespace coda::check
