// The driver of the conformance table: that a backend with a fault fails, whatever the fault; that a right one passes;
// names, filter, counts; the judge and the guarded tensors it relies on.
#include "coda/check.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "check/case.h"
#include "check/data.h"
#include "coda/cpu.h"
#include "coda/error.h"
#include "coda/text.h"
#include "plan/program_library.h"

using namespace coda;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Faulty;
// What goes wrong around the `run`-th run of one executable (from 1). `inner` runs the right backend.
using Fault = std::function<void(Faulty& at, const Bindings& bindings)>;

struct Faulty {
  const Plan& plan;
  int run;      // of this executable, from 1
  int threads;  // of the backend
  std::function<void(const Bindings&)> inner;

  // The buffers that are written, in the plan's order.
  std::vector<std::string> outputs() const {
    std::vector<std::string> names;
    for (const Buffer& b : plan.buffers())
      if (b.role == BufferRole::kOutput || b.role == BufferRole::kInOut) names.push_back(b.name);
    return names;
  }
};

class FaultyExecutable : public Executable {
 public:
  FaultyExecutable(const Plan& plan, std::unique_ptr<Executable> inner, const Fault& fault, int threads)
      : plan_(plan), inner_(std::move(inner)), fault_(fault), threads_(threads) {}
  void run(const Bindings& bindings) override {
    Faulty at{plan_, ++runs_, threads_, [&](const Bindings& b) { inner_->run(b); }};
    fault_(at, bindings);
  }
  void poison() override { inner_->poison(); }
  std::string configuration() const override { return inner_->configuration(); }

 private:
  Plan plan_;
  std::unique_ptr<Executable> inner_;
  Fault fault_;
  int threads_, runs_ = 0;
};

class FaultyBackend : public Backend {
 public:
  FaultyBackend(const BackendSetup& s, Fault fault)
      : inner_(make_cpu_backend({s.threads, s.isa, s.tile_rows, s.tile_cols})),
        fault_(std::move(fault)),
        threads_(s.threads) {}
  std::string name() const override { return "faulty"; }
  std::unique_ptr<Executable> prepare(const Plan& plan, const Sizes& sizes) override {
    return std::make_unique<FaultyExecutable>(plan, inner_->prepare(plan, sizes), fault_, threads_);
  }

 private:
  std::unique_ptr<Backend> inner_;
  Fault fault_;
  int threads_;
};

CheckOptions filtered(const std::string& filter) {
  CheckOptions options;
  options.filter = filter;
  options.large = false;
  return options;
}

CheckReport with_fault(const std::string& filter, const Fault& fault) {
  return run_checks([&](const BackendSetup& s) { return std::make_unique<FaultyBackend>(s, fault); }, filtered(filter));
}

char* element(const TensorView& v, std::int64_t r, std::int64_t c) {
  return static_cast<char*>(v.data) + v.offset(r, c) * size_of(v.dtype);
}
double load(const TensorView& v, std::int64_t r, std::int64_t c) {
  return static_cast<double>(load_element(v.data, v.offset(r, c), v.dtype));
}
void store(const TensorView& v, std::int64_t r, std::int64_t c, double x) {
  store_element(v.data, v.offset(r, c), v.dtype, static_cast<float>(x));
}
void flip_lowest_bit(const TensorView& v, std::int64_t r, std::int64_t c) { *element(v, r, c) ^= 1; }

// The fault makes every case fail, and the report gives the reason.
void caught(const std::string& what, const std::string& filter, const Fault& fault, const std::string& reason = "") {
  CAPTURE(what);
  CheckReport report = with_fault(filter, fault);
  CHECK(!report.failures.empty());
  CHECK(report.passed == 0);
  for (const CheckFailure& f : report.failures) {
    CHECK(f.name.find(filter) != std::string::npos);
    INFO(f.reason);
    CHECK(f.reason.find(reason) != std::string::npos);
  }
}

