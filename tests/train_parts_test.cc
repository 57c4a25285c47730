// The pieces a training run is made of: data, schedule, optimiser, curve, progress (checkpoints: checkpoint_test.cc).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "check_error.h"
#include "coda/error.h"
#include "temp_dir.h"
#include "train/adamw.h"
#include "train/curve.h"
#include "train/data.h"
#include "train/progress.h"
#include "train/schedule.h"

using namespace coda;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
std::string as_bytes(const std::vector<T>& x) {
  return {reinterpret_cast<const char*>(x.data()), x.size() * sizeof(T)};
}

std::string count_to(int n) {  // bytes that tell their position modulo 251, without NUL
  std::string text;
  for (int i = 0; i < n; ++i) text += static_cast<char>(1 + i % 251);
  return text;
}

}  // namespace

// ---------------------------------------------------------------- data

TEST_CASE("text: bytes are tokens, the last tenth is for validation") {
  TempDir dir;
  write_file(dir / "t.txt", count_to(1000) + "\xff");
  TokenData data({.path = dir / "t.txt", .sequence = 20});
  CHECK(data.vocab() == 256);
  CHECK(data.size() == 1001);
  CHECK(data.train_size() == 901);
  CHECK(data.token(0) == 1);
  CHECK(data.token(1000) == 255);
}

TEST_CASE("batches are a pure function of seed and step, inside the training part, and targets follow inputs") {
  TempDir dir;
  write_file(dir / "t.txt", count_to(250));  // no position modulo 251 twice
  TokenData data({.path = dir / "t.txt", .sequence = 8}), again({.path = dir / "t.txt", .sequence = 8});
  std::vector<std::int32_t> x(4 * 8), y(4 * 8), x2(4 * 8), y2(4 * 8), other(4 * 8);
  std::set<std::int32_t> starts;
  for (std::int64_t step = 0; step < 500; ++step) {
    data.train_batch(7, step, 4, x.data(), y.data());
    for (std::size_t i = 0; i < 32; ++i) {
      CHECK(y[i] == x[i] + 1);
      if (i % 8 > 0) CHECK(x[i] == x[i - 1] + 1);
      CHECK(y[i] <= data.train_size());  // token value = position + 1
    }
    for (std::size_t row = 0; row < 4; ++row) starts.insert(x[row * 8] - 1);
  }
  CHECK(*starts.begin() == 0);
  CHECK(*starts.rbegin() == data.train_size() - 8 - 1);  // the last start whose last target is still training data
  CHECK(starts.size() == static_cast<std::size_t>(data.train_size() - 8));
  data.train_batch(7, 123, 4, x.data(), y.data());
  again.train_batch(7, 123, 4, x2.data(), y2.data());
  CHECK(x == x2);
  CHECK(y == y2);
  data.train_batch(7, 124, 4, other.data(), y2.data());
  CHECK(x != other);
  data.train_batch(8, 123, 4, other.data(), y2.data());
  CHECK(x != other);
  CHECK(std::vector(x.begin(), x.begin() + 8) != std::vector(x.begin() + 8, x.begin() + 16));
  data.train_batch(7, 123, 2, x2.data(), y2.data());  // row b does not depend on the batch size
  CHECK(std::equal(x.begin(), x.begin() + 16, x2.begin()));
}

