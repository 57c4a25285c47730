// The trainer on the CPU backend: the whole model's gradients against the fp64 model of reference_llama.h (itself
// compared with finite differences in llama_plan_test.cc), stopping and resuming bit for bit, and the mistakes a run
// can be started with.
#include "train/trainer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "check_error.h"
#include "coda/cpu.h"
#include "model/llama_plan.h"
#include "programs_data.h"
#include "reference_llama.h"
#include "temp_dir.h"

using namespace coda;

namespace {

std::unique_ptr<Backend> cpu_backend(int threads = 1) {
  CpuOptions o;
  o.threads = threads;
  return make_cpu_backend(o);
}

std::string verses(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += "And the " + std::to_string(i * i % 97) + " sons of the land went out to the river, and it was so.\n";
  return text;
}

// Grouped queries, odd widths, sequences that are no multiple of anything, chunks of the head with a tail.
TrainOptions small_run(const TempDir& dir) {
  TrainOptions o;
  o.data.path = dir / "text.txt";
  if (!std::filesystem::exists(o.data.path)) write_file(o.data.path, verses(120));
  o.data.sequence = 13;
  o.model.layers = 2;
  o.model.dim = 20;
  o.model.ff = 27;
  o.model.heads = 4;
  o.model.kv_heads = 2;
  o.model.head_dim = 6;
  o.model.vocab = o.model.context = 0;
  o.model.head_chunk = 10;
  o.model.storage = DType::kF32;
  o.batch = 3;
  o.steps = 7;
  o.warmup = 2;
  o.eval_every = 3;
  o.eval_batches = 2;
  o.save_every = 100;
  o.out = dir / "out";
  return o;
}

const std::atomic<bool> kGoOn{false};

// A backend whose training step (the plan that Trainer prepares first) is followed by `after(steps so far, bindings)`.
class Watched : public Backend {
 public:
  using After = std::function<void(int, const Bindings&)>;
  Watched(Backend& inner, After after) : inner_(inner), after_(std::move(after)) {}
  std::string name() const override { return inner_.name(); }
  std::unique_ptr<Executable> prepare(const Plan& plan, const Sizes& sizes) override {
    bool first = !std::exchange(prepared_, true);
    return std::make_unique<Step>(inner_.prepare(plan, sizes), first ? after_ : After());
  }

 private:
  struct Step : Executable {
    Step(std::unique_ptr<Executable> step, After then) : inner(std::move(step)), after(std::move(then)) {}
    void run(const Bindings& bindings) override {
      inner->run(bindings);
      if (after) after(++runs, bindings);
    }
    void poison() override { inner->poison(); }
    std::string configuration() const override { return inner->configuration(); }
    std::unique_ptr<Executable> inner;
    After after;
    int runs = 0;
  };
  Backend& inner_;
  After after_;
  bool prepared_ = false;
};

// --- gradients -------------------------------------------------------------------------------------------------

struct GradientCase {
  LlamaConfig model;
  std::int64_t batch = 0, sequence = 0;
  std::vector<std::string> names;
  Arrays parameters;  // as the backend sees them: rounded to storage
  std::vector<std::int32_t> ids, targets;
  double loss = 0;
  std::vector<std::vector<float>> gradients;

