// What is timed; see cases.h.
#include "cuda/bench/cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "coda/error.h"
#include "plan/program_library.h"

namespace coda::cuda {
namespace {

constexpr std::int64_t kHead = 128, kVocabulary = 32768;

const std::vector<ProgramCase>& the_ten() {
  static const std::vector<ProgramCase> cases = {{"P0", "residual_rmsnorm_partial"},
                                                 {"P1", "rmsnorm_linear"},
                                                 {"P2", "rmsnorm_swiglu"},
                                                 {"P3", "rope"},
                                                 {"P4", "rmsnorm_rope"},
                                                 {"P5", "rmsnorm_cross_entropy"},
                                                 {"P6", "residual_rmsnorm_backward"},
                                                 {"P7", "swiglu_backward"},
                                                 {"P8", "swiglu"},
                                                 {"P9", "cross_entropy"}};
  return cases;
}

std::int64_t rounded_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

}  // namespace

std::vector<ProgramCase> program_cases(const std::vector<std::string>& words) {
  std::vector<ProgramCase> cases;
  for (const std::string& word : words) {
    if (word == "all") {
      cases.insert(cases.end(), the_ten().begin(), the_ten().end());
      continue;
    }
    auto it = std::find_if(the_ten().begin(), the_ten().end(),
                           [&](const ProgramCase& c) { return c.label == word || c.program == word; });
    std::vector<std::string> names = library_names();
    if (it != the_ten().end())
      cases.push_back(*it);
    else if (std::find(names.begin(), names.end(), word) != names.end())
      cases.push_back({"", word});
    else
      throw Error({"--programs", "'" + word + "'", "all, P0 … P9, or the name of a file in programs/", ""});
  }
  return cases;
}

Sizes cube_sizes(const Program& p, std::int64_t n) {
  Sizes sizes;
  const bool two_products = p.accumulators().size() == 2;
  for (const std::string& s : p.expanded().free_sizes()) {
    if (s == "hd")
      sizes[s] = kHead;
    else if (s == "H")  // q half of the columns, k and v a quarter each
      sizes[s] = std::max<std::int64_t>(n / kHead / 2, 1);
    else if (s == "G")
      sizes[s] = std::max<std::int64_t>(n / kHead / 4, 1);
    else if (s == "F" && two_products)
      sizes[s] = n / 2;
    else if (s == "V")
      sizes[s] = kVocabulary;
    else
      sizes[s] = n;
  }
  return sizes;
}

LayerShape llama_shape(std::int64_t d) {
  if (d <= 0 || d % kHead != 0) throw Error({"--d", fmt::format("{}", d), "multiples of 128", ""});
  return {d, rounded_up((8 * d + 2) / 3, 256), d / kHead};
}

std::vector<GemmShape> layer_gemms(std::int64_t tokens) {
  std::vector<GemmShape> shapes;
  for (std::int64_t d : {2048, 4096, 8192}) {
    std::int64_t ff = llama_shape(d).ff;
    for (auto [n, k] : {std::pair{3 * d, d}, std::pair{2 * ff, d}, std::pair{d, ff}}) {
      GemmShape s;
      s.m = tokens;
      s.n = n;
      s.k = k;
      shapes.push_back(s);
    }
  }
  return shapes;
}

}  // namespace coda::cuda