// The only case with this begin and end.
std::string the_case(const std::string& begin, const std::string& end) {
  std::vector<std::string> found;
  for (const std::string& n : check_names(filtered(begin)))
    if (n.starts_with(begin) && n.ends_with(end)) found.push_back(n);
  REQUIRE(found.size() == 1);
  return found[0];
}

// Cases of 47 rows: more than one tile in each direction, plain and pitched.
const std::string kPartial = "residual_rmsnorm_partial/bf16/K=13/M=47/N=130/random/p";
const std::string kGradient = "weight_gradient/bf16/K=13/M=47/N=130/random/p";

}  // namespace

TEST_CASE("a right backend passes what the faults below are tried on") {
  for (const std::string& filter : {kPartial, kGradient, std::string("bias_gelu/f32"),
                                    std::string("rmsnorm_cross_entropy/bf16"), std::string("qknorm_rope/f16")}) {
    CheckReport report = with_fault(filter, [](Faulty& at, const Bindings& b) { at.inner(b); });
    CAPTURE(filter);
    CHECK(report.failures.empty());
    CHECK(report.passed == check_names(filtered(filter)).size());
    CHECK(report.passed >= 2);
  }
}

TEST_CASE("caught: one wrong element") {
  for (const char* output : {"x1", "h", "r"})
    caught(
        std::string("the last element of ") + output, kPartial,
        [&](Faulty& at, const Bindings& b) {
          at.inner(b);
          const TensorView& v = b.at(output);
          store(v, v.rows - 1, v.cols - 1, 1.25 * load(v, v.rows - 1, v.cols - 1) + 1);
        },
        std::string(output) + "[46,");
  caught(
      "one not-a-number", kPartial,
      [](Faulty& at, const Bindings& b) {
        at.inner(b);
        store(b.at("x1"), 20, 3, kNaN);
      },
      "x1[20,3]");
  caught("a sign", kGradient, [](Faulty& at, const Bindings& b) {
    at.inner(b);
    const TensorView& v = b.at("dw");
    for (std::int64_t i = 0; i < v.rows; ++i)
      for (std::int64_t j = 0; j < v.cols; ++j) store(v, i, j, -load(v, i, j));
  });
}

TEST_CASE("caught: a small error everywhere") {
  caught("a gradient 1.01 times too large", kGradient, [](Faulty& at, const Bindings& b) {
    at.inner(b);
    const TensorView& v = b.at("dw");
    for (std::int64_t i = 0; i < v.rows; ++i)
      for (std::int64_t j = 0; j < v.cols; ++j) store(v, i, j, 1.01 * load(v, i, j));
  });
  caught(
      "outputs rounded to 16 bits on the way", "bias_gelu/f32/K=13/M=47",
      [](Faulty& at, const Bindings& b) {
        at.inner(b);
        const TensorView& v = b.at("y");
        for (std::int64_t i = 0; i < v.rows; ++i)
          for (std::int64_t j = 0; j < v.cols; ++j) store(v, i, j, round_to(DType::kBF16, load(v, i, j)));
      },
      "y[");
}

TEST_CASE("caught: rows and tiles that are not written, outputs that are read") {
  auto keeps = [](const std::string& output, std::int64_t first, std::int64_t count) {
    return [=](Faulty& at, const Bindings& b) {
      const TensorView& v = b.at(output);
      std::vector<double> before;
      for (std::int64_t i = first; i < first + count; ++i)
        for (std::int64_t j = 0; j < v.cols; ++j) before.push_back(load(v, i, j));
      at.inner(b);
      std::size_t k = 0;
      for (std::int64_t i = first; i < first + count; ++i)
        for (std::int64_t j = 0; j < v.cols; ++j) store(v, i, j, before[k++]);
    };
  };
  caught("one row is not written", kPartial, keeps("h", 46, 1), "h[46,");
  caught("one tile is not written", kPartial, keeps("x1", 16, 16), "x1[16,");
  caught("a statistic is not written", kPartial, keeps("r", 31, 1), "r[31,");
  caught("an accumulated gradient is not added to", kGradient, keeps("dw", 5, 1));
  caught(
      "an output is added to what it held", kPartial,
      [](Faulty& at, const Bindings& b) {
        const TensorView& v = b.at("x1");
        double before = load(v, 0, 0);
        at.inner(b);
        store(v, 0, 0, load(v, 0, 0) + before);
      },
      "x1[0,0]");
  caught("an output that should add replaces", kGradient, [](Faulty& at, const Bindings& b) {
    const TensorView& v = b.at("dw");
    for (std::int64_t i = 0; i < v.rows; ++i)
      for (std::int64_t j = 0; j < v.cols; ++j) store(v, i, j, 0);
    at.inner(b);
  });
}