  reference::LlamaRun reference(DType rounded_to = DType::kI32) const {
    reference::LlamaNumbers n{
        model.layers, model.heads, model.kv_heads, model.head_dim,  batch,
        sequence,     model.tied,  model.eps,      model.rope_base, static_cast<double>(model.ignore),
        rounded_to};
    auto tokens = static_cast<std::int64_t>(ids.size());
    Array i(tokens, 1, 1), t(tokens, 1, 1), dloss(tokens, 1, 1, 1.0 / static_cast<double>(tokens));
    for (std::size_t k = 0; k < ids.size(); ++k) i.data[k] = ids[k], t.data[k] = targets[k];
    return reference::llama(parameters, i, t, dloss, n);
  }
};

GradientCase run_gradients(const std::function<void(TrainOptions&)>& change, int threads = 1) {
  TempDir dir;
  TrainOptions o = small_run(dir);
  change(o);
  auto backend = cpu_backend(threads);
  ThreadPool pool(threads);
  Trainer trainer(o, *backend, pool);
  GradientCase r;
  r.model = o.model;
  r.model.vocab = 256;
  r.model.context = o.data.sequence;
  r.batch = o.batch;
  r.sequence = o.data.sequence;
  Sizes sizes = llama_sizes(r.model, r.batch, r.sequence);
  std::size_t number = 0;
  for (const LlamaParameter& p : llama_parameters(r.model)) {
    // Weights far from their start, where no term is too small to be seen.
    std::vector<float>& w = trainer.weights().at(number++);
    Array a = programs::random(p.name, p.rows.eval(sizes), p.cols.eval(sizes));
    REQUIRE(a.data.size() == w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      a.data[i] = p.is_norm ? 1 + a.data[i] / 4 : a.data[i] / 3;
      w[i] = static_cast<float>(a.data[i]);
      a.data[i] = round_to(r.model.storage, static_cast<double>(w[i]));
    }
    r.names.push_back(p.name);
    r.parameters[p.name] = a;
  }
  REQUIRE(number == trainer.weights().size());
  for (int i = 0; i < r.batch * r.sequence; ++i) {
    r.ids.push_back(i * 37 % 251);
    r.targets.push_back(i * 11 % 256);
  }
  r.targets[5] = static_cast<std::int32_t>(r.model.ignore);
  r.loss = trainer.loss_and_gradients(r.ids, r.targets, r.gradients);
  return r;
}

double mean(const Array& a) {
  double sum = 0;
  for (double x : a.data) sum += x;
  return sum / static_cast<double>(a.data.size());
}

double distance(const std::vector<float>& found, const Array& expected) {
  double sum = 0;
  for (std::size_t i = 0; i < found.size(); ++i) sum += std::pow(static_cast<double>(found[i]) - expected.data[i], 2);
  return std::sqrt(sum);
}

double distance(const Array& found, const Array& expected) {
  double sum = 0;
  for (std::size_t i = 0; i < found.data.size(); ++i) sum += std::pow(found.data[i] - expected.data[i], 2);
  return std::sqrt(sum);
}

double norm(const Array& a) { return distance(a, Array(a.rows, 1, a.width())); }

}  // namespace

TEST_CASE("f32: every parameter's gradient is the fp64 model's") {
  struct Variant {
    const char* what;
    std::function<void(TrainOptions&)> change;
  };
  const Variant variants[] = {
      {"untied, grouped queries, head in chunks with a tail", [](TrainOptions&) {}},
      {"tied", [](TrainOptions& o) { o.model.tied = true; }},
      {"tied, head in one chunk", [](TrainOptions& o) { o.model.tied = true, o.model.head_chunk = 0; }},
      {"one layer, as many heads as queries, batch 1",
       [](TrainOptions& o) { o.model.layers = 1, o.model.kv_heads = 4, o.batch = 1; }},
      {"three layers, one key head, more rows than a tile",
       [](TrainOptions& o) {
         o.model.layers = 3, o.model.kv_heads = 1, o.model.dim = 68, o.model.ff = 130, o.data.sequence = 70,
         o.model.head_chunk = 64;
       }},
  };
  for (const Variant& v : variants)
    for (int threads : {1, 2}) {
      CAPTURE(v.what);
      GradientCase r = run_gradients(v.change, threads);
      reference::LlamaRun expected = r.reference();
      CHECK(r.loss == doctest::Approx(mean(expected.loss)).epsilon(1e-6));
      for (std::size_t i = 0; i < r.names.size(); ++i) {
        const Array& e = expected.gradient.at(r.names[i]);
        double largest = 0, worst = 0;
        for (std::size_t k = 0; k < e.data.size(); ++k) {
          largest = std::max(largest, std::fabs(e.data[k]));
          worst = std::max(worst, std::fabs(static_cast<double>(r.gradients[i][k]) - e.data[k]));
        }
        CAPTURE(r.names[i]);
        CHECK(largest > 1e-6);
        CHECK(worst <= 2e-5 * largest);
      }
    }
}

