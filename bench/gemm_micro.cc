// Times the tiled GEMM of src/cpu/kernels (both packings and the store of C included) against whole-GEMM libraries that
// are opened at run time, interleaved in one process. Not part of the tests; results: docs/decisions/0002-cpu-gemm.md.
//   coda_gemm_micro [--n 2048] [--tile 192x256] [--rounds 7] [--dtypes "f32 bf16 f16"] [--threads 1] [--layouts 1..4]
//       [--all-isas yes] [--clock cpu] [--blas libopenblas.so.0] [--mkl libmkl_rt.so] [--onednn libdnnl.so.3]
#include <dlfcn.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cpu/kernels/tile_gemm.h"

namespace {

using coda::DType;
using coda::TensorView;
using coda::cpu::GemmOperand;
using coda::cpu::TileGemm;

struct Options {
  std::int64_t n = 2048, tile_m = 192, tile_n = 256;
  int rounds = 7;
  bool all_isas = false, cpu_clock = false;
  std::map<std::string, std::string> libraries;
};

struct Aligned {
  explicit Aligned(std::size_t bytes) : data(std::aligned_alloc(64, (bytes + 127) / 64 * 64)) {}
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  void operator=(const Aligned&) = delete;
  void* data;
};

// One square problem: operands of `dtype`, each possibly stored MN-major; c is fp32.
struct Problem {
  std::int64_t n;
  DType dtype;
  bool a_mn_major, b_mn_major;
  std::shared_ptr<Aligned> a, b, c;

  Problem(std::int64_t size, DType t, bool a_mn, bool b_mn) : n(size), dtype(t), a_mn_major(a_mn), b_mn_major(b_mn) {
    auto bytes = static_cast<std::size_t>(n * n * size_of(t));
    a = std::make_shared<Aligned>(bytes), b = std::make_shared<Aligned>(bytes);
    c = std::make_shared<Aligned>(static_cast<std::size_t>(n * n * 4));
    std::minstd_rand random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::int64_t i = 0; i < n * n; ++i) {
      coda::store_element(a->data, i, t, uniform(random));
      coda::store_element(b->data, i, t, uniform(random));
    }
  }
  GemmOperand left() const { return {TensorView::matrix(a->data, dtype, n, n), a_mn_major}; }
  GemmOperand right() const { return {TensorView::matrix(b->data, dtype, n, n), b_mn_major}; }
};

void in_threads(int threads, const std::function<void()>& work) {
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
}

// What the tile driver will do: all of B packed once, then tiles of M, each with its packed A and a local tile of C.
void tiled_gemm(const Problem& p, const TileGemm& gemm, const Options& o, int threads, void* packed_b) {
  std::int64_t kb = gemm.k_block(), n_tiles = (p.n + o.tile_n - 1) / o.tile_n,
               m_tiles = (p.n + o.tile_m - 1) / o.tile_m;
  std::int64_t k_blocks = (p.n + kb - 1) / kb;
  auto b_block = static_cast<std::int64_t>(gemm.packed_b_bytes(o.tile_n, kb));
  auto b_at = [&](std::int64_t j, std::int64_t k) {
    return static_cast<char*>(packed_b) + (j * k_blocks + k) * b_block;
  };
  auto span = [&](std::int64_t i, std::int64_t tile) { return std::min(tile, p.n - i * tile); };

  std::atomic<std::int64_t> next_b{0}, next_m{0};
  in_threads(threads, [&] {
    for (std::int64_t i; (i = next_b++) < n_tiles * k_blocks;) {
      std::int64_t k = i / n_tiles, j = i % n_tiles;
      gemm.pack_b(p.right(), j * o.tile_n, span(j, o.tile_n), k * kb, span(k, kb), b_at(j, k));
    }
  });
  in_threads(threads, [&] {
    static thread_local std::map<std::size_t, std::unique_ptr<Aligned>> scratch;
    auto buffer = [&](std::size_t bytes) {
      auto& slot = scratch[bytes];
      if (!slot) slot = std::make_unique<Aligned>(bytes);
      return static_cast<char*>(slot->data);
    };
    std::size_t a_block = gemm.packed_a_bytes(o.tile_m, kb);
    char* packed_a = buffer(a_block * static_cast<std::size_t>(k_blocks));
    float* tile = reinterpret_cast<float*>(buffer(static_cast<std::size_t>(o.tile_m * o.tile_n * 4 + 4)));
    for (std::int64_t i; (i = next_m++) < m_tiles;) {
      std::int64_t rows = span(i, o.tile_m);
      for (std::int64_t k = 0; k < k_blocks; ++k)
        gemm.pack_a(p.left(), i * o.tile_m, rows, k * kb, span(k, kb),
                    packed_a + static_cast<std::size_t>(k) * a_block);
      for (std::int64_t j = 0; j < n_tiles; ++j) {
        std::int64_t columns = span(j, o.tile_n);
        for (std::int64_t k = 0; k < k_blocks; ++k)
          gemm.multiply(rows, columns, span(k, kb), packed_a + static_cast<std::size_t>(k) * a_block, b_at(j, k), tile,
                        o.tile_n, k > 0);
        float* c = static_cast<float*>(p.c->data) + i * o.tile_m * p.n + j * o.tile_n;
        for (std::int64_t r = 0; r < rows; ++r) std::copy_n(tile + r * o.tile_n, columns, c + r * p.n);
      }
    }
  });
}

