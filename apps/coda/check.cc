// `coda check`: the conformance table on a backend.
#include "coda/check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "coda/cpu.h"
#include "coda/error.h"
#include "commands.h"
#include "cpu/kernels/tile_gemm.h"
#include "options.h"

namespace coda::cli {
namespace {

struct CheckArgs {
  std::string backend = "cpu", json;
  CheckOptions options;
  bool list = false, skip_large = false;
};

BackendFactory cpu_factory() {
  return [](const BackendSetup& s) {
    CpuOptions o;
    o.threads = s.threads;
    o.isa = s.isa;
    o.tile_rows = s.tile_rows;
    o.tile_cols = s.tile_cols;
    return make_cpu_backend(o);
  };
}

void run(CheckArgs& args) {
  check_json_path(args.json);
  args.options.large = !args.skip_large;
  for (cpu::Isa isa : cpu::supported_isas())
    if (isa != cpu::best_isa()) args.options.isas.emplace_back(cpu::name(isa));
  if (args.list) {
    for (const std::string& name : check_names(args.options)) fmt::print("{}\n", name);
    return;
  }
  bool tty = isatty(STDERR_FILENO) != 0;
  args.options.progress = [&](std::size_t done, std::size_t total, const std::string&) {
    if (tty && (done % 25 == 0 || done == total))
      fmt::print(stderr, "\r{}/{}{}", done, total, done == total ? "\n" : "");
  };
  CheckReport report = run_checks(cpu_factory(), args.options);
  for (const std::string& s : report.skips) fmt::print("skipped {}\n", s);
  for (const CheckFailure& f : report.failures)
    fmt::print("FAILED {}\n  {}\n  repeat: coda check --backend {} --seed {} --filter '{}'\n", f.name, f.reason,
               args.backend, args.options.seed, f.name);
  fmt::print("{} passed, {} failed, {} skipped\n", report.passed, report.failures.size(), report.skipped);
  if (!args.json.empty()) {
    nlohmann::json failing = nlohmann::json::array();
    for (const CheckFailure& f : report.failures) failing.push_back({{"name", f.name}, {"reason", f.reason}});
    write_json(args.json, {{"backend", args.backend},
                           {"seed", args.options.seed},
                           {"passed", report.passed},
                           {"failed", report.failures.size()},
                           {"skipped", report.skipped},
                           {"failures", failing}});
  }
  if (!report.failures.empty()) throw ExitCode{1};
}

}  // namespace

void add_check(CLI::App& app) {
  auto args = std::make_shared<CheckArgs>();
  CLI::App* c = app.add_subcommand(
      "check", "Run the conformance table: every program, dtype, layout and tile edge against the fp64 interpreter");
  c->add_option("--backend", args->backend, "Backend to check")->check(CLI::IsMember({"cpu"}))->capture_default_str();
  c->add_option("--filter", args->options.filter, "Only cases whose name contains this text");
  c->add_option("--seed", args->options.seed, "Seed of the data")->capture_default_str();
  c->add_flag("--list", args->list, "Print the names of the cases and stop");
  c->add_flag("--skip-large", args->skip_large, "Leave out the cases of several GiB");
  c->add_option("--json", args->json, "Write passed, failed, skipped and the failing cases to this file");
  c->callback([args] { run(*args); });
}

}  // namespace coda::cli
