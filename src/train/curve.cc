#include "train/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/atomic_file.h"

namespace coda {
namespace {

constexpr double kWidth = 900, kHeight = 520, kLeft = 80, kRight = 30, kTop = 60, kBottom = 70;
constexpr const char* kTrainColor = "#4878a8";
constexpr const char* kValidationColor = "#c8553d";

// Text for XML: markup escaped, characters that XML forbids and bytes that are not UTF-8 replaced.
std::string escape(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    unsigned char c = static_cast<unsigned char>(text[i]);
    std::size_t length = c < 0x80                ? 1
                         : c >= 0xc2 && c < 0xe0 ? 2
                         : c >= 0xe0 && c < 0xf0 ? 3
                         : c >= 0xf0 && c < 0xf5 ? 4
                                                 : 0;
    bool good = length > 0 && i + length <= text.size();
    for (std::size_t j = 1; good && j < length; ++j) good = (static_cast<unsigned char>(text[i + j]) & 0xc0) == 0x80;
    if (good && length == 3) {  // no overlong forms, surrogates or U+FFFE, U+FFFF
      unsigned code = (c & 0xfu) << 12 | (static_cast<unsigned>(text[i + 1]) & 0x3fu) << 6 |
                      (static_cast<unsigned>(text[i + 2]) & 0x3fu);
      good = code >= 0x800 && !(code >= 0xd800 && code < 0xe000) && code < 0xfffe;
    }
    if (good && length == 4) {
      unsigned code = (c & 0x7u) << 18 | (static_cast<unsigned>(text[i + 1]) & 0x3fu) << 12;
      good = code >= 0x10000 && code < 0x110000;
    }
    if (!good || (c < 0x20 && c != '\t' && c != '\n' && c != '\r')) {
      out += "�";
      i += 1;
      continue;
    }
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out.append(text, i, length);
    i += length;
  }
  return out;
}

struct Axis {
  double low, high, step;  // data range, widened to whole steps; distance of ticks
  double from, to;         // where low and high lie in the picture
  double place(double x) const { return from + (x - low) / (high - low) * (to - from); }
};

// Ticks at 1, 2 or 5 times a power of ten, about `wanted` of them.
Axis nice_axis(double low, double high, int wanted, double from, double to) {
  if (!(high > low)) high = low + std::max(1.0, std::fabs(low) * 0.1);
  double raw = (high - low) / wanted, power = std::pow(10.0, std::floor(std::log10(raw))), share = raw / power;
  double step = power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
  return {std::floor(low / step) * step, std::ceil(high / step) * step, step, from, to};
}

std::string ticks(const Axis& x, const Axis& y) {
  std::string out;
  int count = static_cast<int>(std::lround((x.high - x.low) / x.step));
  for (int i = 0; i <= count; ++i) {
    double value = x.low + i * x.step, at = x.place(value);
    out += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#eee\"/>\n", at,
                       y.to, y.from);
    out +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.10g}</text>\n", at, y.from + 20, value);
  }
  count = static_cast<int>(std::lround((y.high - y.low) / y.step));
  for (int i = 0; i <= count; ++i) {
    double value = std::round((y.low + i * y.step) / y.step) * y.step, at = y.place(value);
    out += fmt::format("<line x1=\"{1:.1f}\" y1=\"{0:.1f}\" x2=\"{2:.1f}\" y2=\"{0:.1f}\" stroke=\"#ddd\"/>\n", at,
                       x.from, x.to);
    out +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.6g}</text>\n", x.from - 8, at + 4, value);
  }
  return out;
}

std::string series(const std::vector<LossPoint>& points, const Axis& x, const Axis& y, const char* color, double width,
                   bool marks) {
  std::string out, line;
  int in_line = 0;
  auto end_line = [&] {
    if (in_line > 1)
      out += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"/>\n", line, color,
                         width);
    line.clear();
    in_line = 0;
  };
  for (const LossPoint& p : points) {
    if (!std::isfinite(p.loss)) {
      end_line();
      continue;
    }
    double px = x.place(static_cast<double>(p.step)), py = y.place(static_cast<double>(p.loss));
    line += fmt::format("{}{:.1f},{:.2f}", in_line > 0 ? " " : "", px, py);
    ++in_line;
    if (marks || points.size() == 1)
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.2f}\" r=\"3\" fill=\"{}\"/>\n", px, py, color);
  }
  end_line();
  return out;
}

std::string legend(const LossCurve& curve) {
  std::string out;
  double at = kTop + 20;
  auto entry = [&](const std::vector<LossPoint>& points, const char* what, const char* color) {
    auto last = std::find_if(points.rbegin(), points.rend(), [](const LossPoint& p) { return std::isfinite(p.loss); });
    if (last == points.rend()) return;
    double left = kWidth - kRight - 220;
    out += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\" stroke=\"{3}\" stroke-width=\"3\"/>\n", left,
        at, left + 30, color);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}, last {:.4f}</text>\n", left + 38, at + 4, what, last->loss);
    at += 22;
  };
  entry(curve.train, "train", kTrainColor);
  entry(curve.validation, "validation", kValidationColor);
  return out;
}

}  // namespace

std::string curve_svg(const LossCurve& curve) {
  double low = INFINITY, high = -INFINITY, first = INFINITY, last = -INFINITY;
  for (const std::vector<LossPoint>* points : {&curve.train, &curve.validation}) {
    for (const LossPoint& p : *points) {
      if (!std::isfinite(p.loss)) continue;
      low = std::min(low, static_cast<double>(p.loss)), high = std::max(high, static_cast<double>(p.loss));
      first = std::min(first, static_cast<double>(p.step)), last = std::max(last, static_cast<double>(p.step));
    }
  }
  if (!(low <= high)) low = 0, high = 1, first = 0, last = 1;  // nothing to show: empty axes
  Axis x = nice_axis(first, last, 8, kLeft, kWidth - kRight), y = nice_axis(low, high, 7, kHeight - kBottom, kTop);
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"13\" fill=\"#333\">\n<title>{2}</title>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n"
      "<text x=\"{3}\" y=\"34\" font-size=\"18\" text-anchor=\"middle\">{2}</text>\n",
      kWidth, kHeight, escape(curve.title), kWidth / 2);
  out += ticks(x, y);
  out += fmt::format("<path d=\"M{0} {1} V{2} H{3}\" fill=\"none\" stroke=\"#333\"/>\n", kLeft, kTop, kHeight - kBottom,
                     kWidth - kRight);
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>\n", (kLeft + kWidth - kRight) / 2,
                     kHeight - 24);
  out += fmt::format("<text transform=\"translate(24 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                     (kTop + kHeight - kBottom) / 2, escape(curve.y_label));
  out += series(curve.train, x, y, kTrainColor, 1.2, false);
  out += series(curve.validation, x, y, kValidationColor, 2, true);
  return out + legend(curve) + "</svg>\n";
}

void write_curve(const std::string& path, const LossCurve& curve) {
  AtomicFile file(path);
  file.write(curve_svg(curve));
  file.commit();
}

}  // namespace coda
