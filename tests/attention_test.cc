// Attention on the CPU against a naive one in fp64 (itself checked by finite differences): values, gradients, layouts,
// isolation of NaN, thread counts, and refusals. Bound: the error of the same naive code in the storage precision.
#include "cpu/attention/attention.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "coda/error.h"

using namespace coda;
using coda::cpu::AttentionSizes;
using coda::cpu::Isa;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

enum class Layout { kSeparate, kPacked, kHeadsFirst, kStrided };

// A [rows, cols] tensor somewhere inside a guarded buffer, with values at (r, c).
struct Tensor {
  std::vector<char> memory;
  TensorView view;
  float at(std::int64_t r, std::int64_t c) const { return load_element(view.data, view.offset(r, c), view.dtype); }
  void set(std::int64_t r, std::int64_t c, float x) const {
    store_element(view.data, view.offset(r, c), view.dtype, x);
  }
  void fill(float x) const {
    for (std::int64_t r = 0; r < view.rows; ++r)
      for (std::int64_t c = 0; c < view.cols; ++c) set(r, c, x);
  }
};

// Tensors side by side in one buffer (kPacked), or each in its own.
std::vector<Tensor> make(const AttentionSizes& s, DType dtype, Layout layout, const std::vector<std::int64_t>& heads) {
  std::vector<Tensor> all(heads.size());
  std::int64_t rows = s.batch * s.seq, total = 3;
  for (std::int64_t h : heads) total += h * s.head_dim;
  std::int64_t column = 1;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    std::int64_t cols = heads[i] * s.head_dim;
    TensorView v = TensorView::matrix(nullptr, dtype, rows, cols);
    std::int64_t elements = rows * cols + 2, start = 1;
    if (layout == Layout::kPacked) {
      v = TensorView::matrix(nullptr, dtype, rows, cols, total);
      elements = rows * total;
      start = column;
      column += cols;
    } else if (layout == Layout::kHeadsFirst) {  // [B, heads, S, D]
      v.row_block = std::max<std::int64_t>(s.seq, 1);
      v.row_stride = s.head_dim;
      v.row_outer = cols * s.seq;
      v.col_block = s.head_dim;
      v.col_outer = s.seq * s.head_dim;
    } else if (layout == Layout::kStrided) {  // every other element, rows 5 further than needed
      v.row_stride = 2 * cols + 5;
      v.col_stride = 2;
      elements = rows * v.row_stride + 2;
    }
    if (layout != Layout::kPacked || i == 0)
      all[i].memory.assign(static_cast<std::size_t>(elements * size_of(dtype)), '\x5a');
    char* base = layout == Layout::kPacked ? all[0].memory.data() : all[i].memory.data();
    v.data = base + start * size_of(dtype);
    all[i].view = v;
  }
  return all;
}

struct Problem {
  AttentionSizes s;
  std::vector<Tensor> in, out, d_in, grads;  // q k v | o | d_o | dq dk dv
  std::vector<float> lse;

  Problem(const AttentionSizes& sizes, DType dtype, Layout layout, unsigned seed = 1) : s(sizes) {
    in = make(s, dtype, layout, {s.heads, s.kv_heads, s.kv_heads});
    out = make(s, dtype, layout, {s.heads});
    d_in = make(s, dtype, layout, {s.heads});
    grads = make(s, dtype, layout, {s.heads, s.kv_heads, s.kv_heads});
    lse.assign(static_cast<std::size_t>(s.batch * s.heads * s.seq), kNan);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (Tensor* t : {&in[0], &in[1], &in[2], &d_in[0]})
      for (std::int64_t r = 0; r < t->view.rows; ++r)
        for (std::int64_t c = 0; c < t->view.cols; ++c) t->set(r, c, normal(random));
    out[0].fill(kNan);
    for (Tensor& t : grads) t.fill(kNan);
  }
  void forward(ThreadPool& pool, Isa isa) {
    cpu::attention_forward(s, {in[0].view, in[1].view, in[2].view, out[0].view, lse_view()}, pool, isa);
  }
  void backward(ThreadPool& pool, Isa isa) {
    cpu::attention_backward(s,
                            {in[0].view, in[1].view, in[2].view, out[0].view, lse_view(), d_in[0].view, grads[0].view,
                             grads[1].view, grads[2].view},
                            pool, isa);
  }
  TensorView lse_view() { return cpu::lse_view(lse.data(), s); }
};

