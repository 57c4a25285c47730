// Library GEMMs by dlopen; see library_gemm.h. Their C interfaces are declared here as their manuals give them.
#include "bench/library_gemm.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <sstream>
#include <tuple>

#include "coda/error.h"

namespace coda::bench {
namespace {

template <class F>
F find(void* library, const char* name) {
  return reinterpret_cast<F>(dlsym(library, name));
}

// C in fp32 while the wanted result is 16 bits: the library's product, then one pass that rounds.
void round_rows(const std::vector<float>& from, const TensorView& to) {
  for (std::int64_t r = 0; r < to.rows; ++r) {
    const float* in = from.data() + r * to.cols;
    BF16* out = static_cast<BF16*>(to.data) + r * to.row_stride;
    for (std::int64_t c = 0; c < to.cols; ++c) out[c] = to_bf16(in[c]);
  }
}

// CBLAS: OpenBLAS, and MKL with its bf16 → fp32 extension.
class Cblas : public LibraryGemm {
 public:
  using Gemm = void (*)(int, int, int, int, int, int, float, const void*, int, const void*, int, float, void*, int);
  using SetThreads = void (*)(int);

  static std::unique_ptr<LibraryGemm> open(void* library, const std::string& path) {
    auto gemm = find<Gemm>(library, "cblas_sgemm");
    if (gemm == nullptr) return nullptr;
    auto result = std::make_unique<Cblas>();
    result->path_ = path;
    result->f32_ = gemm;
    result->bf16_ = find<Gemm>(library, "cblas_gemm_bf16bf16f32");
    for (const char* name : {"openblas_set_num_threads", "MKL_Set_Num_Threads"})
      if (auto set = find<SetThreads>(library, name)) result->set_threads_ = set;
    return result;
  }

  std::string name() const override {
    return "cblas of " + path_.substr(path_.rfind('/') + 1) + (bf16_ == nullptr ? " (bf16 widened to f32)" : "");
  }
  bool supports(DType t) const override { return t == DType::kF32 || t == DType::kBF16; }
  void set_threads(int threads) override {
    if (set_threads_ != nullptr) set_threads_(threads);
  }

  void run(const GemmCall& call) override {
    constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
    GemmCall g = call;
    if (g.a.dtype == DType::kBF16 && bf16_ == nullptr) {
      g.a = widened(g.a, wide_a_);
      g.b = widened(g.b, wide_b_);
    }
    bool narrow = g.c.dtype == DType::kBF16;
    if (narrow) wide_.resize(static_cast<std::size_t>(g.c.rows * g.c.cols));
    std::int64_t k = g.a_axis == 1 ? g.a.cols : g.a.rows;
    (g.a.dtype == DType::kF32 ? f32_ : bf16_)(
        kRowMajor, g.a_axis == 1 ? kPlain : kTransposed, g.b_axis == 0 ? kPlain : kTransposed,
        static_cast<int>(g.c.rows), static_cast<int>(g.c.cols), static_cast<int>(k), 1.0f, g.a.data,
        static_cast<int>(g.a.row_stride), g.b.data, static_cast<int>(g.b.row_stride), g.accumulate ? 1.0f : 0.0f,
        narrow ? wide_.data() : g.c.data, static_cast<int>(narrow ? g.c.cols : g.c.row_stride));
    if (narrow) round_rows(wide_, g.c);
  }

 private:
  std::string path_;
  Gemm f32_ = nullptr, bf16_ = nullptr;
  SetThreads set_threads_ = nullptr;
  std::vector<float> wide_, wide_a_, wide_b_;

