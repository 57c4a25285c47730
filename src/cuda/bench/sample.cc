// A sample of rows against the CPU; see sample.h.
#include "cuda/bench/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "coda/cpu.h"
#include "coda/error.h"

namespace coda::cuda {
namespace {

constexpr std::int64_t kSampled = 64;  // rows: half of them the first, half the last
// bf16 rounds by 0.17 % on average; two correct orders of summation differ less than that, a wrong row by 100 %.
constexpr double kTolerance = 0.02;

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

double distance(const void* found, const void* wanted, DType dtype, std::int64_t elements) {
  double difference = 0, size = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    double f = load_element(found, i, dtype), w = load_element(wanted, i, dtype);
    if (!std::isfinite(f) && std::isfinite(w)) return std::numeric_limits<double>::infinity();
    if (!std::isfinite(w)) continue;
    difference += (f - w) * (f - w);
    size += w * w;
  }
  return difference == 0 ? 0 : std::sqrt(difference / std::max(size, 1e-30));
}

void check_distance(const std::string& candidate, const std::string& output, double distance) {
  if (distance <= kTolerance) return;
  throw Error({candidate, fmt::format("output {} is off by {:.2g} of its size", output, distance),
               fmt::format("at most {}", kTolerance),
               "Its time means nothing; `coda check --backend cuda` finds out more."});
}

void verify_rows(const std::string& candidate, const Plan& plan, const Sizes& sizes, const ReadRows& read) {
  const std::int64_t all = sizes.at("M"), sampled = std::min(all, kSampled), head = (sampled + 1) / 2;
  Sizes small = sizes;
  small["M"] = sampled;
  Bindings bindings;
  std::vector<std::vector<std::byte>> memory;
  for (const Buffer& b : plan.buffers()) {
    if (b.role == BufferRole::kTemp) continue;
    std::int64_t rows = b.rows.eval(small), cols = b.cols.eval(small), pitch = cols * size_of(b.dtype);
    std::vector<std::byte>& m = memory.emplace_back(idx(rows * pitch));
    bindings[b.name] = TensorView::matrix(m.data(), b.dtype, rows, cols);
    if (b.role != BufferRole::kInput) continue;
    if (b.rows.as_symbol() != "M") {
      read(b.name, 0, rows, m.data());
      continue;
    }
    read(b.name, 0, head, m.data());
    if (sampled > head) read(b.name, all - (sampled - head), sampled - head, m.data() + head * pitch);
  }
  make_cpu_backend()->prepare(plan, small)->run(bindings);
  for (const Buffer& b : plan.buffers()) {
    if (b.role != BufferRole::kOutput || b.rows.as_symbol() != "M") continue;
    const TensorView& wanted = bindings.at(b.name);
    std::int64_t pitch = wanted.cols * size_of(b.dtype);
    std::vector<std::byte> found(idx(sampled * pitch));
    read(b.name, 0, head, found.data());
    if (sampled > head) read(b.name, all - (sampled - head), sampled - head, found.data() + head * pitch);
    check_distance(candidate, b.name, distance(found.data(), wanted.data, b.dtype, sampled * wanted.cols));
  }
}

}  // namespace coda::cuda