TEST_CASE("validation batches lie in the validation part and cover it") {
  TempDir dir;
  write_file(dir / "t.txt", count_to(250));
  TokenData data({.path = dir / "t.txt", .sequence = 4, .validation = 0.2});
  CHECK(data.train_size() == 200);
  CHECK(data.validation_sequences() == 12);  // 49 inputs have a successor
  CHECK(TokenData({.path = dir / "t.txt", .sequence = 5, .validation = 0.2}).validation_sequences() == 9);
  std::vector<std::int32_t> x(3 * 4), y(3 * 4);
  std::multiset<std::int32_t> starts;
  for (std::int64_t i = 0; i < 4; ++i) {
    data.validation_batch(i, 4, 3, x.data(), y.data());
    for (std::size_t j = 0; j < 12; ++j) {
      CHECK(x[j] > 200);
      CHECK(y[j] == x[j] + 1);
      CHECK(y[j] <= 250);
    }
    for (std::size_t row = 0; row < 3; ++row) starts.insert(x[row * 4]);
  }
  CHECK(starts.size() == 12);
  CHECK(std::set(starts.begin(), starts.end()).size() == 12);  // each once
  data.validation_batch(0, 1, 3, x.data(), y.data());          // few: spread evenly
  CHECK(x[0] == 201);
  CHECK(x[4] == 201 + 16);
  CHECK(x[8] == 201 + 32);
  data.validation_batch(9, 10, 3, x.data(), y.data());  // many: some twice, none outside
  for (std::int32_t token : y) CHECK(token <= 250);
}

TEST_CASE(".bin: 16 and 32 bit ids") {
  TempDir dir;
  std::vector<std::uint16_t> narrow;
  std::vector<std::uint32_t> wide;
  for (std::uint32_t i = 0; i < 100; ++i)
    narrow.push_back(static_cast<std::uint16_t>(i * 600)), wide.push_back(i * 1000);
  write_file(dir / "n.bin", as_bytes(narrow));
  write_file(dir / "w.bin", as_bytes(wide));
  TokenData a({.path = dir / "n.bin", .sequence = 5});
  CHECK(a.size() == 100);
  CHECK(a.vocab() == 99 * 600 + 1);
  CHECK(a.token(99) == 59400);
  TokenData b({.path = dir / "w.bin", .sequence = 5, .vocab = 100000});  // a vocab beyond 16 bits tells the width
  CHECK(b.size() == 100);
  CHECK(b.vocab() == 100000);
  CHECK(b.token(99) == 99000);
  CHECK(TokenData({.path = dir / "w.bin", .sequence = 5, .id_bytes = 4}).vocab() == 99001);
  check_error(dir / "w.bin", "token id 99000 at position 99",
              [&] { TokenData({.path = dir / "w.bin", .sequence = 5, .vocab = 99000, .id_bytes = 4}); });
  check_error(dir / "n.bin", "token id 59400",
              [&] { TokenData({.path = dir / "n.bin", .sequence = 5, .vocab = 59400}); });
  write_file(dir / "odd.bin", as_bytes(narrow) + "x");
  check_error(dir / "odd.bin", "201 bytes", [&] { TokenData({.path = dir / "odd.bin", .sequence = 5}); });
  wide[3] = 0xffffffffu;
  write_file(dir / "neg.bin", as_bytes(wide));
  check_error(dir / "neg.bin", "token id 4294967295 at position 3",
              [&] { TokenData({.path = dir / "neg.bin", .sequence = 5, .id_bytes = 4}); });
}

TEST_CASE("data that can't be trained on are refused") {
  TempDir dir;
  auto load = [](DataOptions o) { return [o] { TokenData{o}; }; };
  write_file(dir / "empty.txt", "");
  check_error(dir / "empty.txt", "an empty file", load({.path = dir / "empty.txt"}));
  check_error(dir / "none.txt", "can't be opened", load({.path = dir / "none.txt"}));
  check_error(dir.path(), "a directory", load({.path = dir.path()}));
  write_file(dir / "short.txt", count_to(41));
  check_error(dir / "short.txt", "41 tokens", load({.path = dir / "short.txt", .sequence = 20}));
  write_file(dir / "enough.txt", count_to(42));
  CHECK(TokenData({.path = dir / "enough.txt", .sequence = 20}).train_size() == 21);
  write_file(dir / "b.txt", count_to(100) + std::string(1, '\0') + count_to(100));
  check_error(dir / "b.txt", "a NUL byte at offset 100", load({.path = dir / "b.txt", .sequence = 5}));
  CHECK(TokenData({.path = dir / "b.txt", .sequence = 5, .allow_binary = true}).token(100) == 0);
  try {
    TokenData({.path = dir / "b.txt", .sequence = 5});
  } catch (const Error& e) {
    CHECK(e.parts().way_out.find(".bin") != std::string::npos);
    CHECK(e.parts().way_out.find("--allow-binary") != std::string::npos);
  }
  std::string text = dir / "enough.txt";
  check_error("sequence length", "0", load({.path = text, .sequence = 0}));
  check_error("vocab", "255", load({.path = text, .sequence = 5, .vocab = 255}));
  check_error("vocab", "-1", load({.path = text, .sequence = 5, .vocab = -1}));
  check_error("bytes per token id", "3", load({.path = text, .sequence = 5, .id_bytes = 3}));
  for (double share : {0.0, 1.0, -0.5, kNan})
    check_error("validation share", "", load({.path = text, .sequence = 5, .validation = share}));
}

