// Values of a benchmark's tensors; see data.h.
#include "cuda/bench/data.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "ir/index_rules.h"

namespace coda::cuda {
namespace {

constexpr std::int64_t kBlock = 8388593;  // the largest prime below 2^23

std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }

// Normal values by table: drawing them one by one would take longer than the benchmark.
class NormalTable {
 public:
  NormalTable() : values_(1 << 16) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (float& v : values_) v = normal(random);
  }
  float operator[](std::uint64_t bits) const { return values_[bits & 0xffff]; }

 private:
  std::vector<float> values_;
};

std::vector<std::byte> fill(DType dtype, std::int64_t elements, std::uint64_t seed,
                            const std::function<float(float)>& map) {
  static const NormalTable table;
  std::vector<std::byte> mapped(idx(size_of(dtype)) << 16), bytes(idx(elements * size_of(dtype)));
  for (std::uint64_t i = 0; i < 1 << 16; ++i)
    store_element(mapped.data(), static_cast<std::int64_t>(i), dtype, map(table[i]));
  std::mt19937_64 random(seed);
  std::uint64_t bits = 0;
  auto draw = [&](auto* to, const auto* from) {
    for (std::int64_t i = 0; i < elements; ++i, bits >>= 16) {
      if (i % 4 == 0) bits = random();
      to[i] = from[bits & 0xffff];
    }
  };
  if (size_of(dtype) == 2)
    draw(reinterpret_cast<std::uint16_t*>(bytes.data()), reinterpret_cast<const std::uint16_t*>(mapped.data()));
  else
    draw(reinterpret_cast<std::uint32_t*>(bytes.data()), reinterpret_cast<const std::uint32_t*>(mapped.data()));
  return bytes;
}

// One more than the largest integer that every program of the plan takes in this buffer.
std::int64_t index_bound(const Plan& plan, BufferId buffer, const Sizes& sizes) {
  std::int64_t bound = std::numeric_limits<std::int32_t>::max();
  for (const Step& s : plan.steps())
    if (const auto* step = std::get_if<ProgramStep>(&s.what))
      for (const IndexRule& r : index_rules(step->program.expanded()))
        if (step->inputs.at(step->program.expanded().inputs()[idx(r.input)].name).buffer == buffer)
          bound = std::min(bound, r.bound.eval(step_sizes(plan, *step, sizes, 0)));
  return bound;
}

std::vector<std::byte> indices(std::int64_t elements, std::int64_t bound, std::uint64_t seed) {
  std::vector<std::byte> bytes(idx(elements) * sizeof(std::int32_t));
  std::mt19937_64 random(seed);
  auto* to = reinterpret_cast<std::int32_t*>(bytes.data());
  for (std::int64_t i = 0; i < elements; ++i)
    to[i] = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(std::max<std::int64_t>(bound, 1)));
  return bytes;
}

std::vector<std::byte> rotations(DType dtype, bool is_cosine, std::int64_t positions, std::int64_t pairs) {
  std::vector<std::byte> bytes(idx(positions * pairs * size_of(dtype)));
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t j = 0; j < pairs; ++j) {
      double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(pairs));
      store_element(bytes.data(), p * pairs + j, dtype,
                    static_cast<float>(is_cosine ? std::cos(angle) : std::sin(angle)));
    }
  return bytes;
}

}  // namespace

std::vector<std::byte> normal_block(DType dtype, std::int64_t elements, float scale, std::uint64_t seed) {
  return fill(dtype, std::min(elements, kBlock), seed, [scale](float x) { return x * scale; });
}

std::vector<std::byte> values_block(const Plan& plan, BufferId buffer, const Sizes& sizes, std::uint64_t seed) {
  const Buffer& b = plan.at(buffer);
  std::int64_t rows = b.rows.eval(sizes), cols = b.cols.eval(sizes);
  if (b.dtype == DType::kI32) return indices(rows * cols, index_bound(plan, buffer, sizes), seed);
  if (b.name == "cos" || b.name == "sin") return rotations(b.dtype, b.name == "cos", rows, cols);
  if (cols == 1 && rows > 1)
    return fill(b.dtype, std::min(rows, kBlock), seed, [](float x) { return std::fabs(x) + 0.5f; });
  const bool is_weight = rows > 1 && b.rows.as_symbol() != "M";
  return normal_block(b.dtype, rows * cols, is_weight ? 1 / std::sqrt(static_cast<float>(cols)) : 1, seed);
}

}  // namespace coda::cuda
