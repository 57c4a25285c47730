// One program whose operands and tiles are segments: tensors that lie beside or below one another in one larger tensor,
// in and out. Used by the tests of the CPU backend.
#pragma once

#include "cpu_run.h"

namespace cpu_run {

// Tensors of one dtype in one tensor: below one another (row ranges) or side by side (column ranges).
struct Stack {
  std::vector<std::string> names;
  bool side_by_side = false;
};

class StackedRun {
 public:
  StackedRun(const coda::Program& p, const Arrays& inputs, const Sizes& sizes, const std::vector<Stack>& stacks,
             const Setup& setup)
      : program_(p), inputs_(inputs), sizes_(sizes), rig_(p, inputs, sizes, setup) {
    for (const Stack& s : stacks) place(s, setup.layout);
  }

  Arrays run() {
    Arrays out = rig_.run(inputs_);  // writes the tensors that stand alone
    coda::Bindings b = rig_.bindings();
    for (Placed& s : placed_) {
      s.tensor.write(s.before);
      for (const auto& [name, view] : s.views) b[name] = view;
    }
    rig_.executable().poison();
    rig_.executable().run(b);
    for (const coda::Output& o : program_.graph().outputs()) out[o.name] = rig_.tensor(o.name).read();
    for (Placed& s : placed_) {
      CHECK(s.tensor.guards_intact());
      Array all = s.tensor.read();
      for (const auto& [name, at] : s.first)
        if (program_.graph().find_output(name) != nullptr) out[name] = part(all, name, at, s.side_by_side);
    }
    return out;
  }

 private:
  struct Placed {
    Tensor tensor;
    Array before;
    bool side_by_side;
    std::map<std::string, coda::TensorView> views;
    std::map<std::string, std::int64_t> first;
  };

  coda::ValueId value(const std::string& name) const {
    const coda::Input* in = program_.graph().find_input(name);
    return in != nullptr ? in->value : program_.graph().find_output(name)->value;
  }
  DType dtype(const std::string& name) const {
    const coda::Input* in = program_.graph().find_input(name);
    return in != nullptr ? in->dtype : program_.graph().find_output(name)->dtype;
  }
  Array shape(const std::string& name) const {
    const coda::Type& t = program_.graph().value(value(name)).type;
    return Array(t.rows.eval(sizes_), 1, t.width().eval(sizes_), std::numeric_limits<double>::quiet_NaN());
  }
  Array part(const Array& all, const std::string& name, std::int64_t at, bool side_by_side) const {
    Array a = shape(name);
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t j = 0; j < a.width(); ++j) a.at(i, j) = side_by_side ? all.at(i, at + j) : all.at(at + i, j);
    return a;
  }

  void place(const Stack& s, Layout layout) {
    std::int64_t rows = 0, cols = 0;
    std::map<std::string, std::int64_t> first;
    for (const std::string& name : s.names) {
      Array a = shape(name);
      first[name] = s.side_by_side ? cols : rows;
      rows = s.side_by_side ? a.rows : rows + a.rows;
      cols = s.side_by_side ? cols + a.width() : a.width();
    }
    Array before(rows, 1, cols);
    for (const auto& [name, at] : first) {
      auto given = inputs_.find(name);
      Array a = given == inputs_.end() ? shape(name) : given->second;
      for (std::int64_t i = 0; i < a.rows; ++i)
        for (std::int64_t j = 0; j < a.width(); ++j)
          (s.side_by_side ? before.at(i, at + j) : before.at(at + i, j)) = a.at(i, j);
    }
    Placed placed{Tensor(dtype(s.names[0]), rows, cols, layout), before, s.side_by_side, {}, first};
    for (const auto& [name, at] : first) {
      Array a = shape(name);
      coda::TensorView all = placed.tensor.view();
      placed.views[name] = s.side_by_side ? all.col_range(at, a.width()) : all.row_range(at, a.rows);
    }
    placed_.push_back(std::move(placed));
  }

  coda::Program program_;
  Arrays inputs_;
  Sizes sizes_;
  Rig rig_;
  std::vector<Placed> placed_;
};

}  // namespace cpu_run
