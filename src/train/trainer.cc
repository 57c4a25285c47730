// The training loop; see trainer.h.
#include "train/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/hash.h"
#include "coda/error.h"
#include "model/llama_plan.h"
#include "train/curve.h"
#include "train/progress.h"

namespace coda {
namespace {

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }
constexpr int kMaxSkipped = 20;  // steps in a row whose gradient was not finite

// Normal numbers of our own making: std's distributions differ between libraries.
std::vector<float> normal_numbers(std::int64_t count, double deviation, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  auto uniform = [&] { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; };
  std::vector<float> x(idx(count));
  for (float& v : x) {
    double radius = std::sqrt(-2 * std::log(uniform()));
    v = static_cast<float>(deviation * radius * std::cos(6.283185307179586 * uniform()));
  }
  return x;
}

TrainOptions completed(TrainOptions o, const TokenData& data) {
  if (o.model.vocab == 0) o.model.vocab = data.vocab();
  if (o.model.context == 0) o.model.context = o.data.sequence;
  if (o.model.vocab < data.vocab())
    throw Error({"vocab", std::to_string(o.model.vocab), fmt::format("at least the data's {}", data.vocab()), ""});
  check_llama(o.model);
  return o;
}

}  // namespace

void TrainOptions::check() const {
  auto range = [](const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least) throw Error({name, std::to_string(value), fmt::format("at least {}", least), ""});
    if (value > most) throw Error({name, std::to_string(value), fmt::format("at most {}", most), ""});
  };
  // The upper bounds are far above any model and keep every product of sizes within 64 bits.
  constexpr std::int64_t kWidest = std::int64_t{1} << 20, kMany = std::int64_t{1} << 30;
  range("layers", model.layers, 1, 10000);
  range("dim", model.dim, 1, kWidest);
  range("ff", model.ff, 1, kWidest);
  range("heads", model.heads, 1, kWidest);
  range("head_dim", model.head_dim, 2, kWidest);
  range("sequence length", data.sequence, 1, kMany);
  range("batch", batch, 1, kMany / data.sequence);
  range("steps", steps, 1, std::int64_t{1} << 40);
  range("eval-every", eval_every, 1, std::int64_t{1} << 40);
  range("eval-batches", eval_batches, 1, kMany);
  range("save-every", save_every, 1, std::int64_t{1} << 40);
  adamw.check();
  Schedule{learning_rate, learning_rate_floor, std::min(warmup, steps), steps}.check();
}

std::string TrainOptions::json() const {
  nlohmann::json j = {{"text", data.path},
                      {"sequence", data.sequence},
                      {"data_vocab", data.vocab},
                      {"id_bytes", data.id_bytes},
                      {"allow_binary", data.allow_binary},
                      {"validation", data.validation},
                      {"layers", model.layers},
                      {"dim", model.dim},
                      {"ff", model.ff},
                      {"heads", model.heads},
                      {"kv_heads", model.kv_heads},
                      {"head_dim", model.head_dim},
                      {"vocab", model.vocab},
                      {"context", model.context},
                      {"tied", model.tied},
                      {"eps", model.eps},
                      {"rope_base", model.rope_base},
                      {"storage", std::string(name(model.storage))},
                      {"head_chunk", model.head_chunk},
                      {"beta1", adamw.beta1},
                      {"beta2", adamw.beta2},
                      {"epsilon", adamw.epsilon},
                      {"weight_decay", adamw.weight_decay},
                      {"clip_norm", adamw.clip_norm},
                      {"learning_rate", learning_rate},
                      {"learning_rate_floor", learning_rate_floor},
                      {"warmup", warmup},
                      {"steps", steps},
                      {"batch", batch},
                      {"seed", seed},
                      {"eval_every", eval_every},
                      {"eval_batches", eval_batches},
                      {"save_every", save_every}};
  return j.dump();
}