template <class T>
struct Result {
  std::vector<T> o, lse, dq, dk, dv;  // o, dq [B·S, H·D]; dk, dv [B·S, G·D]; lse [B·S, H]
};

template <class T>
std::vector<T> values(const Tensor& t) {
  std::vector<T> x;
  for (std::int64_t r = 0; r < t.view.rows; ++r)
    for (std::int64_t c = 0; c < t.view.cols; ++c) x.push_back(static_cast<T>(t.at(r, c)));
  return x;
}

// The definition, in T; every intermediate tensor that an unfused program would store is rounded to `storage`.
template <class T>
Result<T> naive(const AttentionSizes& s, const std::vector<T>& q, const std::vector<T>& k, const std::vector<T>& v,
                const std::vector<T>& d_o, DType storage, bool rounding) {
  auto round = [&](T x) { return rounding ? static_cast<T>(round_to(storage, static_cast<double>(x))) : x; };
  std::int64_t D = s.head_dim, HD = s.heads * D, GD = s.kv_heads * D;
  T scale = s.scale ? static_cast<T>(*s.scale) : T(1) / std::sqrt(static_cast<T>(D));
  Result<T> out;
  auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  out.o.assign(q.size(), 0), out.dq.assign(q.size(), 0), out.dk.assign(k.size(), 0), out.dv.assign(k.size(), 0);
  out.lse.assign(size(s.batch * s.seq * s.heads), 0);
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      std::int64_t g = h / (s.heads / s.kv_heads);
      for (std::int64_t i = 0; i < s.seq; ++i) {
        const T* qi = &q[size((b * s.seq + i) * HD + h * D)];
        const T* gi = &d_o[size((b * s.seq + i) * HD + h * D)];
        std::vector<T> p(size(i + 1)), dp(size(i + 1));
        T top = -std::numeric_limits<T>::infinity(), sum = 0, delta = 0;
        auto at = [&](const std::vector<T>& x, std::int64_t j) { return &x[size((b * s.seq + j) * GD + g * D)]; };
        for (std::int64_t j = 0; j <= i; ++j) {
          T dot = 0, dot_v = 0;
          for (std::int64_t c = 0; c < D; ++c) dot += qi[c] * at(k, j)[c], dot_v += gi[c] * at(v, j)[c];
          p[size(j)] = round(dot * scale), dp[size(j)] = round(dot_v);
          top = std::max(top, p[size(j)]);
        }
        for (T& x : p) sum += x = std::exp(x - top);
        for (T& x : p) x = round(x / sum);
        out.lse[size((b * s.seq + i) * s.heads + h)] = top + std::log(sum);
        for (std::int64_t c = 0; c < D; ++c) {
          T acc = 0;
          for (std::int64_t j = 0; j <= i; ++j) acc += p[size(j)] * at(v, j)[c];
          out.o[size((b * s.seq + i) * HD + h * D + c)] = round(acc);
        }
        for (std::int64_t j = 0; j <= i; ++j) delta += p[size(j)] * dp[size(j)];
        for (std::int64_t j = 0; j <= i; ++j) {
          T ds = round(p[size(j)] * (dp[size(j)] - delta) * scale);
          for (std::int64_t c = 0; c < D; ++c) {
            out.dq[size((b * s.seq + i) * HD + h * D + c)] += ds * at(k, j)[c];
            out.dk[size((b * s.seq + j) * GD + g * D + c)] += ds * qi[c];
            out.dv[size((b * s.seq + j) * GD + g * D + c)] += p[size(j)] * gi[c];
          }
        }
      }
    }
  }
  for (auto* x : {&out.dq, &out.dk, &out.dv})
    for (T& y : *x) y = round(y);
  return out;
}

