// `coda explain`: what a plan does, step by step, with bytes, FLOPs and roofline time, beside the unfused order.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "coda/error.h"
#include "coda/machine.h"
#include "coda/text.h"
#include "commands.h"
#include "model/llama_plan.h"
#include "options.h"

namespace coda::cli {
namespace {

struct ExplainArgs {
  std::string file, program, machine = "h200", dtype = "bf16", json;
  std::vector<std::string> sizes;
  std::int64_t tokens = 16384, d = 4096, ff = 11008, heads = 32, kv_heads = 32;
};

std::string machine_names() {
  std::string names;
  for (const Machine& m : known_machines()) names += (names.empty() ? "" : ", ") + m.name;
  return names;
}

Program choose(const ExplainArgs& args) {
  std::string names;
  for (const Graph& g : parse_file(args.file)) {
    if (!g.is_program()) continue;
    if (args.program.empty() || g.name() == args.program) return Program(g);
    names += (names.empty() ? "" : ", ") + g.name();
  }
  throw Error({"--program", "'" + args.program + "'", names, ""});
}

void run(const ExplainArgs& args) {
  check_json_path(args.json);
  Machine machine = find_machine(args.machine);
  std::vector<std::pair<std::string, Plan>> plans;
  Sizes sizes;
  if (args.file.empty()) {
    LlamaShape shape;
    shape.dtype = parse_dtype(args.dtype);
    sizes = llama_layer_sizes(args.tokens, args.d, args.ff, args.heads, args.kv_heads);
    plans.emplace_back("forward", llama_layer_forward(shape));
    plans.emplace_back("backward", llama_layer_backward(shape));
  } else {
    Program p(with_storage(choose(args).graph(), DType::kBF16, parse_dtype(args.dtype)));
    std::map<std::string, double> consts;
    for (const Input& in : p.graph().inputs())
      if (in.is_const) consts[in.name] = 0;
    sizes = parse_sizes(args.sizes);
    check_sizes_are_known(p.graph(), sizes);
    sizes = solve_sizes(p.graph(), {}, sizes);
    plans.emplace_back("program", single_program_plan(p, consts));
  }
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, plan] : plans) {
    fmt::print("{}\n", explain(plan, sizes, machine));
    json[name] = nlohmann::json::parse(explain_json(plan, sizes, machine));
  }
  if (!args.json.empty()) write_json(args.json, json);
}

}  // namespace

void add_explain(CLI::App& app) {
  auto args = std::make_shared<ExplainArgs>();
  CLI::App* c = app.add_subcommand(
      "explain", "Print each step of a plan with bytes, FLOPs and roofline time, and the same for the unfused order");
  c->add_option("file", args->file, "A .coda file; without one, the Llama layer's forward and backward (no attention)");
  c->add_option("--program", args->program, "Which program of the file (default: its first)");
  c->add_option("--size", args->sizes, "A size of the program, NAME=VALUE (repeatable)")->allow_extra_args(false);
  c->add_option("--machine", args->machine, "Machine of the roofline: " + machine_names())->capture_default_str();
  c->add_option("--dtype", args->dtype, "Storage")->check(CLI::IsMember({"f32", "bf16", "f16"}))->capture_default_str();
  c->add_option("--tokens", args->tokens, "Layer: tokens")->check(CLI::Range(1, 1 << 26))->capture_default_str();
  c->add_option("--dim", args->d, "Layer: width of the residual stream")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  c->add_option("--ff", args->ff, "Layer: width of the MLP")->check(CLI::Range(1, 1 << 22))->capture_default_str();
  c->add_option("--heads", args->heads, "Layer: query heads")->check(CLI::Range(1, 1 << 12))->capture_default_str();
  c->add_option("--kv-heads", args->kv_heads, "Layer: key and value heads")
      ->check(CLI::Range(1, 1 << 12))
      ->capture_default_str();
  c->add_option("--json", args->json, "Write the counts and steps to this file");
  c->callback([args] { run(*args); });
}

}  // namespace coda::cli