// ---------------------------------------------------------------- schedule

TEST_CASE("schedule: linear up, half a cosine down, then the floor") {
  Schedule s{.peak = 2, .floor = 0.1, .warmup = 10, .total = 110};
  s.check();
  CHECK(s.rate(0) == doctest::Approx(0.2));
  CHECK(s.rate(4) == doctest::Approx(1.0));
  CHECK(s.rate(9) == doctest::Approx(2.0));
  CHECK(s.rate(10) == doctest::Approx(2.0));
  CHECK(s.rate(60) == doctest::Approx(1.1));
  CHECK(s.rate(35) == doctest::Approx(0.2 + 1.8 * 0.5 * (1 + std::sqrt(0.5))));
  CHECK(s.rate(110) == doctest::Approx(0.2));
  CHECK(s.rate(100000) == doctest::Approx(0.2));
  for (std::int64_t i = 10; i < 120; ++i) CHECK(s.rate(i + 1) <= s.rate(i));
  CHECK(Schedule{.peak = 1, .warmup = 0, .total = 5}.rate(0) == doctest::Approx(1.0));
  CHECK(Schedule{.peak = 1, .warmup = 5, .total = 5}.rate(4) == doctest::Approx(1.0));
}

TEST_CASE("schedule: mistakes") {
  for (double rate : {0.0, -1e-3, kNan, kInf})
    check_error("learning rate", "", [&] { Schedule{.peak = rate}.check(); });
  for (double floor : {-0.1, 1.1, kNan})
    check_error("learning rate floor", "", [&] { Schedule{.floor = floor}.check(); });
  check_error("steps", "0", [] { Schedule{.warmup = 0, .total = 0}.check(); });
  check_error("warm-up steps", "11", [] { Schedule{.warmup = 11, .total = 10}.check(); });
  check_error("warm-up steps", "-1", [] { Schedule{.warmup = -1}.check(); });
}

// ---------------------------------------------------------------- AdamW

namespace {

struct Toy {
  std::vector<float> w1, w2, g1, g2;
  std::vector<std::uint16_t> c1, c2;
  explicit Toy(int n = 100000) : w1(n), w2(37), g1(n), g2(37), c1(n), c2(37) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (auto* x : {&w1, &w2, &g1, &g2})
      for (float& v : *x) v = normal(random);
  }
  std::vector<Parameter> parameters() {
    auto count = static_cast<std::int64_t>(w1.size());
    return {{"w", count, w1.data(), g1.data(), true, c1.data(), DType::kBF16},
            {"norm", 37, w2.data(), g2.data(), false, c2.data(), DType::kF16}};
  }
};

}  // namespace