struct Errors {
  double mean = 0, worst = 0, scale = 0;
};

template <class T>
Errors errors(const std::vector<T>& x, const std::vector<double>& exact) {
  Errors e;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    double d = std::fabs(static_cast<double>(x[i]) - exact[i]);
    if (!(d <= 1e30)) d = 1e30;  // NaN must not slip through a comparison
    e.mean += d / static_cast<double>(exact.size());
    e.worst = std::max(e.worst, d);
    e.scale = std::max(e.scale, std::fabs(exact[i]));
  }
  return e;
}

// `term` is the size of the terms that sum to x: what is left when they cancel exactly is judged by them.
void compare(const char* what, double term, const std::vector<float>& ours, const std::vector<float>& plain,
             const std::vector<double>& exact) {
  INFO(std::string(what));
  Errors a = errors(ours, exact), b = errors(plain, exact);
  double ulp = (b.scale == 0 ? term : b.scale) * 0x1p-23;  // where the plain computation happens to be exact
  CHECK(a.mean <= 1.0 * b.mean + ulp);
  CHECK(a.worst <= 2.0 * b.worst + 2 * std::max(b.scale, term) * 0x1p-23);
}

void check_problem(const AttentionSizes& s, DType dtype, Layout layout, Isa isa) {
  INFO("B=", s.batch, " S=", s.seq, " H=", s.heads, " G=", s.kv_heads, " D=", s.head_dim, " ", std::string(name(dtype)),
       " layout ", static_cast<int>(layout), " ", std::string(cpu::name(isa)));
  ThreadPool pool(2);
  Problem p(s, dtype, layout);
  std::vector<char> before_in = p.in[0].memory;
  p.forward(pool, isa);
  p.backward(pool, isa);
  CHECK(p.in[0].memory == before_in);
  auto exact = naive(s, values<double>(p.in[0]), values<double>(p.in[1]), values<double>(p.in[2]),
                     values<double>(p.d_in[0]), dtype, false);
  auto plain = naive(s, values<float>(p.in[0]), values<float>(p.in[1]), values<float>(p.in[2]),
                     values<float>(p.d_in[0]), dtype, true);
  double term = std::sqrt(static_cast<double>(s.head_dim));
  compare("o", term, values<float>(p.out[0]), plain.o, exact.o);
  Tensor lse;
  lse.view = p.lse_view();
  compare("lse", term, values<float>(lse), plain.lse, exact.lse);
  compare("dq", term, values<float>(p.grads[0]), plain.dq, exact.dq);
  compare("dk", term, values<float>(p.grads[1]), plain.dk, exact.dk);
  compare("dv", term, values<float>(p.grads[2]), plain.dv, exact.dv);
  // What lies around and between the outputs is untouched.
  for (std::vector<Tensor>* set : {&p.out, &p.grads}) {
    for (Tensor& t : *set) t.fill(0);
    for (Tensor& t : *set) {
      std::vector<Tensor> fresh =
          make(s, dtype, layout, set == &p.out ? std::vector{s.heads} : std::vector{s.heads, s.kv_heads, s.kv_heads});
      for (Tensor& f : fresh) f.fill(0);
      CHECK(t.memory == fresh[static_cast<std::size_t>(&t - set->data())].memory);
    }
  }
}

std::vector<char> all_bytes(const Problem& p) {
  std::vector<char> bytes = p.out[0].memory;
  for (const Tensor& t : p.grads) bytes.insert(bytes.end(), t.memory.begin(), t.memory.end());
  const char* lse = reinterpret_cast<const char*>(p.lse.data());
  bytes.insert(bytes.end(), lse, lse + p.lse.size() * sizeof(float));
  return bytes;
}