// The yardstick: the same model whose every operator is computed exactly and rounded once to storage, forward and
// backward, as an eager framework leaves its results in memory. Fusing rounds less, so it must not be worse.
TEST_CASE("bf16 and f16: gradients no farther from fp64 than one operator at a time") {
  for (DType storage : {DType::kBF16, DType::kF16})
    for (bool tied : {false, true}) {
      GradientCase r = run_gradients([&](TrainOptions& o) { o.model.storage = storage, o.model.tied = tied; });
      reference::LlamaRun exact = r.reference(), eager = r.reference(storage);
      CHECK(r.loss == doctest::Approx(mean(exact.loss)).epsilon(storage == DType::kBF16 ? 1e-2 : 2e-3));
      double all = 0, all_eager = 0, relative = 0;
      for (std::size_t i = 0; i < r.names.size(); ++i) {
        const Array& e = exact.gradient.at(r.names[i]);
        double ours = distance(r.gradients[i], e), theirs = distance(eager.gradient.at(r.names[i]), e);
        CAPTURE(name(storage));
        CAPTURE(r.names[i]);
        // A single small tensor may be unlucky; a wrong term is off by its own size.
        CHECK(ours <= 1.5 * theirs);
        all += ours * ours / (norm(e) * norm(e)), all_eager += theirs * theirs / (norm(e) * norm(e));
        relative = std::max(relative, ours / norm(e));
      }
      CHECK(all <= all_eager);
      CHECK(relative > 1e-5);  // it did round
      CHECK(relative < (storage == DType::kBF16 ? 0.1 : 0.0125));
    }
}

TEST_CASE("a batch of the wrong length is refused") {
  TempDir dir;
  auto backend = cpu_backend();
  ThreadPool pool(1);
  Trainer trainer(small_run(dir), *backend, pool);
  std::vector<std::vector<float>> gradients;
  check_error("ids", "5 tokens", [&] { trainer.loss_and_gradients({1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, gradients); });
}

// --- runs ------------------------------------------------------------------------------------------------------

namespace {

struct Finished {
  TrainReport report;
  std::vector<std::vector<float>> weights;
};

Finished train(const TrainOptions& o, int threads = 1, const std::atomic<bool>& stop = kGoOn,
               Watched::After after = {}) {
  auto backend = cpu_backend(threads);
  Watched watched(*backend, std::move(after));
  ThreadPool pool(threads);
  Trainer trainer(o, watched, pool);
  Finished f;
  f.report = trainer.run(stop);
  f.weights = trainer.weights();
  return f;
}

Finished train_until(const TrainOptions& o, int last, int threads = 1) {
  std::atomic<bool> stop{false};
  return train(o, threads, stop, [&](int steps, const Bindings&) { stop = steps == last; });
}

bool same_points(const std::vector<LossPoint>& a, const std::vector<LossPoint>& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i)
    same = a[i].step == b[i].step && std::memcmp(&a[i].loss, &b[i].loss, sizeof a[i].loss) == 0;
  return same;
}

bool same_run(const Finished& a, const Finished& b) {
  bool same = a.weights.size() == b.weights.size() && same_points(a.report.train, b.report.train) &&
              same_points(a.report.validation, b.report.validation) && a.report.steps == b.report.steps;
  for (std::size_t i = 0; same && i < a.weights.size(); ++i) same = same_bits(a.weights[i], b.weights[i]);
  return same;
}

}  // namespace