TEST_CASE("AdamW follows its definition in fp64") {
  ThreadPool pool(2);
  for (double clip : {0.0, 1.0, 1e9}) {
    Toy toy;
    AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip_norm = clip};
    AdamW adam(options, toy.parameters());
    std::vector<double> w(toy.w1.begin(), toy.w1.end()), m(w.size()), v(w.size()), n(toy.w2.begin(), toy.w2.end()),
        mn(37), vn(37);
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0.0f, 0.01f);
    for (int t = 1; t <= 5; ++t) {
      for (float& g : toy.g1) g = normal(random);
      for (float& g : toy.g2) g = normal(random);
      double norm = 0, rate = 0.01 * t;
      for (auto* x : {&toy.g1, &toy.g2})
        for (float g : *x) norm += static_cast<double>(g) * static_cast<double>(g);
      norm = std::sqrt(norm);
      double scale = clip > 0 && norm > clip ? clip / norm : 1;
      auto reference = [&](std::vector<double>& weight, std::vector<double>& first, std::vector<double>& second,
                           const std::vector<float>& gradient, double decay) {
        for (std::size_t i = 0; i < weight.size(); ++i) {
          double g = static_cast<double>(gradient[i]) * scale;
          first[i] = 0.9 * first[i] + 0.1 * g;
          second[i] = 0.95 * second[i] + 0.05 * g * g;
          double mh = first[i] / (1 - std::pow(0.9, t)), vh = second[i] / (1 - std::pow(0.95, t));
          weight[i] -= rate * (mh / (std::sqrt(vh) + 1e-8) + decay * weight[i]);
        }
      };
      reference(w, m, v, toy.g1, 0.1);
      reference(n, mn, vn, toy.g2, 0.0);
      StepReport report = adam.step(t, rate, pool);
      CHECK(report.applied);
      CHECK(report.gradient_norm == doctest::Approx(norm).epsilon(1e-12));
    }
    double worst = 0;
    for (std::size_t i = 0; i < w.size(); ++i)
      worst = std::max(worst, std::fabs(w[i] - static_cast<double>(toy.w1[i])));
    for (std::size_t i = 0; i < n.size(); ++i)
      worst = std::max(worst, std::fabs(n[i] - static_cast<double>(toy.w2[i])));
    CHECK(worst < 5e-6);
    for (std::size_t i = 0; i < w.size(); ++i) REQUIRE(toy.c1[i] == to_bf16(toy.w1[i]).bits);
    for (std::size_t i = 0; i < n.size(); ++i) REQUIRE(toy.c2[i] == to_f16(toy.w2[i]).bits);
    CHECK(std::fabs(adam.first_moment(0)[17] - m[17]) < 1e-6);
    CHECK(std::fabs(adam.second_moment(1)[36] - vn[36]) < 1e-6);
  }
}

TEST_CASE("AdamW gives the same bits for any number of threads") {
  std::vector<float> first_weights;
  double first_norm = 0;
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    Toy toy(200001);
    AdamW adam({}, toy.parameters());
    double norm = 0;
    for (int t = 1; t <= 3; ++t) norm = adam.step(t, 1e-2, pool).gradient_norm;
    if (first_weights.empty()) first_weights = toy.w1, first_norm = norm;
    CHECK(same_bits(toy.w1, first_weights));
    CHECK(norm == first_norm);
  }
}

TEST_CASE("a gradient that is not finite changes nothing and is reported") {
  ThreadPool pool(2);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Toy toy;
    AdamW adam({}, toy.parameters());
    CHECK(adam.step(1, 1e-2, pool).applied);
    Toy before = toy;
    std::vector<float> moment(adam.first_moment(0).begin(), adam.first_moment(0).end());
    toy.g2[36] = bad;
    StepReport report = adam.step(2, 1e-2, pool);
    CHECK_FALSE(report.applied);
    CHECK_FALSE(std::isfinite(report.gradient_norm));
    CHECK(same_bits(toy.w1, before.w1));
    CHECK(same_bits(toy.w2, before.w2));
    CHECK(toy.c1 == before.c1);
    CHECK(same_bits(moment, {adam.first_moment(0).begin(), adam.first_moment(0).end()}));
  }
}

TEST_CASE("write_copies rounds the weights as they are") {
  ThreadPool pool(1);
  Toy toy(10);
  AdamW adam({}, toy.parameters());
  adam.write_copies(pool);
  for (std::size_t i = 0; i < 10; ++i) CHECK(toy.c1[i] == to_bf16(toy.w1[i]).bits);
  for (std::size_t i = 0; i < 37; ++i) CHECK(toy.c2[i] == to_f16(toy.w2[i]).bits);
}

