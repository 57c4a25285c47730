// Merging of partial results; see partials.h.
#include "cpu/partials.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "coda/error.h"

namespace coda::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

float as_float(std::int32_t i) { return std::bit_cast<float>(i); }
std::int32_t as_int(float f) { return std::bit_cast<std::int32_t>(f); }
bool beats(float value, std::int32_t index, float best, std::int32_t best_index) {
  if (index < 0) return false;
  if (best_index < 0) return true;
  if (std::isnan(value) || std::isnan(best)) return std::isnan(value) && (!std::isnan(best) || index < best_index);
  return value > best || (value == best && index < best_index);
}

// What a line has gathered so far.
struct Line {
  float a, b, c;
  std::int64_t count;
};

Line identity(Op op) {
  switch (op) {
    case Op::kReduceMax: return {-kInf, 0, 0, 0};
    case Op::kArgmax: return {-kInf, as_float(-1), 0, 0};
    case Op::kLogsumexp: return {-kInf, 0, 0, 0};
    default: return {0, 0, 0, 0};
  }
}

// exp(x − m) with the convention that nothing is left of −inf.
float shifted(float x, float m) { return x == -kInf ? 0 : std::exp(x - m); }

void merge_into(Op op, Line& to, const Line& from) {
  switch (op) {
    case Op::kReduceSum: to.a += from.a; break;
    case Op::kReduceMax:
      if (std::isnan(from.a) || from.a > to.a) to.a = std::isnan(to.a) ? to.a : from.a;
      break;
    case Op::kArgmax:
      if (beats(from.a, as_int(from.b), to.a, as_int(to.b))) to = from;
      break;
    case Op::kLogsumexp: {
      float m = std::isnan(to.a) || std::isnan(from.a) ? to.a + from.a : std::max(to.a, from.a);
      float x = shifted(to.a, m), y = shifted(from.a, m);
      to.b = to.b * x + from.b * y;
      to.c = to.c * x + from.c * y;
      to.a = m;
      break;
    }
    case Op::kMoments: {  // Chan
      if (from.count == 0) break;
      float n_a = static_cast<float>(to.count), n_b = static_cast<float>(from.count), n = n_a + n_b;
      float delta = from.a - to.a;
      to.a += delta * (n_b / n);
      to.b += from.b + delta * delta * (n_a * n_b / n);
      to.count += from.count;
      break;
    }
    default: throw InternalError(__FILE__, __LINE__, "no merge for a reduction");
  }
}

// The results of a line, as the op table defines them.
void write(const Reduction& r, const Line& line, std::int64_t at, const std::vector<float*>& out) {
  auto put = [&](std::size_t which, float x) { out[which][at] = x; };
  put(0, line.a);
  if (r.op == Op::kArgmax || r.op == Op::kMoments) put(1, line.b);
  if (r.op == Op::kLogsumexp) {
    put(1, line.b == 0 ? -kInf : std::log(line.b));
    if (r.has_payload) put(2, line.b == 0 ? 0 : line.c / line.b);
  }
}

}  // namespace

int parts_of(Op op, bool has_payload) {
  switch (op) {
    case Op::kArgmax:
    case Op::kMoments: return 2;
    case Op::kLogsumexp: return has_payload ? 3 : 2;
    default: return 1;
  }
}

PartialShare::PartialShare(const Reduction& r, std::int64_t lines, std::int64_t tiles, std::int64_t first_col)
    : parts_(parts_of(r.op, r.has_payload)),
      lines_(lines),
      first_col_(first_col),
      counts_(static_cast<std::size_t>(tiles), 0),
      data_(static_cast<std::size_t>(tiles * parts_ * lines)) {}

void PartialShare::poison() { std::fill(data_.begin(), data_.end(), std::numeric_limits<float>::quiet_NaN()); }

void merge(const Reduction& r, const std::vector<PartialShare*>& shares, const std::vector<float*>& out) {
  int parts = parts_of(r.op, r.has_payload);
  auto read = [&](PartialShare& s, std::int64_t tile, std::int64_t line) {
    Line from{s.part(tile, 0)[line], parts > 1 ? s.part(tile, 1)[line] : 0, parts > 2 ? s.part(tile, 2)[line] : 0,
              s.count(tile)};
    return from;
  };
  bool along_m = r.axis == Axis::kM;
  std::int64_t lines = along_m ? r.width : r.rows;
  std::vector<Line> gathered(static_cast<std::size_t>(lines), identity(r.op));
  for (PartialShare* s : shares)
    for (std::int64_t tile = 0; tile < s->tiles(); ++tile)
      for (std::int64_t line = 0; line < s->lines(); ++line)
        merge_into(r.op, gathered[static_cast<std::size_t>(along_m ? s->first_col() + line : line)],
                   read(*s, tile, line));
  if (r.axis == Axis::kMN) {
    Line all = identity(r.op);
    for (const Line& line : gathered) merge_into(r.op, all, line);
    write(r, all, 0, out);
    return;
  }
  for (std::int64_t line = 0; line < lines; ++line) write(r, gathered[static_cast<std::size_t>(line)], line, out);
}

}  // namespace coda::cpu
