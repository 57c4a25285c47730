#include "train/schedule.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "coda/error.h"

namespace coda {

void Schedule::check() const {
  if (!std::isfinite(peak) || peak <= 0)
    throw Error({"learning rate", fmt::format("{}", peak), "a finite number > 0", "Try 3e-4."});
  if (!(floor >= 0 && floor <= 1))
    throw Error({"learning rate floor", fmt::format("{}", floor), "a share of the peak from 0 to 1", "Try 0.1."});
  if (total < 1) throw Error({"steps", fmt::format("{}", total), "at least 1", ""});
  if (warmup < 0 || warmup > total)
    throw Error({"warm-up steps", fmt::format("{}", warmup), fmt::format("0 to the {} steps of the run", total), ""});
}

double Schedule::rate(std::int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (step >= total) return peak * floor;
  double progress = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return peak * (floor + (1 - floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
}

}  // namespace coda
