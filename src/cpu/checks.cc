// Checks of a run's arguments; see checks.h.
#include "cpu/checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/overlap.h"
#include "coda/error.h"
#include "ir/index_rules.h"

namespace coda::cpu {

void check_bindings(const Plan& plan, const Sizes& sizes, const Bindings& bindings) {
  std::vector<std::string> known;
  for (const Buffer& b : plan.buffers())
    if (b.role != BufferRole::kTemp) known.push_back(b.name);
  for (const auto& [name, view] : bindings)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error({name, "no such tensor", fmt::format("{}", fmt::join(known, ", ")), ""});
  struct Bound {
    const Buffer* buffer;
    const TensorView* view;
  };
  std::vector<Bound> all;
  for (const Buffer& b : plan.buffers()) {
    if (b.role == BufferRole::kTemp) continue;
    auto it = bindings.find(b.name);
    if (it == bindings.end())
      throw Error({b.name, "missing", "a tensor for every input and output", "Bind it by this name."});
    const TensorView& v = it->second;
    std::int64_t rows = b.rows.eval(sizes), cols = b.cols.eval(sizes);
    if (v.dtype != b.dtype)
      throw Error({b.name, std::string(name(v.dtype)), std::string(name(b.dtype)),
                   "Convert it, or prepare the plan for this dtype."});
    if (v.rows != rows || v.cols != cols)
      throw Error({b.name, fmt::format("[{},{}]", v.rows, v.cols),
                   fmt::format("[{},{}] = [{},{}]", rows, cols, b.rows.str(), b.cols.str()), ""});
    check_view(b.name, v, b.role != BufferRole::kInput);
    all.push_back({&b, &v});
  }
  for (const Bound& out : all) {
    if (out.buffer->role == BufferRole::kInput) continue;
    for (const Bound& other : all)
      if (other.buffer != out.buffer && !out.view->empty() && !other.view->empty() &&
          views_overlap(*out.view, *other.view))
        throw Error({out.buffer->name, "memory that overlaps " + other.buffer->name,
                     "outputs apart from every other tensor", "Give it a buffer of its own."});
  }
}

void check_indices(const std::string& called, const TensorView& index, const std::string& of, std::int64_t bound,
                   const std::vector<std::int64_t>& ignored) {
  for (std::int64_t r = 0; r < index.rows; ++r)
    check_index(called, of, bound, ignored, r, static_cast<const std::int32_t*>(index.data)[index.offset(r, 0)]);
}

}  // namespace coda::cpu