  // A library without bf16 products multiplies the operands as fp32.
  static TensorView widened(const TensorView& v, std::vector<float>& out) {
    out.resize(static_cast<std::size_t>(v.rows * v.cols));
    for (std::int64_t r = 0; r < v.rows; ++r)
      for (std::int64_t c = 0; c < v.cols; ++c)
        out[static_cast<std::size_t>(r * v.cols + c)] =
            to_float(static_cast<const BF16*>(v.data)[r * v.row_stride + c]);
    return TensorView::matrix(out.data(), DType::kF32, v.rows, v.cols);
  }
};

// oneDNN 3 (its own library, or PyTorch's, which exports it): a matmul primitive per shape, kept.
class OneDnn : public LibraryGemm {
 public:
  static std::unique_ptr<LibraryGemm> open(void* library, const std::string& path) {
    if (find<void*>(library, "dnnl_matmul_primitive_desc_create") == nullptr) return nullptr;
    if (find<void*>(library, "dnnl_memory_desc_create_with_strides") == nullptr) return nullptr;  // oneDNN 2
    auto result = std::make_unique<OneDnn>();
    result->library_ = library;
    result->path_ = path;
    result->check(find<int (*)(void**, int, std::size_t)>(library, "dnnl_engine_create")(&result->engine_, 1, 0));
    result->check(
        find<int (*)(void**, void*, unsigned)>(library, "dnnl_stream_create")(&result->stream_, result->engine_, 1));
    return result;
  }

  std::string name() const override { return "oneDNN of " + path_.substr(path_.rfind('/') + 1); }
  bool supports(DType t) const override { return t == DType::kF32 || t == DType::kBF16; }
  void set_threads(int threads) override {
    for (void* where : {RTLD_DEFAULT, library_})
      if (auto set = find<void (*)(int)>(where, "omp_set_num_threads")) set(threads);
    primitives_.clear();
  }

  void run(const GemmCall& g) override {
    Primitive& p = primitive(g);
    auto set = find<int (*)(void*, void*)>(library_, "dnnl_memory_set_data_handle");
    void* data[3] = {g.a.data, g.b.data, g.c.data};
    for (int i = 0; i < 3; ++i) check(set(p.memory[i], data[i]));
    std::array<Arg, 3> args{{{1, p.memory[0]}, {33, p.memory[1]}, {17, p.memory[2]}}};  // source, weights, destination
    check(find<int (*)(void*, void*, int, const Arg*)>(library_, "dnnl_primitive_execute")(p.primitive, stream_, 3,
                                                                                           args.data()));
    check(find<int (*)(void*)>(library_, "dnnl_stream_wait")(stream_));
  }

 private:
  struct Arg {
    int index;
    void* memory;
  };
  struct Primitive {
    void* primitive = nullptr;
    void* memory[3] = {};
  };
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, int, int, int, int, bool, std::int64_t, std::int64_t,
                         std::int64_t>;

  void check(int status) const {
    if (status != 0)
      throw Error({name(), fmt::format("status {}", status), "success", "Leave it out of CODA_BENCH_LIBRARIES."});
  }