// Rows of `t` whose bits differ between two runs.
std::vector<std::int64_t> changed_rows(const Tensor& a, const Tensor& b) {
  std::vector<std::int64_t> rows;
  for (std::int64_t r = 0; r < a.view.rows; ++r) {
    for (std::int64_t c = 0; c < a.view.cols; ++c) {
      float x = a.at(r, c), y = b.at(r, c);
      if (std::memcmp(&x, &y, sizeof x) != 0) {
        rows.push_back(r);
        break;
      }
    }
  }
  return rows;
}

template <class F>
void check_error(const std::string& argument, F&& f) {
  try {
    f();
    FAIL("no error about " << argument);
  } catch (const Error& e) {
    CHECK_MESSAGE(e.parts().argument == argument, e.what());
    CHECK_FALSE(e.parts().found.empty());
  }
}

}  // namespace

TEST_CASE("the naive gradient is the derivative of the naive forward") {
  AttentionSizes s{.batch = 1, .seq = 5, .heads = 4, .kv_heads = 2, .head_dim = 3};
  Problem p(s, DType::kF32, Layout::kSeparate);
  std::vector<double> x[3] = {values<double>(p.in[0]), values<double>(p.in[1]), values<double>(p.in[2])};
  std::vector<double> w = values<double>(p.d_in[0]);
  auto loss = [&] {
    auto r = naive(s, x[0], x[1], x[2], w, DType::kF32, false);
    double sum = 0;
    for (std::size_t i = 0; i < w.size(); ++i) sum += r.o[i] * w[i];
    return sum;
  };
  auto exact = naive(s, x[0], x[1], x[2], w, DType::kF32, false);
  const std::vector<double>* gradients[3] = {&exact.dq, &exact.dk, &exact.dv};
  for (int t = 0; t < 3; ++t) {
    for (std::size_t i = 0; i < x[t].size(); ++i) {
      double keep = x[t][i], h = 1e-5;
      x[t][i] = keep + h;
      double up = loss();
      x[t][i] = keep - h;
      double down = loss();
      x[t][i] = keep;
      CHECK(std::fabs((up - down) / (2 * h) - (*gradients[t])[i]) < 1e-8);
    }
  }
}

TEST_CASE("values and gradients: shapes around the blocks, every instruction set") {
  for (Isa isa : cpu::supported_isas()) {
    for (std::int64_t seq : {1, 2, 5, 63, 64, 65, 129, 200})
      check_problem({.batch = 2, .seq = seq, .heads = 2, .kv_heads = 1, .head_dim = 32}, DType::kF32, Layout::kSeparate,
                    isa);
    for (std::int64_t dim : {1, 3, 15, 16, 17, 48, 65, 80, 128})
      check_problem({.batch = 1, .seq = 70, .heads = 2, .kv_heads = 2, .head_dim = dim}, DType::kF32, Layout::kSeparate,
                    isa);
  }
}

TEST_CASE("values and gradients: grouped queries, dtypes, layouts, scale") {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (Layout layout : {Layout::kSeparate, Layout::kPacked, Layout::kHeadsFirst, Layout::kStrided}) {
      for (std::int64_t ratio : {1, 2, 3, 4}) {
        for (Isa isa : {Isa::kBaseline, cpu::best_isa()})
          check_problem({.batch = 2, .seq = 67, .heads = 2 * ratio, .kv_heads = 2, .head_dim = 18}, dtype, layout, isa);
      }
    }
  }
  check_problem({.batch = 1, .seq = 90, .heads = 2, .kv_heads = 1, .head_dim = 8, .scale = 0.9f}, DType::kF32,
                Layout::kSeparate, cpu::best_isa());
  check_problem({.batch = 1, .seq = 90, .heads = 2, .kv_heads = 1, .head_dim = 8, .scale = -0.3f}, DType::kF32,
                Layout::kSeparate, cpu::best_isa());
}

TEST_CASE("one position: the output is v, exactly") {
  ThreadPool pool(1);
  Problem p({.batch = 3, .seq = 1, .heads = 4, .kv_heads = 2, .head_dim = 5}, DType::kBF16, Layout::kSeparate);
  p.forward(pool, cpu::best_isa());
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 20; ++c) CHECK(p.out[0].at(r, c) == p.in[2].at(r, c / 10 * 5 + c % 5));
}

