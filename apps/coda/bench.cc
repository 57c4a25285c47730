// `coda bench`: the benchmark, as a table and as JSON.
#include "bench/bench.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "cpu/kernels/tile_gemm.h"
#include "options.h"

namespace coda::cli {
namespace {

struct BenchArgs {
  std::string backend = "cpu", json, commit;
  std::vector<std::string> dtypes = {"f32", "bf16"};
  bench::BenchOptions options;
};

// The commit of the working directory, where there is one.
std::string current_commit() {
  std::array<char, 64> line{};
  FILE* pipe = popen("git rev-parse HEAD 2>/dev/null", "r");
  if (pipe == nullptr) return "unknown";
  std::string text = std::fgets(line.data(), line.size(), pipe) != nullptr ? line.data() : "";
  pclose(pipe);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "unknown" : text;
}

void run(BenchArgs& args, const std::string& command) {
  check_json_path(args.json);
  args.options.dtypes.clear();
  for (const std::string& d : args.dtypes) args.options.dtypes.push_back(parse_dtype(d));
  args.options.progress = [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  };
  fmt::print("{}, kernels: {}\n", bench::cpu_name(), cpu::name(cpu::best_isa()));
  std::vector<bench::BenchRow> rows = bench::run_bench(args.options);
  if (args.json.empty()) return;
  nlohmann::json list = nlohmann::json::array();
  for (const bench::BenchRow& r : rows)
    list.push_back({{"name", r.name},
                    {"backend", r.backend},
                    {"shape", r.shape},
                    {"dtype", r.dtype},
                    {"threads", r.threads},
                    {"median_s", r.median_s},
                    {"q1_s", r.q1_s},
                    {"q3_s", r.q3_s},
                    {"baseline", r.baseline},
                    {"baseline_s", r.baseline_s},
                    {"ratio", r.ratio}});
  write_json(args.json, {{"machine", fmt::format("{}, kernels {}", bench::cpu_name(), cpu::name(cpu::best_isa()))},
                         {"commit", args.commit.empty() ? current_commit() : args.commit},
                         {"command", command},
                         {"rows", list}});
}

}  // namespace

void add_bench(CLI::App& app, const std::string& command) {
  auto args = std::make_shared<BenchArgs>();
  CLI::App* c = app.add_subcommand(
      "bench", "Time the programs and the Llama layer against bare GEMMs, a library's GEMM and the unfused order");
  c->add_option("--backend", args->backend, "Backend to time")->check(CLI::IsMember({"cpu"}))->capture_default_str();
  c->add_option("--n", args->options.n, "Programs run at n x n x n")
      ->check(CLI::Range(128, 16384))
      ->capture_default_str();
  c->add_option("--dtype", args->dtypes, "Storage dtypes: f32, bf16 (repeatable)")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  c->add_option("--threads", args->options.threads, "Thread counts (default: 1 and all)")->check(CLI::Range(1, 1024));
  c->add_option("--rounds", args->options.rounds, "Timed rounds; each runs every candidate once, shuffled")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  c->add_option("--filter", args->options.filter, "Only rows whose name contains this text, e.g. P2 or layer");
  c->add_option("--tokens", args->options.tokens, "Layer: tokens")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  c->add_option("--dim", args->options.d, "Layer: width of the residual stream")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  c->add_option("--ff", args->options.ff, "Layer: width of the MLP")
      ->check(CLI::Range(1, 1 << 18))
      ->capture_default_str();
  c->add_option("--heads", args->options.heads, "Layer: query heads")
      ->check(CLI::Range(1, 1 << 12))
      ->capture_default_str();
  c->add_option("--kv-heads", args->options.kv_heads, "Layer: key and value heads")
      ->check(CLI::Range(1, 1 << 12))
      ->capture_default_str();
  c->add_option("--json", args->json, "Write machine, commit, command and rows to this file");
  c->footer(
      "Libraries are opened at run time: OpenBLAS, MKL, oneDNN 3 by their usual names, or by paths in "
      "CODA_BENCH_LIBRARIES (colon separated; PyTorch's libtorch_cpu.so works as oneDNN).");
  c->callback([args, command] { run(*args, command); });
}

}  // namespace coda::cli