TrainOptions train_options(const std::string& text) {
  TrainOptions o;
  try {
    nlohmann::json j = nlohmann::json::parse(text);
    j.at("text").get_to(o.data.path), j.at("sequence").get_to(o.data.sequence), j.at("data_vocab").get_to(o.data.vocab);
    j.at("id_bytes").get_to(o.data.id_bytes), j.at("allow_binary").get_to(o.data.allow_binary),
        j.at("validation").get_to(o.data.validation);
    j.at("layers").get_to(o.model.layers), j.at("dim").get_to(o.model.dim), j.at("ff").get_to(o.model.ff);
    j.at("heads").get_to(o.model.heads), j.at("kv_heads").get_to(o.model.kv_heads),
        j.at("head_dim").get_to(o.model.head_dim);
    j.at("vocab").get_to(o.model.vocab), j.at("context").get_to(o.model.context), j.at("tied").get_to(o.model.tied);
    j.at("eps").get_to(o.model.eps), j.at("rope_base").get_to(o.model.rope_base),
        j.at("head_chunk").get_to(o.model.head_chunk);
    o.model.storage = parse_dtype(j.at("storage").get<std::string>());
    j.at("beta1").get_to(o.adamw.beta1), j.at("beta2").get_to(o.adamw.beta2), j.at("epsilon").get_to(o.adamw.epsilon);
    j.at("weight_decay").get_to(o.adamw.weight_decay), j.at("clip_norm").get_to(o.adamw.clip_norm);
    j.at("learning_rate").get_to(o.learning_rate), j.at("learning_rate_floor").get_to(o.learning_rate_floor);
    j.at("warmup").get_to(o.warmup), j.at("steps").get_to(o.steps), j.at("batch").get_to(o.batch),
        j.at("seed").get_to(o.seed);
    j.at("eval_every").get_to(o.eval_every), j.at("eval_batches").get_to(o.eval_batches),
        j.at("save_every").get_to(o.save_every);
  } catch (const nlohmann::json::exception& e) {
    throw Error({"options of the saved run", e.what(), "the text that `coda train` saved",
                 "The checkpoint is damaged or of another version."});
  }
  return o;
}

struct Trainer::Impl {
  Impl(const TrainOptions& given, Backend& backend, ThreadPool& p)
      : data(checked(given).data), data_hash(hash_of(data)), options(completed(given, data)), pool(p) {
    check_directory();
    schedule = {options.learning_rate, options.learning_rate_floor, std::min(options.warmup, options.steps),
                options.steps};
    tokens = options.batch * options.data.sequence;
    Sizes sizes = llama_sizes(options.model, options.batch, options.data.sequence);
    make_parameters(sizes);
    training = backend.prepare(llama_forward_backward(options.model, true), sizes);
    evaluation = backend.prepare(llama_forward(options.model), sizes);
    ids.resize(idx(tokens));
    targets.resize(idx(tokens));
    loss.resize(idx(tokens));
    dloss.resize(idx(tokens));
    positions = rope_positions(options.batch, options.data.sequence);
    rope = rope_tables(options.model);
    if (options.resume) {
      state = load_checkpoint(checkpoint_path(), checkpoint_tensors());
      check_same_data();
    }
    if (state.step > options.steps)
      throw Error(
          {"steps", std::to_string(options.steps), fmt::format("at least the {} that are done", state.step), ""});
    adamw->write_copies(pool);
    make_directory();  // last: a run that can't start leaves nothing behind
  }

  static const TrainOptions& checked(const TrainOptions& o) {
    o.check();
    return o;
  }

  std::string checkpoint_path() const {
    return (std::filesystem::path(options.out) / "checkpoint.safetensors").string();
  }
  std::string curve_path() const { return (std::filesystem::path(options.out) / "loss.svg").string(); }

  void check_directory() const {
    std::error_code unreadable;  // make_directory will say so
    bool exists = std::filesystem::exists(checkpoint_path(), unreadable);
    if (options.resume && !exists)
      throw Error({"resume", "no " + checkpoint_path(), "the directory of an earlier run", "Start without --resume."});
    if (!options.resume && exists)
      throw Error({"out", "'" + options.out + "', which holds the checkpoint of an earlier run", "an empty directory",
                   "Use --resume to go on with it, or another --out."});
  }

  void make_directory() const {
    std::string reason;
    try {
      std::filesystem::create_directories(options.out);
      check_writable(options.out);
      return;
    } catch (const std::filesystem::filesystem_error& e) {
      reason = e.code().message();
    } catch (const Error& e) {
      reason = e.parts().found;
    }
    throw Error({"out", fmt::format("'{}': {}", options.out, reason), "a directory that can be made or written", ""});
  }