TEST_CASE("stopped, saved and resumed: losses and weights of the run that never stopped, bit for bit") {
  for (DType storage : {DType::kF32, DType::kBF16, DType::kF16})
    for (int threads : {1, 2}) {
      CAPTURE(name(storage));
      CAPTURE(threads);
      TempDir dir;
      TrainOptions o = small_run(dir);
      o.model.storage = storage;
      Finished straight = train(o, threads);
      CHECK(straight.report.steps == 7);
      CHECK_FALSE(straight.report.interrupted);
      CHECK(straight.report.train.size() == 7);
      CHECK(straight.report.validation.size() == 4);  // before, after 3, 6 and 7
      o.out = dir / "stopped";
      Finished first = train_until(o, 4, threads);
      CHECK(first.report.interrupted);
      CHECK(first.report.steps == 4);
      CHECK(std::filesystem::exists(first.report.checkpoint));
      CHECK(std::filesystem::exists(first.report.curve));
      CHECK_FALSE(same_run(first, straight));
      o.resume = true;
      Finished second = train(o, 3 - threads);  // and the other number of threads
      CHECK_FALSE(second.report.interrupted);
      CHECK(same_run(second, straight));
      CHECK(read_file(straight.report.checkpoint).size() == read_file(second.report.checkpoint).size());
    }
}

TEST_CASE("a run is batches, gradients, schedule and AdamW, step by step") {
  for (DType storage : {DType::kF32, DType::kF16}) {
    TempDir dir;
    TrainOptions o = small_run(dir);
    o.model.storage = storage;
    Finished expected = train(o);
    o.out = dir / "by hand";
    auto backend = cpu_backend();
    ThreadPool pool(1);
    Trainer trainer(o, *backend, pool);
    TokenData data(o.data);
    Schedule schedule{o.learning_rate, o.learning_rate_floor, o.warmup, o.steps};
    LlamaConfig model = o.model;
    model.vocab = 256, model.context = o.data.sequence;
    std::vector<std::vector<float>> gradients(trainer.weights().size());
    std::vector<Parameter> list;
    std::vector<LlamaParameter> parameters = llama_parameters(model);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      std::vector<float>& w = trainer.weights()[i];
      gradients[i].resize(w.size());
      Parameter p;
      p.name = parameters[i].name;
      p.count = static_cast<std::int64_t>(w.size());
      p.weight = w.data();
      p.gradient = gradients[i].data();
      p.decay = !parameters[i].is_norm;
      list.push_back(p);
    }
    AdamW adamw(o.adamw, list);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(o.batch * o.data.sequence)), targets = ids;
    for (std::int64_t step = 0; step < o.steps; ++step) {
      data.train_batch(o.seed, step, o.batch, ids.data(), targets.data());
      std::vector<std::vector<float>> found;
      double loss = trainer.loss_and_gradients(ids, targets, found);
      CHECK(static_cast<float>(loss) == expected.report.train.at(static_cast<std::size_t>(step)).loss);
      for (std::size_t i = 0; i < found.size(); ++i) std::copy(found[i].begin(), found[i].end(), gradients[i].begin());
      adamw.step(step + 1, schedule.rate(step), pool);
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) CHECK(same_bits(trainer.weights()[i], expected.weights[i]));
  }
}

TEST_CASE("killed between saves: resuming starts at the last save and ends the same") {
  TempDir dir;
  TrainOptions o = small_run(dir);
  o.save_every = 2;
  Finished straight = train(o);
  o.out = dir / "killed";
  struct Killed {};
  CHECK_THROWS_AS(train(o, 1, kGoOn,
                        [](int steps, const Bindings&) {
                          if (steps == 6) throw Killed();
                        }),
                  Killed);
  CHECK(read_checkpoint_state((std::filesystem::path(o.out) / "checkpoint.safetensors").string()).step == 4);
  o.resume = true;
  CHECK(same_run(train(o), straight));
}

TEST_CASE("stopping before the first step saves; resuming a finished run changes nothing") {
  TempDir dir;
  TrainOptions o = small_run(dir);
  Finished straight = train(o);
  o.out = dir / "other";
  std::atomic<bool> at_once{true};
  Finished none = train(o, 1, at_once);
  CHECK(none.report.interrupted);
  CHECK(none.report.steps == 0);
  o.resume = true;
  CHECK(same_run(train(o), straight));
  CHECK(same_run(train(o), straight));
  o.seed = 2;
  o.resume = false;
  o.out = dir / "another seed";
  CHECK_FALSE(same_run(train(o), straight));
}

