#include "train/adamw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "coda/error.h"

namespace coda {
namespace {

constexpr std::int64_t kPiece = 1 << 15;  // elements; fixed, so that the norm's order of sums is too

void check_range(const char* option, double x, bool good, const char* allowed) {
  if (!good) throw Error({option, fmt::format("{}", x), allowed, ""});
}

void check_parameter(const Parameter& p) {
  std::string argument = fmt::format("parameter '{}'", p.name);
  if (p.count < 0) throw Error({argument, fmt::format("{} elements", p.count), "0 or more", ""});
  if (p.count > 0 && (p.weight == nullptr || p.gradient == nullptr))
    throw Error({argument, p.weight == nullptr ? "no weight" : "no gradient", "fp32 memory for both", ""});
  if (p.copy != nullptr && p.copy_dtype != DType::kBF16 && p.copy_dtype != DType::kF16)
    throw Error(
        {argument, fmt::format("a copy in {}", name(p.copy_dtype)), "bf16, f16", "Use the fp32 weight itself."});
}

// Σ x², each square exact in fp64, in eight sums so that a vector does it.
double square_sum(const float* x, std::int64_t n) {
  constexpr int kSums = 8;
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int j = 0; j < kSums; ++j) sums[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  for (; i < n; ++i) sums[i % kSums] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double total = 0;
  for (double s : sums) total += s;
  return total;
}

void round_to_copy(const Parameter& p, std::int64_t begin, std::int64_t end) {
  if (p.copy == nullptr) return;
  if (p.copy_dtype == DType::kBF16)
    for (std::int64_t i = begin; i < end; ++i) static_cast<BF16*>(p.copy)[i] = to_bf16(p.weight[i]);
  else
    for (std::int64_t i = begin; i < end; ++i) static_cast<F16*>(p.copy)[i] = to_f16(p.weight[i]);
}

}  // namespace

void AdamWOptions::check() const {
  check_range("beta1", beta1, beta1 >= 0 && beta1 < 1, "0 ≤ beta1 < 1");
  check_range("beta2", beta2, beta2 >= 0 && beta2 < 1, "0 ≤ beta2 < 1");
  check_range("epsilon", epsilon, std::isfinite(epsilon) && epsilon > 0, "a finite number > 0");
  check_range("weight decay", weight_decay, std::isfinite(weight_decay) && weight_decay >= 0, "a finite number ≥ 0");
  check_range("clip norm", clip_norm, std::isfinite(clip_norm) && clip_norm >= 0,
              "a finite number ≥ 0 (0: no clipping)");
}

AdamW::AdamW(const AdamWOptions& options, std::vector<Parameter> parameters)
    : options_(options), parameters_(std::move(parameters)) {
  options_.check();
  std::set<std::string> names;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    check_parameter(p);
    if (!names.insert(p.name).second)
      throw Error({fmt::format("parameter '{}'", p.name), "the name twice", "names of their own", ""});
    first_.emplace_back(static_cast<std::size_t>(p.count), 0.0f);
    second_.emplace_back(static_cast<std::size_t>(p.count), 0.0f);
    for (std::int64_t at = 0; at < p.count; at += kPiece) pieces_.push_back({i, at, std::min(at + kPiece, p.count)});
  }
  squares_.resize(pieces_.size());
}

double AdamW::gradient_norm(ThreadPool& pool) {
  pool.run(static_cast<std::int64_t>(pieces_.size()), [&](std::int64_t i, int) {
    const Piece& p = pieces_[static_cast<std::size_t>(i)];
    squares_[static_cast<std::size_t>(i)] = square_sum(parameters_[p.parameter].gradient + p.begin, p.end - p.begin);
  });
  double total = 0;
  for (double s : squares_) total += s;
  return std::sqrt(total);
}

StepReport AdamW::step(std::int64_t number, double rate, ThreadPool& pool) {
  if (number < 1) throw Error({"update number", fmt::format("{}", number), "1 or more", ""});
  if (!std::isfinite(rate) || rate < 0)
    throw Error({"learning rate", fmt::format("{}", rate), "a finite number ≥ 0", ""});
  double norm = gradient_norm(pool);
  if (!std::isfinite(norm)) return {norm, false};
  double scale = options_.clip_norm > 0 && norm > options_.clip_norm ? options_.clip_norm / norm : 1.0;
  pool.run(static_cast<std::int64_t>(pieces_.size()),
           [&](std::int64_t i, int) { update(pieces_[static_cast<std::size_t>(i)], number, rate, scale); });
  return {norm, true};
}

void AdamW::update(const Piece& piece, std::int64_t number, double rate, double scale) {
  const Parameter& p = parameters_[piece.parameter];
  const float* gradient = p.gradient;
  float* weight = p.weight;
  float* first = first_[piece.parameter].data();
  float* second = second_[piece.parameter].data();
  double n = static_cast<double>(number);
  float keep1 = static_cast<float>(options_.beta1), add1 = static_cast<float>(1 - options_.beta1);
  float keep2 = static_cast<float>(options_.beta2), add2 = static_cast<float>(1 - options_.beta2);
  // The two bias corrections as one factor on the rate and one on the root.
  float root = static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, n)));
  float move = static_cast<float>(rate / (1 - std::pow(options_.beta1, n)));
  float epsilon = static_cast<float>(options_.epsilon), clip = static_cast<float>(scale);
  float shrink = static_cast<float>(p.decay ? rate * options_.weight_decay : 0.0);
  for (std::int64_t i = piece.begin; i < piece.end; ++i) {
    float g = gradient[i] * clip;
    first[i] = keep1 * first[i] + add1 * g;
    second[i] = keep2 * second[i] + add2 * (g * g);
    weight[i] -= shrink * weight[i] + move * first[i] / (std::sqrt(second[i]) * root + epsilon);
  }
  round_to_copy(p, piece.begin, piece.end);
}

void AdamW::write_copies(ThreadPool& pool) {
  pool.run(static_cast<std::int64_t>(pieces_.size()), [&](std::int64_t i, int) {
    const Piece& p = pieces_[static_cast<std::size_t>(i)];
    round_to_copy(parameters_[p.parameter], p.begin, p.end);
  });
}

}  // namespace coda
