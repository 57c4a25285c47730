// cuBLAS by dlopen; see cublas.h. Its C interface is declared here as its manual gives it.
#include "cuda/bench/cublas.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <limits>
#include <type_traits>

#include "coda/error.h"
#include "cuda/bench/library_search.h"

namespace coda::cuda {
namespace {

using Handle = void*;
constexpr int kSuccess = 0, kPlain = 0, kTransposed = 1, kCompute32F = 68, kDefaultAlgorithm = -1;

int type_code(DType t) {
  switch (t) {
    case DType::kF32: return 0;
    case DType::kF16: return 2;
    case DType::kBF16: return 14;
    case DType::kI32: break;
  }
  throw InternalError(__FILE__, __LINE__, "a GEMM of integers");
}

struct Functions {
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*set_stream)(Handle, void*) = nullptr;
  int (*set_workspace)(Handle, void*, std::size_t) = nullptr;
  int (*version)(Handle, int*) = nullptr;
  const char* (*text)(int) = nullptr;
  int (*gemm)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
              void*, int, int, int, int) = nullptr;

  bool load(void* library) {
    auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return find(create, "cublasCreate_v2") && find(destroy, "cublasDestroy_v2") &&
           find(set_stream, "cublasSetStream_v2") && find(set_workspace, "cublasSetWorkspace_v2") &&
           find(version, "cublasGetVersion_v2") && find(text, "cublasGetStatusString") && find(gemm, "cublasGemmEx");
  }
};

class Library : public Cublas {
 public:
  Library(const Functions& f, std::string file, void* stream, void* workspace) : f_(f), file_(std::move(file)) {
    check(f_.create(&handle_), "cublasCreate");
    check(f_.set_stream(handle_, stream), "cublasSetStream");  // before the workspace: it resets that
    check(f_.set_workspace(handle_, workspace, kWorkspace), "cublasSetWorkspace");
  }
  ~Library() override { f_.destroy(handle_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  std::string version() const override {
    int v = 0;
    check(f_.version(handle_, &v), "cublasGetVersion");
    return fmt::format("{}.{}.{} ({})", v / 10000, v / 100 % 100, v % 100, file_);
  }

  void gemm(const GemmShape& shape, const void* a, const void* b, void* c) override {
    ColumnMajorCall g = column_major(shape);
    const float alpha = 1;
    check(f_.gemm(handle_, g.first_transposed ? kTransposed : kPlain, g.second_transposed ? kTransposed : kPlain, g.m,
                  g.n, g.k, &alpha, b, type_code(shape.operands), g.first_ld, a, type_code(shape.operands), g.second_ld,
                  &g.beta, c, type_code(shape.result), g.c_ld, kCompute32F, kDefaultAlgorithm),
          "cublasGemmEx of " + shape.str());
  }

 private:
  void check(int status, const std::string& what) const {
    if (status != kSuccess)
      throw Error({"cuBLAS", fmt::format("{}: {}", what, f_.text(status)), "", "The benchmark needs it as its ruler."});
  }

  Functions f_;
  std::string file_;
  Handle handle_ = nullptr;
};

int narrow(std::int64_t x) {
  if (x > std::numeric_limits<int>::max())
    throw Error({"cuBLAS", fmt::format("a size of {}", x), "sizes below 2^31", ""});
  return static_cast<int>(x);
}

}  // namespace

std::unique_ptr<Cublas> Cublas::open(void* stream, void* workspace) {
  OpenLibrary library =
      open_library({"CODA_CUBLAS", {"libcublas.so.13", "libcublas.so.12"}, {"nvidia/cu13/lib", "nvidia/cublas/lib"}},
                   "The benchmark compares with it: install the wheel nvidia-cublas, or name the file in CODA_CUBLAS.");
  Functions f;
  if (!f.load(library.handle))
    throw Error({library.file, "a library without cublasGemmEx", "cuBLAS 12 or 13", "Name another in CODA_CUBLAS."});
  return std::make_unique<Library>(f, library.file, stream, workspace);
}

ColumnMajorCall column_major(const GemmShape& s) {
  ColumnMajorCall c;
  // A row-major [r,c] matrix is a column-major [c,r] one with the same leading dimension, its transpose for free.
  c.first_transposed = s.b_axis == 1;
  c.second_transposed = s.a_axis == 0;
  c.m = narrow(s.n);
  c.n = narrow(s.m);
  c.k = narrow(s.k);
  c.first_ld = narrow(s.b_axis == 1 ? s.k : s.n);
  c.second_ld = narrow(s.a_axis == 1 ? s.k : s.m);
  c.c_ld = narrow(s.n);
  c.beta = s.accumulate ? 1.0f : 0.0f;
  return c;
}

}  // namespace coda::cuda