TEST_CASE("options survive their way through a checkpoint") {
  TempDir dir;
  TrainOptions o = small_run(dir);
  o.learning_rate = 1.0 / 3;
  o.model.storage = DType::kBF16;
  o.model.tied = true;
  o.adamw.clip_norm = 0.7;
  o.seed = 0xffffffffffffffffu;
  CHECK(train_options(o.json()).json() == o.json());
  check_error("options of the saved run", "steps", [&] {
    std::string text = o.json();
    train_options(text.replace(text.find("\"steps\""), 7, "\"stops\""));
  });
  check_error("options of the saved run", "", [] { train_options("[]"); });
}

TEST_CASE("the loss falls on a small text, in every dtype") {
  for (DType storage : {DType::kF32, DType::kBF16, DType::kF16}) {
    TempDir dir;
    TrainOptions o = small_run(dir);
    o.model.storage = storage;
    o.model.dim = 32, o.model.head_dim = 8, o.model.ff = 64;
    o.data.sequence = 32, o.batch = 4;
    o.steps = 60, o.warmup = 5, o.eval_every = 60;
    o.learning_rate = 1e-2;
    TrainReport r = train(o).report;
    CAPTURE(name(storage));
    CHECK(r.validation.front().loss == doctest::Approx(std::log(256.0)).epsilon(0.02));
    CHECK(r.validation_loss < 2.0);
    CHECK(r.train_loss < 2.0);
    CHECK(r.tokens_per_second > 0);
  }
}

TEST_CASE("gradients that are not finite: skipped, then a clear end; nothing spoilt is saved") {
  TempDir dir;
  TrainOptions o = small_run(dir);
  o.steps = 100;
  auto spoil = [](const Bindings& b) {
    static_cast<float*>(b.at("grad.norm").data)[3] = std::numeric_limits<float>::infinity();
  };
  int done = 0;
  check_error("training", "20 steps in a row", [&] {
    train(o, 1, kGoOn, [&](int steps, const Bindings& b) {
      done = steps;
      if (steps > 2) spoil(b);
    });
  });
  CHECK(done == 22);
  CHECK_FALSE(std::filesystem::exists(std::filesystem::path(o.out) / "checkpoint.safetensors"));
  o.steps = 30;
  Finished some = train(o, 1, kGoOn, [&](int steps, const Bindings& b) {
    if (steps % 2 == 0) spoil(b);
  });
  for (const auto& w : some.weights)
    for (float x : w) CHECK(std::isfinite(x));
  CHECK(some.report.train_loss < 5.4);
}

TEST_CASE("a run that diverges ends with an error and leaves the last good checkpoint") {
  TempDir dir;
  TrainOptions o = small_run(dir);
  o.steps = 5;
  o.learning_rate = 1e30;
  check_error("training", "a loss of", [&] { train(o); });
  CHECK_FALSE(std::filesystem::exists(std::filesystem::path(o.out) / "checkpoint.safetensors"));
}

TEST_CASE("resuming on other data is refused") {
  TempDir dir;
  TrainOptions o = small_run(dir);
  train(o);
  write_file(o.data.path, verses(121));
  o.resume = true;
  o.steps = 9;
  check_error("resume", "which is not the data", [&] { train(o); });
}

// --- mistakes --------------------------------------------------------------------------------------------------

namespace {

bool exists(const std::string& path) {
  std::error_code too_long;
  return std::filesystem::exists(path, too_long);
}

// Refused before anything is made or written.
void check_refused(const TempDir& dir, const TrainOptions& o, const std::string& argument, const std::string& found) {
  std::size_t files = dir.file_count();
  bool existed = exists(o.out);
  auto backend = cpu_backend();
  ThreadPool pool(1);
  check_error(argument, found, [&] { Trainer trainer(o, *backend, pool); });
  CHECK(dir.file_count() == files);
  CHECK(exists(o.out) == existed);
}

}  // namespace