TEST_CASE("AdamW: mistakes") {
  for (double beta : {-0.1, 1.0, 1.5, kNan}) {
    check_error("beta1", "", [&] { AdamWOptions{.beta1 = beta}.check(); });
    check_error("beta2", "", [&] { AdamWOptions{.beta2 = beta}.check(); });
  }
  for (double bad : {-1.0, kNan, kInf}) {
    check_error("weight decay", "", [&] { AdamWOptions{.weight_decay = bad}.check(); });
    check_error("clip norm", "", [&] { AdamWOptions{.clip_norm = bad}.check(); });
    check_error("epsilon", "", [&] { AdamWOptions{.epsilon = bad}.check(); });
    check_error("learning rate", "", [&] {
      Toy toy(10);
      ThreadPool pool(1);
      AdamW({}, toy.parameters()).step(1, bad, pool);
    });
  }
  check_error("epsilon", "0", [] { AdamWOptions{.epsilon = 0}.check(); });
  float x = 0;
  check_error("parameter 'w'", "no weight", [&] { AdamW({}, {{"w", 1, nullptr, &x}}); });
  check_error("parameter 'w'", "no gradient", [&] { AdamW({}, {{"w", 1, &x, nullptr}}); });
  check_error("parameter 'w'", "-1 elements", [&] { AdamW({}, {{"w", -1, &x, &x}}); });
  check_error("parameter 'w'", "twice", [&] { AdamW({}, {{"w", 1, &x, &x}, {"w", 1, &x, &x}}); });
  check_error("parameter 'w'", "f32", [&] { AdamW({}, {{"w", 1, &x, &x, true, &x, DType::kF32}}); });
}

// ---------------------------------------------------------------- curve

namespace {

// Enough of an XML parser to refuse what is not well-formed: tags nest, attributes are quoted, entities are known.
std::string xml_problem(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t i = 0; i < xml.size();) {
    if (xml[i] == '&') {
      bool known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;"})
        known = known || xml.compare(i, std::strlen(entity), entity) == 0;
      if (!known) return "bare & at " + std::to_string(i);
    }
    if (xml[i] != '<') {
      unsigned char c = static_cast<unsigned char>(xml[i]);
      if (c < 0x20 && c != '\n' && c != '\t' && c != '\r') return "control character";
      ++i;
      continue;
    }
    std::size_t end = xml.find('>', i);
    if (end == std::string::npos) return "open tag";
    std::string tag = xml.substr(i + 1, end - i - 1);
    i = end + 1;
    if (tag.empty() || tag[0] == '?') continue;
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0 || tag.find('<') != std::string::npos) return "bad tag " + tag;
    std::string name = tag.substr(0, tag.find_first_of(" /"));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return "closes " + tag;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : "never closed: " + open.back();
}

