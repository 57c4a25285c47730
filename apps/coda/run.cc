// `coda run FILE.coda`: one program with random or .npy inputs on a backend; prints or saves its outputs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "coda/cpu.h"
#include "coda/error.h"
#include "coda/interpret.h"
#include "coda/text.h"
#include "commands.h"
#include "ir/index_rules.h"
#include "npy.h"
#include "options.h"

namespace coda::cli {
namespace {

struct RunArgs {
  std::string file, program, backend = "cpu", dtype, save, json;
  std::vector<std::string> sizes, inputs, consts;
  std::uint64_t seed = 1;
  int threads = 0;
};

Graph choose(const RunArgs& args) {
  std::vector<Graph> graphs = parse_file(args.file);
  if (graphs.size() == 1 && (args.program.empty() || graphs[0].name() == args.program)) return graphs[0];
  std::string names;
  for (const Graph& g : graphs) {
    if (g.name() == args.program) return g;
    names += (names.empty() ? "" : ", ") + g.name();
  }
  throw Error({"--program",
               args.program.empty() ? fmt::format("not given for a file of {} programs", graphs.size())
                                    : "'" + args.program + "'",
               names, ""});
}

// One number for every input that the user gave none for: normal floats (statistics named r: positive), indices in
// range.
Array random_values(const Graph& g, int number, const Type& t, const Sizes& sizes, std::uint64_t seed,
                    const std::vector<IndexRule>& rules) {
  const Input& in = g.inputs()[static_cast<std::size_t>(number)];
  std::mt19937_64 random(seed * 1000003u + static_cast<std::uint64_t>(number));
  Array a(t.rows.eval(sizes), t.groups.eval(sizes), t.cols.eval(sizes));
  std::int64_t bound = 1000;
  for (const IndexRule& r : rules)
    if (r.input == number) bound = std::min(bound, r.bound.eval(sizes));
  std::normal_distribution<double> normal;
  for (double& x : a.data) {
    if (in.dtype == DType::kI32)
      x = static_cast<double>(random() % static_cast<std::uint64_t>(std::max<std::int64_t>(bound, 1)));
    else
      x = round_to(in.dtype, in.name == "r" ? std::fabs(normal(random)) + 0.25 : normal(random));
  }
  return a;
}

Array fit(const std::string& name, Array a, const Type& t, const Sizes& sizes) {
  std::int64_t rows = t.rows.eval(sizes), groups = t.groups.eval(sizes), cols = t.cols.eval(sizes);
  if (a.rows == 1 && a.width() == rows && groups * cols == 1)
    a.rows = rows, a.groups = a.cols = 1;  // a 1-D vector per row
  if (a.rows != rows || a.width() != groups * cols)
    throw Error({"--input " + name, fmt::format("an array [{},{}]", a.rows, a.width()),
                 fmt::format("[{},{}]", rows, groups * cols), ""});
  a.groups = groups;
  a.cols = cols;
  return a;
}

// An input as it is stored. Error for integers that are none.
void round_input(const Input& in, Array& a) {
  for (double& x : a.data) {
    if (in.dtype == DType::kI32 && !(x == std::floor(x) && std::fabs(x) <= 2147483647.0))
      throw Error({"--input " + in.name, fmt::format("{}", x), "whole numbers of 32 bits", ""});
    x = round_to(in.dtype, x);
  }
}

// What --input may name: inputs, and outputs that are added to.
std::string input_names(const Graph& g) {
  std::string names;
  for (const Input& in : g.inputs())
    if (!in.is_const) names += (names.empty() ? "" : ", ") + in.name;
  for (const Output& o : g.outputs())
    if (o.accumulate) names += (names.empty() ? "" : ", ") + o.name;
  return names;
}

void print_array(const std::string& name, const std::string& what, const Array& a) {
  double sum = 0, low = a.data.empty() ? 0 : a.data[0], high = low;
  for (double x : a.data) sum += x, low = std::min(low, x), high = std::max(high, x);
  fmt::print("{}: {}", name, what);
  if (!a.data.empty())
    fmt::print("  mean {:.6g}, min {:.6g}, max {:.6g}", sum / static_cast<double>(a.data.size()), low, high);
  fmt::print("\n");
  constexpr std::int64_t kShown = 6;
  for (std::int64_t r = 0; r < std::min(a.rows, kShown); ++r) {
    fmt::print("  ");
    for (std::int64_t c = 0; c < std::min(a.width(), kShown); ++c) fmt::print("{:>12.6g}", a.at(r, c));
    fmt::print("{}\n", a.width() > kShown ? "  …" : "");
  }
  if (a.rows > kShown) fmt::print("  …\n");
}

struct Memory {
  std::vector<std::byte> bytes;
  TensorView view;
};

Memory memory_of(DType dtype, const Array& a) {
  Memory m;
  m.bytes.resize(static_cast<std::size_t>(a.rows * a.width()) * static_cast<std::size_t>(size_of(dtype)) + 64);
  m.view = TensorView::matrix(m.bytes.data(), dtype, a.rows, a.width());
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    if (dtype == DType::kI32)
      reinterpret_cast<std::int32_t*>(m.bytes.data())[i] = static_cast<std::int32_t>(a.data[i]);
    else
      store_element(m.bytes.data(), static_cast<std::int64_t>(i), dtype,
                    static_cast<float>(round_to(dtype, a.data[i])));
  }
  return m;
}

Arrays run_on_cpu(const Graph& g, const Arrays& values, const Sizes& sizes, int threads) {
  if (!g.is_program())
    throw Error(
        {g.name(), "a graph", "a program for --backend cpu", "Use --backend interpreter, or write it as programs."});
  Program p(g);
  std::map<std::string, double> consts;
  std::map<std::string, Memory> memory;
  Bindings bindings;
  auto bind = [&](const std::string& name, DType dtype, const Array& a) {
    bindings[name] = (memory[name] = memory_of(dtype, a)).view;
    bindings[name].data = memory[name].bytes.data();
  };
  for (const Input& in : g.inputs()) {
    if (in.is_const)
      consts[in.name] = values.at(in.name).data[0];
    else
      bind(in.name, in.dtype, values.at(in.name));
  }
  for (const Output& o : g.outputs()) {
    const Type& t = g.value(o.value).type;
    Array old = o.accumulate ? values.at(o.name) : Array(t.rows.eval(sizes), t.groups.eval(sizes), t.cols.eval(sizes));
    bind(output_buffer(g, o), o.dtype, old);
  }
  CpuOptions options;
  options.threads = threads;
  make_cpu_backend(options)->prepare(single_program_plan(p, consts), sizes)->run(bindings);
  Arrays out;
  for (const Output& o : g.outputs()) {
    const TensorView& v = bindings.at(output_buffer(g, o));
    Array a(v.rows, 1, v.cols);
    for (std::size_t i = 0; i < a.data.size(); ++i)
      a.data[i] = o.dtype == DType::kI32
                      ? static_cast<const std::int32_t*>(v.data)[i]
                      : static_cast<double>(load_element(v.data, static_cast<std::int64_t>(i), o.dtype));
    out[o.name] = std::move(a);
  }
  return out;
}

// A launch constant must be a number of its declared type: nothing is rounded to infinity, to zero or to an integer.
void check_consts(const Graph& g, const std::map<std::string, double>& consts) {
  for (const auto& [name, x] : consts) {
    const Input* in = g.find_input(name);
    if (in == nullptr || !in->is_const) continue;
    bool integer = in->dtype == DType::kI32;
    double kept = round_to(in->dtype, x);
    bool fits = integer ? x == std::trunc(x) && std::fabs(x) <= 2147483647.0
                        : std::isinf(x) || std::isnan(x) || (std::isfinite(kept) && (x == 0) == (kept == 0));
    if (!fits)
      throw Error({"--const " + name, fmt::format("{}", x),
                   integer ? "a whole number of 32 bits" : "a number that f32 can hold", ""});
  }
}

void run(const RunArgs& args) {
  check_json_path(args.json);
  Graph g = choose(args);
  if (!args.dtype.empty()) g = with_storage(g, DType::kBF16, parse_dtype(args.dtype));
  if (!args.save.empty() && !std::filesystem::is_directory(args.save))
    throw Error({"--save", "'" + args.save + "'", "an existing directory", "Create it first."});
  Arrays given;
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const auto& [name, path] : parse_names("--input", args.inputs)) {
    const Input* in = g.find_input(name);
    const Output* out = g.find_output(name);
    if (in == nullptr && (out == nullptr || !out->accumulate))
      throw Error({"--input " + name, "no such input of " + g.name(), input_names(g), ""});
    if (in != nullptr && in->is_const)
      throw Error(
          {"--input " + name, "a launch constant", input_names(g), fmt::format("Give it as --const {}=VALUE.", name)});
    given[name] = read_npy(path);
    const Array& a = given[name];
    if (in != nullptr)
      shapes.push_back(
          {name, in->dims.back().is_one() && a.rows == 1 ? Shape{a.width(), 1, 1} : Shape{a.rows, a.groups, a.cols}});
  }
  Sizes wanted = parse_sizes(args.sizes);
  check_sizes_are_known(g, wanted);
  Sizes sizes = solve_sizes(g, shapes, wanted);
  std::map<std::string, double> consts = parse_numbers("--const", args.consts);
  std::vector<IndexRule> rules = index_rules(expand_composites(g));
  check_consts(g, consts);
  for (const auto& [name, x] : consts)
    if (const Input* in = g.find_input(name); in == nullptr || !in->is_const)
      throw Error({"--const " + name, "no launch constant of " + g.name(), "its `const` declarations", ""});
  for (std::size_t i = 0; i < g.inputs().size(); ++i) {
    const Input& in = g.inputs()[i];
    const Type& t = g.value(in.value).type;
    if (in.is_const) {
      double otherwise = in.dtype == DType::kI32 ? -100 : in.name == "eps" ? 1e-5 : 1;
      given[in.name] = Array(1, 1, 1, round_to(in.dtype, consts.count(in.name) ? consts.at(in.name) : otherwise));
    } else if (given.count(in.name)) {
      given[in.name] = fit(in.name, given[in.name], t, sizes);
      round_input(in, given[in.name]);
    } else {
      given[in.name] = random_values(g, static_cast<int>(i), t, sizes, args.seed, rules);
    }
  }
  for (const Output& o : g.outputs()) {
    const Type& t = g.value(o.value).type;
    if (o.accumulate && !given.count(o.name))
      given[o.name] = Array(t.rows.eval(sizes), t.groups.eval(sizes), t.cols.eval(sizes));
    if (o.accumulate) given[o.name] = fit(o.name, given[o.name], t, sizes);
  }
  Arrays out = args.backend == "cpu" ? run_on_cpu(g, given, sizes, args.threads)
                                     : interpret(g, given, sizes, {Rounding::kStores, DType::kBF16});
  nlohmann::json json = {
      {"program", g.name()}, {"backend", args.backend}, {"sizes", sizes}, {"outputs", nlohmann::json::object()}};
  for (const Output& o : g.outputs()) {
    const Array& a = out.at(o.name);
    print_array(o.name, fmt::format("{} [{},{}]", name(o.dtype), a.rows, a.width()), a);
    if (!args.save.empty())
      write_npy((std::filesystem::path(args.save) / (o.name + ".npy")).string(), a, o.dtype == DType::kI32);
    nlohmann::json shape = {a.rows, a.width()};
    json["outputs"][o.name] = {{"dtype", name(o.dtype)}, {"shape", shape}, {"values", a.data}};
  }
  if (!args.json.empty()) write_json(args.json, json);
}

}  // namespace