  void make_parameters(const Sizes& sizes) {
    double residual = 1 / std::sqrt(2.0 * static_cast<double>(options.model.layers));  // of what adds to the stream
    std::vector<Parameter> list;
    for (const LlamaParameter& p : llama_parameters(options.model)) {
      std::int64_t rows = p.rows.eval(sizes), cols = p.cols.eval(sizes), count = rows * cols;
      bool adds = p.name.ends_with(".wo") || p.name.ends_with(".w2");
      names.push_back(p.name);
      shapes.push_back({rows, cols});
      weights.push_back(p.is_norm
                            ? std::vector<float>(idx(count), 1.0f)
                            : normal_numbers(count, 0.02 * (adds ? residual : 1.0), seed_of(p.name, options.seed)));
      gradients.emplace_back(idx(count), 0.0f);
      copies.emplace_back(options.model.storage == DType::kF32 ? 0 : idx(count));
      Parameter parameter;
      parameter.name = p.name;
      parameter.count = count;
      parameter.weight = weights.back().data();
      parameter.gradient = gradients.back().data();
      parameter.decay = !p.is_norm;
      parameter.copy = copies.back().empty() ? nullptr : copies.back().data();
      parameter.copy_dtype = options.model.storage;
      list.push_back(parameter);
    }
    adamw = std::make_unique<AdamW>(options.adamw, list);
  }

  std::vector<CheckpointTensor> checkpoint_tensors() {
    std::vector<CheckpointTensor> list;
    for (std::size_t i = 0; i < names.size(); ++i)
      list.push_back({names[i],
                      {shapes[i].first, shapes[i].second},
                      weights[i].data(),
                      adamw->first_moment(i).data(),
                      adamw->second_moment(i).data()});
    return list;
  }

  Bindings bindings(bool with_gradients) {
    Bindings b;
    for (std::size_t i = 0; i < names.size(); ++i) {
      auto [rows, cols] = shapes[i];
      bool narrow = !copies[i].empty();
      b[names[i]] = TensorView::matrix(narrow ? static_cast<void*>(copies[i].data()) : weights[i].data(),
                                       options.model.storage, rows, cols);
      if (with_gradients) b["grad." + names[i]] = TensorView::matrix(gradients[i].data(), DType::kF32, rows, cols);
    }
    std::int64_t half = options.model.head_dim / 2;
    b["ids"] = TensorView::matrix(ids.data(), DType::kI32, tokens, 1);
    b["targets"] = TensorView::matrix(targets.data(), DType::kI32, tokens, 1);
    b["pos"] = TensorView::matrix(positions.data(), DType::kI32, tokens, 1);
    b["cos"] = TensorView::matrix(rope.cos.data(), DType::kF32, options.model.context, half);
    b["sin"] = TensorView::matrix(rope.sin.data(), DType::kF32, options.model.context, half);
    b["loss"] = TensorView::matrix(loss.data(), DType::kF32, tokens, 1);
    if (with_gradients) b["dloss"] = TensorView::matrix(dloss.data(), DType::kF32, tokens, 1);
    return b;
  }

  double mean_loss() const {
    double sum = 0;
    for (float x : loss) sum += x;
    return sum / static_cast<double>(tokens);
  }

  // fp16 would underflow with 1/tokens in the stored gradients: there the factor is applied to the fp32 sums.
  double forward_backward() {
    bool late = options.model.storage == DType::kF16;
    float factor = 1.0f / static_cast<float>(tokens);
    std::fill(dloss.begin(), dloss.end(), late ? 1.0f : factor);
    training->run(bindings(true));
    if (late)
      pool.run(static_cast<std::int64_t>(gradients.size()), [&](std::int64_t i, int) {
        for (float& g : gradients[idx(i)]) g *= factor;
      });
    return mean_loss();
  }

