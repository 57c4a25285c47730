// The loss curve of a run as a picture. Called by the training loop now and then and at the end.
// Invariant: the file is one self-contained, valid SVG, replaced as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coda {

struct LossPoint {
  std::int64_t step = 0;
  float loss = 0;
};

struct LossCurve {
  std::string title;
  std::string y_label = "loss, nats per token";
  std::vector<LossPoint> train, validation;  // by ascending step; points that are not finite interrupt the line
};

std::string curve_svg(const LossCurve& curve);
void write_curve(const std::string& path, const LossCurve& curve);  // Error if it can't be written

}  // namespace coda