TEST_CASE("nothing to do: no positions, no batch") {
  ThreadPool pool(2);
  for (auto [batch, seq] : {std::pair{0, 7}, std::pair{3, 0}, std::pair{0, 0}}) {
    Problem p({.batch = batch, .seq = seq, .heads = 2, .kv_heads = 1, .head_dim = 4}, DType::kF32, Layout::kSeparate);
    std::vector<char> before = all_bytes(p);
    p.forward(pool, cpu::best_isa());
    p.backward(pool, cpu::best_isa());
    CHECK(all_bytes(p) == before);
  }
}

TEST_CASE("the bits don't depend on the number of threads") {
  for (AttentionSizes s : {AttentionSizes{.batch = 1, .seq = 300, .heads = 2, .kv_heads = 1, .head_dim = 24},
                           AttentionSizes{.batch = 3, .seq = 130, .heads = 4, .kv_heads = 2, .head_dim = 16}}) {
    std::vector<char> first;
    for (int threads : {1, 2, 3, 7}) {
      ThreadPool pool(threads);
      Problem p(s, DType::kBF16, Layout::kSeparate);
      p.forward(pool, cpu::best_isa());
      p.backward(pool, cpu::best_isa());
      if (first.empty()) first = all_bytes(p);
      CHECK(all_bytes(p) == first);
    }
  }
}

TEST_CASE("NaN reaches only what depends on it") {
  AttentionSizes s{.batch = 2, .seq = 150, .heads = 2, .kv_heads = 1, .head_dim = 20};
  ThreadPool pool(2);
  for (Isa isa : {Isa::kBaseline, cpu::best_isa()}) {
    Problem clean(s, DType::kF32, Layout::kSeparate);
    clean.forward(pool, isa);
    clean.backward(pool, isa);
    for (std::int64_t at : {0, 3, 63, 64, 100, 149}) {
      for (int which : {0, 1, 2, 3}) {  // q, k, v, d_o, in batch entry 1
        INFO("tensor ", which, " position ", at);
        Problem p(s, DType::kF32, Layout::kSeparate);
        std::int64_t bad = s.seq + at;
        (which == 3 ? p.d_in[0] : p.in[static_cast<std::size_t>(which)]).set(bad, 7, kNan);
        p.forward(pool, isa);
        p.backward(pool, isa);
        bool of_query = which == 0 || which == 3;
        for (std::int64_t r : changed_rows(p.out[0], clean.out[0]))
          CHECK((which == 3 ? false : of_query ? r == bad : r >= bad));
        for (std::int64_t r : changed_rows(p.grads[0], clean.grads[0])) CHECK((of_query ? r == bad : r >= bad));
        for (int g : {1, 2})  // keys up to the query; keys that share a query with the bad key: all of the batch entry
          for (std::int64_t r :
               changed_rows(p.grads[static_cast<std::size_t>(g)], clean.grads[static_cast<std::size_t>(g)]))
            CHECK((of_query ? r >= s.seq && r <= bad : r >= s.seq));
        CHECK(std::isnan(p.grads[0].at(bad, 7)));
        if (which != 3) CHECK(std::isnan(p.out[0].at(bad, 7)));
      }
    }
  }
}

TEST_CASE("a later key changes no bit of an earlier query") {
  AttentionSizes s{.batch = 1, .seq = 150, .heads = 1, .kv_heads = 1, .head_dim = 16};
  ThreadPool pool(1);
  Problem a(s, DType::kF32, Layout::kSeparate), b(s, DType::kF32, Layout::kSeparate);
  for (int t : {1, 2})
    for (std::int64_t r = 90; r < 150; ++r)
      for (std::int64_t c = 0; c < 16; ++c) b.in[static_cast<std::size_t>(t)].set(r, c, r % 2 == 0 ? kNan : 1e30f);
  a.forward(pool, cpu::best_isa());
  b.forward(pool, cpu::best_isa());
  for (std::int64_t r : changed_rows(a.out[0], b.out[0])) CHECK(r >= 90);
  CHECK(changed_rows(a.out[0], b.out[0]).size() == 60);
}

