// `coda train`: a Llama on a text, from scratch or resumed.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "coda/cpu.h"
#include "coda/error.h"
#include "commands.h"
#include "options.h"
#include "train/trainer.h"

namespace coda::cli {
namespace {

std::atomic<bool> stop_requested{false};

// The first Ctrl-C asks the loop to save and stop; the second ends the process.
void on_interrupt(int) {
  stop_requested = true;
  std::signal(SIGINT, SIG_DFL);
}

struct TrainArgs {
  TrainOptions o;
  std::string text, bin, dtype = "f32", json;
  int threads = 0;
  std::int64_t ff = 0, kv_heads = 0;
};

// Options of a resumed run are those it was started with; what is given again must agree, but for these.
void take_saved(CLI::App& c, TrainArgs& args) {
  std::string path = (std::filesystem::path(args.o.out) / "checkpoint.safetensors").string();
  if (!std::filesystem::exists(path))
    throw Error({"--resume", "no " + path, "the directory of an earlier run as --out", "Start without --resume."});
  TrainOptions saved = train_options(read_checkpoint_state(path).config);
  nlohmann::json was = nlohmann::json::parse(saved.json()), now = nlohmann::json::parse(args.o.json());
  const std::map<std::string, std::string> same = {
      {"--text", "text"},        {"--bin", "text"},      {"--seq", "sequence"},     {"--layers", "layers"},
      {"--dim", "dim"},          {"--ff", "ff"},         {"--heads", "heads"},      {"--kv-heads", "kv_heads"},
      {"--batch", "batch"},      {"--seed", "seed"},     {"--dtype", "storage"},    {"--tied", "tied"},
      {"--lr", "learning_rate"}, {"--warmup", "warmup"}, {"--vocab", "data_vocab"}, {"--weight-decay", "weight_decay"},
      {"--clip", "clip_norm"}};
  for (const auto& [option, key] : same)
    if (c.count(option) > 0 && was.at(key) != now.at(key))
      throw Error({option, now.at(key).dump(),
                   was.at(key).dump() + ", as the run in " + args.o.out + " was started with",
                   "Leave it out to go on, or choose another --out to start anew."});
  // What changes no loss may change; so may the number of steps.
  if (c.count("--steps") > 0) saved.steps = args.o.steps;
  if (c.count("--eval-every") > 0) saved.eval_every = args.o.eval_every;
  if (c.count("--eval-batches") > 0) saved.eval_batches = args.o.eval_batches;
  if (c.count("--save-every") > 0) saved.save_every = args.o.save_every;
  saved.out = args.o.out;
  saved.resume = true;
  args.o = saved;
}

void run(CLI::App& c, TrainArgs& args) {
  check_json_path(args.json);
  if (!args.text.empty() && !args.bin.empty()) throw Error({"--bin", "given beside --text", "one of them", ""});
  if (args.text.empty() && args.bin.empty() && !args.o.resume)
    throw Error({"--text", "not given", "a text file, or token ids by --bin FILE.bin", ""});
  args.o.data.path = args.text.empty() ? args.bin : args.text;
  if (!args.bin.empty() && !args.bin.ends_with(".bin"))
    throw Error({"--bin", "'" + args.bin + "'", "a file whose name ends in .bin", "Rename it, or use --text."});
  LlamaConfig& m = args.o.model;
  m.storage = parse_dtype(args.dtype);
  m.kv_heads = args.kv_heads == 0 ? m.heads : args.kv_heads;
  m.ff = args.ff == 0 ? (std::clamp<std::int64_t>(m.dim, 0, 1 << 30) * 8 / 3 + 31) / 32 * 32 : args.ff;
  m.vocab = m.context = 0;
  if (args.o.resume) {
    take_saved(c, args);
  } else {
    if (m.heads < 1 || m.dim % m.heads != 0)
      throw Error({"--heads", std::to_string(m.heads), fmt::format("a divisor of --dim {}", m.dim), ""});
    m.head_dim = m.dim / m.heads;
  }
  CpuOptions cpu;
  cpu.threads = args.threads;
  std::unique_ptr<Backend> backend = make_cpu_backend(cpu);
  ThreadPool pool(args.threads == 0 ? default_thread_count() : args.threads);
  Trainer trainer(args.o, *backend, pool);
  stop_requested = false;
  std::signal(SIGINT, on_interrupt);
  TrainReport r = trainer.run(stop_requested);
  std::signal(SIGINT, SIG_DFL);
  if (!args.json.empty())
    write_json(args.json, {{"steps", r.steps},
                           {"interrupted", r.interrupted},
                           {"train_loss", r.train_loss},
                           {"validation_loss", r.validation_loss},
                           {"tokens_per_second", r.tokens_per_second},
                           {"checkpoint", r.checkpoint},
                           {"curve", r.curve}});
  if (r.interrupted) {
    fmt::print("stopped after step {} of {}; saved {}\nresume with: coda train --resume --out {}\n", r.steps,
               args.o.steps, r.checkpoint, shell_word(args.o.out));
    throw ExitCode{130};
  }
  fmt::print(
      "trained {} steps; training loss {:.4f}, validation loss {:.4f} nats per token\ncheckpoint: {}\nloss curve: {}\n",
      r.steps, r.train_loss, r.validation_loss, r.checkpoint, r.curve);
}

}  // namespace

void add_train(CLI::App& app) {
  auto args = std::make_shared<TrainArgs>();
  TrainOptions& o = args->o;
  CLI::App* c = app.add_subcommand("train", "Train a Llama (RMSNorm, RoPE, SwiGLU, grouped-query attention) on a text");
  c->add_option("--text", args->text, "Any text file; its bytes are the tokens");
  c->add_option("--bin", args->bin, "Token ids instead: a .bin file of 16- or 32-bit little-endian numbers");
  c->add_option("--vocab", o.data.vocab,
                "Vocabulary of --bin (default: its largest id + 1; above 65536 ids are 32 bits wide)");
  c->add_flag("--allow-binary", o.data.allow_binary, "Let --text contain NUL bytes");
  c->add_option("--out", o.out, "Directory for the checkpoint and the loss curve")->capture_default_str();
  c->add_flag("--resume", o.resume, "Go on with the run in --out: same losses as if it had never stopped");
  c->add_option("--steps", o.steps, "Optimiser steps in all")->capture_default_str();
  c->add_option("--batch", o.batch, "Sequences a step")->capture_default_str();
  c->add_option("--seq", o.data.sequence, "Tokens a sequence")->capture_default_str();
  c->add_option("--layers", o.model.layers, "Layers")->capture_default_str();
  c->add_option("--dim", o.model.dim, "Width of the residual stream")->capture_default_str();
  c->add_option("--heads", o.model.heads, "Query heads")->capture_default_str();
  c->add_option("--kv-heads", args->kv_heads, "Key and value heads (default: as many as query heads)");
  c->add_option("--ff", args->ff, "Width of the gated unit (default: 8/3 of --dim, rounded up to 32)");
  c->add_flag("--tied", o.model.tied, "The head is the embedding");
  c->add_option("--dtype", args->dtype, "Storage of weights and activations (optimiser state is always f32)")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  c->add_option("--lr", o.learning_rate, "Peak learning rate")->capture_default_str();
  c->add_option("--warmup", o.warmup, "Steps of linear warm-up; cosine decay follows")->capture_default_str();
  c->add_option("--weight-decay", o.adamw.weight_decay, "AdamW's decoupled decay (matrices only)")
      ->capture_default_str();
  c->add_option("--clip", o.adamw.clip_norm, "Clip the gradient to this global norm; 0: never")->capture_default_str();
  c->add_option("--eval-every", o.eval_every, "Steps between validation losses")->capture_default_str();
  c->add_option("--eval-batches", o.eval_batches, "Batches of a validation loss")->capture_default_str();
  c->add_option("--save-every", o.save_every, "Steps between checkpoints")->capture_default_str();
  c->add_option("--seed", o.seed, "Seed of initial weights and batches")->capture_default_str();
  c->add_option("--threads", args->threads, "Threads (0: CODA_THREADS, else all cores)")->capture_default_str();
  c->add_option("--json", args->json, "Write a summary to this file");
  c->footer("Ctrl-C saves and says how to resume.");
  c->callback([args, c] { run(*c, *args); });
}

}  // namespace coda::cli