TEST_CASE("caught: memory outside of the outputs, and inputs") {
  for (std::ptrdiff_t distance : {-1, 0})
    caught(
        "a byte beside an output", kPartial,
        [&](Faulty& at, const Bindings& b) {
          at.inner(b);
          ByteRange range = byte_range(b.at("h"));
          char* beside = const_cast<char*>(distance < 0 ? range.begin : range.end) + distance;
          *beside = 7;
        },
        "memory around h");
  caught(
      "a gap between rows", kPartial + "itched",
      [](Faulty& at, const Bindings& b) {
        at.inner(b);
        const TensorView& v = b.at("x1");
        *(element(v, 3, v.cols - 1) + size_of(v.dtype)) = 7;
      },
      "memory around x1");
  for (const char* input : {"y", "w", "gamma"})
    caught(
        "an input", kPartial,
        [&](Faulty& at, const Bindings& b) {
          at.inner(b);
          flip_lowest_bit(b.at(input), 0, 0);
          store(b.at(input), 0, 0, load(b.at(input), 0, 0) + 3);
        },
        std::string("input ") + input + " was written");
}

TEST_CASE("caught: bits that change from run to run, or with the number of threads") {
  caught(
      "another bit in the third run", kPartial,
      [](Faulty& at, const Bindings& b) {
        at.inner(b);
        if (at.run == 3) flip_lowest_bit(b.at("r"), 12, 0);
      },
      "not the same twice: r[12,0]");
  caught(
      "a result of the run before", kPartial,
      [](Faulty& at, const Bindings& b) {
        static std::vector<double> last;
        at.inner(b);
        const TensorView& v = b.at("r");
        std::vector<double> now;
        for (std::int64_t i = 0; i < v.rows; ++i) now.push_back(load(v, i, 0));
        if (at.run > 1)
          for (std::int64_t i = 0; i < v.rows; ++i) store(v, i, 0, last[static_cast<std::size_t>(i)]);
        last = now;
      },
      "not the same twice");
  caught("a run that does nothing", kPartial, [](Faulty& at, const Bindings& b) {
    if (at.run != 3) at.inner(b);
  });
  caught(
      "a bit that depends on the threads", the_case("residual_rmsnorm_partial/bf16/", "/same-threads"),
      [](Faulty& at, const Bindings& b) {
        at.inner(b);
        if (at.threads == 3) flip_lowest_bit(b.at("x1"), 7, 7);
      },
      "3 threads differ from 1: x1[7,7]");
}

TEST_CASE("caught: a neighbour's vector element, a NaN that spreads") {
  auto shifted = [](const std::string& input) {
    return [=](Faulty& at, const Bindings& b) {
      Bindings with = b;
      TensorView& v = with.at(input);
      v.data = static_cast<char*>(v.data) + size_of(v.dtype) * (v.cols > 1 ? v.col_stride : v.row_stride);
      at.inner(with);
    };
  };
  caught("the next column's gamma", "residual_rmsnorm_partial/bf16/K=13/M=47/N=130/random/plain", shifted("gamma"),
         "h[");
  caught("the next row's r", "rmsnorm_linear/bf16/K=13/M=47/N=130/random/plain", shifted("r"), "z[");
  caught("the next column's bias", "bias/f32/K=13/M=47/N=130/random/plain", shifted("bias"), "y[");
  const std::string nan_case = the_case("residual_rmsnorm_partial/bf16/", "/nan");
  caught(
      "a NaN reaches another row", nan_case,
      [](Faulty& at, const Bindings& b) {
        at.inner(b);
        const TensorView& v = b.at("x1");
        if (std::isnan(load(v, 16, 0))) store(v, 32, 0, kNaN);
      },
      "x1[32,0]");
  caught(
      "a NaN is swallowed", nan_case,
      [](Faulty& at, const Bindings& b) {
        at.inner(b);
        const TensorView& v = b.at("r");
        if (std::isnan(load(v, 16, 0))) store(v, 16, 0, 1);
      },
      "r[16,0]");
}