  Primitive& primitive(const GemmCall& g) {
    std::int64_t m = g.c.rows, n = g.c.cols, k = g.a_axis == 1 ? g.a.cols : g.a.rows;
    Key key{m,
            n,
            k,
            g.a_axis,
            g.b_axis,
            static_cast<int>(g.a.dtype),
            static_cast<int>(g.c.dtype),
            g.accumulate,
            g.a.row_stride,
            g.b.row_stride,
            g.c.row_stride};
    auto [it, added] = primitives_.try_emplace(key);
    if (!added) return it->second;
    Primitive& p = it->second;
    auto type = [](DType t) { return t == DType::kF32 ? 3 : 2; };
    auto strides = [](const TensorView& v, bool plain) {
      return plain ? std::array<std::int64_t, 2>{v.row_stride, 1} : std::array<std::int64_t, 2>{1, v.row_stride};
    };
    std::array<std::int64_t, 2> dims[3] = {{m, k}, {k, n}, {m, n}};
    std::array<std::int64_t, 2> steps[3] = {strides(g.a, g.a_axis == 1), strides(g.b, g.b_axis == 0),
                                            strides(g.c, true)};
    int types[3] = {type(g.a.dtype), type(g.b.dtype), type(g.c.dtype)};
    void* desc[3];
    using Describe = int (*)(void**, int, const std::int64_t*, int, const std::int64_t*);
    for (int i = 0; i < 3; ++i) {
      check(find<Describe>(library_, "dnnl_memory_desc_create_with_strides")(&desc[i], 2, dims[i].data(), types[i],
                                                                             steps[i].data()));
      check(find<int (*)(void**, void*, void*, void*)>(library_, "dnnl_memory_create")(&p.memory[i], desc[i], engine_,
                                                                                       nullptr));
    }
    void *attr = nullptr, *post = nullptr, *primitive_desc = nullptr;
    if (g.accumulate) {
      check(find<int (*)(void**)>(library_, "dnnl_primitive_attr_create")(&attr));
      check(find<int (*)(void**)>(library_, "dnnl_post_ops_create")(&post));
      check(find<int (*)(void*, float, std::int32_t, int)>(library_, "dnnl_post_ops_append_sum")(post, 1.0f, 0, 0));
      check(find<int (*)(void*, void*)>(library_, "dnnl_primitive_attr_set_post_ops")(attr, post));
    }
    using Create = int (*)(void**, void*, void*, void*, void*, void*, void*);
    check(find<Create>(library_, "dnnl_matmul_primitive_desc_create")(&primitive_desc, engine_, desc[0], desc[1],
                                                                      nullptr, desc[2], attr));
    check(find<int (*)(void**, void*)>(library_, "dnnl_primitive_create")(&p.primitive, primitive_desc));
    return p;
  }

  void* library_ = nullptr;
  std::string path_;
  void *engine_ = nullptr, *stream_ = nullptr;
  std::map<Key, Primitive> primitives_;
};

}  // namespace

std::vector<std::unique_ptr<LibraryGemm>> open_libraries() {
  std::vector<std::string> paths;
  if (const char* given = std::getenv("CODA_BENCH_LIBRARIES")) {
    std::istringstream list(given);
    for (std::string path; std::getline(list, path, ':');)
      if (!path.empty()) paths.push_back(path);
  }
  for (const char* usual : {"libdnnl.so.3", "libmkl_rt.so.3", "libmkl_rt.so.2", "libopenblas.so.0"})
    paths.emplace_back(usual);
  std::vector<std::unique_ptr<LibraryGemm>> found;
  for (const std::string& path : paths) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      if (path.find('/') != std::string::npos)
        throw Error({"CODA_BENCH_LIBRARIES", dlerror(), "shared libraries that load", ""});
      continue;
    }
    if (auto one_dnn = OneDnn::open(library, path)) found.push_back(std::move(one_dnn));
    if (auto cblas = Cblas::open(library, path)) found.push_back(std::move(cblas));
  }
  return found;
}

LibraryGemm* best_library(const std::vector<std::unique_ptr<LibraryGemm>>& libraries, DType dtype, int threads,
                          std::int64_t n) {
  std::vector<std::byte> a(static_cast<std::size_t>(n * n * 4)), b(a.size()), c(a.size());
  GemmCall call{TensorView::matrix(a.data(), dtype, n, n), TensorView::matrix(b.data(), dtype, n, n),
                TensorView::matrix(c.data(), dtype, n, n)};
  LibraryGemm* best = nullptr;
  double best_time = 0;
  for (const auto& library : libraries) {
    if (!library->supports(dtype)) continue;
    library->set_threads(threads);
    double fastest = 1e30;
    for (int i = 0; i < 4; ++i) {
      auto start = std::chrono::steady_clock::now();
      library->run(call);
      std::chrono::duration<double> t = std::chrono::steady_clock::now() - start;
      if (i > 0) fastest = std::min(fastest, t.count());
    }
    if (best == nullptr || fastest < best_time) best = library.get(), best_time = fastest;
  }
  if (best != nullptr) best->set_threads(threads);
  return best;
}

}  // namespace coda::bench