TEST_CASE("extreme scores: huge ones don't overflow, minus infinity is a key that isn't there") {
  AttentionSizes s{.batch = 1, .seq = 130, .heads = 1, .kv_heads = 1, .head_dim = 1};
  ThreadPool pool(1);
  for (Isa isa : cpu::supported_isas()) {
    Problem p(s, DType::kF32, Layout::kSeparate);
    p.in[0].fill(1);
    for (std::int64_t r = 0; r < 130; ++r) p.in[1].set(r, 0, r < 70 ? -std::numeric_limits<float>::infinity() : 1e20f);
    for (std::int64_t r = 0; r < 130; ++r) p.in[2].set(r, 0, static_cast<float>(r));
    p.forward(pool, isa);
    for (std::int64_t r = 0; r < 130; ++r) {
      if (r < 70)
        CHECK(std::isnan(p.out[0].at(r, 0)));  // no key at all: 0/0, as in the definition
      else
        CHECK(p.out[0].at(r, 0) == doctest::Approx(static_cast<double>(70 + r) / 2).epsilon(1e-6));
    }
  }
}

TEST_CASE("mistakes are refused before anything is written") {
  ThreadPool pool(1);
  AttentionSizes good{.batch = 2, .seq = 6, .heads = 4, .kv_heads = 2, .head_dim = 8};
  Problem p(good, DType::kF32, Layout::kSeparate);
  std::vector<char> before = all_bytes(p);
  auto with = [&](auto&& change) {
    return [&, change] {
      AttentionSizes s = good;
      cpu::AttentionForward t{p.in[0].view, p.in[1].view, p.in[2].view, p.out[0].view, p.lse_view()};
      change(s, t);
      cpu::attention_forward(s, t, pool);
    };
  };
  using S = AttentionSizes&;
  using T = cpu::AttentionForward&;
  check_error("attention batch", with([](S s, T) { s.batch = -1; }));
  check_error("attention heads", with([](S s, T) { s.heads = 0; }));
  check_error("attention kv_heads", with([](S s, T) { s.kv_heads = 0; }));
  check_error("attention heads", with([](S s, T) { s.kv_heads = 3; }));
  check_error("attention head_dim", with([](S s, T) { s.head_dim = 0; }));
  check_error("attention scale", with([](S s, T) { s.scale = kNan; }));
  check_error("attention q", with([](S s, T) { s.seq = 7; }));
  check_error("attention k", with([](S, T t) { t.k = t.q; }));
  check_error("attention v", with([](S, T t) { t.v.data = nullptr; }));
  check_error("attention v", with([](S, T t) { t.v.dtype = DType::kI32; }));
  check_error("attention q", with([](S, T t) { t.q.data = static_cast<char*>(t.q.data) + 1; }));
  check_error("attention o", with([](S, T t) { t.o.row_stride = 0; }));
  check_error("attention o", with([](S, T t) { t.o = t.q; }));
  check_error("attention lse", with([](S, T t) { t.lse.dtype = DType::kBF16; }));
  check_error("attention lse", with([](S, T t) { t.lse.rows = 1; }));
  check_error("attention dk", [&] {
    cpu::attention_backward(good,
                            {p.in[0].view, p.in[1].view, p.in[2].view, p.out[0].view, p.lse_view(), p.d_in[0].view,
                             p.grads[0].view, p.grads[1].view, p.grads[1].view},
                            pool);
  });
  check_error("attention dv", [&] {
    cpu::attention_backward(good,
                            {p.in[0].view, p.in[1].view, p.in[2].view, p.out[0].view, p.lse_view(), p.d_in[0].view,
                             p.grads[0].view, p.grads[1].view, p.grads[0].view},
                            pool);
  });
  CHECK(all_bytes(p) == before);
}