TEST_CASE("caught: an exception, with its words") {
  caught(
      "an exception", kPartial,
      [](Faulty&, const Bindings&) {
        throw Error({"gpu", "on fire", "water", ""});
      },
      "threw: gpu: on fire");
}

TEST_CASE("a fault in one program leaves the others alone") {
  CheckReport report = with_fault("bias_re", [](Faulty& at, const Bindings& b) {
    at.inner(b);
    if (at.plan.name() == "bias_relu" && !b.at("y").empty()) store(b.at("y"), 0, 0, -5);
  });
  CHECK(!report.failures.empty());
  CHECK(report.passed + report.failures.size() + report.skipped == check_names(filtered("bias_re")).size());
  for (const CheckFailure& f : report.failures) CHECK(f.name.starts_with("bias_relu/"));
  CHECK(report.passed > report.failures.size());
  // The name of a failure is a filter that repeats it alone.
  CHECK(check_names(filtered(report.failures[0].name)).size() == 1);
}

TEST_CASE("names: one each, every program in every dtype, edges of 0 and 1 and several tiles") {
  CheckOptions all;
  all.isas = {"baseline"};
  std::vector<std::string> names = check_names(all);
  std::set<std::string> once(names.begin(), names.end());
  CHECK(once.size() == names.size());
  for (const std::string& program : library_names())
    for (const char* dtype : {"f32", "bf16", "f16"}) {
      CAPTURE(program);
      auto some = [&](const std::string& part) {
        std::string prefix = program + "/" + dtype + "/";
        return std::any_of(names.begin(), names.end(), [&](const std::string& n) {
          return n.starts_with(prefix) && n.find(part) != std::string::npos;
        });
      };
      for (const char* part : {"integers", "random", "plain", "pitched", "blocked", "strided", "tile=16x32", "tile=own",
                               "same-threads", "/nan", "/baseline"})
        CHECK_MESSAGE(some(part), part);
      if (program != "rope_table" && some("/M=47"))
        for (const char* part : {"/M=0/", "/M=1/", "/M=50/"}) CHECK_MESSAGE(some(part), part);
    }
  CHECK(std::count_if(names.begin(), names.end(), [](const std::string& n) { return n.ends_with("/large"); }) == 1);
  all.large = false;
  CHECK(check_names(all).size() == names.size() - 1);
  all.isas.clear();
  CHECK(check_names(all).size() < names.size() - 300);
}

TEST_CASE("the filter, the seed, the progress") {
  CHECK_THROWS_WITH_AS(with_fault("no_such_program", [](Faulty&, const Bindings&) {}),
                       doctest::Contains("'no_such_program'"), Error);
  CHECK(check_names(filtered("no_such_program")).empty());
  for (const std::string& name : check_names(filtered("geglu_tanh/f16")))
    CHECK(name.find("geglu_tanh/f16") != std::string::npos);
  // Another seed is other data: what one output begins with.
  std::vector<double> first;
  for (std::uint64_t seed : {1u, 2u, 1u}) {
    CheckOptions options = filtered("bias/f32/K=13/M=47/N=130/random/plain");
    options.seed = seed;
    std::vector<std::string> told;
    options.progress = [&](std::size_t done, std::size_t total, const std::string& name) {
      CHECK(done <= total);
      told.push_back(name);
    };
    double x = 0;
    auto probe = [&](Faulty& at, const Bindings& b) {
      at.inner(b);
      if (at.run == 1) x = load(b.at("y"), 0, 0);
    };
    CheckReport report =
        run_checks([&](const BackendSetup& s) { return std::make_unique<FaultyBackend>(s, probe); }, options);
    CHECK(report.failures.empty());
    CHECK(told.size() == report.passed + 1);
    CHECK(told.back() == "");
    first.push_back(x);
  }
  CHECK(first[0] == first[2]);
  CHECK(first[0] != first[1]);
}