// ---- libraries, by their C interfaces ----

void* open_library(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fmt::print(stderr, "{}\n", dlerror()), std::exit(2);
  return handle;
}

template <class F>
F symbol(void* library, const char* name) {
  void* address = dlsym(library, name);
  if (address == nullptr) fmt::print(stderr, "{}\n", dlerror()), std::exit(2);
  return reinterpret_cast<F>(address);
}

using Run = std::function<void()>;

// CBLAS and, with MKL, its bf16 → fp32 extension.
Run cblas(void* library, const char* set_threads, int threads, const Problem& p) {
  using SetThreads = void (*)(int);
  using Gemm = void (*)(int, int, int, int, int, int, float, const void*, int, const void*, int, float, void*, int);
  symbol<SetThreads>(library, set_threads)(threads);
  Gemm gemm = symbol<Gemm>(library, p.dtype == DType::kF32 ? "cblas_sgemm" : "cblas_gemm_bf16bf16f32");
  constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
  int n = static_cast<int>(p.n);
  return [=] {
    gemm(kRowMajor, p.a_mn_major ? kTransposed : kPlain, p.b_mn_major ? kPlain : kTransposed, n, n, n, 1.f, p.a->data,
         n, p.b->data, n, 0.f, p.c->data, n);
  };
}

// A matmul primitive of oneDNN 3 (PyTorch's libtorch_cpu.so exports it); C is fp32, weights as they lie.
Run onednn(void* library, int threads, const Problem& p) {
  if (void* set = dlsym(RTLD_DEFAULT, "omp_set_num_threads")) reinterpret_cast<void (*)(int)>(set)(threads);
  if (void* set = dlsym(library, "omp_set_num_threads")) reinterpret_cast<void (*)(int)>(set)(threads);
  struct Arg {
    int index;
    void* memory;
  };
  auto check = [](int status) {
    if (status != 0) fmt::print(stderr, "oneDNN: status {}\n", status), std::exit(2);
  };
  void *engine = nullptr, *stream = nullptr, *desc[3], *memory[3], *primitive_desc = nullptr, *primitive = nullptr;
  check(symbol<int (*)(void**, int, std::size_t)>(library, "dnnl_engine_create")(&engine, 1, 0));
  check(symbol<int (*)(void**, void*, unsigned)>(library, "dnnl_stream_create")(&stream, engine, 1));
  std::int64_t dims[] = {p.n, p.n}, plain[] = {p.n, 1}, transposed[] = {1, p.n};
  int type = p.dtype == DType::kF32 ? 3 : 2;
  const std::int64_t* strides[] = {p.a_mn_major ? transposed : plain, p.b_mn_major ? plain : transposed, plain};
  void* data[] = {p.a->data, p.b->data, p.c->data};
  for (int i = 0; i < 3; ++i) {
    using Describe = int (*)(void**, int, const std::int64_t*, int, const std::int64_t*);
    check(symbol<Describe>(library, "dnnl_memory_desc_create_with_strides")(&desc[i], 2, dims, i == 2 ? 3 : type,
                                                                            strides[i]));
    check(symbol<int (*)(void**, void*, void*, void*)>(library, "dnnl_memory_create")(&memory[i], desc[i], engine,
                                                                                      data[i]));
  }
  using Matmul = int (*)(void**, void*, void*, void*, void*, void*, void*);
  check(symbol<Matmul>(library, "dnnl_matmul_primitive_desc_create")(&primitive_desc, engine, desc[0], desc[1], nullptr,
                                                                     desc[2], nullptr));
  check(symbol<int (*)(void**, void*)>(library, "dnnl_primitive_create")(&primitive, primitive_desc));
  auto execute = symbol<int (*)(void*, void*, int, const Arg*)>(library, "dnnl_primitive_execute");
  auto wait = symbol<int (*)(void*)>(library, "dnnl_stream_wait");
  std::vector<Arg> args{{1, memory[0]}, {33, memory[1]}, {17, memory[2]}};  // source, weights, destination
  return [=] { check(execute(primitive, stream, 3, args.data())), check(wait(stream)); };
}