void add_run(CLI::App& app) {
  auto args = std::make_shared<RunArgs>();
  CLI::App* c =
      app.add_subcommand("run", "Run one program of a .coda file on random or .npy inputs and print its outputs");
  c->add_option("file", args->file, "A .coda file, e.g. programs/rmsnorm_swiglu.coda")->required();
  c->add_option("--program", args->program, "Which program, if the file holds several");
  c->add_option("--size", args->sizes, "A size, NAME=VALUE (repeatable); sizes that .npy inputs fix need not be given")
      ->allow_extra_args(false);
  c->add_option("--input", args->inputs, "An input from a file, NAME=FILE.npy (repeatable); others are random")
      ->allow_extra_args(false);
  c->add_option("--const", args->consts,
                "A launch constant, NAME=VALUE (repeatable); default eps=1e-5, ignore_index -100, else 1")
      ->allow_extra_args(false);
  c->add_option("--dtype", args->dtype, "Store bf16 tensors as this instead")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  c->add_option("--backend", args->backend, "cpu, or the fp64 interpreter")
      ->check(CLI::IsMember({"cpu", "interpreter"}))
      ->capture_default_str();
  c->add_option("--threads", args->threads, "Threads (0: all cores)")->capture_default_str();
  c->add_option("--seed", args->seed, "Seed of random inputs")->capture_default_str();
  c->add_option("--save", args->save, "Save each output as NAME.npy in this directory");
  c->add_option("--json", args->json, "Write sizes and outputs to this file");
  c->callback([args] { run(*args); });
}

}  // namespace coda::cli
