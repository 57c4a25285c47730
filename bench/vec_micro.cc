// Times the vector operations of src/cpu/vec on a block in the first-level cache, in ns per element (best of several
// runs): coda_vec_micro [rows] [columns]; CODA_ISA chooses the instruction set. Not part of the tests; results:
// docs/decisions/0003-cpu-vector-operations.md.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "cpu/vec/vec_ops.h"

namespace {

using coda::DType;
using coda::Elem;
using coda::Op;
using coda::cpu::Block;
using coda::cpu::MapArgs;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<float[], Free>;

Buffer buffer(std::int64_t count, float low, float high) {
  Buffer b(static_cast<float*>(std::aligned_alloc(64, static_cast<std::size_t>(count + 32) / 16 * 64)));
  for (std::int64_t i = 0; i < count; ++i)
    b[static_cast<std::size_t>(i)] =
        low + (high - low) * static_cast<float>(i * 7919 % count) / static_cast<float>(count);
  return b;
}

double best_ns(std::int64_t elements, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  const int repeats = static_cast<int>(400000 / elements) + 1;
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 15; ++round) {
    auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) call();
    double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    best = std::min(best, ns / (repeats * static_cast<double>(elements)));
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t rows = argc > 1 ? std::atoll(argv[1]) : 8, n = argc > 2 ? std::atoll(argv[2]) : 256;
  const auto& vec = coda::cpu::vec_ops(coda::cpu::best_isa());
  Buffer x = buffer(rows * n, -4, 4), y = buffer(rows * n, 0.1f, 4), z = buffer(rows * n, 0, 1);
  Buffer out1 = buffer(2 * n + 2 * rows, 0, 1), out2 = buffer(2 * n + 2 * rows, 0, 1),
         out3 = buffer(2 * n + 2 * rows, 0, 1);
  fmt::print("{} {}x{}, ns/element\n", coda::cpu::name(vec.isa), rows, n);
  auto show = [&](const std::string& what, const std::function<void()>& call) {
    fmt::print("{:22} {:.3f}\n", what, best_ns(rows * n, call));
  };
  auto map = [&](const std::string& what, Op op, std::int64_t second_row, std::int64_t second_col) {
    MapArgs a{z.get(), n, {{x.get(), n, 1}, {y.get(), second_row, second_col}}, rows, n};
    if (op == Op::kLog || op == Op::kSqrt || op == Op::kRsqrt) a.in[0].base = y.get();
    show(what, [&vec, op, a] { vec.map(op, Elem::kF32)(a); });
  };
  for (Op op : {Op::kAdd, Op::kMul})
    for (auto [mode, row, col] :
         {std::tuple("tile", n, std::int64_t{1}), std::tuple("row", std::int64_t{1}, std::int64_t{0}),
          std::tuple("col", std::int64_t{0}, std::int64_t{1}), std::tuple("scalar", std::int64_t{0}, std::int64_t{0})})
      map(fmt::format("{} tile,{}", coda::row(op).name, mode), op, row, col);
  for (Op op : {Op::kSub, Op::kDiv, Op::kMax, Op::kLt, Op::kNeg, Op::kRelu, Op::kSquare, Op::kSqrt, Op::kRsqrt,
                Op::kExp, Op::kLog, Op::kTanh, Op::kErf, Op::kSigmoid, Op::kSilu, Op::kGelu, Op::kGeluTanh})
    map(std::string(coda::row(op).name), op, n, 1);
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    auto each_row = [&](auto call) {
      return [&, call] {
        for (std::int64_t r = 0; r < rows; ++r) call(r * n);
      };
    };
    show(fmt::format("load {}", name(t)), each_row([&, t](std::int64_t at) {
           vec.load_row(z.get() + at, reinterpret_cast<char*>(x.get()) + at * size_of(t), t, n, 1);
         }));
    show(fmt::format("store {}", name(t)), each_row([&, t](std::int64_t at) {
           vec.store_row(reinterpret_cast<char*>(z.get()) + at * size_of(t), x.get() + at, t, n, 1);
         }));
  }
  Block b{x.get(), n, rows, n};
  auto* index = reinterpret_cast<std::int32_t*>(out2.get());
  show("sum_n", [&] { vec.sum_n(b, out1.get()); });
  show("max_n", [&] { vec.max_n(b, out1.get()); });
  show("argmax_n", [&] { vec.argmax_n(b, out1.get(), index); });
  show("logsumexp_n", [&] { vec.logsumexp_n(b, nullptr, 0, out1.get(), out2.get(), nullptr); });
  show("logsumexp_n payload", [&] { vec.logsumexp_n(b, y.get(), n, out1.get(), out2.get(), out3.get()); });
  show("moments_n", [&] { vec.moments_n(b, out1.get(), out2.get()); });
  show("sum_m", [&] { vec.sum_m(b, out1.get()); });
  show("max_m", [&] { vec.max_m(b, out1.get()); });
  show("logsumexp_m", [&] { vec.logsumexp_m(b, nullptr, 0, out1.get(), out2.get(), nullptr); });
  show("moments_m", [&] { vec.moments_m(b, rows, out1.get(), out2.get()); });
  show("pairs", [&] { vec.pairs(x.get(), n, z.get(), z.get() + n / 2, n, rows, n / 2); });
  show("interleave", [&] { vec.interleave(x.get(), x.get() + n / 2, n, z.get(), n, rows, n / 2); });
  show("uniform", [&] { vec.uniform(z.get(), n, rows, n, 0, n, 1, 2); });
  return 0;
}