  double validate() {
    std::int64_t count =
        std::min(options.eval_batches, std::max<std::int64_t>(data.validation_sequences() / options.batch, 1));
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      data.validation_batch(i, count, options.batch, ids.data(), targets.data());
      evaluation->run(bindings(false));
      sum += mean_loss();
    }
    return sum / static_cast<double>(count);
  }

  static std::string hash_of(const TokenData& data) {
    std::uint64_t h = kFnvStart;
    for (std::int64_t i = 0; i < data.size(); ++i) h = fnv1a(h, static_cast<std::uint64_t>(data.token(i)));
    return fmt::format("{:016x}", h);
  }

  void check_same_data() const {
    nlohmann::json config = nlohmann::json::parse(state.config, nullptr, false);
    if (config.is_object() && config.contains("data_hash") && config["data_hash"] != data_hash)
      throw Error({"resume", "'" + options.data.path + "', which is not the data the run was started with",
                   "the same file, unchanged", "Restore it, or start anew with another --out."});
  }

  void save() {
    nlohmann::json config = nlohmann::json::parse(options.json());
    config["data_hash"] = data_hash;
    config["configuration"] = training->configuration();  // which kernels and tiles: what the bits depend on
    state.config = config.dump();
    save_checkpoint(checkpoint_path(), checkpoint_tensors(), state);
    bool bytes = !options.data.path.ends_with(".bin");
    write_curve(curve_path(), {fmt::format("Llama, {} layers of {}, {}", options.model.layers, options.model.dim,
                                           std::filesystem::path(options.data.path).filename().string()),
                               bytes ? "loss, nats per byte" : "loss, nats per token", state.train, state.validation});
  }

  void evaluate(Progress& progress) {
    double v = validate();
    if (!std::isfinite(v)) diverged(v);
    state.validation.push_back({state.step, static_cast<float>(v)});
    progress.note(fmt::format("step {}: validation loss {:.4f}", state.step, v));
  }

  [[noreturn]] void diverged(double mean) const {
    std::string saved =
        std::filesystem::exists(checkpoint_path()) ? checkpoint_path() + " is as last saved." : "Nothing was saved.";
    throw Error({"training", fmt::format("a loss of {} at step {}", mean, state.step + 1), "finite losses",
                 "Lower --lr. " + saved});
  }

  TrainReport run(const std::atomic<bool>& stop) {
    ProgressOptions how;
    how.total_steps = options.steps;
    how.first_step = state.step;
    how.tokens_per_step = tokens;
    Progress progress(how);
    if (state.validation.empty()) evaluate(progress);
    int skipped = 0;
    while (state.step < options.steps && !stop) {
      data.train_batch(options.seed, state.step, options.batch, ids.data(), targets.data());
      double mean = forward_backward();
      if (!std::isfinite(mean)) diverged(mean);
      StepReport report = adamw->step(state.step + 1, schedule.rate(state.step), pool);
      skipped = report.applied ? 0 : skipped + 1;
      if (skipped == kMaxSkipped)
        throw Error({"training", fmt::format("{} steps in a row whose gradient is not finite", kMaxSkipped),
                     "finite gradients",
                     "Lower --lr, or use --dtype bf16 or f32. " + checkpoint_path() + " is as last saved."});
      state.train.push_back({++state.step, static_cast<float>(mean)});
      progress.update(state.step, mean);
      if (state.step % options.eval_every == 0 || state.step == options.steps) evaluate(progress);
      if (state.step % options.save_every == 0 && state.step != options.steps) save();
    }
    save();
    progress.finish();
    TrainReport r;
    r.steps = state.step;
    r.interrupted = state.step < options.steps;
    r.train_loss = state.train.empty() ? 0 : static_cast<double>(state.train.back().loss);
    r.validation_loss = state.validation.empty() ? 0 : static_cast<double>(state.validation.back().loss);
    r.tokens_per_second = progress.tokens_per_second();
    r.checkpoint = checkpoint_path();
    r.curve = curve_path();
    r.train = state.train;
    r.validation = state.validation;
    return r;
  }

  TokenData data;
  std::string data_hash;  // of every token: a resumed run must go on with the same data
  TrainOptions options;
  ThreadPool& pool;
  Schedule schedule;
  std::int64_t tokens = 0;
  std::vector<std::string> names;
  std::vector<std::pair<std::int64_t, std::int64_t>> shapes;
  std::vector<std::vector<float>> weights, gradients;
  std::vector<std::vector<std::uint16_t>> copies;  // of the weights in the storage dtype; empty for f32
  std::vector<std::int32_t> ids, targets, positions;
  std::vector<float> loss, dloss;
  RopeTables rope;
  std::unique_ptr<AdamW> adamw;
  std::unique_ptr<Executable> training, evaluation;
  CheckpointState state;
};

Trainer::Trainer(const TrainOptions& options, Backend& backend, ThreadPool& pool)
    : impl_(std::make_unique<Impl>(options, backend, pool)) {}
Trainer::~Trainer() = default;
TrainReport Trainer::run(const std::atomic<bool>& stop) { return impl_->run(stop); }

std::vector<std::vector<float>>& Trainer::weights() { return impl_->weights; }

double Trainer::loss_and_gradients(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& targets,
                                   std::vector<std::vector<float>>& gradients) {
  if (ids.size() != impl_->ids.size() || targets.size() != impl_->targets.size())
    throw Error({"ids", fmt::format("{} tokens", ids.size()), fmt::format("{}", impl_->ids.size()), ""});
  impl_->ids = ids;
  impl_->targets = targets;
  impl_->adamw->write_copies(impl_->pool);
  double loss = impl_->forward_backward();
  gradients = impl_->gradients;
  return loss;
}

}  // namespace coda