std::size_t occurrences(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("curve: a well-formed picture with both series, ticks and legend") {
  LossCurve curve{.title = "llama <5M> & \"friends\" \x01\xff", .train = {}, .validation = {}};
  for (int i = 0; i <= 1000; i += 10) curve.train.push_back({i, 1.4f + 4.1f * std::exp(static_cast<float>(-i) / 200)});
  curve.validation = {{0, 5.5f}, {500, 2.25f}, {1000, 1.75f}};
  std::string svg = curve_svg(curve);
  CHECK(xml_problem(svg) == "");
  CHECK(occurrences(svg, "<polyline") == 2);
  CHECK(occurrences(svg, "<circle") == 3);
  CHECK(svg.find("llama &lt;5M&gt; &amp; &quot;friends&quot; ��") != std::string::npos);
  CHECK(svg.find(">validation, last 1.7500<") != std::string::npos);
  CHECK(svg.find(">train, last 1.4") != std::string::npos);
  for (const char* tick : {">0<", ">200<", ">1000<", ">1<", ">3<", ">6<"})
    CHECK_MESSAGE(svg.find(tick) != std::string::npos, tick);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
}

TEST_CASE("curve: nothing, one point, equal losses, NaN") {
  float nan = std::numeric_limits<float>::quiet_NaN();
  for (std::vector<LossPoint> points :
       {std::vector<LossPoint>{}, {{3, 2.0f}}, {{0, 2.0f}, {1, 2.0f}}, {{0, nan}, {1, nan}}}) {
    std::string svg = curve_svg({.title = "t", .train = points, .validation = {}});
    CHECK(xml_problem(svg) == "");
    CHECK(svg.find("nan") == std::string::npos);
    CHECK(svg.find("inf") == std::string::npos);
  }
  std::string svg =
      curve_svg({.title = "t", .train = {{0, 3.0f}, {1, 2.5f}, {2, nan}, {3, 2.0f}, {4, 1.5f}}, .validation = {}});
  CHECK(occurrences(svg, "<polyline") == 2);  // a gap, not a line across it
}

TEST_CASE("curve: written whole or not at all") {
  TempDir dir;
  write_curve(dir / "c.svg", {.title = "t", .train = {{0, 1.0f}}, .validation = {}});
  CHECK(read_file(dir / "c.svg").ends_with("</svg>\n"));
  CHECK(dir.file_count() == 1);
  CHECK_THROWS_AS(write_curve(dir / "no/c.svg", {}), Error);
}

// ---------------------------------------------------------------- progress

TEST_CASE("durations") {
  CHECK(format_duration(0) == "0 s");
  CHECK(format_duration(59.4) == "59 s");
  CHECK(format_duration(59.6) == "1 min 00 s");
  CHECK(format_duration(185) == "3 min 05 s");
  CHECK(format_duration(7620) == "2 h 07 min");
  CHECK(format_duration(kNan) == "?");
}

TEST_CASE("progress without a terminal: a line every interval, with rate and time left") {
  std::string out;
  double now = 100;
  Progress progress({.total_steps = 100,
                     .tokens_per_step = 1000,
                     .plain_interval = 10,
                     .write = [&](std::string_view s) { out += s; },
                     .terminal = false,
                     .columns = 80,
                     .clock = [&] { return now; }});
  for (int step = 1; step <= 50; ++step) {
    now += 0.5;
    progress.update(step, 5.0 - step * 0.01);
  }
  CHECK(progress.tokens_per_second() == doctest::Approx(2000));
  CHECK(occurrences(out, "\n") == 3);  // steps 1, 21, 41
  CHECK(out.find("1/100  loss 4.9900  2.0k tok/s  50 s left\n") != std::string::npos);
  CHECK(out.find("41/100  loss 4.5900  2.0k tok/s  30 s left\n") != std::string::npos);
  CHECK(out.find('\r') == std::string::npos);
  CHECK(out.find('\x1b') == std::string::npos);
  out.clear();
  progress.note("validation loss 4.2");
  CHECK(out == "validation loss 4.2\n");
  out.clear();
  progress.finish();
  CHECK(out == "50/100  loss 4.5000  2.0k tok/s  25 s left\n");
}

TEST_CASE("progress on a terminal: one line that redraws itself and fits") {
  for (int columns : {120, 80, 40, 10}) {
    std::string out;
    double now = 0;
    Progress progress({.total_steps = 40,
                       .first_step = 20,
                       .tokens_per_step = 8,
                       .write = [&](std::string_view s) { out += s; },
                       .terminal = true,
                       .columns = columns,
                       .clock = [&] { return now; }});
    for (int step = 21; step <= 40; ++step) {
      now += 1;
      progress.update(step, 2.5);
    }
    CHECK(occurrences(out, "\n") == 0);
    CHECK(occurrences(out, "\r\x1b[K") == 20);
    std::string last = out.substr(out.rfind("\x1b[K") + 3);
    CHECK(last.size() < static_cast<std::size_t>(columns));
    if (columns >= 80) CHECK(last.find("40/40  loss 2.5000  8 tok/s  0 s left") != std::string::npos);
    if (columns == 120) CHECK(last.starts_with("[##############################] "));
    out.clear();
    progress.note("saved");
    CHECK(out.starts_with("\r\x1b[Ksaved\n\r\x1b[K"));  // clears the bar, prints, draws it again
    out.clear();
    progress.finish();
    CHECK(out.ends_with("\n"));
  }
}