namespace {

std::string judged(const std::string& text, const Arrays& in, const Sizes& sizes,
                   const std::function<void(Array&)>& change) {
  Program p = parse_program(text);
  check::Reference ref = check::make_reference(p, in, sizes, DType::kBF16);
  Array got = ref.rounded.at("y");
  change(got);
  return check::judge(ref, p.expanded().outputs()[0], got);
}

}  // namespace

TEST_CASE("the judge: exact for small integers, the error bound of the contract otherwise") {
  const std::string product = "program p\nin x: bf16[M,K]\nin w: bf16[N,K]\nout y: f32[M,N] = x @ w";
  const Sizes sizes = {{"M", 5}, {"N", 6}, {"K", 7}};
  Arrays in = {{"x", Array(5, 1, 7, 2)}, {"w", Array(6, 1, 7, 3)}};
  auto nothing = [](Array&) {};
  CHECK(judged(product, in, sizes, nothing) == "");
  CHECK(judged(product, in, sizes, [](Array& y) { y.at(4, 5) += 0x1p-18; }).find("y[4,5]") == 0);
  CHECK(judged(product, in, sizes, [](Array& y) { y.at(0, 0) = kNaN; }).find("y[0,0]") == 0);
  CHECK(judged(product, in, sizes, [](Array& y) { y.data.pop_back(); }) == "another shape");

  const std::string gelu = "program p\nin x: bf16[M,N]\nout y: bf16[M,N] = gelu(x)*0.3";
  in = {{"x", Array(40, 1, 50)}};
  for (std::size_t i = 0; i < in["x"].data.size(); ++i)
    in["x"].data[i] = round_to(DType::kBF16, std::sin(static_cast<double>(i)));
  const Sizes tile = {{"M", 40}, {"N", 50}};
  CHECK(judged(gelu, in, tile, nothing) == "");
  CHECK(judged(gelu, in, tile, [](Array& y) { y.at(7, 9) += 0.01; }).find("y[7,9]") == 0);
  CHECK(judged(gelu, in, tile, [](Array& y) { y.at(7, 9) = INFINITY; }).find("y[7,9]") == 0);
  // Twice the plain computation's rounding everywhere: no element is far off, but their mean is.
  CHECK(judged(gelu, in, tile, [](Array& y) {
          for (double& x : y.data) x *= 1 + 0x1p-8;
        }).find("mean error") != std::string::npos);
}

TEST_CASE("guarded tensors: every byte outside of the elements counts, none inside") {
  for (check::Layout layout :
       {check::Layout::kPlain, check::Layout::kPitched, check::Layout::kBlocked, check::Layout::kStrided})
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kI32}) {
      check::Tensor t(dtype, 6, 9, layout);
      TensorView v = t.view();
      CHECK(t.guards_intact());
      t.fill(3);
      CHECK(t.guards_intact());
      ByteRange range = byte_range(v);
      std::set<const char*> inside;
      for (std::int64_t r = 0; r < v.rows; ++r)
        for (std::int64_t c = 0; c < v.cols; ++c)
          for (int i = 0; i < size_of(dtype); ++i) inside.insert(element(v, r, c) + i);
      int outside = 0;
      for (const char* p = range.begin - 32; p < range.end + 32; ++p) {
        if (inside.count(p) != 0) continue;
        ++outside;
        char* byte = const_cast<char*>(p);
        *byte = static_cast<char>(*byte ^ 1);
        CHECK_FALSE(t.guards_intact());
        *byte = static_cast<char>(*byte ^ 1);
      }
      CHECK(outside >= 64);
      CHECK(t.guards_intact());
      Array a = t.read();
      CHECK(std::all_of(a.data.begin(), a.data.end(), [](double x) { return x == 3; }));
    }
}