// ---- measurement ----

struct Candidate {
  std::string name;
  Run run;
  std::vector<double> seconds;
};

// Wall time; or the processor time of this process, which other processes of a shared machine disturb less, and which
// for one thread is what the wall would show on a free core.
double now(bool cpu_clock) {
  if (cpu_clock) {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

void measure(const Problem& p, const Options& o, int threads) {
  std::vector<Candidate> candidates;
  std::vector<std::shared_ptr<Aligned>> keep;
  for (auto isa : coda::cpu::supported_isas()) {
    if (isa < coda::cpu::best_isa() && !o.all_isas) continue;
    const TileGemm& gemm = TileGemm::get(p.dtype, isa);
    std::int64_t k_blocks = (p.n + gemm.k_block() - 1) / gemm.k_block(), n_tiles = (p.n + o.tile_n - 1) / o.tile_n;
    keep.push_back(std::make_shared<Aligned>(gemm.packed_b_bytes(o.tile_n, gemm.k_block()) *
                                             static_cast<std::size_t>(k_blocks * n_tiles)));
    void* packed_b = keep.back()->data;
    candidates.push_back(
        {fmt::format("coda {}", name(isa)), [=, &p, &o, &gemm] { tiled_gemm(p, gemm, o, threads, packed_b); }, {}});
  }
  for (const auto& [kind, path] : o.libraries) {
    bool f32 = p.dtype == DType::kF32;
    if (kind == "blas" && f32)
      candidates.push_back({path, cblas(open_library(path), "openblas_set_num_threads", threads, p), {}});
    if (kind == "mkl") candidates.push_back({path, cblas(open_library(path), "MKL_Set_Num_Threads", threads, p), {}});
    if (kind == "onednn") candidates.push_back({path, onednn(open_library(path), threads, p), {}});
  }
  // Rounds interleave the candidates: a slow spell of the machine hits all of them. The first round warms up.
  for (int round = 0; round <= o.rounds; ++round)
    for (Candidate& c : candidates) {
      double start = now(o.cpu_clock);
      c.run();
      if (round > 0) c.seconds.push_back(now(o.cpu_clock) - start);
    }
  double flops = 2.0 * static_cast<double>(p.n * p.n * p.n), best = 1e9;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].name.rfind("coda", 0) != 0) best = std::min(best, median(candidates[i].seconds));
  for (const Candidate& c : candidates) {
    double t = median(c.seconds);
    std::string ratio =
        best < 1e9 && c.name.rfind("coda", 0) == 0 ? fmt::format("{:.3f} of the best library", t / best) : "";
    fmt::print("{:4} A {} B {} {}T {:>8.2f} ms {:>6.0f} GF/s  {} {}\n", name(p.dtype), p.a_mn_major ? "[K,M]" : "[M,K]",
               p.b_mn_major ? "[K,N]" : "[N,K]", threads, t * 1e3, flops / t * 1e-9,
               c.name.substr(c.name.rfind('/') + 1), ratio);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  std::string dtypes = "f32 bf16";
  std::vector<int> threads{1, 2};
  int layouts = 4;
  for (int i = 1; i < argc; i += 2) {
    std::string key = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (value.empty()) return fmt::print(stderr, "{}: no value\n", key), 2;
    if (key == "--n")
      o.n = std::stoll(value);
    else if (key == "--tile")
      o.tile_m = std::stoll(value), o.tile_n = std::stoll(value.substr(value.find('x') + 1));
    else if (key == "--rounds")
      o.rounds = std::stoi(value);
    else if (key == "--dtypes")
      dtypes = value;
    else if (key == "--threads")
      threads = {std::stoi(value)};
    else if (key == "--layouts")
      layouts = std::stoi(value);
    else if (key == "--clock")
      o.cpu_clock = value == "cpu";
    else if (key == "--all-isas")
      o.all_isas = value == "yes";
    else if (key == "--blas" || key == "--mkl" || key == "--onednn")
      o.libraries[key.substr(2)] = value;
    else
      return fmt::print(stderr, "unknown option {}\n", key), 2;
  }
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::istringstream listed(dtypes);
    if (std::find(std::istream_iterator<std::string>(listed), {}, name(t)) == std::istream_iterator<std::string>())
      continue;
    for (int layout = 0; layout < layouts; ++layout) {
      Problem p(o.n, t, (layout & 2) != 0, (layout & 1) != 0);
      for (int count : threads) measure(p, o, count);
    }
  }
  return 0;
}