TEST_CASE("options out of range") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  TempDir dir;
  auto refused = [&](const std::string& argument, const std::string& found, auto change) {
    TrainOptions o = small_run(dir);
    change(o);
    check_refused(dir, o, argument, found);
  };
  for (double rate : {kNan, kInf, 0.0, -1e-3})
    refused("learning rate", "", [&](TrainOptions& o) { o.learning_rate = rate; });
  refused("learning rate floor", "nan", [](TrainOptions& o) { o.learning_rate_floor = kNan; });
  refused("weight decay", "-1", [](TrainOptions& o) { o.adamw.weight_decay = -1; });
  refused("clip norm", "nan", [](TrainOptions& o) { o.adamw.clip_norm = kNan; });
  refused("beta2", "1", [](TrainOptions& o) { o.adamw.beta2 = 1; });
  refused("layers", "0", [](TrainOptions& o) { o.model.layers = 0; });
  refused("layers", "1000000", [](TrainOptions& o) { o.model.layers = 1000000; });
  refused("steps", "0", [](TrainOptions& o) { o.steps = 0; });
  refused("batch", "0", [](TrainOptions& o) { o.batch = 0; });
  refused("warm-up steps", "-1", [](TrainOptions& o) { o.warmup = -1; });
  refused("eval-every", "0", [](TrainOptions& o) { o.eval_every = 0; });
  refused("eval-batches", "0", [](TrainOptions& o) { o.eval_batches = 0; });
  refused("save-every", "0", [](TrainOptions& o) { o.save_every = 0; });
  refused("kv_heads", "3 for 4 heads", [](TrainOptions& o) { o.model.kv_heads = 3; });
  refused("head_dim", "7", [](TrainOptions& o) { o.model.head_dim = 7; });
  refused("dim", "0", [](TrainOptions& o) { o.model.dim = 0; });
  refused("dim", "9223372036854775807", [](TrainOptions& o) { o.model.dim = 9223372036854775807; });
  refused("batch", "4611686018427387904", [](TrainOptions& o) { o.batch = std::int64_t{1} << 62; });
  refused("storage", "i32", [](TrainOptions& o) { o.model.storage = DType::kI32; });
  refused("vocab", "100", [](TrainOptions& o) { o.model.vocab = 100; });
  refused("sequence", "13 positions", [](TrainOptions& o) { o.model.context = 12; });
  refused("sequence length", "0", [](TrainOptions& o) { o.data.sequence = 0; });
  refused(dir / "text.txt", "tokens", [](TrainOptions& o) { o.data.sequence = 100000; });
  refused(dir / "none.txt", "can't be opened", [&](TrainOptions& o) { o.data.path = dir / "none.txt"; });
}

TEST_CASE("out: a file, below a file, or a folder that nobody may write") {
  TempDir dir;
  TrainOptions o = small_run(dir);
  write_file(dir / "file", "x");
  for (const std::string& out :
       {dir / "file", dir / "file/run", std::string("/proc/no/run"), std::string(5000, 'x'), std::string()}) {
    o.out = out;
    CAPTURE(out);
    check_refused(dir, o, "out", "'" + out + "'");
  }
  CHECK(read_file(dir / "file") == "x");
}

TEST_CASE("a finished run is neither overwritten nor resumed as another") {
  TempDir dir;
  TrainOptions o = small_run(dir);
  check_error("resume", "no ", [&] {
    TrainOptions r = o;
    r.resume = true;
    train(r);
  });
  CHECK_FALSE(std::filesystem::exists(o.out));
  std::string path = train(o).report.checkpoint, saved = read_file(path);
  check_refused(dir, o, "out", "earlier run");
  o.resume = true;
  TrainOptions other = o;
  other.steps = 6;
  check_refused(dir, other, "steps", "6");
  other = o;
  other.model.ff = 28;
  check_refused(dir, other, path, "wg");
  other = o;
  other.model.layers = 3;
  check_refused(dir, other, path, "layer2");
  other.model.layers = 1;
  check_refused(dir, other, path, "layer1");
  other = o;
  other.model.tied = true;
  check_refused(dir, other, path, "head");
  CHECK(read_file(path) == saved);
  for (std::size_t size : {saved.size() - 1, saved.size() / 2, std::size_t{20}, std::size_t{0}}) {
    write_file(path, saved.substr(0, size));
    CAPTURE(size);
    check_refused(dir, o, path, "");
    CHECK(read_file(path).size() == size);
  }
}
